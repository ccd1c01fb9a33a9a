"""Making ``Locations`` from what a symbol source found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import NO_BEGIN, Locations, Unknown
from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.symbolize.code_index import NO_ID, CodeIndex
from tdprof.symbolize.symbol_table import SymbolTable

# Frames of all addresses together: real calls are inlined a few deep, damaged data says a thousand.
_FRAMES_EACH, _SPARE_FRAMES = 32, 1 << 18
UNNAMED = "(unnamed)"  # a function that debug data describes without a name


class SourcePlace(NamedTuple):
    """A source file, empty where there is none, and a line in it, 0 where it is not known."""

    file: str
    line: int


def unknown_locations(count: int, reason: Unknown) -> Locations:
    """``count`` addresses without frames, all for one reason."""
    none = np.zeros(0, np.int32)
    return Locations(
        frame_start=np.zeros(count + 1, np.uint32),
        function=none,
        file=none,
        line=np.zeros(0, np.uint32),
        reason=np.full(count, reason, np.uint8),
        strings=(),
    )


def concatenate_locations(parts: Sequence[Locations]) -> Locations:
    """The rows of several, one after the other, without where their code begins and ends."""
    strings = list[str]()
    shifts, first = [], [0]
    for part in parts:
        shifts.append(len(strings))
        first.append(first[-1] + len(part.function))
        strings += part.strings
    starts = [part.frame_start[:-1] + np.uint32(at) for part, at in zip(parts, first[:-1], strict=True)]
    numbered = [*zip(parts, map(np.int32, shifts), strict=True)]
    return Locations(
        frame_start=np.concatenate([*starts, np.array(first[-1:], np.uint32)]),
        function=np.concatenate([part.function + shift for part, shift in numbered]),
        file=np.concatenate([_shifted(part.file, shift) for part, shift in numbered]),
        line=np.concatenate([part.line for part in parts]),
        reason=np.concatenate([part.reason for part in parts]),
        strings=strings,
        own_file=np.concatenate([_shifted(part.own_files, shift) for part, shift in numbered]),
    )


def _shifted(file: I32, shift: np.int32) -> I32:
    return np.where(file < 0, np.int32(-1), file + shift)


def combine_locations(base: Locations, rows: I64, other: Locations, other_rows: I64) -> Locations:
    """``base`` with some of its rows replaced by rows of ``other``."""
    length = np.diff(base.frame_start).astype(np.int64)
    other_length = np.diff(other.frame_start).astype(np.int64)[other_rows]
    is_base = np.ones(len(length), bool)
    is_base[rows] = False
    length[rows] = other_length
    start = np.concatenate([[0], np.cumsum(length)])
    # For each frame of the result: which frame of the two, laid one behind the other, it is.
    origin = np.zeros(len(length), np.int64)
    origin[is_base] = base.frame_start[:-1][is_base]
    origin[rows] = other.frame_start[:-1][other_rows].astype(np.int64) + len(base.function)
    frames = np.repeat(origin - start[:-1], length) + np.arange(start[-1])
    shift = np.int32(len(base.strings))
    has_own = base.own_file is not None or other.own_file is not None
    reason = base.reason.copy()
    reason[rows] = other.reason[other_rows]
    return Locations(
        frame_start=start.astype(np.uint32),
        function=np.concatenate([base.function, other.function + shift])[frames],
        file=np.concatenate([base.file, _shifted(other.file, shift)])[frames],
        line=np.concatenate([base.line, other.line])[frames],
        reason=reason,
        strings=[*base.strings, *other.strings],
        own_file=np.concatenate([base.own_files, _shifted(other.own_files, shift)])[frames] if has_own else None,
        begin=_combined(base.begin, rows, other.begin, other_rows, len(length)),
        end=_combined(base.end, rows, other.end, other_rows, len(length)),
    )


def with_places(found: Locations, place_of: Callable[[str], SourcePlace | None]) -> Locations:
    """Locations whose functions have, where no source file was known, what is known by their names."""
    bare = np.flatnonzero(found.file < 0)
    names, name = np.unique(found.function[bare], return_inverse=True)
    places = [place_of(found.strings[each]) for each in names.tolist()]
    files = {place.file: 0 for place in places if place and place.file}
    if not files:
        return found
    number = {file: len(found.strings) + at for at, file in enumerate(files)}
    file, line = found.file.copy(), found.line.copy()
    file[bare] = np.array([number.get(place.file, -1) if place else -1 for place in places], np.int32)[name]
    line[bare] = np.array([place.line if place else 0 for place in places], np.uint32)[name]
    own_file = None if found.own_file is None else np.where(found.own_file < 0, file, found.own_file)
    return replace(found, file=file, line=line, own_file=own_file, strings=[*found.strings, *files])


def _combined(base: U64 | None, rows: I64, other: U64 | None, other_rows: I64, count: int) -> U64 | None:
    if base is None and other is None:
        return None
    values = np.full(count, NO_BEGIN, np.uint64) if base is None else base.copy()
    values[rows] = NO_BEGIN if other is None else other[other_rows]
    return values


def find_locations(table: SymbolTable, index: CodeIndex, addresses: U64, missing: Unknown) -> Locations:
    """The frames of each address; ``missing`` is why the others have none.

    Inlined frames, files and lines are as ``index`` has them. The outermost function is named by ``table`` where a
    symbol covers the address: debug data gives a ``.cold`` part the name of the whole, and of aliases any. It stands in
    the file that debug data says, else in that of the line where its symbol begins.
    """
    ranges = index.lookup(addresses)
    symbols = table.lookup(addresses)
    node = np.full(len(addresses), NO_ID, np.uint32)
    node[ranges >= 0] = index.range_node[ranges[ranges >= 0]]
    found = (node != NO_ID) | (symbols >= 0)
    levels, depth = _inline_levels(index, node, found)
    frame_start = np.zeros(len(addresses) + 1, np.uint32)
    np.cumsum(depth, out=frame_start[1:])
    total = int(frame_start[-1])
    # Ids of the index first, then those of the table.
    function_ids = np.zeros(total, np.int64)
    file_ids, own_ids = (np.full(total, NO_ID, np.uint32) for _ in range(2))
    lines = np.zeros(total, np.uint32)
    first_symbol = len(index.function_name) + 1
    unnamed = first_symbol - 1
    first_noted = len(index.file_name)
    for level, (rows, nodes) in enumerate(levels[:-1]):
        at = frame_start[rows] + np.uint32(level)
        inside = nodes != NO_ID
        functions = np.full(len(nodes), unnamed, np.int64)
        functions[inside] = index.node_function[nodes[inside]]
        own_ids[at[inside]] = index.node_file[nodes[inside]]
        functions[functions == NO_ID] = unnamed
        outermost = depth[rows] == level + 1
        by_symbol = outermost & (symbols[rows] >= 0)
        functions[by_symbol] = symbols[rows[by_symbol]] + first_symbol
        untold = by_symbol & (own_ids[at] == NO_ID)
        own_ids[at[untold]] = _files_of_begins(index, table.start[symbols[rows[untold]]])
        function_ids[at] = functions
        if level == 0:
            known = ranges[rows] >= 0
            file_ids[at[known]] = index.range_file[ranges[rows[known]]]
            lines[at[known]] = index.range_line[ranges[rows[known]]]
        # Where this level's node is called is the line of the frame around it.
        around = ~outermost
        file_ids[at[around] + 1] = index.node_call_file[nodes[around]]
        lines[at[around] + 1] = index.node_call_line[nodes[around]]
        outermost_rows = rows[by_symbol & (file_ids[at] == NO_ID)]
        noted = table.file[symbols[outermost_rows]]
        file_ids[frame_start[outermost_rows] + np.uint32(level)] = np.where(noted < 0, NO_ID, noted + first_noted)
    used_functions, function = _number(function_ids, first_symbol + len(table))
    names = _function_names(index, table, used_functions, first_symbol)
    own_ids = np.where(own_ids == NO_ID, file_ids, own_ids)
    files, file = _files(index, table, np.concatenate([file_ids, own_ids]), len(names))
    return Locations(
        frame_start=frame_start,
        function=function,
        file=file[:total],
        line=lines,
        reason=np.where(found, Unknown.KNOWN, missing).astype(np.uint8),
        strings=[*names, *files],
        own_file=None if np.array_equal(file_ids, own_ids) else file[total:],
    )


def _files(index: CodeIndex, table: SymbolTable, ids: U32, first_string: int) -> tuple[list[str], I32]:
    """Paths by id of the index, then of the table, and where each stands among the strings, -1 for ``NO_ID``."""
    first_noted = len(index.file_name)
    used, file = _number(ids, first_noted + len(table.file_offset))
    files = index.file_names(used[used < first_noted])
    files += table.file_names((used[used >= first_noted] - first_noted).tolist())
    return files, np.where(ids == NO_ID, np.int32(-1), file + np.int32(first_string))


def _files_of_begins(index: CodeIndex, begins: U64) -> U32:
    """The file that each function stands in which begins at some address, or ``NO_ID``."""
    ranges = index.lookup(begins)
    file = np.full(len(begins), NO_ID, np.uint32)
    known = np.flatnonzero(ranges >= 0)
    node = index.range_node[ranges[known]]
    file[known] = index.range_file[ranges[known]]
    inside = node != NO_ID
    node, known = node[inside], known[inside]
    told = index.node_file[node]
    file[known[told != NO_ID]] = told[told != NO_ID]
    file[known[index.node_parent[node] != NO_ID]] = NO_ID  # the line of a call that was inlined there
    return file


def _inline_levels(index: CodeIndex, node: U32, found: NDArray[np.bool_]) -> tuple[list[tuple[I64, U32]], U32]:
    """Who is inlined into whom: of each level the rows that have it, and their nodes; and how many levels each row has.

    The last level has no row.
    """
    depth = np.where(found, 1, 0).astype(np.uint32)
    most = _FRAMES_EACH * len(node) + _SPARE_FRAMES
    levels = [(np.flatnonzero(found), node[found])]
    while len(levels[-1][0]):
        rows, nodes = levels[-1]
        parents = np.full(len(nodes), NO_ID, np.uint32)
        inside = nodes != NO_ID
        parents[inside] = index.node_parent[nodes[inside]]
        # Calls nested deeper than all together may be end here, at what the symbol table names.
        most -= len(nodes)
        deeper = (parents != NO_ID) & (most > 0)
        depth[rows[deeper]] += 1
        levels.append((rows[deeper], parents[deeper]))
    return levels, depth


def _number(ids: NDArray[np.integer], limit: int) -> tuple[I64, I32]:
    """The distinct ids below ``limit`` in order, and for each id its place among them (others: 0)."""
    seen = np.zeros(limit + 1, bool)
    clipped = np.minimum(ids, limit)
    seen[clipped] = True
    seen[limit] = False
    return np.flatnonzero(seen), (np.cumsum(seen, dtype=np.int32) - 1)[clipped]


def _function_names(index: CodeIndex, table: SymbolTable, ids: I64, first_symbol: int) -> list[str]:
    unnamed = first_symbol - 1
    names = index.function_names(ids[ids < unnamed])
    names += [UNNAMED] * int((ids == unnamed).sum())
    return names + table.names((ids[ids >= first_symbol] - first_symbol).tolist())
