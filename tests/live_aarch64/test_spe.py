"""SPE recorded from the simulated arm_spe_0: filters, damage, privileges, and perf beside tdprof."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from live_aarch64.aux_slots import ADDRESS, read_slots, read_spans
from live_aarch64.machine import run_tdprof
from live_aarch64.neoverse_sim import (
    COLLIDE,
    GARBAGE,
    Simulation,
)

Simulate = Callable[..., Simulation]
EVENT_RETIRED, EVENT_L1D_REFILL, EVENT_MISPREDICTED = 1 << 1, 1 << 3, 1 << 7


def record_spe(options: str, capture: Path, *command: object, user: str | None = None) -> np.ndarray:
    """Record SPE beside page faults, which cost next to nothing; the slots."""
    run_tdprof(
        "record", "--no-bpf", "-e", "page-faults:u", f"--spe={options}", "-o", capture, "--", *command, user=user
    )
    return read_slots(capture)


@pytest.mark.needs_spe
def test_same_shares_as_perf(simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path) -> None:
    simulate()
    command = [workload, "-w", "hcl", "-n", "300"]
    slots = record_spe("period=4096,u", tmp_path / "capture", *command)
    event = "arm_spe_0/ts_enable=1,jitter=1/u"
    subprocess.run(
        ["perf", "record", "-q", "-o", tmp_path / "perf.data", "-e", event, "-c", "4096", *command], check=True
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
        assert abs(shares[0] - shares[1]) < 4 * error, name
    assert len(ours) == pytest.approx(len(theirs), rel=0.02)


@pytest.mark.needs_spe
def test_garbage_and_collisions_do_not_stop_recording(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    simulation = simulate()
    command = [workload, "-w", "hc", "-n", 40]
    simulation.inject(GARBAGE, after_records=100, amount=64)
    damaged = record_spe("period=1024,u", tmp_path / "garbage", *command)
    simulation.inject(COLLIDE, after_records=0, amount=1000)
    collided = record_spe("period=1024,u", tmp_path / "collided", *command)
    assert len(damaged) > 4000
    assert any(flags & 0x08 for flags in read_spans(tmp_path / "collided")["flags"].to_list())
    assert len(damaged) - 1500 < len(collided) < len(damaged) - 500


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
