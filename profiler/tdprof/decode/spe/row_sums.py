"""SPE records of an input added up by rows of a report; spans on all cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from arm_spe import ColumnMemory, DecodeCounts, Kind, RecordBatch, RecordDecoder
from arm_spe.native import NotCompiledError, need_native
from arm_spe.tallied import NO_ROW, Tallied, TallyPart, lane_of, rows_of
from arm_spe.tally import Key, Lane, Place, Rules, Tally, operation_lanes
from arm_spe.times import StageTurns, Times
from tdprof.decode.spe.clock import time_ns, timer_lines
from tdprof.decode.spe.data_sources import encoding_of, fill_source_rules
from tdprof.decode.spe.spans import MOST_WORKERS, AuxSpan, SpeInput
from tdprof.errors import TdprofError
from tdprof.model.arrays import I64, U64
from tdprof.model.spe import NO_TID, ONE_STAGE
from tdprof.values import dataclass

LINE_BYTES = 64
_MOST_ROWS = 1 << 18  # of all threads; where there are more, one goes on alone, so that memory is not taken for each
_CACHED_RECORDS = 1 << 8  # of columns that stay in the CPU's first cache
_SHARED_BATCH_RECORDS = 1 << 15  # of batches that another reader groups in Arrow, whose cost is per batch
_MOST_OWNERS = 1 << 12  # of spans: CPUs or threads, of which a file may name millions
_CONTEXT, _BUFFER, _SWITCHES = "context packets", "the buffer's owner", "context switches"
NOTHING = "nothing"
"""In `Counted.threads_from`: nothing told the thread."""
_ORIGINS = (_CONTEXT, _BUFFER, _SWITCHES, NOTHING)
_HAS_CONTEXT = np.uint32(1 << Kind.CTX1 | 1 << Kind.CTX2)


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What makes two records the same group.

    Attributes:
        key: which keys; of Key.CODE the second is the thread with its stage, as `Stages.stamp` numbers them.
        block_bytes: of Key.ADDRESS: size of a block of memory, a power of two.
    """

    key: Key
    block_bytes: int = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """Records added up.

    Attributes:
        counters: of each thread, by row.
        counts: how the bytes were spent.
        threads_from: records by what told their thread.
    """

    counters: Sequence[TallyPart]
    counts: DecodeCounts
    threads_from: dict[str, int]

    @property
    def operations(self) -> U64:
        """uint64[rows]: records of each row."""
        return lane_of(self.counters, Lane.OPERATIONS)

    def has_any(self) -> NDArray[np.bool_]:
        """bool[lanes]: whether any record counts for that."""
        found: NDArray[np.bool_] = np.any([each.has_any() for each in self.counters], axis=0)
        return found

    def of_rows(self, rows: I64) -> Tallied:
        """The sums of these rows, in this order."""
        group = np.full(max(rows_of(self.counters), int(rows.max(initial=NO_ROW)) + 1), NO_ROW)
        group[rows] = np.arange(len(rows))
        return self.grouped(group, len(rows))

    def grouped(self, group: I64, groups: int) -> Tallied:
        """The sums of groups of rows, as of `Tallied.sum`."""
        return Tallied.sum(self.counters, group, groups)


def hide_foreign_contexts(batch: RecordBatch, source: SpeInput) -> None:
    """Take context packets that name nobody we know out of a batch, in its own memory."""
    if not source.contexts_name_threads:
        batch["present"].view(np.uint32)[:] &= ~_HAS_CONTEXT


def _cpu_of_switches(span: AuxSpan, source: SpeInput) -> int | None:
    """The CPU whose context switches tell whose the span's records are; None where no switches do."""
    is_told = span.tid is None and span.cpu is not None and span.cpu in source.switches
    return span.cpu if is_told else None


