"""A profile's call stacks as functions and lines, inlined ones included: what reports and exporters add up."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.model.profile import FrameStacks, FunctionTable, KeptStacks, Profile, StackTable
from tdprof.native.library import load_native
from tdprof.native.stacks import StackMerge
from tdprof.profile.call_tree import call_tree
from tdprof.text import all_printable, printable

FunctionIdentity = tuple[str, str, str, str]
NO_STACK = "[no call stack]"  # the one frame of samples whose stack could not be read
_DENSE = 4  # times as large as there are many: up to here a table of all values is faster than a hash table


def frame_stacks(profile: Profile, *, of_lines: bool = False) -> FrameStacks:
    """Expand locations into their inlined frames; a stack without locations gets the frame ``NO_STACK``.

    Done once for a profile and all copies of it that have the same code.

    Args:
        of_lines: a frame's function is the row of it that has the line's source file, where the function has lines of
            several; else the one row of the function as a whole, whose file is where it stands.
    """
    kept, code = profile.kept_stacks, (profile.functions, profile.mapped_files, profile.locations, profile.stacks)
    if kept.stacks is None or not all(mine is its for mine, its in zip(code, kept.code, strict=True)):
        kept.code, kept.stacks, kept.of_lines = (
            code,
            _expand(profile, whole_functions(profile.functions, profile.mapped_files)),
            None,
        )
    if not of_lines or profile.functions.whole is None:
        return kept.stacks
    if kept.of_lines is None:
        kept.of_lines = _expand(profile, line_functions(profile.functions, profile.mapped_files))
    return kept.of_lines


def _expand(profile: Profile, function_of: I32) -> FrameStacks:
    expanded = _expanded(profile, function_of)
    for column in (expanded.start, expanded.function, expanded.line):
        column.flags.writeable = False
    return expanded


def _expanded(profile: Profile, function_of: I32) -> FrameStacks:
    locations, stacks = profile.locations, profile.stacks
    functions = function_of[locations.frame_function]
    if (library := load_native()) is None:
        return _expand_in_numpy(stacks, locations.frame_start.astype(np.int64), functions, locations.frame_line)
    stack_start, location = np.ascontiguousarray(stacks.start, np.uint32), np.ascontiguousarray(stacks.location)
    frame_start, lines = np.ascontiguousarray(locations.frame_start, np.uint32), locations.frame_line.astype(np.uint32)
    count = len(stack_start) - 1
    start = np.empty(count + 1, np.int64)
    given = (stack_start.ctypes.data, location.ctypes.data, count, frame_start.ctypes.data)
    library.tdprof_count_frames(*given, start.ctypes.data)
    expanded = FrameStacks(start, np.empty(start[-1], np.int32), np.empty(start[-1], np.uint32))
    library.tdprof_expand_frames(
        *given,
        functions.ctypes.data,
        lines.ctypes.data,
        start.ctypes.data,
        expanded.function.ctypes.data,
        expanded.line.ctypes.data,
    )
    return expanded


def _expand_in_numpy(stacks: StackTable, frame_start: I64, functions: I32, lines: U32) -> FrameStacks:
    frames_of = np.diff(frame_start)[stacks.location]
    first_frame = frame_start[:-1][stacks.location]
    # For each frame of each stack: the first frame of its location, plus its position within that location.
    ends = np.cumsum(frames_of)
    index = np.repeat(first_frame - (ends - frames_of), frames_of) + np.arange(ends[-1] if len(ends) else 0)
    function, line = functions[index], lines[index]

    frames_before = np.concatenate(([0], ends))
    start = frames_before[stacks.start.astype(np.int64)]
    empty = np.flatnonzero(np.diff(start) == 0)
    function = np.insert(function, start[empty], -1).astype(np.int32)
    line = np.insert(line, start[empty], 0).astype(np.uint32)
    shift = np.zeros(len(start), np.int64)
    shift[empty + 1] = 1
    return FrameStacks(start + np.cumsum(shift), function, line)


def whole_functions(functions: FunctionTable, mapped_files: Sequence[MappedFile]) -> I32:
    """int32[functions]: the first of the same name, mapped file's path and source file that the function stands in.

    Functions that share these are one to a reader. One file can be two mapped files: processes that ran before the
    recording show it without its build-id.
    """
    alike = line_functions(functions, mapped_files)
    return alike if functions.whole is None else alike[functions.whole]


def line_functions(functions: FunctionTable, mapped_files: Sequence[MappedFile]) -> I32:
    """int32[functions]: as `whole_functions`, and the first whose lines are of the same source file."""
    first: dict[tuple[str, str, str, str], int] = {}
    keys = zip(functions.name, functions.file, _own_files(functions), _paths(functions, mapped_files), strict=True)
    return np.array([first.setdefault(key, number) for number, key in enumerate(keys)], np.int32)


def are_elsewhere(functions: FunctionTable) -> NDArray[np.bool_]:
    """bool[functions]: which are of a function's lines in other files than it stands in."""
    if functions.whole is None:
        return np.zeros(len(functions.file), np.bool_)
    return np.asarray(functions.whole != np.arange(len(functions.file)))


def function_identities(functions: FunctionTable, mapped_files: Sequence[MappedFile]) -> list[FunctionIdentity]:
    """What each function is in any profile of any recording: linkage name, source file of the lines, the one that the
    function stands in, and path of the mapped file."""
    paths = _paths(functions, mapped_files)
    return list(zip(functions.linkage_name, functions.file, _own_files(functions), paths, strict=True))


