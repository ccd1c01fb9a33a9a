"""Gives locations their names: what symbol sources found for each mapped file, as one set of tables."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tdprof.model import I32, U64, Locations, MappedFile, Unknown
from tdprof.profile import FunctionTable, LocationTable

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

# As shown behind the names of what compilers split off or specialise; see symbolize.names.
_CLONE_TAGS = re.compile(r" \[(?:(?:cold|part|isra|constprop|unlikely|localalias)(?:\.\d+)? ?)+\]$")


class _Function(NamedTuple):
    linkage_name: str
    file: str
    mapped_file: int


def name_locations(
    mapped_files: Sequence[MappedFile], file: I32, address: U64, locate: Locate, demangle: Demangle
) -> tuple[FunctionTable, LocationTable]:
    """Symbolize every location.

    Args:
        mapped_files: distinct files.
        file: int32[n], index into them, -1 where nothing was mapped.
        address: uint64[n], as ``Locations`` are asked for.
        locate: looks distinct addresses of one file up.
        demangle: makes names readable.

    Returns:
        Functions, and the n locations with at least one frame each. An unknown address of a file is a function
        of its own, named by file and address, so that unknown hotspots stay apart; all outside any mapping are one.
    """
    functions: dict[_Function, int] = {}
    shown: list[str | None] = []  # None: the demangled linkage name
    has_code: list[bool] = []
    reason = np.full(len(file), Unknown.NO_MAPPING, np.uint8)
    frames: list[list[tuple[int, int]]] = [[] for _ in range(len(file))]

    def number_of(function: _Function, name: str | None, *, is_inlined: bool) -> int:
        if function not in functions:
            functions[function] = len(functions)
            shown.append(name)
            has_code.append(False)
        if not is_inlined:
            has_code[functions[function]] = True
        return functions[function]

    for index in np.unique(file).tolist():
        rows = np.flatnonzero(file == index)
        if index >= 0:
            found = locate(mapped_files[index], address[rows])
            reason[rows] = found.reason
            starts = found.frame_start.tolist()
            columns = (found.function.tolist(), found.file.tolist(), found.line.tolist())
            for row, first, last in zip(rows.tolist(), starts, starts[1:], strict=False):
                for at in range(first, last):
                    name, source, line = (column[at] for column in columns)
                    key = _Function(found.strings[name], found.strings[source] if source >= 0 else "", index)
                    frames[row].append((number_of(key, None, is_inlined=at < last - 1), line))
        for row in rows.tolist():
            if not frames[row]:
                text = f"[{REASON_TEXT[Unknown(int(reason[row]))]}]"
                if index >= 0:
                    text += f" {mapped_files[index].path.rpartition('/')[2]}+{int(address[row]):#x}"
                frames[row].append((number_of(_Function(text, "", index), text, is_inlined=False), 0))

    keys = list(functions)
    names = demangle([key.linkage_name if text is None else "" for key, text in zip(keys, shown, strict=True)])
    function_table = FunctionTable(
        name=[text or name for text, name in zip(shown, names, strict=True)],
        linkage_name=[key.linkage_name for key in keys],
        file=[key.file for key in keys],
        mapped_file=np.array([key.mapped_file for key in keys], np.int32),
        is_inlined=np.array([not code for code in has_code], np.uint8),
    )
    flat = [frame for chain in frames for frame in chain]
    location_table = LocationTable(
        mapped_file=file,
        address=address,
        reason=reason,
        frame_start=np.cumsum([0, *(len(chain) for chain in frames)]).astype(np.uint32),
        frame_function=np.array([function for function, _ in flat], np.int32),
        frame_line=np.array([line for _, line in flat], np.uint32),
    )
    return function_table, location_table


def base_name(shown: str) -> str:
    """A shown name without the tags of compilers' clones: ``run(int) [isra.0 cold]`` is ``run(int)``."""
    return _CLONE_TAGS.sub("", shown)
