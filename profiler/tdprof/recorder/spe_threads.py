"""SPE of whole CPUs, of whose records those of some threads are kept.

An SPE event that is inherited is one for each thread on each CPU: five hundred threads on 192 CPUs have 96,000. Where
context packets name threads, one for each CPU will do, and others' records are made padding before they are written.
"""

import contextlib
import itertools
import mmap
import os
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arm_spe import ColumnMemory, Kind, RecordBatch, RecordDecoder
from arm_spe.native import load_native as load_decoder
from tdprof.errors import TdprofError
from tdprof.native.library import load_native
from tdprof.native.started_threads import Started, started_threads
from tdprof.recorder import perf_event as pe
from tdprof.recorder.host import is_in_initial_pid_namespace, read_text
from tdprof.recorder.ring import AuxRing, between, write_all
from tdprof.recorder.spe_options import SpeOptions, find_spe_pmus, spe_event
from tdprof.recorder.targets import SamplingTarget, tasks_of
from tdprof.text import plural

_EVENT_BYTES = 1312  # struct perf_event, Linux 6.12
_BATCH_RECORDS = 1 << 13
_HOLE_BYTES = 4096  # what file systems leave out of a file
_FEW_THREADS = 4096  # that may have ended and are not looked for
_TRIAL_NS, _TRIAL_BYTES = 20_000_000, max(64 << 10, 4 * mmap.PAGESIZE)


class KeptThreads:
    """The threads of some processes, and all that these start, by what the side-band of all CPUs tells.

    Args:
        pids: the processes.
        tids: their threads, as far as they are known.
    """

    def __init__(self, pids: Sequence[int], tids: Iterable[int]) -> None:
        self._pids = pids
        self._tids = set(tids)
        self._numbers: NDArray[np.uint32] | None = None  # the same, sorted
        self._strangers: list[Started] = []  # of the last look, whose starter is not known
        self._ended: set[int] = set()
        self._many = _FEW_THREADS
        self._memory = ColumnMemory(_BATCH_RECORDS)
        self.kept, self.others = 0, 0  # records so far

    def begin(self) -> None:
        """Know what was started before the side-band told of it; call it once that does."""
        for pid in self._pids:
            with contextlib.suppress(TdprofError):  # it has ended
                self._tids.update(tasks_of([pid])[1])
        self._numbers = None

    def hear(self, rings: Iterable[bytes]) -> None:
        """Learn of threads from what came through the side-band's rings since the last time."""
        native = load_native()
        assert native, "choose_threads() asked"
        told = [*rings]
        if any(native.tdprof_has_aux_flags(records, len(records), 0) for records in told):  # records were lost
            self.begin()
        started = [each for records in told for each in started_threads(native, records)]
        # One ring is looked at before another: who started a thread may be seen after it.
        for each in sorted([*self._strangers, *started], key=lambda each: each.time_ns):
            if each.starter in self._tids:
                self._tids.add(each.tid)
                self._ended.discard(each.tid)
            else:  # the number may have been one of ours
                self._tids.discard(each.tid)
            self._numbers = None
        # A number that is ours by now was started once more, by one of ours.
        self._strangers = [each for each in started if not {each.starter, each.tid} & self._tids]

    def write(self, out_fd: int, ring: memoryview, start: int, size: int) -> None:
        """Append a part of an AUX area to a file, of the same size, with zeros for what is not of these threads."""
        data = bytearray(between(ring, start, start + size))
        self.keep(data)
        blocks = size // _HOLE_BYTES
        octets = np.frombuffer(data, np.uint8, blocks * _HOLE_BYTES)
        is_used = octets.reshape(blocks, _HOLE_BYTES).max(axis=1) > 0
        changes = np.flatnonzero(is_used[1:] != is_used[:-1]) + 1
        for first, last in itertools.pairwise([0, *changes.tolist(), blocks] if blocks else []):
            if is_used[first]:
                write_all(out_fd, memoryview(data)[first * _HOLE_BYTES : last * _HOLE_BYTES])
            else:
                os.ftruncate(out_fd, os.fstat(out_fd).st_size + (last - first) * _HOLE_BYTES)
        write_all(out_fd, memoryview(data)[blocks * _HOLE_BYTES :])

    def keep(self, data: bytearray) -> None:
        """Make zeros, which are SPE's padding, of the records that are not of these threads."""
        starts, of_these = [np.zeros(1, np.uint64)], [np.zeros(1, bool)]
        decoder = RecordDecoder(data, memory=self._memory)
        for batch in decoder:
            starts.append(batch["offset"].astype(np.uint64))
            of_these.append(self._are_kept(batch))
        starts.append(np.array([len(data) - decoder.counts.open_bytes], np.uint64))
        of_these.append(np.zeros(1, bool))
        is_kept = np.concatenate(of_these)
        bytes_of = np.diff(np.concatenate(starts), append=np.uint64(len(data)))
        np.frombuffer(data, np.uint8)[~np.repeat(is_kept, bytes_of.astype(np.int64))] = 0
        kept = int(is_kept.sum())
        self.kept += kept
        self.others += len(is_kept) - 2 - kept

    def _are_kept(self, batch: RecordBatch) -> NDArray[np.bool_]:
        if self._numbers is None:
            self._numbers = np.array(sorted(self._tids), np.uint32)
        has_host = batch.has(Kind.CTX2)
        tids = np.where(has_host, batch["context_el2"], batch["context_el1"])
        found: NDArray[np.bool_] = np.isin(tids, self._numbers) & (has_host | batch.has(Kind.CTX1))
        return found

    def drained(self) -> None:
        """Once all that was looked at is written: forget, where there are many, threads that had ended before it."""
        if len(self._tids) <= self._many:
            return
        self._tids -= self._ended
        self._numbers = None
        self._ended = {tid for tid in self._tids if not Path(f"/proc/{tid}").exists()}
        self._many = len(self._tids) + max(len(self._tids) - len(self._ended), _FEW_THREADS)

    def note(self) -> str:
        """What to say at the end."""
        return f"{self.others:,} SPE records of other programs were not kept"