def _switched_to(batch: RecordBatch, span: AuxSpan, source: SpeInput) -> U64 | None:
    """uint64[n]: the thread that ran on the span's CPU at each record's time; None where nothing tells."""
    cpu = _cpu_of_switches(span, source)
    if cpu is None or source.time_conversion is None:
        return None
    if (batch["present"].view(np.uint32) & _HAS_CONTEXT).all():
        return None
    times = time_ns(batch["timestamp"].view(np.uint64), source.time_conversion)
    return np.where(batch.has(Kind.TS), source.switches[cpu].thread_at(times), np.uint64(NO_TID))


def thread_of(batch: RecordBatch, span: AuxSpan, source: SpeInput) -> U64:
    """uint64[n]: the thread of each record: its context packet, else the buffer's owner, else who was switched to.

    CONTEXTIDR_EL2 is the host's where the record has it, else EL1's is.
    """
    fallback = _switched_to(batch, span, source)
    if fallback is None:
        fallback = np.full(len(batch), NO_TID if span.tid is None else span.tid, np.uint64)
    context = np.where(batch.has(Kind.CTX1), batch["context_el1"], fallback)
    tids: U64 = np.where(batch.has(Kind.CTX2), batch["context_el2"], context).astype(np.uint64)
    return tids


def stamped_threads(batch: RecordBatch, span: AuxSpan, source: SpeInput) -> U64 | None:
    """uint64[n]: each record's thread and its stage; None where the threads alone say as much.

    A record without a time counts as one of the last stage.
    """
    if not source.stages or source.time_conversion is None:
        return None
    times = time_ns(batch["timestamp"].view(np.uint64), source.time_conversion)
    times = np.where(batch.has(Kind.TS), times, np.uint64(2**64 - 1))
    return source.stages.stamp(thread_of(batch, span, source), times)


class _Worker:
    """What one thread has added up."""

    def __init__(self, source: SpeInput, by: GroupBy, place: Place, also: Also | None) -> None:
        self._source = source
        self._also = also
        self._rules = Rules(key=by.key, shift=by.block_bytes.bit_length() - 1)
        self._rules.lanes[:] = operation_lanes()
        self._tally = Tally(place)
        self._memory = None if also is None else ColumnMemory(_SHARED_BATCH_RECORDS)
        self._few = ColumnMemory(_CACHED_RECORDS)
        self._timer = None if source.time_conversion is None else timer_lines(source.time_conversion)
        self._turns = StageTurns(*(source.stages if by.key == Key.CODE else ONE_STAGE).turns())
        self._times: dict[tuple[int | None, int | None], Times | None] = {}  # by CPU and thread of a span
        self.counts = DecodeCounts()
        self.threads_from = dict.fromkeys(_ORIGINS, 0)

    def add(self, span: AuxSpan) -> None:
        rules = self._rules
        if rules.core != (span.midr or 0) or not rules.first_source:
            fill_source_rules(rules, encoding_of(span.midr))
        rules.core = span.midr or 0
        rules.thread = NO_TID if span.tid is None else span.tid
        if self._also is None:
            self._add_whole(span)
            return
        decoder = RecordDecoder(span.data, memory=self._memory)
        for batch in decoder:
            hide_foreign_contexts(batch, self._source)
            before = self._tally.with_context
            switched_to = _switched_to(batch, span, self._source)
            stamped = stamped_threads(batch, span, self._source) if rules.key == Key.CODE else None
            rules.ignores_contexts = stamped is not None
            self._tally.add(batch, rules, switched_to if stamped is None else stamped)
            told = self._tally.with_context - before
            self.threads_from[_CONTEXT] += told
            unknown = len(batch) - told if span.tid is None else 0
            if switched_to is not None:
                unknown = int((switched_to[(batch["present"].view(np.uint32) & _HAS_CONTEXT) == 0] == NO_TID).sum())
            self.threads_from[NOTHING] += unknown
            self.threads_from[_SWITCHES if span.tid is None else _BUFFER] += len(batch) - told - unknown
            self._also(batch, span)
        self.counts.add(decoder.counts)

    def _times_of(self, span: AuxSpan) -> Times | None:
        """What the times of the span's records tell of their threads; None if that is nothing."""
        source, owner = self._source, (span.cpu, span.tid)
        if owner not in self._times:
            times, cpu = None, _cpu_of_switches(span, source)
            if self._timer is not None and (cpu is not None or len(self._turns.thread)):
                before, switch_ns, switched_to = int(self._rules.thread), np.zeros(0, np.uint64), np.zeros(0, np.uint64)
                if cpu is not None:
                    before, switch_ns, switched_to = source.switches.rows_of(cpu)
                times = Times(self._timer, before, switch_ns, switched_to, self._turns)
            if len(self._times) >= _MOST_OWNERS:
                self._times.clear()
            self._times[owner] = times
        return self._times[owner]

    def _add_whole(self, span: AuxSpan) -> None:
        """A span whose records nobody else wants."""
        tally, rules = self._tally, self._rules
        context, unnamed = tally.with_context, tally.unnamed
        times = self._times_of(span)
        rules.times = None if times is None else times.address
        rules.ignores_contexts = not self._source.contexts_name_threads
        counts = tally.add_span(span.data, rules, self._few)
        told = tally.with_context - context if self._source.contexts_name_threads else 0
        unknown = counts.records - told if span.tid is None else 0
        if times is not None:
            unknown = tally.unnamed - unnamed
        self.counts.add(counts)
        self.threads_from[_CONTEXT] += told
        self.threads_from[NOTHING] += unknown
        self.threads_from[_SWITCHES if span.tid is None else _BUFFER] += counts.records - told - unknown

    @property
    def rows(self) -> int:
        """Rows that it has counters of."""
        return self._tally.rows

    def finish(self) -> Counted:
        """What it has added up."""
        return Counted(self._tally.finish(), self.counts, self.threads_from)


