"""What cannot be kept is counted: samples kept and samples lost add up to what happened."""

import contextlib
import mmap
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from builders.waiting import PATIENCE_S, wait_until
from live.recording import TDPROF, Capture, run_record, start_record
from tdprof.capture.spool import RING_FILE, SpoolWriter
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.records import open_record_stream
from tdprof.decode.spe.switches import switch_rows, switches_of
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.spe import NO_TID
from tdprof.recorder import perf_event as pe
from tdprof.recorder.chain_source import SIDE_BAND_SAMPLE_TYPE
from tdprof.recorder.event_attrs import inherited, switch_attr
from tdprof.recorder.hidden_losses import tell_hidden_losses
from tdprof.recorder.ring import PerfRing

pytestmark = pytest.mark.needs_perf

Build = Callable[[str], Path]
FAULTS = 60000


def record_while_asleep(command: list[object], folder: Path, *options: str) -> Capture:
    """Record page faults that all happen while the recorder is stopped, and cannot empty anything."""
    recorder = start_record("-e", "page-faults", "-c", "1", *options, "--", *command, folder=folder)
    try:
        assert recorder.stdin
        assert recorder.stdout
        children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children")

        def is_started() -> bool:
            return any(
                b"faults" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
                for pid in children.read_text().split()
            )

        wait_until(is_started, recorder)
        recorder.send_signal(signal.SIGSTOP)
        recorder.stdin.write("\n")
        recorder.stdin.flush()
        assert recorder.stdout.readline() == "done\n"
        recorder.send_signal(signal.SIGCONT)
        _, said = recorder.communicate(timeout=PATIENCE_S)
        assert recorder.returncode == 0, said
    finally:
        recorder.kill()
        recorder.communicate()
    return Capture(folder)


@pytest.mark.needs_bpf
def test_a_full_table_in_the_kernel(build: Build, folder: Path) -> None:
    """More different stacks than the table has rows."""
    capture = record_while_asleep([build("faults.c"), FAULTS, 1 << 16], folder)
    losses = capture.losses()
    assert losses["samples_map_full"] > 0
    assert capture.weight() + losses["samples_map_full"] == capture.total() > FAULTS


def test_a_full_ring_buffer(build: Build, folder: Path) -> None:
    capture = record_while_asleep([build("faults.c"), 4 * FAULTS, 4], folder, "--no-bpf")
    losses = capture.losses()
    assert losses["samples_ring_full"] > 0
    assert capture.weight() + losses["samples_ring_full"] == capture.total() > 4 * FAULTS
    # The one cause, and no other that is usual.
    said = subprocess.run([*TDPROF, "report", str(folder)], capture_output=True, text=True, check=True).stdout
    words = " ".join(said.split())
    assert f"{losses['samples_ring_full']:,} samples lost on the way" in words
    assert "idle" not in words
    assert "not all that is missing" not in words


@pytest.mark.needs_bpf
def test_the_same_stacks_again_and_again_are_never_lost(build: Build, folder: Path) -> None:
    """However many samples: the kernel adds them up, so a recorder that gets no time loses none."""
    capture = record_while_asleep([build("faults.c"), 4 * FAULTS, 16], folder)
    assert not capture.losses()
    assert capture.weight() == capture.total() > 4 * FAULTS


@pytest.mark.thorough
@pytest.mark.needs_bpf
def test_memory_is_small_whatever_the_length(build: Build, folder: Path) -> None:
    """What the sampling process holds, and the most it ever held, which the command reads while it is sampled."""
    script = f'for i in 1 2; do "{build("split.c")}" 2.5 >/dev/null; cat /proc/$PPID/status; done'
    result = run_record("-F", "4999", "-q", "--", "sh", "-c", script, folder=folder)
    most = re.findall(r"^VmHWM:\s+(\d+) kB$", result.stdout, re.MULTILINE)
    assert len(most) == 2, result.stderr
    assert int(most[1]) < 50 << 10
    before, later = map(int, re.findall(r"^VmRSS:\s+(\d+) kB$", result.stdout, re.MULTILINE))
    assert later < before + (1 << 10)
    assert (folder / "samples.parquet").exists()


@pytest.mark.needs_bpf
def test_llvm_is_gone_while_sampling(folder: Path) -> None:
    """Nothing but the command, and what waits to make tables, is a child of the sampling process; LLVM is nowhere."""
    # The loader hands everything over and then takes some milliseconds to end, as does who builds unwind tables.
    others = "for child in $(cat /proc/$PPID/task/$PPID/children); do [ $child = $$ ] || "
    others += "grep -qs finishing_process /proc/$child/cmdline || echo $child; done"
    ended = f'for i in $(seq 5000); do left=$({others}); [ -z "$left" ] && break; done'
    script = f"{ended}; cat /proc/$PPID/maps; echo ==; echo $left"
    result = run_record("-q", "--", "sh", "-c", script, folder=folder)
    maps, _, left = result.stdout.partition("==\n")
    assert "libLLVM" not in maps
    assert "libbcc" not in maps
    assert not left.split()
    assert result.returncode == 0, subprocess.list2cmdline(result.args)


def test_a_ring_that_stays_full_tells_who_ran_no_longer_than_it_does(tmp_path: Path) -> None:
    """Of what has no room the kernel tells with the next record, which never comes."""
    may_run_on = os.sched_getaffinity(0)
    cpu = min(may_run_on)
    with contextlib.ExitStack() as opened:
        opened.callback(os.sched_setaffinity, 0, may_run_on)
        os.sched_setaffinity(0, {cpu})
        fd = pe.perf_event_open(inherited(switch_attr()), 0, cpu)
        opened.callback(os.close, fd)
        ring = PerfRing(fd, mmap.PAGESIZE)
        opened.callback(ring.close)
        folder = opened.enter_context(OwnFolder.open(tmp_path))
        spool = opened.enter_context(SpoolWriter(folder))
        file = tmp_path / "spool" / RING_FILE.format(cpu=cpu)

        def leave_the_cpu(times: int) -> list[str]:
            for _ in range(times):
                time.sleep(1e-6)
            pe.disable(fd)
            ring.look()
            ring.drain(spool.descriptor(file.name))
            pe.enable(fd)
            return tell_hidden_losses({cpu: ring}, spool)

        assert leave_the_cpu(1) == []
        assert any("were full in the end" in note for note in leave_the_cpu(mmap.PAGESIZE // 40))
        decoder = open_record_stream([RecordLayout(SIDE_BAND_SAMPLE_TYPE)])
        decoder.feed(file.read_bytes(), final=True)
        known = switches_of([switch_rows(decoder.take_side_band().rows)])
        assert known[cpu].thread_at(np.array([2**63], np.uint64)).tolist() == [NO_TID]
        assert leave_the_cpu(1) == []  # with which the kernel has told
