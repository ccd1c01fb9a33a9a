"""Gives locations their names: what symbol sources found for each mapped file, as one set of tables."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tdprof.model.addresses import NO_BEGIN, FileKind, Locations, MappedFile, Unknown
from tdprof.model.arrays import I32, I64, U8, U32, U64, rows_by_number
from tdprof.model.profile import FunctionTable, LocationTable
from tdprof.profile.frames import as_column

Locate = Callable[[MappedFile, U64], Locations]
Demangle = Callable[[Sequence[str]], list[str]]

REASON_TEXT = {
    Unknown.KNOWN: "unknown",
    Unknown.NO_MAPPING: "no mapping",
    Unknown.NO_FILE: "no file",
    Unknown.WRONG_BUILD_ID: "file replaced",
    Unknown.STRIPPED: "stripped",
    Unknown.NO_SYMBOL: "no symbol",
    Unknown.DAMAGED: "damaged symbols",
    Unknown.NO_PERF_MAP: "run-time code",
    Unknown.HIDDEN_KERNEL: "hidden kernel",
}

# How the name of a place without a function ends, and that of a process's code without one.
_PLACE = re.compile(r"\+0x[0-9a-f]+(-0x[0-9a-f]+)?$")
_OF_PROCESS = re.compile(r" of process [0-9]+$")
# As shown behind the names of what compilers split off or specialise; see symbolize.names.
_TAGS = re.compile(r"(?: \[(?:(?:cold|part|isra|constprop|unlikely|localalias)(?:\.\d+)? ?)+\])?$")
_MOST_UNKNOWN = 1 << 16  # addresses that are functions of their own
# Frames of all stacks; of programs of small inlined functions an address has two or three. Tables of recordings have up
# to 1.5 addresses a byte, most half a one.
_SPARE_FRAMES, _FRAMES_AN_ADDRESS = 1 << 19, 8
_FRAMES_OF_ANY, _FRAMES_A_BYTE = 1 << 22, 2
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)


def name_locations(
    mapped_files: Sequence[MappedFile],
    file: I32,
    address: U64,
    locate: Locate,
    demangle: Demangle,
    markers: Sequence[str] = (),
) -> tuple[FunctionTable, LocationTable]:
    """Symbolize every location.

    Args:
        mapped_files: distinct files.
        file: int32[n], index into them, -1 where nothing was mapped, -2 - k where ``markers[k]`` stands for an address.
        address: uint64[n], as ``Locations`` are asked for.
        locate: looks distinct addresses of one file up.
        demangle: makes names readable.
        markers: texts that stand for what is no address.

    Returns:
        Functions, and the n locations with at least one frame each. Unknown addresses of a file are a function named by
        file and where it begins, or all the code between known functions, by where it begins and ends; of which neither
        is known are each one of its own, so that unknown hotspots stay apart. A process's code made at run
        time, all outside any mapping, and all of a file where there are more than anybody tells apart are one.
    """
    functions = _Functions()
    reason = np.full(len(file), Unknown.NO_MAPPING, np.uint8)
    counts = np.ones(len(file), np.int64)
    parts: list[_Part] = []
    apart = _MOST_UNKNOWN
    for index, rows in rows_by_number(file):
        if index < -1:
            reason[rows] = Unknown.KNOWN
            parts.append(_Part(rows, functions.number_unknown([markers[-2 - index]] * len(rows), -1), _no_lines(rows)))
            continue
        if index == -1:
            parts.append(_Part(rows, functions.number_unknown(_reasons(reason[rows]), -1), _no_lines(rows)))
            continue
        found = locate(mapped_files[index], address[rows])
        reason[rows] = found.reason
        frames = np.diff(found.frame_start.astype(np.int64))
        is_known = frames > 0
        counts[rows[is_known]] = frames[is_known]
        parts.append(_Part(rows[is_known], functions.number(found, index), found.line))
        places, ends = (each[~is_known] for each in _code_around(found, address[rows]))
        rows = rows[~is_known]
        texts = _places_named(_reasons(reason[rows]), mapped_files[index], places, ends, apart)
        apart = max(0, apart - len(rows))
        parts.append(_Part(rows, functions.number_unknown(texts, index), _no_lines(rows)))

    frame_start, frame_function, frame_line = _joined(parts, counts)
    location_table = LocationTable(
        mapped_file=np.maximum(file, -1),
        address=address,
        reason=reason,
        frame_start=frame_start.astype(np.uint32),
        frame_function=frame_function,
        frame_line=frame_line,
        is_guess=np.zeros(len(address), bool),
    )
    return functions.table(demangle), location_table


def names_place(name: str) -> bool:
    """Whether a name is that of a place in a file, which has no function that is known."""
    return name.startswith("[") and _PLACE.search(name) is not None


def without_place(name: str) -> str:
    """The name of code without a function as that of all such code of its file, or of all processes; others as is."""
    return _OF_PROCESS.sub("", _PLACE.sub("", name)) if name.startswith("[") else name


def _reasons(reason: U8) -> list[str]:
    return [f"[{REASON_TEXT[Unknown(number)]}]" for number in reason.tolist()]


def _no_lines(rows: I64) -> U32:
    return np.zeros(len(rows), np.uint32)


def _code_around(found: Locations, address: U64) -> tuple[U64, U64]:
    """Where the code begins that each address is in, as far as that is known, and where it ends, or ``NO_BEGIN``."""
    begin = address if found.begin is None else np.where(found.begin == NO_BEGIN, address, found.begin)
    return begin, np.full(len(address), NO_BEGIN) if found.end is None else found.end


def _places_named(texts: Sequence[str], file: MappedFile, places: U64, ends: U64, apart: int) -> list[str]:
    """Each text with the file's name; the first ``apart`` with where the code begins and, if that is known, ends."""
    name = file.path.rpartition("/")[2]
    if file.kind is FileKind.ANONYMOUS:  # addresses of a heap, which are others in each run, tell nobody anything
        return [f"{text} {name} of process {file.pid}" for text in texts]
    shown = [
        f"+{place:#x}" + (f"-{end:#x}" if end != NO_BEGIN else "")
        for place, end in zip(places[:apart].tolist(), ends[:apart].tolist(), strict=True)
    ]
    shown += [""] * (len(texts) - len(shown))
    return [f"{text} {name}{place}" for text, place in zip(texts, shown, strict=True)]


