"""SPE data into the rows of a report: by function, line, instruction, data source, cache line or page."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arm_spe.stats import LATENCIES, SUMS, Sum
from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.stacks import attribute_stacks
from tdprof.capture.manifest import SpeInfo
from tdprof.capture.schema import SAMPLES, STACKS
from tdprof.capture.tables import read_table
from tdprof.decode.spe_counting import (
    LEVEL_ORDER,
    LINE_BYTES,
    NO_ADDRESS,
    NO_TID,
    PAGE_BYTES,
    Counted,
    Keys,
    LatencyCounts,
    WordUse,
    address_keys,
    code_keys,
    count_latencies,
    count_records,
    count_words,
    source_keys,
)
from tdprof.decode.spe_sources import encoding_of, sources
from tdprof.decode.spe_spans import SpeInput
from tdprof.importing import import_perf_data
from tdprof.metrics.spe import RATIOS, Ratio, SamplingCounts, mean_interval, quantiles, record_weight, share_interval
from tdprof.naming import name_locations
from tdprof.pipeline import DEFAULT_SYMBOLS, SymbolOptions, open_symbolizer
from tdprof.report.spe import QUANTILES, CodeKey, RatioColumn, RecordWeight, SpeReport
from tdprof.symbolize import demangle

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
_NO_PID = 2**32 - 1
_KERNEL_ADDRESS = np.uint64(1 << 63)
_ANY_TIME = 2**63 - 1


class By(StrEnum):
    """What a row of the report is."""

    FUNCTION = "function"
    LINE = "line"
    INSTRUCTION = "instruction"
    SOURCE = "source"
    ADDRESS = "address"  # cache line
    PAGE = "page"


def analyse(
    source: SpeInput,
    by: By,
    tables: Path | None,
    *,
    workers: int,
    recorded: SpeInfo | None = None,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
) -> SpeReport:
    """Add an input's records up.

    Args:
        source: the data; read twice, since memory does not hold the records.
        by: what a row is.
        tables: a capture's tables of the same recording, which name code; None: addresses stay addresses.
        workers: threads.
        recorded: how a capture's SPE data was taken, by which records are weighted.
        symbols: where names come from.
    """
    keys = _keys(by)
    counted = count_records(source, keys, workers=workers)
    notes = _notes(counted, source)
    threads: U64 | None = None
    sharing: list[str] | None = None
    code: list[CodeKey] | None = None
    if by is By.SOURCE:
        row_of, names = _source_rows(counted)
    elif by in (By.ADDRESS, By.PAGE):
        row_of, numbers = _distinct_rows(counted.first, counted.first != NO_ADDRESS)
        size = _bytes_of(by)
        names = [f"0x{number * size:x}" for number in numbers.tolist()]
        threads = np.bincount(row_of[row_of >= 0], minlength=len(names)).astype(np.uint64)
        if by is By.ADDRESS:
            sharing = _sharing(count_words(source), numbers)
    else:
        row_of, names, code, unplaced = _code_rows(counted, by, tables, symbols)
        notes += unplaced
    sums = np.zeros((len(names), SUMS), np.uint64)
    has_row = np.flatnonzero(row_of >= 0)
    total_operations = int(counted.sums[:, Sum.OPERATIONS].sum())
    for column in range(SUMS):  # one at a time: a copy of all would be the largest array there is
        np.add.at(sums[:, column], row_of[has_row], counted.sums[has_row, column])
    counted.sums = counted.sums[:0].copy()
    by_name = {what.name: sums[:, what] for what in Sum if what != Sum.LOADS_BY_LEVEL}
    latencies = count_latencies(source, keys, counted, row_of, workers=workers)
    return SpeReport(
        names=names,
        counts=by_name,
        levels={level.value: sums[:, Sum.LOADS_BY_LEVEL + number] for number, level in enumerate(LEVEL_ORDER)},
        latencies=_quantiles(latencies, len(names)),
        ratios={ratio.name: _ratio_column(ratio, by_name) for ratio in RATIOS},
        threads=threads,
        sharing=sharing,
        notes=notes,
        total_operations=total_operations,
        weight=weight_of(recorded, total_operations) if recorded else None,
        code=code,
    )


def weight_of(recorded: SpeInfo, records: int) -> RecordWeight | None:
    """What one of ``records`` decoded records stands for; None if neither counts nor a period tell."""
    counts = {name: values for name, values in recorded.sampling.items() if len(values) == 3 and values[2] > 0}
    # One group was scheduled as a whole, so that times matter only beside the records, which were not multiplexed.
    scaled = {name: round(value * enabled / running) for name, (value, enabled, running) in counts.items()}
    sampled = SamplingCounts(
        records,
        population=scaled.get("SAMPLE_POP"),
        feed=scaled.get("SAMPLE_FEED"),
        collision=scaled.get("SAMPLE_COLLISION"),
        filtrate=scaled.get("SAMPLE_FILTRATE"),
    )
    if not recorded.period or not recorded.events:
        return None
    event = recorded.events[0]
    interval = mean_interval(
        recorded.period, has_jitter="jitter=0x1" in event.event, has_even_jitter=event.caps.get("ernd", 0) == 1
    )
    weight = record_weight(sampled, interval)
    if weight.is_measured and sampled.feed:
        return RecordWeight(weight.value, sampled.feed**-0.5, "SAMPLE_POP / SAMPLE_FEED, and what was lost behind them")
    return RecordWeight(weight.value, None, "the mean interval; too low where samples collided")


def _ratio_column(ratio: Ratio, counts: dict[str, U64]) -> RatioColumn:
    share = share_interval(counts[ratio.part], counts[ratio.whole])
    return RatioColumn(share.value * ratio.scale, share.low * ratio.scale, share.high * ratio.scale)


def _keys(by: By) -> Keys:
    if by is By.SOURCE:
        return source_keys
    return address_keys(_bytes_of(by)) if by in (By.ADDRESS, By.PAGE) else code_keys


def _bytes_of(by: By) -> int:
    return LINE_BYTES if by is By.ADDRESS else PAGE_BYTES


def _distinct_rows(keys: U64, wanted: NDArray[np.bool_]) -> tuple[I64, U64]:
    """Row of each key, -1 where it is not wanted, and the key of each row."""
    numbers, inverse = np.unique(keys[wanted], return_inverse=True)
    row_of = np.full(len(keys), -1, np.int64)
    row_of[wanted] = inverse
    return row_of, numbers


def _source_rows(counted: Counted) -> tuple[I64, list[str]]:
    """Rows by the source's name: cores of different encodings meet in it."""
    rows: dict[str, int] = {}
    row_of = np.full(len(counted.first), -1, np.int64)
    for group, (code, midr) in enumerate(zip(counted.first.tolist(), counted.second.tolist(), strict=True)):
        if code != NO_ADDRESS:
            name = sources(encoding_of(midr or None))[code].name
            row_of[group] = rows.setdefault(name, len(rows))
    return row_of, list(rows)


