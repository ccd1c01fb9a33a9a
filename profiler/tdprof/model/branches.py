"""Branch stacks added up: from where to where, how often, how often mispredicted, how many cycles."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.model.spe import RatioColumn
from tdprof.values import dataclass


class BranchEnd(NamedTuple):
    """Where a branch comes from or goes to."""

    function: str
    module: str  # path of the mapped file
    file: str  # source file, "" where unknown
    line: int  # 0 where unknown
    address: int | None  # in the mapped file, where the line does not tell


@dataclass(frozen=True, slots=True)
class BranchEnds:
    """The sources or targets of rows, each made when it is asked for: rows may be a million, and few are shown.

    Attributes:
        name, module, file: of each function.
        function: int32[places], which each place is of.
        line: uint32[places].
        address: of each place, in the mapped file; None where a place is a function.
        place: int32[rows]; -1 where the hardware did not record it.
    """

    name: Sequence[str]
    module: Sequence[str]
    file: Sequence[str]
    function: I32
    line: U32
    address: U64 | None
    place: I32

    def __getitem__(self, row: int) -> BranchEnd | None:
        place = int(self.place[row])
        if place < 0:
            return None
        function, line = int(self.function[place]), int(self.line[place])
        address = None if line or self.address is None else int(self.address[place])
        return BranchEnd(self.name[function], self.module[function], self.file[function], line, address)

    @property
    def is_recorded(self) -> NDArray[np.bool_]:
        """bool[rows]."""
        recorded: NDArray[np.bool_] = self.place >= 0
        return recorded


@dataclass(frozen=True, slots=True)
class BranchReport:
    """One row for each branch that stacks had, or for each function.

    Attributes:
        events: names of the capture's events.
        event: int64[n], whose samples had the stacks.
        source, target: of each row; None where the hardware did not record it. ``target`` is None where a row is all
            branches of a function.
        type: of each row; None where it is not told, or the row has several.
        counts: uint64[n] by name, as the columns of the capture's table; of ``in_transaction``, ``aborted`` and
            ``wrong_path`` the entries that are so; of ``stacks`` at least how many samples the entries are from.
        mispredict: of the entries of which the hardware tells.
        notes: what a reader of the numbers should know, a sentence each.
    """

    events: Sequence[str]
    event: I64
    source: BranchEnds
    target: BranchEnds | None
    type: Sequence[str | None]
    counts: Mapping[str, U64]
    mispredict: RatioColumn
    notes: Sequence[str]

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """bool[n]: whether each row's ends were recorded."""
        return self.source.is_recorded if self.target is None else self.source.is_recorded & self.target.is_recorded

    def order(self, limit: int = 0) -> list[int]:
        """Row numbers, most entries first, ties in the order of their places; at most ``limit`` (0: all)."""
        rows: list[int] = np.argsort(-self.counts["count"].astype(np.int64), kind="stable").tolist()
        return rows[: limit or None]

    def totals(self) -> U64:
        """uint64[events]: entries of each event."""
        total = np.zeros(len(self.events), np.uint64)
        np.add.at(total, self.event, self.counts["count"])
        return total

    def mean_cycles(self, row: int) -> float | None:
        """Cycles since the branch before, of the entries that have them; None without any."""
        entries = int(self.counts["with_cycles"][row])
        return int(self.counts["cycles"][row]) / entries if entries else None