def _joined(parts: Sequence["_Part"], counts: I64) -> tuple[I64, I32, U32]:
    """Where the frames of each location begin, and each frame's function and line; ``counts``: frames of a location."""
    frame_start = np.concatenate([[0], np.cumsum(counts)])
    frame_function, frame_line = np.empty(frame_start[-1], np.int32), np.empty(frame_start[-1], np.uint32)
    for part in parts:
        lengths = counts[part.rows]
        before = np.cumsum(lengths) - lengths
        at = np.repeat(frame_start[part.rows] - before, lengths) + np.arange(len(part.function))
        frame_function[at], frame_line[at] = part.function, part.line
    return frame_start, frame_function, frame_line


class _Part(NamedTuple):
    """Some locations, and the frames of all of them, one location behind the other."""

    rows: I64
    function: I32
    line: U32


class _Functions:
    """Distinct functions, numbered as they come."""

    def __init__(self) -> None:
        self._linkage_name: list[str] = []
        self._file: list[str] = []
        self._mapped_file: list[int] = []
        self._has_code: list[bool] = []
        self._whole: list[int] = []
        self._is_unknown: list[bool] = []

    def number(self, found: Locations, mapped_file: int) -> I32:
        """The numbers of what was found in a file, for each frame; called once for each file."""
        columns = (found.function, found.file, found.own_files)
        name, source, own = (_same_text(column, found.strings) for column in columns)
        if found.own_file is None:
            places, which = _numbered(name, source + 1)
            whole = np.arange(len(places), dtype=np.int32)
        else:
            # Behind the frames the function of each as a whole.
            known, place = _numbered(np.tile(name, 2), np.concatenate([source, own]) + 1)
            there = place[len(name) :]
            rows, row = _numbered(place, np.tile(there, 2))
            places, (which, whole_of_frame) = known[rows >> _HALF], np.split(row, 2)
            whole = np.empty(len(rows), np.int32)
            whole[row] = np.tile(whole_of_frame, 2)
        first_row = len(self._linkage_name)
        texts = [*found.strings, ""]
        self._linkage_name += [texts[row] for row in (places >> _HALF).tolist()]
        self._file += [texts[row] for row in ((places & _LOWER).astype(np.int64) - 1).tolist()]
        self._mapped_file += [mapped_file] * len(places)
        ends = found.frame_start[1:][np.diff(found.frame_start.astype(np.int64)) > 0].astype(np.int64)
        outermost = which[ends - 1]  # which is not inlined
        has_code = np.zeros(len(places), bool)
        has_code[outermost] = has_code[whole[outermost]] = True
        self._has_code += has_code.tolist()
        self._whole += (whole + first_row).tolist()
        self._is_unknown += [False] * len(has_code)
        return (which + first_row).astype(np.int32)

    def number_unknown(self, texts: list[str], mapped_file: int) -> I32:
        """The numbers of what is not known but by a text that says where it is, and why."""
        numbers: dict[str, int] = {}
        first_row = len(self._linkage_name)
        result = np.array([numbers.setdefault(text, first_row + len(numbers)) for text in texts], np.int32)
        self._whole += range(first_row, first_row + len(numbers))
        self._linkage_name += numbers
        self._file += [""] * len(numbers)
        self._mapped_file += [mapped_file] * len(numbers)
        self._has_code += [True] * len(numbers)
        self._is_unknown += [True] * len(numbers)
        return result

    def table(self, demangle: Demangle) -> FunctionTable:
        """All that were numbered, with readable names."""
        names = demangle(
            ["" if unknown else name for name, unknown in zip(self._linkage_name, self._is_unknown, strict=True)]
        )
        return FunctionTable(
            name=[
                linkage_name if unknown else name
                for linkage_name, unknown, name in zip(self._linkage_name, self._is_unknown, names, strict=True)
            ],
            linkage_name=self._linkage_name,
            file=self._file,
            mapped_file=np.array(self._mapped_file, np.int32),
            is_inlined=np.array([not code for code in self._has_code], np.uint8),
            whole=None if self._whole == list(range(len(self._whole))) else np.array(self._whole, np.int32),
        )