def _own_files(functions: FunctionTable) -> Sequence[str]:
    return functions.file if functions.whole is None else [functions.file[row] for row in functions.whole.tolist()]


def _paths(functions: FunctionTable, mapped_files: Sequence[MappedFile]) -> list[str]:
    modules = [*(file.path for file in mapped_files), ""]
    return [modules[row] for row in functions.mapped_file.tolist()]


def function_names(profile: Profile) -> list[str]:
    """Printable names by function id, and ``NO_STACK`` last, so that id -1 finds it."""
    return [*all_printable(profile.functions.name), NO_STACK]


def only_frames(profile: Profile, kept: NDArray[np.bool_]) -> Profile:
    """The profile with some of its stacks' locations; ``kept``: bool, for each of ``stacks.location``."""
    lengths: I64 = np.diff(profile.stacks.start.astype(np.int64)).astype(np.int64)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[kept], minlength=len(lengths)))]).astype(np.uint32)
    return replace(profile, stacks=StackTable(start, profile.stacks.location[kept]), kept_stacks=KeptStacks())


def have_any(profile: Profile, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[stacks]: which have one of these locations; ``chosen``: bool, for each location."""
    lengths = np.diff(profile.stacks.start.astype(np.int64)).astype(np.int64)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    found: NDArray[np.bool_] = np.bincount(owner, chosen[profile.stacks.location], len(lengths)) > 0
    return found


def leaf_locations(profile: Profile) -> I64:
    """int64[stacks]: location id of each stack's leaf, -1 where the stack is empty."""
    has_stack = np.diff(profile.stacks.start.astype(np.int64)) > 0
    leaf = np.full(len(has_stack), -1, np.int64)
    leaf[has_stack] = profile.stacks.location[profile.stacks.start[:-1][has_stack]]
    return leaf


def merge_stacks(stacks: FrameStacks) -> tuple[I64, I64]:
    """Number the stacks so that those with the same functions, whatever their lines and addresses, share a number.

    Returns:
        merged: int64[n], the number of each stack, from 0, in no order to rely on.
        representative: int64[max(merged) + 1], one stack for each number.
    """
    if (library := load_native()) is None:
        return _merge_in_numpy(stacks)
    count = len(stacks.start) - 1
    slots = np.zeros(1 << (count * 4 // 3 + 1).bit_length(), np.uint64)
    merged, representative = np.empty(count, np.int64), np.empty(count, np.int64)
    start, function = np.ascontiguousarray(stacks.start, np.int64), np.ascontiguousarray(stacks.function, np.int32)
    table = StackMerge(
        start=start.ctypes.data,
        function=function.ctypes.data,
        stacks=count,
        slots=slots.ctypes.data,
        slot_mask=len(slots) - 1,
        seed=int.from_bytes(os.urandom(8), "little"),
        merged=merged.ctypes.data,
        representative=representative.ctypes.data,
    )
    return merged, representative[: library.tdprof_merge_stacks(ctypes.byref(table))]


def _merge_in_numpy(stacks: FrameStacks) -> tuple[I64, I64]:
    _, representative, merged = np.unique(call_tree(stacks).node_of_stack, return_index=True, return_inverse=True)
    return merged.astype(np.int64), representative.astype(np.int64)


def as_column(values: U64) -> pa.UInt64Array:
    """The values for Arrow, not copied. ``pa.array`` of them would load NumPy's masked arrays, a tenth of a start."""
    values = np.ascontiguousarray(values)
    column: pa.UInt64Array = pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(values)])
    return column


def number_values(values: U64) -> tuple[U64, I32]:
    """``numpy.unique`` with the inverse, by a hash table: many times as fast where few values are distinct.

    Of values that are no larger than there are many it is a plain table, a third of that.

    Returns:
        distinct: uint64, sorted.
        number: int32[n], the row of each value in ``distinct``.
    """
    if len(values) and (largest := int(values.max())) < _DENSE * len(values):
        at = values.view(np.int64)  # what NumPy looks up by as it is
        is_there = np.zeros(largest + 1, bool)
        is_there[at] = True
        known = np.flatnonzero(is_there)
        row = np.empty(largest + 1, np.int32)
        row[known] = np.arange(len(known), dtype=np.int32)
        return known.astype(np.uint64), row.take(at)
    encoded = as_column(values).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    order = np.argsort(distinct)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order))
    return distinct[order], rank[encoded.indices.to_numpy()]


def number_pairs(first: I64, second: I64) -> tuple[I64, I64, I32]:
    """Number the distinct pairs of two columns.

    Args:
        first, second: int64[n], none negative, less than 2^31.

    Returns:
        Of each distinct pair, in order, the first and the second; and int32[n], the number of each row's pair.
    """
    seconds = second.max(initial=0) + 1
    pairs = first * seconds
    pairs += second
    known, number = number_values(pairs.view(np.uint64))
    return *np.divmod(known.view(np.int64), seconds), number


def module_names(profile: Profile) -> list[str]:
    """Printable paths by mapped file, and "" last, so that -1 (no mapping known) finds it."""
    return [*(printable(file.path) for file in profile.mapped_files), ""]


def thread_labels(profile: Profile) -> list[str]:
    """Printable root frames by thread name."""
    return [printable(name) or "[unnamed thread]" for name in profile.thread_names]
