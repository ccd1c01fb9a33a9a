"""SPE spans into Arrow record batches: the decoder's columns, the CPU, the data source by name, the time."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from arm_spe import ColumnMemory, DecodeCounts, Kind, RecordBatch, RecordDecoder
from arm_spe.arrow import record_schema, to_arrow
from arm_spe.columns import join_batches
from tdprof.decode.spe.clock import Clock, time_ns
from tdprof.decode.spe.data_sources import encoding_of, source_codes, sources
from tdprof.decode.spe.spans import MOST_WORKERS, AuxSpan, SpeInput
from tdprof.values import dataclass

BATCH_RECORDS = 1 << 16
_SHORT_SPAN_BYTES = 1 << 14  # a table of its own costs more than the decoding
_MOST_JOINED = 1024  # spans: arrays of one row each are mostly overhead
T = TypeVar("T")


def spe_schema() -> pa.Schema:
    """Columns that `decode_spans` hands on: `arm_spe.arrow.record_schema` between the CPU and what the core adds."""
    return pa.schema(
        [
            pa.field("cpu", pa.int32()),
            *record_schema(),
            pa.field("source", pa.dictionary(pa.int16(), pa.string())),  # of loads
            pa.field("time_ns", pa.uint64()),  # perf's clock
        ]
    )


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Records of one span, or of several short ones of cores that write alike.

    Attributes:
        records: by span, in order.
        done: bytes of the input before the last record.
    """

    records: Sequence[tuple[AuxSpan, RecordBatch]]
    done: int

    def __len__(self) -> int:
        return sum(len(batch) for _, batch in self.records)


def _table(decoded: _Decoded, conversion: Clock | None) -> pa.RecordBatch:
    """Decoded records as a record batch of `spe_schema`."""
    spans = [span for span, _ in decoded.records]
    batch = join_batches([batch for _, batch in decoded.records])
    lengths = [len(batch) for _, batch in decoded.records]
    records = to_arrow(batch)
    encoding = encoding_of(spans[0].midr)
    codes, is_load = source_codes(batch, encoding)
    source = pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=~is_load), pa.array([source.name for source in sources(encoding)])
    )
    aux_offset = np.repeat(np.array([span.aux_offset for span in spans], np.uint64), lengths)
    offset = pa.array(batch["offset"].view(np.uint64) + aux_offset)
    cpu = np.repeat(np.array([-1 if span.cpu is None else span.cpu for span in spans], np.int32), lengths)
    if conversion is None:
        time = pa.nulls(len(batch), pa.uint64())
    else:
        time = pa.array(time_ns(batch["timestamp"].view(np.uint64), conversion), mask=~batch.has(Kind.TS))
    columns = [pa.array(cpu, mask=cpu < 0), offset, *records.columns[1:], source, time]
    return pa.RecordBatch.from_arrays(columns, schema=spe_schema())


@dataclass(frozen=True, slots=True)
class DecodedPiece(Generic[T]):
    """What became of one batch of records.

    Attributes:
        done: bytes of the input's spans before the last record.
        records: how many.
        value: what `decode_spans` was told to make of them.
    """

    done: int
    records: int
    value: T


class _Reader:
    """Decodes spans one after the other, a batch at a time; to be called by one thread at a time.

    Args:
        source: the spans.
        counts: grows by each span's counts when the span is done.
        batch_records: rows of a batch at most, but for what a last short span adds.
    """

    def __init__(self, source: SpeInput, counts: DecodeCounts, batch_records: int) -> None:
        self._files = source.files
        self._waiting = deque(source.spans)
        self._decoder: RecordDecoder | None = None  # of the first one
        self._counts = counts
        self._batch_records = batch_records
        self._done = 0

    def next(self, memory: ColumnMemory) -> _Decoded | None:
        """The records after those before; None at the end. Those of a long span stand in ``memory``."""
        short: list[tuple[AuxSpan, RecordBatch]] = []
        rows, done = 0, 0
        while self._waiting and rows < self._batch_records and len(short) < _MOST_JOINED:
            span = self._waiting[0]
            is_short = len(span.data) <= _SHORT_SPAN_BYTES
            if short and not (is_short and encoding_of(span.midr) is encoding_of(short[0][0].midr)):
                break
            if self._decoder is None:
                self._decoder = RecordDecoder(span.data)
            batch = self._decoder.next_batch(memory)
            if batch is None:
                self._counts.add(self._decoder.counts)
                self._done += len(span.data)
                self._waiting.popleft()
                self._decoder = None
                self._files.forget(span.data)
                continue
            done = self._done + int(batch["offset"][-1])
            if not is_short:
                return _Decoded([(span, batch)], done)
            short.append((span, batch.copy()))
            rows += len(batch)
        return _Decoded(short, done) if short else None


def decode_spans(
    source: SpeInput,
    counts: DecodeCounts,
    convert: Callable[[pa.RecordBatch], T],
    *,
    workers: int,
    batch_records: int = BATCH_RECORDS,
) -> Iterator[DecodedPiece[T]]:
    """All records of an input in the order of its spans, a batch at a time, converted by the threads that decode.

    One thread decodes at a time, in order, which takes a small part of what a conversion does; these run in parallel,
    also of one long span. Short spans share a batch. Memory is a batch for each worker and what is made of a few more.

    Args:
        source: the spans.
        counts: grows by each span's counts when the span is done.
        convert: called in any thread with rows of `spe_schema`, which are valid until it returns.
        workers: threads at most.
        batch_records: rows of a batch at most.
    """
    workers = min(workers, MOST_WORKERS)
    free = [ColumnMemory(batch_records) for _ in range(workers)]
    lock = threading.Lock()
    reader, numbers = _Reader(source, counts, batch_records), itertools.count()

    def work() -> tuple[int, DecodedPiece[T] | None]:
        memory = free.pop()  # as many as threads
        try:
            with lock:
                number, decoded = next(numbers), reader.next(memory)
            if decoded is None:
                return number, None
            value = convert(_table(decoded, source.time_conversion))
            return number, DecodedPiece(decoded.done, len(decoded), value)
        finally:
            free.append(memory)

    with ThreadPoolExecutor(workers) as pool:
        running = deque(pool.submit(work) for _ in range(workers + 1))
        done: dict[int, DecodedPiece[T] | None] = {}
        for wanted in itertools.count():
            while wanted not in done:
                number, piece = running.popleft().result()
                done[number] = piece
            piece = done.pop(wanted)
            if piece is None:
                return
            running.append(pool.submit(work))
            yield piece