def _sharing(words: WordUse, lines: U64) -> list[str]:
    """What each cache line's sampled accesses say of sharing.

    "false": several threads touch it, one of them stores, and no word of it is touched by two threads; "true": a word
    is touched by several threads and stored to; "": neither.
    """
    line = words.word // np.uint64(LINE_BYTES // 8)
    result = [""] * len(lines)
    stored = np.unique(line[words.is_store])
    at = np.minimum(np.searchsorted(stored, line), max(len(stored) - 1, 0))
    candidate = np.flatnonzero(stored[at] == line) if len(stored) else np.zeros(0, np.int64)
    pairs = np.unique(np.stack([line[candidate], words.tid[candidate]]), axis=1)
    shared_lines, threads = np.unique(pairs[0], return_counts=True)
    word_pairs = np.unique(np.stack([words.word[candidate], words.tid[candidate]]), axis=1)
    shared_words, word_threads = np.unique(word_pairs[0], return_counts=True)
    stored_words = np.unique(words.word[words.is_store])
    truly = shared_words[(word_threads > 1) & np.isin(shared_words, stored_words)]
    truly_shared = set((truly // np.uint64(LINE_BYTES // 8)).tolist())
    for number in shared_lines[threads > 1].tolist():
        result[int(np.searchsorted(lines, np.uint64(number)))] = "true" if number in truly_shared else "false"
    return result


def _quantiles(latencies: LatencyCounts, rows: int) -> dict[str, NDArray[np.float64]]:
    """float64[rows, len(QUANTILES)] by latency."""
    result = {name: np.full((rows, len(QUANTILES)), np.nan) for name, _ in LATENCIES}
    order = np.lexsort((latencies.kind, latencies.row))
    row, kind = latencies.row[order], latencies.kind[order]
    starts = np.flatnonzero(np.diff(row * len(LATENCIES) + kind, prepend=-1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
        mine = order[start:end]
        result[LATENCIES[kind[start]][0]][row[start]] = quantiles(
            latencies.cycles[mine], latencies.count[mine], QUANTILES
        )
    return result


def _notes(counted: Counted, source: SpeInput) -> list[str]:
    counts, losses = counted.counts, source.losses
    known = {
        "bytes are damaged and left out": counts.damaged_bytes,
        "records were cut off by the end of their span and are left out": counts.open_records,
        "times the kernel reports lost samples (AUX TRUNCATED)": losses.truncated,
        "spans had samples that collided: operations behind slow ones are sampled less": losses.collided,
        "AUX buffers are cut off by the end of the file": losses.cut_buffers,
        "records name no thread": counted.threads_from.get("nothing", 0),
    }
    notes = [f"{count} {text}" for text, count in known.items() if count]
    told = {name: count for name, count in counted.threads_from.items() if count and name != "nothing"}
    if told:
        notes.append("threads are known from " + ", ".join(f"{name} ({count})" for name, count in told.items()))
    return notes


def _code_rows(
    counted: Counted, by: By, tables: Path | None, symbols: SymbolOptions
) -> tuple[I64, list[str], list[CodeKey] | None, list[str]]:
    """Row of each (address, thread), the rows' names, what code they are, and what could not be placed."""
    if tables is None:
        row_of, addresses = _distinct_rows(counted.first, np.ones(len(counted.first), bool))
        return row_of, [f"0x{address:x}" for address in addresses.tolist()], None, []
    mappings, processes = read_table(tables, "mappings"), read_table(tables, "processes")
    pids, unknown = _pids_of(counted.second, mappings, processes)
    is_kernel = counted.first >= _KERNEL_ADDRESS
    numbers = np.arange(1, len(counted.first) + 1, dtype=np.uint64)
    stack = pa.array(numbers)
    samples = {
        "time_ns": pa.array(np.full(len(numbers), _ANY_TIME, np.uint64)),
        "pid": pa.array(pids),
        "user_stack": pa.array(numbers, mask=is_kernel),
        "kernel_stack": pa.array(numbers, mask=~is_kernel),
    }
    ones = {name: pa.array(np.zeros(len(numbers), int)) for name in ("event", "tid", "count", "weight")}
    names = {"thread_name": pa.nulls(len(numbers), SAMPLES.field("thread_name").type)}
    sample_table = pa.table({name: (samples | ones | names)[name] for name in SAMPLES.names}).cast(SAMPLES)
    starts = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
    chains = pa.ListArray.from_arrays(starts, pa.array(counted.first))
    stack_table = pa.table([stack, pa.array(is_kernel), chains], names=STACKS.names)
    attributed = attribute_stacks(sample_table, stack_table, mappings, AddressSpaces(mappings, processes))
    with open_symbolizer(tables, symbols) as symbolizer:
        functions, locations = name_locations(
            attributed.mapped_files, attributed.location_file, attributed.location_address, symbolizer.locate, demangle
        )
    location = attributed.stack_location[attributed.stack_start[attributed.sample_stack]]
    innermost = locations.frame_start[location]
    function, line = (
        locations.frame_function[innermost].astype(np.int64),
        locations.frame_line[innermost].astype(np.int64),
    )
    if by is By.FUNCTION:
        key = [function]
    elif by is By.LINE:
        key = [function, line]
    else:
        key = [function, locations.mapped_file[location].astype(np.int64), locations.address[location].view(np.int64)]
    distinct, row_of = np.unique(np.stack(key), axis=1, return_inverse=True)
    shown = []
    for column in distinct.T.tolist():
        name = functions.name[column[0]]
        if by is By.LINE:
            name += f" {functions.file[column[0]] or '??'}:{column[1] or '?'}"
        elif by is By.INSTRUCTION:
            name += f" 0x{column[2] % 2**64:x}"
        shown.append(name)
    code = None
    if by is not By.INSTRUCTION:
        modules = [*(file.path for file in attributed.mapped_files), ""]
        code = [
            CodeKey(functions.name[row], functions.file[row], modules[functions.mapped_file[row]], *line)
            for row, *line in distinct.T.tolist()
        ]
    notes = [f"{unknown} addresses belong to no known process"] if unknown else []
    return row_of.reshape(-1).astype(np.int64), shown, code, notes


def _pids_of(tids: U64, mappings: pa.Table, processes: pa.Table) -> tuple[NDArray[np.uint32], int]:
    """Process of each thread, and how many entries have none.

    A thread that side-band does not name is taken for a process's first; a record without a thread belongs to the only
    process there is, if there is one.
    """
    pid_of = dict(zip(processes["tid"].to_pylist(), processes["pid"].to_pylist(), strict=True))
    mapped = set(mappings["pid"].to_pylist())
    only = mapped.pop() if len(mapped) == 1 else _NO_PID
    distinct, which = np.unique(tids, return_inverse=True)
    pids = np.array([only if tid == NO_TID else pid_of.get(tid, tid) for tid in distinct.tolist()], np.uint32)
    result = pids[which.reshape(-1)]
    return result, int((result == _NO_PID).sum())


@contextlib.contextmanager
def tables_of_perf_data(path: str) -> Iterator[Path]:
    """The tables that a capture of this perf.data would have, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="tdprof-") as folder:
        import_perf_data(path, Path(folder))
        yield Path(folder)