def _numbered(first: I32, second: I32) -> tuple[U64, I32]:
    """The distinct pairs, in the order in which they come, the first of each in the upper half; each row's number."""
    encoded = as_column(first.astype(np.uint64) << _HALF | second.astype(np.uint64)).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy()


def _same_text(index: I32, strings: Sequence[str]) -> I32:
    """Indices (-1: none) so that equal strings have one, the first."""
    first: dict[str, int] = {}
    same = [first.setdefault(text, number) for number, text in enumerate(strings)]
    return np.array([*same, -1], np.int32)[index]


def base_name(shown: str) -> str:
    """A shown name without the tags of compilers' clones: ``run(int) [isra.0 cold]`` is ``run(int)``."""
    return _TAGS.sub("", shown, count=1)


def limit_inlining(locations: LocationTable, stack_location: I32, table_bytes: int) -> tuple[LocationTable, str]:
    """Leave out the innermost of so many inlined calls that stacks stay a small multiple of what they were read from.

    Args:
        locations: as `name_locations` gives them.
        stack_location: the locations of all stacks, one behind the other.
        table_bytes: of the capture's tables, as they lie in files.

    Returns:
        The table, and a sentence on what it leaves out; "" if it is as it was.
    """
    frames: I64 = np.diff(locations.frame_start.astype(np.int64)).astype(np.int64)
    by_bytes = max(len(stack_location), _FRAMES_OF_ANY + _FRAMES_A_BYTE * table_bytes)
    most = min(_SPARE_FRAMES + _FRAMES_AN_ADDRESS * len(stack_location), by_bytes)
    if len(stack_location) * int(frames.max(initial=0)) <= most:  # as where nothing is inlined
        return locations, ""
    uses = np.bincount(stack_location, minlength=len(frames))
    if int(uses @ frames) <= most:
        return locations, ""
    depth, too_deep = 1, int(frames.max())
    while too_deep - depth > 1:
        middle = (depth + too_deep) // 2
        fits = int(uses @ np.minimum(frames, middle)) <= most
        depth, too_deep = (middle, too_deep) if fits else (depth, middle)
    is_kept = np.repeat(locations.frame_start[1:].astype(np.int64), frames) - np.arange(frames.sum()) <= depth
    shorter = replace(
        locations,
        frame_start=np.concatenate([[0], np.cumsum(np.minimum(frames, depth))]).astype(np.uint32),
        frame_function=locations.frame_function[is_kept],
        frame_line=locations.frame_line[is_kept],
    )
    return shorter, f"calls inlined more than {depth - 1} deep are too many to show: the innermost are left out"
