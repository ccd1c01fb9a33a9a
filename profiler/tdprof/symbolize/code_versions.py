"""Run-time code that took other code's place, by time: which of both an address meant when it was sampled."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tdprof.model.arrays import I64, U64, distinct
from tdprof.symbolize.code_index import CodeIndex
from tdprof.symbolize.doubts import OTHERS, Meant, either, is_within, shown
from tdprof.symbolize.symbol_table import Cells, SymbolTable
from tdprof.values import dataclass

if TYPE_CHECKING:  # few captures have it
    from tdprof.symbolize.java_code import JavaCodeIndex

# Each version is looked up at a place of its own; no machine that is known has memory from here on. Bounded, so that
# places stay below the kernel's addresses whatever a dump says.
_FIRST_PLACE = _MOST_BYTES = 1 << 57
# Code cuts each other to pieces; in made-up dumps up to the square of their number.
_PIECES_EACH, _SPARE_PIECES = 2, 1 << 16
# Samples added up over an interval are of the code that stood there for all but this part of it, if there is such.
_NEGLIGIBLE = 1 / 20
_PLACES = 3  # of each version
_MOST_RUNS = 8  # that are looked back for what a name says anyway: an interval ends soon after code was replaced


@dataclass(frozen=True, slots=True)
class CodeVersions:
    """The functions of a process that replaced others, or were replaced; all sharing memory, each with a time.

    Attributes:
        row: int64[n], which of the functions given each version is.
        places: uint64[3, n], where each version is looked up: where a sample is of it, where of it or of what it
            replaced, and where perhaps of what that replaced.
        names: what stands there.
        latest_ns: when the last was loaded.
    """

    row: I64
    places: U64
    names: Sequence[Sequence[str]]
    latest_ns: int
    _address: U64
    _edges: U64  # where pieces begin, and the end of the last
    _first: I64  # int64[edges + 1], where each piece's candidates begin
    _candidate: I64  # versions, by piece and time
    _loaded_ns: U64  # when each candidate was
    _turn: I64  # of each candidate, how often the name has changed up to it
    _reach: I64  # of each candidate, the first from which on samples are of it or of what it replaced
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
        which = np.where(is_either, np.where(before >= self._reach[after], 1, 2), 0)
        places[rows] = self.places[which, version] + addresses[rows] - self._address[version]
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
        java: what a JVM told besides of its code.
    """

    table: SymbolTable
    index: CodeIndex
    note: str = ""
    versions: CodeVersions | None = None
    java: "JavaCodeIndex | None" = None


def find_versions(start: U64, size: U64, time_ns: U64, meant: Sequence[Meant]) -> CodeVersions | None:
    """The ranges that share memory with others of another name; None: there are none, or they are not told apart.

    Args:
        start, size, time_ns: uint64[n], where ranges are, and since when.
        meant: what samples there are of. Where that is of several, it may also be of what was there before.
    """
    cells = Cells(start, size)
    number = {each: at for at, each in enumerate(dict.fromkeys(meant))}
    name = np.array([number[meant[row]] for row in cells.row.tolist()], np.int64)
    highest, lowest = cells.highest(name), len(number) - 1 - cells.highest(len(number) - 1 - name)
    shared = np.concatenate([np.zeros(1, np.int64), np.cumsum((highest >= 0) & (highest != lowest))])
    is_shared = shared[cells.high] > shared[cells.low]
    row, name = cells.row[is_shared], name[is_shared]
    if not len(row) or not time_ns[row].all() or _PLACES * size[row].astype(np.float64).sum() >= _MOST_BYTES:
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
    # Where the run of its name begins: in front of it is what stood there last under another one.
    run = np.maximum.accumulate(np.where(is_other, np.arange(len(version)), 0))
    has_earlier = run > first[piece]
    in_time = _InTime(version, np.where(has_earlier, run - 1, -1))
    there = in_time.meant([meant[each] for each in row.tolist()])
    place = np.uint64(_FIRST_PLACE) + _PLACES * (np.cumsum(size[row]) - size[row])
    return CodeVersions(
        row,
        place + np.arange(_PLACES, dtype=np.uint64)[:, np.newaxis] * size[row],
        [[shown(each) for each in names] for names in there],
        int(times[-1]),
        start[row],
        pieces.edges,
        first,
        version,
        loaded_ns,
        np.cumsum(is_other),
        in_time.reach(there),
        times,
        piece * (len(times) + 1) + np.searchsorted(times, loaded_ns, "right"),
    )


@dataclass(frozen=True, slots=True)
class _InTime:
    """The versions of each piece one after the other.

    Attributes:
        version: int64[n], of each candidate.
        earlier: int64[n], which was there before it under another name, or -1.
    """

    version: I64
    earlier: I64

    def meant(self, named: Sequence[Meant]) -> list[list[Meant]]:
        """For each of the three places of a version what samples there may be of."""
        has_earlier = np.flatnonzero(self.earlier >= 0)
        pairs = distinct(self.version[has_earlier] * len(named) + self.version[self.earlier[has_earlier]])
        changes = list(zip((pairs // len(named)).tolist(), (pairs % len(named)).tolist(), strict=True))
        sure, before = list(named), list(named)
        for later, replaced in changes:
            if len(named[later]) > 1:
                sure[later] = either(sure[later], named[replaced])
        for later, replaced in changes:
            before[later] = either(sure[later], before[later], sure[replaced])
        return [sure, before, [either(each, OTHERS) for each in before]]

    def reach(self, there: Sequence[Sequence[Meant]]) -> I64:
        """int64[n]: of each candidate the first from which on the name at its second place is true."""
        sure, before = there[:2]
        earlier, version = self.earlier.tolist(), self.version.tolist()
        reach = np.zeros(len(version), np.int64)
        for candidate, own in enumerate(version):
            at = candidate
            for _ in range(_MOST_RUNS):
                if earlier[at] < 0 or not is_within(sure[version[earlier[at]]], before[own]):
                    break
                at = earlier[at]
            reach[candidate] = earlier[at] + 1  # 0 stands for the piece's first
        return reach
