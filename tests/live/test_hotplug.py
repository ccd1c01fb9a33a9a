"""A CPU is taken offline for a moment while everything is recorded; only where root may do that."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from builders.waiting import PATIENCE_S, wait_until
from live.recording import EACH_RUNG, TDPROF, Capture, has_spooled, start_record
from tdprof.capture.manifest import read_manifest

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_root]

AWAY_S = 0.5


@pytest.fixture
def switch() -> Iterator[Path]:
    """What takes the last CPU offline and brings it back."""
    switches = sorted(Path("/sys/devices/system/cpu").glob("cpu[1-9]*/online"))
    if not switches:
        pytest.skip("no CPU of this machine can be taken offline")
    try:
        switches[-1].write_text("0")
    except OSError as error:
        pytest.skip(f"no CPU may be taken offline here: {error.strerror}")
    finally:
        switches[-1].write_text("1")
    yield switches[-1]
    switches[-1].write_text("1")


def test_stat_says_that_a_cpu_was_not_counted_to_the_end(switch: Path) -> None:
    cpu = int(switch.parent.name.removeprefix("cpu"))
    away = f"sleep 0.5; echo 0 > {switch}; sleep 0.2; echo 1 > {switch}; sleep 0.3"
    command = [*TDPROF, "stat", "-a", "-e", "cpu-clock", "--", "sh", "-c", away]
    counted = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert f"CPU {cpu} went offline: nothing of it was counted after" in counted.stderr


def opened_events(folder: Path) -> int:
    """That a running recording has said it reads."""
    return sum(map(len, read_manifest(folder).record_ids))


def processor_s(pid: int) -> float:
    """What a process has used of a CPU, user and system time (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("options", EACH_RUNG)
def test_a_cpu_that_comes_back_is_recorded_again(switch: Path, folder: Path, options: list[str]) -> None:
    cpu = int(switch.parent.name.removeprefix("cpu"))
    recorder = start_record("-a", "-e", "cpu-clock:u", "-c", "1000000", *options, folder=folder)
    spin = "import time\nwhile True: pass"
    try:
        wait_until(lambda: has_spooled(folder) or any((folder / "spool").glob("ring.*.perf")), recorder)
        before = opened_events(folder)
        switch.write_text("0")
        time.sleep(AWAY_S)  # how long it is away, not a wait for something
        switch.write_text("1")
        # Pinned, so that its samples can only come from the CPU that was away.
        with subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", spin]) as busy:
            try:
                wait_until(lambda: opened_events(folder) > before, recorder)
                begun = processor_s(busy.pid)
                wait_until(lambda: processor_s(busy.pid) > begun + 1, recorder)
            finally:
                busy.kill()
    finally:
        recorder.terminate()
        _, said = recorder.communicate(timeout=PATIENCE_S)
    capture = Capture(folder)
    (note,) = [note for note in capture.manifest["notes"] if f"CPU {cpu} " in note]
    assert "came back: nothing of it was recorded for" in note
    gap_s = float(note.split(" for ")[1].split(" s")[0])
    assert AWAY_S <= gap_s < PATIENCE_S
    samples = pq.read_table(folder / "samples.parquet", columns=["tid", "weight"]).to_pylist()
    assert sum(row["weight"] for row in samples if row["tid"] == busy.pid) > 0.2e9, said