def choose_threads(
    target: SamplingTarget, cpus: Sequence[int], pids: Sequence[int], *, is_told_per_cpu: bool, takes_turns: bool
) -> tuple[KeptThreads | None, list[str]]:
    """What to keep of SPE records of whole CPUs, and what to say of it; None: each thread has events of its own, still.

    Args:
        target: whom to sample, of more threads than `MOST_TASK_EVENTS` admits.
        cpus: that are up.
        pids: the processes that were named; none for a command.
        is_told_per_cpu: the side-band is that of CPUs.
        takes_turns: SPE is on now and then.

    Raises:
        TdprofError: events of each thread are needed, and more than the machine has memory for.
    """
    events = len(target.tasks) * len(cpus)
    size = f"{events:,} SPE events ({plural(len(target.tasks), 'thread', 's')} on {plural(len(cpus), 'CPU', 's')})"
    if takes_turns:
        why_not = "SPE by turns is of threads"
    elif not is_told_per_cpu:
        why_not = "without BPF nobody says which threads are started"
    elif not is_in_initial_pid_namespace():
        why_not = "in a PID namespace records do not name threads"
    elif not _do_records_name_threads():
        why_not = "records do not name threads here: a kernel without CONFIG_PID_IN_CONTEXTIDR"
    else:
        note = f"SPE records whole CPUs, and what is of other programs is not kept: instead of {size}"
        return KeptThreads(pids, target.tasks), [note]
    taken = events * _EVENT_BYTES * (1 if is_told_per_cpu else 2)  # with one more beside each that tells switches
    megabytes = taken / 1e6
    if taken > _available_bytes() // 4:
        raise TdprofError(
            f"{size} would take {megabytes:,.0f} MB of the kernel's memory; {why_not}",
            hint="record -a --spe, and look at the process with report --pid",
        )
    return None, [f"{size} take {megabytes:,.0f} MB of the kernel's memory; {why_not}"]


def _available_bytes() -> int:
    lines = dict(line.split(":", 1) for line in read_text("/proc/meminfo").splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) << 10


def _do_records_name_threads() -> bool:
    """Whether SPE, tried on this process, writes context packets, and into them its number."""
    pmus = find_spe_pmus()
    if not pmus or load_decoder() is None or load_native() is None:
        return False
    attr = spe_event(pmus[0], SpeOptions(modifiers="u")).attr()
    attr.sample_period = max(4096, pmus[0].caps.get("min_interval", 0))
    attr.disabled = 1
    with contextlib.ExitStack() as opened:
        try:
            fd = pe.perf_event_open(attr, 0, -1)
            opened.callback(os.close, fd)
            ring = AuxRing(fd, mmap.PAGESIZE, _TRIAL_BYTES)
        except OSError:  # somebody else has it, which is said where it is opened
            return False
        opened.callback(ring.close)
        pe.enable(fd)
        until = time.thread_time_ns() + _TRIAL_NS
        while time.thread_time_ns() < until:
            pass
        pe.disable(fd)
        mine = KeptThreads([], [threading.get_native_id()])
        ring.look()
        ring.drain_aux(-1, lambda _, area, start, size: mine.keep(bytearray(between(area, start, start + size))))
    return mine.kept > 0
