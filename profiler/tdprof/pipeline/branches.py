"""A capture's branch stacks by what branched to where: counts, mispredictions, cycles."""

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from tdprof.attribute.addresses import BRANCH_ENDS, branch_ends
from tdprof.capture.tables import has_table, read_table
from tdprof.errors import TdprofError
from tdprof.metrics.spe import share_interval
from tdprof.model.arrays import I32, I64, U64, distinct_rows, group_of_row, group_rows
from tdprof.model.branches import BranchEnds, BranchReport
from tdprof.model.spe import RatioColumn
from tdprof.pipeline.load import NamedCode, name_addresses
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.frames import line_functions, whole_functions
from tdprof.text import printable

NOT_RECORDED = -1  # the place of an address that the hardware left out
_COUNTS = ("count", "stacks", "mispredicted", "predicted", "cycles", "with_cycles", "cycles_at_limit")
_WORDS = ("type", "speculation", "privilege")


def load_branches(capture: OpenCapture, *, by_function: bool = False) -> BranchReport:
    """Add up a capture's branch stacks by event, both source lines (addresses where no line is known) and type.

    Args:
        capture: the capture.
        by_function: a row for each function, with all branches that it has.

    Raises:
        TdprofError: one without branch stacks, or damaged.
    """
    if not has_table(capture.tables, "branches"):
        raise TdprofError(
            f"{capture.folder} has no branch stacks",
            hint="perf record -b -- CMD, then tdprof import; x86 LBR and Arm BRBE",
        )
    # Names first, of the columns that they take: what names code goes before the others are read.
    source, target, ends_at = _placed_ends(capture, by_function=by_function)
    table = read_table(capture.tables, "branches")
    events = [printable(event.name) for event in capture.manifest.events]
    event = table["event"].to_numpy()
    if len(table) != len(source) or (len(table) and int(event.max()) >= len(events)):
        raise TdprofError(f"{capture.folder} is damaged: it has branches of an event that capture.json does not list")
    types = table["type"].combine_chunks()
    type_ = types.indices.fill_null(-1).to_numpy().astype(np.int64)
    if by_function:
        target, type_ = np.full_like(target, NOT_RECORDED), np.full_like(type_, -1)
    order, start = group_rows(event.astype(np.int64), source, target, type_)
    counts = {
        name: np.add.reduceat(column[order], start) if len(start) else np.empty(0, np.uint64)
        for name, column in _columns(table).items()
    }
    first = order[start]
    counts["stacks"] = _fewest_samples(table, group_of_row(order, start), len(start))
    words = [*(printable(word) for word in types.dictionary.to_pylist()), None]
    return BranchReport(
        events=events,
        event=event[first].astype(np.int64),
        source=ends_at(source[first]),
        target=None if by_function else ends_at(target[first]),
        type=[words[number] for number in type_[first].tolist()],
        counts=counts,
        mispredict=_mispredict(counts),
        notes=[*map(printable, [*capture.unreadable, *capture.manifest.notes, *capture.symbolizer.notes()])],
    )


def _placed_ends(capture: OpenCapture, *, by_function: bool) -> tuple[I32, I32, Callable[[I32], BranchEnds]]:
    """The places of all sources and of all targets, and ends out of places."""
    end, addresses, pids, time_ns = branch_ends(read_table(capture.tables, "branches", columns=BRANCH_ENDS))
    code, location = name_addresses(capture, addresses, pids, time_ns)
    places, ends_at = _places(code, location, by_function=by_function)
    # -1 finds the last.
    source, target = np.append(places, np.int32(NOT_RECORDED))[end].reshape(2, -1)
    return source, target, ends_at


def _columns(table: pa.Table) -> dict[str, U64]:
    columns: dict[str, U64] = {name: table[name].to_numpy() for name in _COUNTS}
    flags = {name: table[name].to_numpy() for name in ("in_transaction", "aborted")}
    flags["wrong_path"] = np.array(
        pa.compute.equal(table["speculation"].cast(pa.string()), "wrong path").fill_null(False)
    )
    return columns | {name: np.where(is_so, columns["count"], np.uint64(0)) for name, is_so in flags.items()}


def _fewest_samples(table: pa.Table, row: I64, rows: int) -> U64:
    """At least how many samples the entries of each of the report's rows are from.

    A sample is counted in ``stacks`` of each branch that it has. Of one process and interval there are at least as many
    as the most frequent branch has, and no sample is in two of these.

    Args:
        table: the capture's branches.
        row: int64[n], which row of the report each of the table is in.
        rows: how many the report has.
    """
    pid, time_ns = (table[name].to_numpy() for name in ("pid", "time_ns"))
    ends = [table[name].fill_null(0).to_numpy() for name in ("from_address", "to_address")]
    kinds = [table[name].combine_chunks().indices.fill_null(-1).to_numpy() for name in _WORDS]
    flags = [table[name].to_numpy().astype(np.int8) for name in ("in_transaction", "aborted")]
    order, start = group_rows(row, pid, time_ns, *ends, *kinds, *flags)
    samples = np.zeros(rows, np.uint64)
    if not len(start):
        return samples
    of_branch = np.add.reduceat(table["stacks"].to_numpy()[order], start)
    first = order[start]
    order, start = group_rows(row[first], pid[first], time_ns[first])
    np.add.at(samples, row[first[order[start]]], np.maximum.reduceat(of_branch[order], start))
    return samples


def _places(code: NamedCode, location: I32, *, by_function: bool) -> tuple[I32, Callable[[I32], BranchEnds]]:
    """The place of each end: a line of a function, or its address where none is known; and ends out of places."""
    functions, locations = code.functions, code.locations
    leaf = locations.frame_start[location]
    one_of = whole_functions if by_function else line_functions
    function = one_of(functions, code.mapped_files)[locations.frame_function[leaf]]
    line = locations.frame_line[leaf]
    if by_function:
        line = np.zeros_like(line)
    first, place = distinct_rows(function, line, np.where((line > 0) | by_function, 0, location))
    modules = [*(printable(file.path) for file in code.mapped_files), ""]
    ends_at = functools.partial(
        BranchEnds,
        [printable(name) for name in functions.name],
        [modules[file] for file in functions.mapped_file.tolist()],
        [printable(file) for file in functions.file],
        function[first],
        line[first],
        None if by_function else locations.address[location[first]],
    )
    return place, ends_at


def _mispredict(counts: dict[str, U64]) -> RatioColumn:
    """Mispredicted out of those of which the hardware tells.

    A loop's branches stand many times in one stack, and these times are alike: the interval is that of as many
    independent observations as there are samples at least, so that it is rather too wide.
    """
    mispredicted = counts["mispredicted"].astype(np.float64)
    told = mispredicted + counts["predicted"]
    independent: NDArray[np.float64] = np.minimum(told, counts["stacks"])
    with np.errstate(invalid="ignore"):
        share = share_interval(mispredicted / told * independent, independent)
    return RatioColumn(share.value, share.low, share.high)
