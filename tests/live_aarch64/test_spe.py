"""SPE recorded from the simulated arm_spe_0: filters, damage, privileges, and perf beside tdprof."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from live_aarch64.aux_slots import ADDRESS, BRANCH, in_function, is_load, is_store, read_slots, read_spans
from live_aarch64.machine import ALONE, HANGS_S, run_tdprof, wait_until
from live_aarch64.neoverse_sim import (
    COLLIDE,
    DRAM,
    GARBAGE,
    L1,
    LOSE,
    SOURCE_CODES,
    TRUNCATE,
    Region,
    Simulation,
    write_regions,
)
from tdprof.capture.manifest import read_manifest

Simulate = Callable[..., Simulation]
EVENT_RETIRED, EVENT_L1D_REFILL, EVENT_MISPREDICTED = 1 << 1, 1 << 3, 1 << 7


def record_spe(options: str, capture: Path, *command: object, user: str | None = None) -> np.ndarray:
    """Record SPE beside page faults, which cost next to nothing; the slots.

    On one CPU with the recorder: what that does on another, the emulator's one clock would count for the command.
    """
    words = ("record", "--no-bpf", "-e", "page-faults:u", f"--spe={options}", "-o", capture, "--", *command)
    run_tdprof(*words, user=user, before=ALONE)
    return read_slots(capture)


@pytest.mark.needs_spe
def test_filters_filter(simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path) -> None:
    simulation = simulate()
    regions = [Region(), Region(), Region(sources={L1: (3, 4), DRAM: (1, 200)}), Region(), Region(mispredict_share=0.5)]
    command = [workload, "-r", write_regions(tmp_path / "regions", regions), "-n", 40]
    passed = {}
    kinds = {
        "all": "period=1024,u",
        "load": "load,period=1024,u",
        "store": "store,period=1024,u",
        "branch": "branch,period=1024,u",
        "slow": "min_latency=100,period=1024,u",
        "refill": f"event={EVENT_L1D_REFILL:#x},period=1024,u",
        "no-refill": f"load,inv_event={EVENT_L1D_REFILL:#x},period=1024,u",
        "mispredicted": f"event={EVENT_MISPREDICTED:#x},period=1024,u",
    }
    if not Path("/sys/bus/event_source/devices/arm_spe_0/format/inv_event_filter").exists():  # before Linux 6.3
        done = run_tdprof(
            "record", f"--spe={kinds.pop('no-refill')}", "-o", tmp_path / "refused", "--", "true", check=False
        )
        assert "inv_event" in done.stderr
    for name, options in kinds.items():
        simulation.clear()
        passed[name] = record_spe(options, tmp_path / name, *command)
    everything = passed["all"]
    assert is_load(everything).any()
    assert is_store(everything).any()
    assert (everything["op_header"] == BRANCH).any()
    assert (everything["op_header"] == 0x48).any()
    assert is_load(passed["load"]).all()
    assert is_store(passed["store"]).all()
    assert (passed["branch"]["op_header"] == BRANCH).all()
    assert (passed["slow"]["total"] >= 100).all()
    assert (passed["refill"]["events"] & EVENT_L1D_REFILL).all()
    if "no-refill" in passed:
        assert not (passed["no-refill"]["events"] & EVENT_L1D_REFILL).any()
        assert is_load(passed["no-refill"]).all()
    assert (passed["mispredicted"]["op_header"] == BRANCH).all()
    # A filter takes away records, not samples: each population is as large as unfiltered, within its sampling error and
    # what a record that is not written saves of the time between two samples, which is an eighth of it at most.
    for name, count in (("load", is_load(everything).sum()), ("branch", (everything["op_header"] == BRANCH).sum())):
        assert abs(len(passed[name]) - count) < 5 * np.sqrt(len(passed[name]) + count) + count / 8, name
    # Records are of user space only, and of the instructions that the source says are there.
    assert ((everything["pc"] >> 60) == 0x8).all()
    loads = passed["load"]
    memory = symbols["memory"]
    ours = in_function(loads, symbols["loads"], symbols["stores"])
    addresses = loads["address"][ours] & ADDRESS
    assert ((addresses >= memory) & (addresses < memory + 64 * 64 + 64)).all()
    # A quarter of the loads come from DRAM; five standard deviations.
    from_dram = (loads["source"][ours] == SOURCE_CODES[DRAM]).mean()
    assert abs(from_dram - 0.25) < 5 * np.sqrt(0.25 * 0.75 / ours.sum())


@pytest.mark.needs_spe
def test_same_shares_as_perf(simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path) -> None:
    simulation = simulate()
    regions = write_regions(tmp_path / "regions", [Region()] * 3)
    command = [workload, "-w", "hcl", "-n", "300", "-r", regions]
    slots = record_spe("period=4096,u", tmp_path / "capture", *command)
    # Every record that the simulation wrote is there, once.
    assert len(np.unique(slots["timestamp"])) == len(slots)
    for name in ("hot", "cold", "loads"):
        start = symbols[name]
        assert in_function(slots, start, start + 64).sum() == simulation.truth(start).records, name
    simulation.clear()
    event = "arm_spe_0/ts_enable=1,jitter=1/u"
    subprocess.run(
        ["perf", "record", "-q", "-o", tmp_path / "perf.data", "-e", event, "-c", "4096", *map(str, command)],
        check=True,
    )
    text = subprocess.run(
        ["perf", "script", "-i", tmp_path / "perf.data", "--itrace=i1i", "-F", "ip"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    theirs = np.array([int(word, 16) for word in text.split()], dtype=np.uint64)
    ours = slots["pc"] & ADDRESS
    bounds = {"hot": (symbols["hot"], 16), "cold": (symbols["cold"], 16), "loads": (symbols["loads"], 64)}
    for name, (start, size) in bounds.items():
        shares = [((pcs >= start) & (pcs < start + size)).mean() for pcs in (ours, theirs)]
        error = np.sqrt(max(shares) * (1 / len(ours) + 1 / len(theirs)))
        assert abs(shares[0] - shares[1]) < 5 * error, name


@pytest.mark.needs_spe
def test_pages_are_the_kernels(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    """Of 4, 16 or 64 KiB, whatever this one has; docs/guest.md has one with 16."""
    simulate()
    regions = write_regions(tmp_path / "regions", [Region()] * 3)
    slots = record_spe("period=4096,u", tmp_path / "capture", workload, "-w", "hcl", "-n", 40, "-r", regions)
    addresses = slots["address"][slots["address_header"] == 0xB2] & ADDRESS
    size = os.sysconf("SC_PAGE_SIZE")
    pages, counts = np.unique(addresses // size * size, return_counts=True)
    done = run_tdprof("report", tmp_path / "capture", "--spe", "--by", "page", "--json", "--limit", 100_000)
    rows = {row["name"]: row["counts"]["operations"] for row in json.loads(done.stdout)["rows"]}
    found = {int(name, 16): count for name, count in rows.items() if name.startswith("0x")}
    assert found == dict(zip(pages.tolist(), counts.tolist(), strict=True))


@pytest.mark.needs_spe
@pytest.mark.parametrize(("kind", "flags"), [(TRUNCATE, 0x01), (LOSE, 0x05)])
def test_parked_event_goes_on(kind: int, flags: int, simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    simulation = simulate()
    command = [workload, "-w", "hc", "-n", 8000]
    simulation.inject(kind, after_records=200)
    slots = record_spe("period=4096,u", tmp_path / "capture", *command)
    spans = read_spans(tmp_path / "capture")
    assert flags in spans["flags"].to_list()
    # The driver parked the event after 200 records; the next drain, 0.9 s later at the latest, started it again.
    assert len(slots) > 2 * 200


@pytest.mark.needs_spe
def test_a_cpu_that_comes_back_is_sampled_again(
    simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path
) -> None:
    """Its AUX bytes go into a second file, since the offsets of a new buffer begin anew.

    How large the files are tells little: whatever else runs on that CPU is recorded, too. Of the workload, each has the
    records that the module wrote then.
    """
    simulation = simulate()
    switch = Path("/sys/devices/system/cpu/cpu1/online")
    regions = write_regions(tmp_path / "regions", [Region()])
    work = ["taskset", "-c", "1", str(workload), "-r", str(regions), "-w", "h", "-n", "20"]
    capture = tmp_path / "capture"
    words = ["-a", "--no-bpf", "-e", "page-faults:u", "--spe=period=4096,u", "-o", capture]
    recorder = subprocess.Popen(["taskset", "-c", "0", "tdprof", "record", *map(str, words)])

    try:
        wait_until((capture / "capture.json").exists, recorder)
        subprocess.run(work, check=True)
        before = simulation.truth(symbols["hot"]).records
        for state in ("0", "1"):
            switch.write_text(state)
            time.sleep(1)  # how long it is away, not a wait for something
        wait_until((capture / "spe/cpu1.1.aux").exists, recorder)
        for _ in range(2):
            subprocess.run(work, check=True)
        recorder.send_signal(signal.SIGINT)
        recorder.wait(HANGS_S)
    finally:
        switch.write_text("1")
        recorder.kill()
    (note,) = [note for note in read_manifest(capture).notes if "CPU 1 " in note]
    assert "came back: nothing of it was recorded for" in note
    assert "SPE" not in note
    both = simulation.truth(symbols["hot"]).records
    for buffer, written in enumerate((before, both - before)):
        slots = read_slots(capture, buffer=buffer)
        assert in_function(slots, symbols["hot"], symbols["hot"] + 64).sum() == written > 500, buffer
    report = run_tdprof("spe", "report", capture, "--json")
    assert "Traceback" not in report.stderr


@pytest.mark.needs_spe
def test_garbage_and_collisions_do_not_stop_recording(
    simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path
) -> None:
    simulation = simulate()
    regions = write_regions(tmp_path / "regions", [Region(), Region()])
    command = [workload, "-r", regions, "-w", "hc", "-n", 40]
    simulation.inject(GARBAGE, after_records=100, amount=64)
    damaged = record_spe("period=1024,u", tmp_path / "garbage", *command)
    assert len(damaged) > 4000
    simulation.clear()
    simulation.inject(COLLIDE, after_records=2000, amount=1000)
    collided = record_spe("period=1024,u", tmp_path / "collided", *command)
    assert any(flags & 0x08 for flags in read_spans(tmp_path / "collided")["flags"].to_list())
    # All that was written is there, before the collisions and after them.
    for name in ("hot", "cold"):
        written = simulation.truth(symbols[name]).records
        assert in_function(collided, symbols[name], symbols[name] + 64).sum() == written > 500, name


@pytest.mark.needs_spe
def test_an_ordinary_user_records_his_own_program(
    simulate: Simulate, workload: Path, paranoid: Callable[[int], None], tmp_path: Path
) -> None:
    simulate()
    paranoid(2)
    folder = Path("/tmp/of-the-user")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    slots = record_spe("load,period=4096", folder / "capture", workload, "-w", "l", "-n", 200, user="user")
    assert len(slots) > 20
    assert ((slots["pc"] >> 60) == 0x8).all()  # user space only
    assert (slots["context_header"] == 0).all()  # the driver tells him no thread
    refused = run_tdprof("record", "--spe=pa", "-o", folder / "second", "--", "true", user="user", check=False)
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    as_root = record_spe("load,pa,period=4096", tmp_path / "root", workload, "-w", "l", "-n", 200)
    user_space = as_root[(as_root["pc"] >> 60) == 0x8]
    # Debian's 5.10 is built without them.
    has_contexts = Path("/sys/module/neoverse_sim/parameters/context_packets").read_text().strip() == "Y"
    assert (user_space["context_header"] == (0x64 if has_contexts else 0)).all()
    assert (user_space["physical_header"] == 0xB3).mean() > 0.9


@pytest.mark.needs_spe
def test_refusals_name_the_cause(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    absent = run_tdprof("record", "--spe", "-o", tmp_path / "a", "--", "true", check=False)
    assert absent.returncode != 0
    assert "no SPE" in absent.stderr
    simulate()
    for options, words in {"event=0x4": "event", "simd": "simd_filter", "nonsense": "nonsense"}.items():
        refused = run_tdprof("record", f"--spe={options}", "-o", tmp_path / "b", "--", "true", check=False)
        assert refused.returncode != 0
        assert re.search(words, refused.stderr), refused.stderr
        assert "Traceback" not in refused.stderr
        assert not (tmp_path / "b").exists()