Also = Callable[[RecordBatch, AuxSpan], None]


def count_records(source: SpeInput, by: GroupBy, place: Place, *, workers: int, also: Also | None = None) -> Counted:
    """Adds all records up by the rows that ``place`` gives to their groups.

    Args:
        source: the data.
        by: what makes a group.
        place: rows of groups; called from all threads, one at a time or not.
        workers: threads at most; each has tables of its own.
        also: given each batch, too, in the order of the spans: by one thread, then, whatever ``workers`` is. The batch
            is valid until it returns.

    Raises:
        NotCompiledError: see `check_compiled`.
    """
    workers = working = 1 if also is not None else max(1, min(workers, len(source.spans), MOST_WORKERS))
    spans, lock = iter(source.spans), threading.Lock()

    def work() -> Counted:
        nonlocal working
        worker = _Worker(source, by, place, also)
        for span in spans:  # next() on a list's iterator is atomic under the GIL
            worker.add(span)
            source.files.forget(span.data)
            if worker.rows > _MOST_ROWS // workers:
                with lock:
                    if working > 1:
                        working -= 1
                        break
        return worker.finish()  # here: its tables are let go while another goes on

    if workers == 1:
        done = [work()]
    else:
        from concurrent.futures import ThreadPoolExecutor  # only now: it loads much that nothing else needs

        with ThreadPoolExecutor(workers) as pool:
            done = [future.result() for future in [pool.submit(work) for _ in range(workers)]]
    source.files.check()
    counts, threads_from = DecodeCounts(), dict.fromkeys(_ORIGINS, 0)
    for each in done:
        counts.add(each.counts)
        for origin, records in each.threads_from.items():
            threads_from[origin] += records
    parts = [part for each in done for part in each.counters]
    return Counted(parts, counts, threads_from)


def check_compiled() -> None:
    """Whether SPE records can be added up: to be asked before the first table of them is made.

    Raises:
        TdprofError: the compiled code that does it was not built, or from other sources.
    """
    try:
        need_native()
    except NotCompiledError as error:
        raise TdprofError(
            "this tdprof was installed without its compiled code, which adds SPE records up",
            hint="apt-get install gcc libc6-dev, then pip install . or, in a checkout, tools/setup",
        ) from error
