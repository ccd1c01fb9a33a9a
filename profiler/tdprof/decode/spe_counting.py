"""SPE records of an input added up by a key: code address, data source, cache line; spans on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from arm_spe import DecodeCounts, Kind, RecordBatch, RecordDecoder
from arm_spe.stats import LATENCIES, SNOOPED, SUMS, GroupTable, SumTable
from tdprof.decode.spe_sources import Level, encoding_of, source_codes, sources
from tdprof.decode.spe_spans import AuxSpan, SpeInput

U64 = NDArray[np.uint64]
NO_TID = 1 << 32
"""Second key of a record whose thread nothing tells."""
NO_ADDRESS = 2**64 - 1
"""First key of a record without a data address."""
LINE_BYTES = 64
PAGE_BYTES = 4096
LEVEL_ORDER = tuple(Level)
_BATCH_RECORDS = 1 << 15

Keys = Callable[[RecordBatch, AuxSpan], tuple[U64, U64]]


@dataclass(slots=True)
class Counted:
    """Records by key.

    Attributes:
        first, second: uint64[n], the keys.
        sums: uint64[n, SUMS], see `arm_spe.stats.Sum`.
        counts: how the bytes were spent.
        threads_from: records by what told their thread.
    """

    first: U64
    second: U64
    sums: U64
    counts: DecodeCounts = field(default_factory=DecodeCounts)
    threads_from: dict[str, int] = field(default_factory=dict)


def thread_of(batch: RecordBatch, span: AuxSpan) -> U64:
    """uint64[n]: the thread of each record: its context packet, else the thread that the buffer belongs to.

    CONTEXTIDR_EL2 is the host's where the record has it, else EL1's is.
    """
    fallback = NO_TID if span.tid is None else span.tid
    context = np.where(batch.has(Kind.CTX1), batch["context_el1"], np.uint64(fallback))
    tids: U64 = np.where(batch.has(Kind.CTX2), batch["context_el2"], context).astype(np.uint64)
    return tids


def code_keys(batch: RecordBatch, span: AuxSpan) -> tuple[U64, U64]:
    """Address of the instruction, thread."""
    return batch["pc"].view(np.uint64), thread_of(batch, span)


def source_keys(batch: RecordBatch, span: AuxSpan) -> tuple[U64, U64]:
    """Data source code and the encoding's position among all (`sources`); NO_ADDRESS for what is no load."""
    codes, is_load = source_codes(batch, encoding_of(span.midr))
    midr = 0 if span.midr is None else span.midr
    first = np.where(is_load, codes.astype(np.uint64), np.uint64(NO_ADDRESS))
    return first, np.full(len(batch), midr, np.uint64)


def address_keys(bytes_: int) -> Keys:
    """Number of the cache line or page of that many bytes, thread; NO_ADDRESS without a data address."""

    def keys(batch: RecordBatch, span: AuxSpan) -> tuple[U64, U64]:
        numbers = batch["va"].view(np.uint64) // np.uint64(bytes_)
        return np.where(batch.has(Kind.VA), numbers, np.uint64(NO_ADDRESS)), thread_of(batch, span)

    return keys


def _levels(batch: RecordBatch, span: AuxSpan) -> NDArray[np.uint8]:
    """uint8[n]: position of each load's level in LEVEL_ORDER, and SNOOPED."""
    known = sources(encoding_of(span.midr))
    by_code = np.array(
        [LEVEL_ORDER.index(source.level) | (SNOOPED if source.is_snooped else 0) for source in known], np.uint8
    )
    codes, _ = source_codes(batch, encoding_of(span.midr))
    return by_code[codes]


class _Worker:
    """What one thread has added up."""

    def __init__(self) -> None:
        self.groups = GroupTable()
        self.sums = SumTable()
        self.counts = DecodeCounts()
        self.threads_from: dict[str, int] = {}

    def add(self, span: AuxSpan, keys: Keys) -> None:
        decoder = RecordDecoder(span.data, batch_records=_BATCH_RECORDS, reuse=True)
        for batch in decoder:
            self.sums.add_up(batch, self.groups.number(*keys(batch, span)), _levels(batch, span))
            told = int((batch.has(Kind.CTX1) | batch.has(Kind.CTX2)).sum())
            rest = "buffer" if span.tid is not None else "nothing"
            self.threads_from["context packets"] = self.threads_from.get("context packets", 0) + told
            self.threads_from[rest] = self.threads_from.get(rest, 0) + len(batch) - told
        self.counts.add(decoder.counts)


