"""Whose an SPE record is: programs and threads without context packets that name them; and with little memory."""

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from live_aarch64.conftest import build_workload, symbols_of
from live_aarch64.machine import HANGS_S, run_tdprof, wait_until
from live_aarch64.neoverse_sim import DEVICE, Region, Simulation, start_of, write_regions
from tdprof.cli import main as tdprof_main
from tdprof.recorder import spe_options

Simulate = Callable[..., Simulation]


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workload once more, at addresses where the first has nothing: a record of the wrong process is seen."""
    return build_workload(tmp_path_factory.mktemp("other"), "-Wl,-Ttext-segment=0x20000000")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an ordinary user may write."""
    path = tmp_path_factory.mktemp("of-the-user")
    for each in (path, path.parent, path.parent.parent):
        each.chmod(0o777)
    return path


def spe_report(capture: Path, by: str = "function") -> dict[str, Any]:
    text = io.StringIO()
    with redirect_stdout(text):
        tdprof_main.cli.main(["report", str(capture), "--spe", "--by", by, "--json"], standalone_mode=False)
    found: dict[str, Any] = json.loads(text.getvalue())
    return found


def operations(found: Mapping[str, Any]) -> dict[str, int]:
    return {row["name"]: row["counts"]["operations"] for row in found["rows"]}


def two_programs(folder: Path, workload: Path, other: Path) -> list[str]:
    """A command in which two programs take turns on one CPU."""
    regions = write_regions(folder / "regions", [Region()] * 2)
    first = f"taskset -c 0 {workload} -r {regions} -w h -n 200"
    return ["sh", "-c", f"{first} & taskset -c 0 {other} -r {regions} -w c -n 600 & wait"]


AS_USER = ("setpriv", "--reuid", "user", "--regid", "user", "--init-groups")
OPTIONS = ("--no-bpf", "-e", "page-faults:u", "--spe=period=4096,u")


def check_both(simulation: Simulation, capture: Path, workload: Path, other: Path) -> list[str]:
    """The report says of each program what the module wrote, which it counts by address; returns the report's notes."""
    found = spe_report(capture)
    by_function = operations(found)
    for name, program in (("hot", workload), ("cold", other)):
        written = simulation.truth(symbols_of(program)[name]).records
        assert written > 4_000
        assert by_function.get(name, 0) == written, (name, by_function, found["notes"])
    assert "[no mapping]" not in by_function
    notes: list[str] = found["notes"]
    return notes


@pytest.mark.needs_spe
def test_two_programs_of_an_ordinary_user(
    simulate: Simulate, workload: Path, other: Path, paranoid: Callable[[int], None], folder: Path
) -> None:
    """The kernel swaps the contexts that both inherited, and one span of AUX bytes holds the records of both."""
    simulation = simulate()
    paranoid(2)
    DEVICE.chmod(0o666)
    command = two_programs(folder, workload, other)
    run_tdprof("record", *OPTIONS, "-o", folder / "capture", "--", *command, user="user")
    notes = check_both(simulation, folder / "capture", workload, other)
    assert any("context switches" in note for note in notes), notes


@pytest.mark.needs_spe
def test_two_programs_on_a_kernel_without_context_packets(
    simulate: Simulate, workload: Path, other: Path, tmp_path: Path
) -> None:
    """Root has none there either (Debian's 5.10 is such a kernel)."""
    simulation = simulate(context_packets=0)
    run_tdprof("record", *OPTIONS, "-o", tmp_path / "capture", "--", *two_programs(tmp_path, workload, other))
    notes = check_both(simulation, tmp_path / "capture", workload, other)
    assert any("context switches" in note for note in notes), notes


@pytest.mark.needs_spe
def test_two_programs_in_a_pid_namespace(simulate: Simulate, workload: Path, other: Path, tmp_path: Path) -> None:
    """Context packets hold the initial namespace's ids, the side-band those of the recorder's."""
    simulation = simulate()
    command = two_programs(tmp_path, workload, other)
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "tdprof", "record", *OPTIONS]
    subprocess.run(
        [*inside, "-o", tmp_path / "capture", "--", *command], check=True, capture_output=True, timeout=HANGS_S
    )
    notes = check_both(simulation, tmp_path / "capture", workload, other)
    assert any("another PID namespace" in note for note in notes), notes


def has_threads(process: subprocess.Popen[bytes], count: int) -> bool:
    return len(os.listdir(f"/proc/{process.pid}/task")) >= count


@pytest.mark.needs_spe
def test_a_process_of_many_threads_shares_a_buffer_on_each_cpu(
    simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path
) -> None:
    """Fifty threads that move between the CPUs, attached to while they run."""
    simulation = simulate()
    regions = write_regions(tmp_path / "regions", [Region()] * 2)
    with subprocess.Popen(
        ["nice", "-n", "19", workload, "-r", regions, "-w", "hc", "-t", "49", "-n", "1000000"]
    ) as running:
        try:
            wait_until(partial(has_threads, running, 50), running)
            run_tdprof("record", *OPTIONS, "-o", tmp_path / "capture", "-p", running.pid, "--duration", "0.3")
        finally:
            running.kill()
    by_function = operations(spe_report(tmp_path / "capture"))
    for name in ("hot", "cold"):
        assert by_function[name] == simulation.truth(symbols[name]).records > 100
    assert len(list((tmp_path / "capture/spe").glob("*.aux"))) <= (os.cpu_count() or 1)


