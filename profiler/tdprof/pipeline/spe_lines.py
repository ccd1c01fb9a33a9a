"""SPE records added up by source line, in one pass: what reports, metrics and annotations take their sums from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from arm_spe.tallied import LATENCIES, NO_ROW, Tallied
from arm_spe.tally import Key
from tdprof.decode.spe.data_sources import caveats_of, unknown_encodings
from tdprof.decode.spe.losses import aux_losses, decode_losses, losses_since
from tdprof.decode.spe.row_sums import NOTHING, Counted, GroupBy, check_compiled, count_records
from tdprof.decode.spe.samples import AddedUp, SampleSums
from tdprof.decode.spe.spans import SpeInput
from tdprof.errors import TdprofError
from tdprof.model.arrays import F64, I64, U64
from tdprof.model.spe import QUANTILES
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_rows import MAX_ROWS, OTHERS_NAME, CodeDetail, Placement, SampledFunction, SymbolizedRows
from tdprof.profile.statistics import grouped_quantiles
from tdprof.values import dataclass

NOT_COUNTED = NO_ROW
"""Group of rows that no sum is wanted of, for `Counted.grouped`."""


TOO_MUCH_MEMORY = "reading them takes more memory than there is"


@contextlib.contextmanager
def within_memory() -> Iterator[None]:
    """Within the block, or function, too little memory is a TdprofError: who can do without SPE's records notes it."""
    try:
        yield
    except MemoryError as error:
        raise TdprofError(TOO_MUCH_MEMORY) from error


@dataclass(frozen=True, slots=True)
class SpeLines:
    """SPE records by source line of each function.

    Attributes:
        functions: those that were sampled.
        function: int64[n], which of them each row is of; -1 for the first row, of records that had no room for one of
            their own.
        line: int64[n], 0 where unknown.
        counted: the sums of the rows.
        notes: what a reader should know, a sentence each.
        unreadable: those of them that say what of the bytes is gone or damaged.
        samples: the records as samples, if the capture was opened for it.
    """

    functions: Sequence[SampledFunction]
    function: I64
    line: I64
    counted: Counted
    notes: Sequence[str]
    unreadable: Sequence[str]
    samples: AddedUp | None

    def whole_functions(self) -> tuple[list[SampledFunction], I64]:
        """The functions with the lines of all source files; int64[functions]: which of them each one is."""
        numbers: dict[SampledFunction, int] = {}
        whole = [numbers.setdefault(function.whole, len(numbers)) for function in self.functions]
        return list(numbers), np.array(whole, np.int64)


def add_up_lines(
    capture: OpenCapture, data: SpeInput, *, workers: int | None = None, max_rows: int = MAX_ROWS
) -> SpeLines:
    """Add records up by source line.

    Args:
        capture: says which code an address is.
        data: the records; the capture's own, or of the same recording.
        workers: threads; None: as many as the capture's.
        max_rows: rows before the rest share one.

    Raises:
        TdprofError: see `check_compiled`.
    """
    check_compiled()
    data = replace(data, stages=capture.stages)
    rows = SymbolizedRows(capture, CodeDetail.LINE)
    samples = None
    if capture.most_spe_samples is not None:
        samples = SampleSums(data, capture.most_spe_samples, lambda text: capture.progress(text))
    workers = workers or capture.workers
    counted = count_records(
        data,
        GroupBy(Key.CODE),
        Placement(rows, max_rows, is_shared=workers > 1).place,
        workers=workers,
        also=None if samples is None else samples.add,
    )
    operations = counted.operations
    since = losses_since(counted.counts, data.losses)
    # Without any record there is not even the row of those that had no room.
    keys = np.concatenate([[(-1, 0)], rows.lines()])[: len(operations)]
    return SpeLines(
        functions=rows.functions,
        function=keys[:, 0],
        line=keys[:, 1],
        counted=counted,
        notes=[
            *capture.unreadable,
            *pass_notes(counted, data),
            *rows.notes(),
            *room_notes(operations),
        ],
        unreadable=[f"SPE: {count} {text}" for text, count in since.items()],
        samples=None if samples is None else samples.finish(),
    )


def latency_quantiles(tallied: Tallied) -> dict[str, F64]:
    """float64[rows, len(QUANTILES)] by latency, in cycles; NaN where none was measured."""
    row_and_kind = (tallied.latency_key >> np.uint64(16)).astype(np.int64)
    found = np.full((len(tallied.lanes) * len(LATENCIES), len(QUANTILES)), np.nan)
    groups, start = np.unique(row_and_kind, return_index=True)
    found[groups] = grouped_quantiles(start, tallied.latency_key & np.uint64(0xFFFF), tallied.latency_count, QUANTILES)
    by_kind = found.reshape(len(tallied.lanes), len(LATENCIES), len(QUANTILES))
    return {name: by_kind[:, kind] for kind, name in enumerate(LATENCIES)}


def pass_notes(counted: Counted, data: SpeInput) -> list[str]:
    """What was lost of the data, and what told the records' threads."""
    known = decode_losses(counted.counts) | aux_losses(data.losses)
    if unnamed := counted.threads_from[NOTHING]:
        lost = data.side_band_lost
        why = f" ({lost} records were lost that may have been of context switches)" if lost else ""
        known[f"records name no thread{why}"] = unnamed
    notes = [f"{count} {text}" for text, count in known.items()]
    told = {name: count for name, count in counted.threads_from.items() if count and name != NOTHING}
    if told:
        notes.append("threads are known from " + ", ".join(f"{name} ({count})" for name, count in told.items()))
    cores = {span.midr for span in data.spans}
    notes += [*unknown_encodings(cores), *caveats_of(cores)]
    if not data.contexts_name_threads:
        notes.append("context packets are not used: they hold ids of another PID namespace than the recording's")
    return notes


def room_notes(operations: U64) -> list[str]:
    """A sentence if there were more rows than room; ``operations`` are those of each row."""
    if not operations[:1].any():
        return []
    rows = len(operations) - 1
    return [f"there was room for {rows} rows, and what came after them is in the row {OTHERS_NAME}"]
