"""Run-time code that took other code's place, by time: which of both an address meant when it was sampled."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tdprof.model.arrays import I64, U64, distinct
from tdprof.symbolize.code_index import CodeIndex
from tdprof.symbolize.symbol_table import Cells, SymbolTable

# Each version is looked up at a place of its own; no machine that is known has memory from here on. Bounded, so that
# places stay below the kernel's addresses whatever a dump says.
_FIRST_PLACE = _MOST_BYTES = 1 << 57
# Code cuts each other to pieces; in made-up dumps up to the square of their number.
_PIECES_EACH, _SPARE_PIECES = 2, 1 << 16
# Samples added up over an interval are of the code that stood there for all but this part of it, if there is such.
_NEGLIGIBLE = 1 / 20


@dataclass(frozen=True, slots=True)
class CodeVersions:
    """The functions of a process that replaced others, or were replaced; all sharing memory, each with a time.

    Attributes:
        row: int64[n], which of the functions given each version is.
        place: uint64[n], where each version is looked up; from ``place + size`` on, where a sample is of it or of what
            it replaced.
        replaced: the name of what each replaced, of several the first found; empty for what replaced nothing.
        latest_ns: when the last was loaded.
    """

    row: I64
    place: U64
    replaced: Sequence[str]
    latest_ns: int
    _address: U64
    _size: U64
    _edges: U64  # where pieces begin, and the end of the last
    _first: I64  # int64[edges + 1], where each piece's candidates begin
    _candidate: I64  # versions, by piece and time
    _loaded_ns: U64  # when each candidate was
    _turn: I64  # of each candidate, how often the name has changed up to it
    _times: U64  # distinct ones, sorted
    _key: I64  # of each candidate, its piece and the number of its time

    def places_of(self, addresses: U64, since_ns: U64, until_ns: U64) -> U64:
        """Where to look up what was sampled within an interval; the address itself where nothing was replaced.

        Args:
            addresses: uint64[n], run-time.
            since_ns, until_ns: uint64[n], CLOCK_MONOTONIC; equal where the very time is known.
        """
        places = addresses.copy()
        piece = np.searchsorted(self._edges, addresses, "right") - 1
        rows = np.flatnonzero((piece >= 0) & (self._first[piece + 1] > self._first[piece]))
        piece, since, until = piece[rows], since_ns[rows], until_ns[rows]
        before, after = self._at(piece, since), self._at(piece, until)
        changed = np.clip(self._loaded_ns[after], since, until)
        part_after = (until - changed).astype(np.float64) / np.maximum(until - since, np.uint64(1))
        stays = (after == before + 1) & (part_after <= _NEGLIGIBLE)
        is_new = (after == before + 1) & (part_after >= 1 - _NEGLIGIBLE)
        is_either = (self._turn[after] > self._turn[before]) & ~stays & ~is_new
        version = self._candidate[np.where(stays, before, after)]
        in_version = addresses[rows] - self._address[version]
        places[rows] = self.place[version] + in_version + np.where(is_either, self._size[version], np.uint64(0))
        return places

    def _at(self, piece: I64, time_ns: U64) -> I64:
        """The candidate of each piece at a time: the last until then, else the first, told late."""
        rank = np.searchsorted(self._times, time_ns, "right")
        at = np.searchsorted(self._key, piece * (len(self._times) + 1) + rank, "right") - 1
        return np.maximum(at, self._first[piece])


@dataclass(frozen=True, slots=True)
class RunTimeCode:
    """The functions of one process's run-time code, and where their lines are known, those.

    Attributes:
        note: says what was too much to be read, or nothing.
        versions: of functions that took each other's place, if times tell them apart.
    """

    table: SymbolTable
    index: CodeIndex
    note: str = ""
    versions: CodeVersions | None = None


def find_versions(start: U64, size: U64, time_ns: U64, names: Sequence[str]) -> CodeVersions | None:
    """The ranges that share memory with others of another name; None: there are none, or they are not told apart.

    Args:
        start, size, time_ns: uint64[n], where ranges are, and since when.
        names: theirs.
    """
    cells = Cells(start, size)
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    name = np.array([number[names[row]] for row in cells.row.tolist()], np.int64)
    highest, lowest = cells.highest(name), len(number) - 1 - cells.highest(len(number) - 1 - name)
    shared = np.concatenate([np.zeros(1, np.int64), np.cumsum((highest >= 0) & (highest != lowest))])
    is_shared = shared[cells.high] > shared[cells.low]
    row, name = cells.row[is_shared], name[is_shared]
    if not len(row) or not time_ns[row].all() or 2 * size[row].astype(np.float64).sum() >= _MOST_BYTES:
        return None
    pieces = Cells(start[row], size[row])
    counts = pieces.high - pieces.low
    if counts.sum() > _PIECES_EACH * len(row) + _SPARE_PIECES:
        return None
    version = np.repeat(np.arange(len(row)), counts)
    piece = np.arange(len(version)) + np.repeat(pieces.low - (np.cumsum(counts) - counts), counts)
    order = np.lexsort((version, time_ns[row][version], piece))
    piece, version = piece[order], version[order]
    loaded_ns, times = time_ns[row][version], distinct(time_ns[row])
    first = np.concatenate([[0], np.cumsum(np.bincount(piece, minlength=len(pieces.edges)))])
    is_other = np.ones(len(version), bool)
    is_other[1:] = (name[version][1:] != name[version][:-1]) | (piece[1:] != piece[:-1])
    # What stood there last under another name: in front of where the run of this name begins.
    run = np.maximum.accumulate(np.where(is_other, np.arange(len(version)), 0))
    has_earlier = np.flatnonzero(run > first[piece])
    later, at = np.unique(version[has_earlier], return_index=True)
    replaced = [""] * len(row)
    for each, earlier in zip(later.tolist(), version[run[has_earlier[at]] - 1].tolist(), strict=True):
        replaced[each] = names[row[earlier]]
    room = 2 * size[row]
    return CodeVersions(
        row,
        np.uint64(_FIRST_PLACE) + np.cumsum(room) - room,
        replaced,
        int(times[-1]),
        start[row],
        size[row],
        pieces.edges,
        first,
        version,
        loaded_ns,
        np.cumsum(is_other),
        times,
        piece * (len(times) + 1) + np.searchsorted(times, loaded_ns, "right"),
    )