@pytest.mark.needs_bpf
@pytest.mark.needs_spe
def test_threads_that_are_too_many_share_the_events_of_cpus(
    simulate: Simulate,
    workload: Path,
    other: Path,
    symbols: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A shell that starts a program of fifty threads once it is recorded; another program runs beside it."""
    simulation = simulate(context_packets=1)
    monkeypatch.setattr(spe_options, "MOST_TASK_EVENTS", 1)
    regions = write_regions(tmp_path / "regions", [Region()] * 2)
    capture = tmp_path / "capture"
    recorded = f"while ! test -e {capture}/capture.json; do sleep 0.1; done"
    with contextlib.ExitStack() as stack:
        beside = f"{recorded}; exec {other} -r {regions} -w hc -n 300"
        stack.callback(stack.enter_context(subprocess.Popen(["sh", "-c", beside])).kill)
        script = f"{recorded}; {workload} -r {regions} -w hc -t 49 -n 8"
        shell = stack.enter_context(subprocess.Popen(["sh", "-c", script]))
        stack.callback(shell.kill)
        words = ["record", "-e", "page-faults:u", "--spe=period=4096,u", "-o", str(capture), "-p", str(shell.pid)]
        tdprof_main.cli.main(words, standalone_mode=False)
    by_function = operations(spe_report(capture))
    for name in ("hot", "cold"):
        assert by_function[name] == simulation.truth(symbols[name]).records > 1_000
    assert simulation.truth(symbols_of(other)["hot"]).records > 0
    notes = json.loads((capture / "capture.json").read_text())["notes"]
    assert any(note.startswith("SPE records whole CPUs") for note in notes), notes
    assert any("SPE records of other programs were not kept" in note for note in notes), notes


@pytest.mark.needs_spe
def test_two_processes_are_told_apart_until_the_end(
    simulate: Simulate, workload: Path, other: Path, paranoid: Callable[[int], None], folder: Path
) -> None:
    """They go on when the recording ends, and stopping the events of fifty threads takes its time."""
    simulation = simulate()
    paranoid(2)
    DEVICE.chmod(0o666)
    regions = write_regions(folder / "regions", [Region()] * 2)
    with contextlib.ExitStack() as stack:
        running = []
        for program, function in ((workload, "h"), (other, "c")):
            words = [str(program), "-r", str(regions), "-w", function, "-t", "24", "-n", "1000000"]
            running.append(stack.enter_context(subprocess.Popen([*AS_USER, "nice", "-n", "19", *words])))
            stack.callback(running[-1].kill)
        for each in running:
            wait_until(partial(has_threads, each, 25), each)
        pids = ",".join(str(each.pid) for each in running)
        run_tdprof("record", *OPTIONS, "-o", folder / "capture", "-p", pids, "--duration", "0.3", user="user")
    by_function = operations(spe_report(folder / "capture"))
    for name, program in (("hot", workload), ("cold", other)):
        assert by_function[name] == simulation.truth(symbols_of(program)[name]).records > 1_000
    assert "[no mapping]" not in by_function


@pytest.mark.needs_spe
def test_locked_memory_that_is_short_makes_smaller_buffers(
    simulate: Simulate, workload: Path, symbols: dict[str, int], paranoid: Callable[[int], None], folder: Path
) -> None:
    """Nothing is left of an ordinary user's memory for SPE once the side-band has its share."""
    simulation = simulate()
    paranoid(2)
    DEVICE.chmod(0o666)
    regions = write_regions(folder / "regions", [Region()])
    program = f"{workload} -r {regions} -w h -n 60"
    command = f"ulimit -l 64; tdprof record {' '.join(OPTIONS)} -o {folder / 'capture'} -- {program}"
    done = subprocess.run(
        [*AS_USER, "sh", "-c", command],
        capture_output=True, text=True, check=False, timeout=HANGS_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "locked memory is short" in done.stderr
    assert operations(spe_report(folder / "capture"))["hot"] == simulation.truth(symbols["hot"]).records > 1_000


@pytest.mark.needs_spe
def test_a_rate_holds_by_standing_still(
    simulate: Simulate, workload: Path, symbols: dict[str, int], tmp_path: Path
) -> None:
    """A megabyte a second where twenty come: most of the time SPE stands still, says so, and loses nothing else."""
    rounds, period = 8000, 4096
    simulation = simulate()
    regions = write_regions(tmp_path / "regions", [Region()])
    options = ("--no-bpf", "-e", "page-faults:u", f"--spe=period={period},rate=1M,u", "-o", tmp_path / "capture")
    run_tdprof("record", *options, "--", workload, "-r", regions, "-w", "h", "-n", rounds)
    found = spe_report(tmp_path / "capture")
    written = simulation.truth(symbols["hot"]).records
    assert operations(found)["hot"] == written > 1_000
    # `hot` executes 150,000 instructions a round. Sampling goes on for what little time a drain takes.
    assert written < 0.75 * rounds * 150_000 / period
    manifest = json.loads((tmp_path / "capture/capture.json").read_text())
    assert any("SPE stood still" in note for note in manifest["notes"]), manifest["notes"]


@pytest.mark.needs_spe
def test_a_position_independent_program(
    simulate: Simulate, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """Its addresses are others in each run; what is declared of its file holds in all."""
    simulation = simulate()
    program = build_workload(tmp_path_factory.mktemp("independent"), "-pie", "-fPIE")
    simulation.declare(program, {"hot": Region(), "cold": Region()})
    run_tdprof("record", *OPTIONS, "-o", tmp_path / "capture", "--", program, "-w", "hc", "-n", 100)
    by_function = operations(spe_report(tmp_path / "capture"))
    for name in ("hot", "cold"):
        written = simulation.truth(start_of(program, name)).records
        assert by_function[name] == written > 1_000