def _in_threads(source: SpeInput, workers: int, work: Callable[[Iterator[AuxSpan]], None]) -> None:
    """Runs `work` in each thread on an iterator from which all threads take spans."""
    spans = iter(source.spans)
    with ThreadPoolExecutor(workers) as pool:
        # next() on a list's iterator is atomic under the GIL.
        for future in [pool.submit(work, spans) for _ in range(workers)]:
            future.result()


def count_records(source: SpeInput, keys: Keys, *, workers: int) -> Counted:
    """Adds all records up by `keys`."""
    parts: list[_Worker] = []

    def work(spans: Iterator[AuxSpan]) -> None:
        worker = _Worker()
        parts.append(worker)
        for span in spans:
            worker.add(span, keys)

    _in_threads(source, workers, work)
    groups = GroupTable()
    numbers = [groups.number(part.groups.first, part.groups.second) for part in parts]
    result = Counted(groups.first, groups.second, np.zeros((len(groups), SUMS), np.uint64))
    while parts:  # each is let go when it is added
        part, number = parts.pop(), numbers.pop()
        result.sums[number] += part.sums.sums  # each number once
        result.counts.add(part.counts)
        for reason, count in part.threads_from.items():
            result.threads_from[reason] = result.threads_from.get(reason, 0) + count
    return result


@dataclass(frozen=True, slots=True)
class LatencyCounts:
    """How often each latency occurred, by row and kind of latency; retired operations only.

    Attributes:
        row: int64[n], row of the report.
        kind: int64[n], position in LATENCIES.
        cycles, count: uint64[n].
    """

    row: NDArray[np.int64]
    kind: NDArray[np.int64]
    cycles: U64
    count: U64


def count_latencies(
    source: SpeInput, keys: Keys, counted: Counted, row_of: NDArray[np.int64], *, workers: int
) -> LatencyCounts:
    """A second pass: latencies of each row of a report.

    Args:
        source, keys, counted: of `count_records`.
        row_of: int64[groups], the row that each of its groups belongs to, -1 for none.
    """
    parts: list[GroupTable] = []

    def work(spans: Iterator[AuxSpan]) -> None:
        known, latencies = GroupTable(), GroupTable()
        known.number(counted.first, counted.second)
        parts.append(latencies)
        for span in spans:
            for batch in RecordDecoder(span.data, batch_records=_BATCH_RECORDS, reuse=True):
                latencies.count_latencies(batch, known.number(*keys(batch, span)), row_of)

    _in_threads(source, workers, work)
    all_parts = GroupTable()
    count = np.zeros(0, np.uint64)
    for part in parts:
        numbers = all_parts.number(part.first, part.second)
        count = np.concatenate([count, np.zeros(len(all_parts) - len(count), np.uint64)])
        count[numbers] += part.hits
    row_and_kind = all_parts.first.astype(np.int64)
    return LatencyCounts(row_and_kind // len(LATENCIES), row_and_kind % len(LATENCIES), all_parts.second, count)


@dataclass(frozen=True, slots=True)
class WordUse:
    """Who touched which words of memory.

    Attributes:
        word: uint64[n], address / 8.
        tid: uint64[n].
        is_store: bool[n].
        count: uint64[n], operations.
    """

    word: U64
    tid: U64
    is_store: NDArray[np.bool_]
    count: U64


def count_words(source: SpeInput) -> WordUse:
    """Data addresses by 8-byte word, thread, and whether it was a store."""
    table = GroupTable()
    for span in source.spans:
        for batch in RecordDecoder(span.data, batch_records=_BATCH_RECORDS, reuse=True):
            rows = np.flatnonzero(batch.has(Kind.VA) & (batch["op_class"] == 1))
            is_store = (batch["op"].view(np.uint8)[rows] & 1).astype(np.uint64)
            tid = thread_of(batch, span)[rows]
            table.number(batch["va"].view(np.uint64)[rows] >> np.uint64(3), tid << np.uint64(1) | is_store)
    second = table.second
    return WordUse(table.first, second >> np.uint64(1), (second & np.uint64(1)) != 0, table.hits)
