"""SPE spans into Arrow record batches: the decoder's columns, the CPU, the data source by name, the time."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from arm_spe import ColumnMemory, DecodeCounts, Kind, RecordBatch, RecordDecoder
from arm_spe.arrow import record_schema, to_arrow
from tdprof.decode.spe.clock import Clock, time_ns
from tdprof.decode.spe.data_sources import encoding_of, source_codes, sources
from tdprof.decode.spe.spans import MOST_WORKERS, AuxSpan, SpeInput

BATCH_RECORDS = 1 << 16
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


def span_table(batch: RecordBatch, span: AuxSpan, conversion: Clock | None) -> pa.RecordBatch:
    """One decoded batch of a span as a record batch of `spe_schema`."""
    rows = len(batch)
    records = to_arrow(batch)
    encoding = encoding_of(span.midr)
    codes, is_load = source_codes(batch, encoding)
    source = pa.DictionaryArray.from_arrays(
        pa.array(codes, mask=~is_load), pa.array([source.name for source in sources(encoding)])
    )
    offset = (
        pa.array(batch["offset"].view(np.uint64) + np.uint64(span.aux_offset))
        if span.aux_offset
        else records.column("offset")
    )
    cpu = pa.nulls(rows, pa.int32()) if span.cpu is None else pa.array(np.full(rows, span.cpu, np.int32))
    if conversion is None:
        time = pa.nulls(rows, pa.uint64())
    else:
        time = pa.array(time_ns(batch["timestamp"].view(np.uint64), conversion), mask=~batch.has(Kind.TS))
    columns = [cpu, offset, *records.columns[1:], source, time]
    return pa.RecordBatch.from_arrays(columns, schema=spe_schema())


@dataclass(frozen=True, slots=True)
class DecodedPiece(Generic[T]):
    """What became of one batch of records.

    Attributes:
        span: where they come from.
        done: bytes of the span up to the last record's first.
        records: how many.
        value: what `decode_spans` was told to make of them.
    """

    span: AuxSpan
    done: int
    records: int
    value: T


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
    also of one long span. Memory is a batch for each worker and what is made of a few more.

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
    waiting, numbers = iter(source.spans), itertools.count()
    current: list[tuple[AuxSpan, RecordDecoder]] = []

    def decode_next(memory: ColumnMemory) -> tuple[AuxSpan, RecordBatch] | None:
        while True:
            if not current:
                span = next(waiting, None)
                if span is None:
                    return None
                current.append((span, RecordDecoder(span.data)))
            span, decoder = current[0]
            batch = decoder.next_batch(memory)
            if batch is not None:
                return span, batch
            counts.add(decoder.counts)
            current.clear()

    def work() -> tuple[int, DecodedPiece[T] | None]:
        memory = free.pop()  # as many as threads
        try:
            with lock:
                number, decoded = next(numbers), decode_next(memory)
            if decoded is None:
                return number, None
            span, batch = decoded
            value = convert(span_table(batch, span, source.time_conversion))
            return number, DecodedPiece(span, int(batch["offset"][-1]), len(batch), value)
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
