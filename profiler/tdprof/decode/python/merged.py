"""Puts Python frames where the evaluation loop's native ones stand, and tables them.

A native frame of the loop stands for the Python frames that it runs: up to the one that C code called. The outermost
of both are the same, so that they are counted from there; where one of the stacks is not whole, from the leaf on.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.decode.bpf_aggregates import StackBatch
from tdprof.decode.interpreted import place_addresses, place_mappings, place_symbols
from tdprof.decode.python.lines import LineTable
from tdprof.decode.python.records import (
    CALL_ENTRY,
    CALL_WAITS,
    MOST_SPANS,
    PROCESS_BITS,
    PythonStacks,
    read_codes,
    read_processes,
    read_stacks,
)
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.model.addresses import INTERPRETED_ADDRESS, PYTHON
from tdprof.model.arrays import I64, U64
from tdprof.model.python_names import with_line
from tdprof.model.stack_ends import StackEnd
from tdprof.text import plural

_NO_NAME = "[code object not read]"
_LAST = np.int64(1 << 32)  # behind every native frame
_LONGEST_GAP = 1  # a loop that is being entered or left has no frame of Python's yet, or any more


class PythonFrames:
    """The Python frames of a spool.

    Args:
        spool: the folder.
        damage: counts what cannot be read.

    Attributes:
        unplaced: stacks whose frames fit none of their loops, and were left native.
        thrown: stacks into which an exception was thrown, by whom CPython 3.9 does not say: their outermost Python
            frame waits for another. It stands before the loop of who threw, and that one and all beyond are native.
        unordered: stacks to which several subinterpreters add frames, nobody knows in which order: left native, too.
        unnamed: frames whose code object was not read in time.
    """

    def __init__(self, spool: Path, damage: SpoolDamage) -> None:
        self._stacks: PythonStacks = read_stacks(spool, damage)
        self._processes = read_processes(spool, damage, self._stacks.first_interpreters)
        versions = {number: process.version for number, process in self._processes.items()}
        self._codes = read_codes(spool, damage, versions)
        self._lines_of_names: defaultdict[tuple[object, ...], set[int]] = defaultdict(set)  # where functions begin
        for process, code in self._codes.values():
            self._lines_of_names[versions[process], code.file, code.function].add(code.first_line)
        keys = self._stacks.frames[["code", "instruction"]].copy()
        self._places, number = np.unique(keys, return_inverse=True)
        self._address = place_addresses(INTERPRETED_ADDRESS, number.reshape(-1).astype(np.uint64))
        self.unplaced = 0
        self.thrown = 0
        self.unordered = 0
        self.unnamed = 0

    def __len__(self) -> int:
        return len(self._stacks.stack)

    def merge(self, batch: StackBatch) -> StackBatch:
        """The stacks with their Python frames among the native ones."""
        if not len(self) or not len(batch.hash):
            return batch
        row = np.minimum(np.searchsorted(self._stacks.stack, batch.hash), len(self) - 1)
        row = np.where((self._stacks.stack[row] == batch.hash) & (batch.walk["is_kernel"] == 0), row, -1)
        if (row < 0).all():
            return batch
        return self._merge(batch, row)

    def _merge(self, batch: StackBatch, row: I64) -> StackBatch:
        native, python = self._native(batch, row), self._python(row)
        is_cut = (row >= 0) & self._stacks.is_cut[row]
        self.unordered += int((is_cut & ~python.is_there).sum())
        own, last = self._greenlets(native, row)
        is_known = ~is_cut & ((last < _LAST) | (batch.walk["end"] == StackEnd.COMPLETE))
        python = python.run_by(np.where(last < _LAST, own, native.loop_count), is_known)
        has_greenlet = (last < _LAST) & python.is_there & ~is_cut & (own >= python.runs)
        has_greenlet &= own <= python.runs + _LONGEST_GAP
        native = native._replace(loop_count=np.where(has_greenlet, own, native.loop_count))
        last = np.where(has_greenlet, last, _LAST)

        is_whole = has_greenlet | (batch.walk["end"] == StackEnd.COMPLETE) & (row >= 0) & ~is_cut
        is_thrown = is_whole & python.ends_waiting(len(row)) & (native.loop_count > python.runs)
        self.thrown += int(is_thrown.sum())
        spare = np.where(is_whole & ~is_thrown, native.loop_count - python.runs, 0)
        is_misfit = (spare < 0) | (spare > _LONGEST_GAP)
        self.unplaced += int(is_misfit.sum())
        python = python.of(~is_misfit)
        is_before_loop = python.is_outermost() & is_thrown[python.owner]
        place, is_replaced = native.places(python.owner, python.run + spare[python.owner], ~is_before_loop)

        # Between the last frame that was taken and what is native beyond others are missing.
        has_rest = is_cut & python.is_there
        last[has_rest] = 0
        of_rest = has_rest[python.owner]
        np.maximum.at(last, python.owner[of_rest], place[of_rest])

        kept = np.flatnonzero(~is_replaced & (native.position <= last[native.owner]))
        merged = _among_native(
            _Frames(native.owner[kept], native.position[kept], np.zeros(len(kept), np.int64), batch.address[kept]),
            _Frames(python.owner, place, np.where(is_before_loop, -1, python.within + 1), self._address[python.frame]),
            batch,
        )
        merged.walk["end"][has_greenlet] = StackEnd.COMPLETE
        merged.walk["end"][has_rest & ((last < _LAST) | (merged.walk["end"] == StackEnd.COMPLETE))] = StackEnd.TOO_DEEP
        return merged

    def _native(self, batch: StackBatch, row: I64) -> "_Native":
        lengths = np.diff(batch.start).astype(np.int64)
        owner = np.repeat(np.arange(len(row)), lengths)
        position = np.arange(len(batch.address)) - np.repeat(batch.start[:-1].astype(np.int64), lengths)
        called_from = batch.address - (position > 0)
        spans = {number: process.loops for number, process in self._processes.items()}
        loops = np.flatnonzero(self._lies_in(spans, called_from, row[owner]))
        return _Native(owner, position, called_from, loops, np.bincount(owner[loops], minlength=len(row)))

    def _python(self, row: I64) -> "_Python":
        frame_count = np.where(row >= 0, np.diff(self._stacks.start)[row], 0)
        owner = np.repeat(np.arange(len(row)), frame_count)
        before = np.cumsum(frame_count) - frame_count
        within = np.arange(len(owner)) - before[owner]
        frame = self._stacks.start[row[owner]] + within
        call = self._stacks.frames["call"][frame]
        is_entry = (call & CALL_ENTRY) != 0
        waits = is_entry & ((call & CALL_WAITS) != 0)
        waits[1:] &= is_entry[:-1]
        waits[within == 0] = False
        return _Python(owner, within, frame, is_entry, waits, *_runs(owner, is_entry, len(row)), frame_count > 0)

    def _greenlets(self, native: "_Native", row: I64) -> tuple[I64, I64]:
        """(int64[stacks], int64[stacks]): how many loops of each stack are the running greenlet's, and its last frame.

        Its Python frames end with it, and so does what is its own of the native stack: beyond is what others left
        there. ``_LAST``: no greenlet was begun.
        """
        owner, position, loops = native.owner, native.position, native.loops
        innermost, beyond = np.full(len(row), _LAST), np.full(len(row), _LAST)
        np.minimum.at(innermost, owner[loops], position[loops])
        spans = {number: process.switchers for number, process in self._processes.items()}
        switches = np.flatnonzero(self._lies_in(spans, native.called_from, row[owner]))
        switches = switches[position[switches] > innermost[owner[switches]]]
        np.minimum.at(beyond, owner[switches], position[switches])
        return np.bincount(owner[loops[position[loops] < beyond[owner[loops]]]], minlength=len(row)), beyond

    def _lies_in(self, spans: Mapping[int, Sequence[tuple[int, int]]], address: U64, row: I64) -> NDArray[np.bool_]:
        """Whether each address, of a stack of this row, is in one of the spans of its process."""
        known = np.array(sorted(spans), np.int64)
        bounds = np.zeros((len(known) + 1, MOST_SPANS, 2), np.uint64)  # the last: of a process that is not known
        for at, number in enumerate(known.tolist()):
            bounds[at, : len(spans[number])] = np.array(spans[number], np.uint64).reshape(-1, 2)
        found = np.zeros(len(address), bool)
        rows = np.flatnonzero(row >= 0)
        of_row = self._stacks.process[row[rows]]
        process = np.searchsorted(known, of_row)
        process[np.append(known, -1)[process] != of_row] = len(known)
        for start, end in bounds.transpose(1, 2, 0):
            found[rows] |= (address[rows] >= start[process]) & (address[rows] < end[process])
        return found

    def symbols(self) -> pa.Table:
        """The capture's table of them: where in the source each place is."""
        rows = []
        for identity, places in itertools.groupby(self._places.tolist(), key=lambda place: place[0]):
            rows += self._symbols_of(identity, [instruction for _, instruction in places])
        return place_symbols(PYTHON, rows)

    def _symbols_of(self, identity: int, instructions: list[int]) -> list[dict[str, object]]:
        found = self._codes.get(identity)
        if found is None or not found[1].function:
            self.unnamed += len(instructions)
            return [{"function": _NO_NAME, "file": None, "line": 0}] * len(instructions)
        process, code = found
        version = self._processes[process].version
        is_one_of_several = code.first_line and len(self._lines_of_names[version, code.file, code.function]) > 1
        function = with_line(code.function, code.first_line) if is_one_of_several else code.function
        lines = LineTable(version, code.lines, code.first_line, is_cut=code.is_cut)
        return [
            {"function": function, "file": code.file or None, "line": lines.line(instruction)}
            for instruction in instructions
        ]

    def notes(self) -> Iterator[str]:
        """What the user should know."""
        if self.unplaced:
            stacks = plural(self.unplaced, "call stack", "s")
            yield f"{stacks} without Python frames, since they do not fit the interpreter's native ones"
        if self.thrown:
            stacks = plural(self.thrown, "call stack", "s")
            yield f"{stacks} without who threw an exception into a generator, and its callers: CPython 3.9 does not say"
        if self.unordered:
            stacks = plural(self.unordered, "call stack", "s")
            yield f"{stacks} without Python frames, since several subinterpreters have some, in no known order"
        if self.unnamed:
            yield f"{plural(self.unnamed, 'place', 's')} in Python code without a name: no object of it could be read"

    def mappings(self, mapped: pa.Table) -> pa.Table:
        """Rows for the capture's table of mappings: where the frames' addresses are, of each process.

        Args:
            mapped: the table so far.
        """
        pids, addresses, times = (mapped[name].to_numpy() for name in ("pid", "address", "time_ns"))
        places = {(number & (1 << PROCESS_BITS) - 1, process.mapped) for number, process in self._processes.items()}
        found = {(number & (1 << PROCESS_BITS) - 1, process.time_ns) for number, process in self._processes.items()}
        of_python = np.isin(pids, [pid for pid, _ in places])
        # A process that executes one program after another has each mapped, maybe at the same place.
        for pid, address, time_ns in zip(
            *(column[of_python].tolist() for column in (pids, addresses, times)), strict=True
        ):
            if (pid, address) in places:
                found.add((pid, time_ns))
        return place_mappings(PYTHON, INTERPRETED_ADDRESS, len(self._places), sorted(found))


class _Native(NamedTuple):
    """The native frames of stacks.

    Attributes:
        owner: int64[n], the row of each one's stack.
        position: int64[n], its place in that.
        called_from: uint64[n], the address that it is at; of callers within the call.
        loops: int64[k], those of the evaluation loop.
        loop_count: int64[stacks], how many of these each stack has, as far as they count.
    """

    owner: I64
    position: I64
    called_from: U64
    loops: I64
    loop_count: I64

    def places(self, owner: I64, loop: I64, is_run: NDArray[np.bool_]) -> tuple[I64, NDArray[np.bool_]]:
        """Where the loops stand of these numbers in these stacks, ``_LAST`` if there are not so many; which they are.

        Args:
            owner: int64[n], rows of stacks.
            loop: int64[n], numbers.
            is_run: bool[n], whether it is that loop which runs the frame; else the frame is only called from there.

        Returns:
            int64[len(owner)], places; bool[n], whether each native frame is one of them.
        """
        all_loops = np.bincount(self.owner[self.loops], minlength=len(self.loop_count))
        first_loop = np.cumsum(all_loops) - all_loops
        is_replaced = np.zeros(len(self.position), bool)
        place = np.full(len(owner), _LAST)
        has_loop = loop < self.loop_count[owner]
        found = self.loops[first_loop[owner[has_loop]] + loop[has_loop]]
        place[has_loop] = self.position[found]
        is_replaced[found[is_run[has_loop]]] = True
        return place, is_replaced


class _Python(NamedTuple):
    """The Python frames of stacks.

    Attributes:
        owner: int64[n], the row of each one's stack.
        within: int64[n], its place among the Python frames of that.
        frame: int64[n], its row of `PythonStacks.frames`.
        is_entry: bool[n], whether C code called it, as far as it says.
        waits: bool[n], whether it may be a generator that `throw` reached another one through, which no loop runs.
        run: int64[n], which of the stack's runs it is in, from the leaf on: each is one evaluation loop's.
        runs: int64[stacks], how many each stack has.
        is_there: bool[stacks], whether it has any.
    """

    owner: I64
    within: I64
    frame: I64
    is_entry: NDArray[np.bool_]
    waits: NDArray[np.bool_]
    run: I64
    runs: I64
    is_there: NDArray[np.bool_]

    def of(self, stacks: NDArray[np.bool_]) -> "_Python":
        """The frames of some of the stacks."""
        kept = stacks[self.owner]
        return self._replace(
            owner=self.owner[kept],
            within=self.within[kept],
            frame=self.frame[kept],
            is_entry=self.is_entry[kept],
            waits=self.waits[kept],
            run=self.run[kept],
        )

    def is_outermost(self) -> NDArray[np.bool_]:
        """Of each frame, whether it is its stack's last."""
        return np.append(self.owner[1:] != self.owner[:-1], True)[: len(self.owner)]

    def ends_waiting(self, stacks: int) -> NDArray[np.bool_]:
        """bool[stacks]: whether the outermost of each one's frames may wait, as who called all others never does."""
        found = np.zeros(stacks, bool)
        found[self.owner[self.waits & self.is_outermost()]] = True
        return found

    def run_by(self, loops: I64, is_known: NDArray[np.bool_]) -> "_Python":
        """Likewise, where loops lack for just those that may wait: these are of their callers' runs.

        A function that is traced as it calls another looks as one that waits does; it has its loop.

        Args:
            loops: int64[stacks], how many each has.
            is_known: bool[stacks], whether that is so of all of its frames.
        """
        lacking = is_known & (self.runs - loops == np.bincount(self.owner[self.waits], minlength=len(loops)))
        waits = self.waits & lacking[self.owner]
        if not waits.any():
            return self
        run, runs = _runs(self.owner, self.is_entry & ~waits, len(loops))
        return self._replace(run=run, runs=runs)


def _runs(owner: I64, ends: NDArray[np.bool_], stacks: int) -> tuple[I64, I64]:
    """(int64[n], int64[stacks]): the run of each frame, and how many each stack has, by the frames that end one."""
    run: I64 = np.cumsum(ends) - ends
    is_leaf = np.append(True, owner[1:] != owner[:-1])[: len(owner)]
    run -= run[is_leaf][np.cumsum(is_leaf) - 1]
    # The outermost ends one even where nothing says so.
    runs = np.zeros(stacks, np.int64)
    np.maximum.at(runs, owner, run + 1)
    return run, runs


class _Frames(NamedTuple):
    """Frames of stacks.

    Attributes:
        owner: int64[n], the row of each one's stack.
        place: int64[n], its place among the native ones, or that of the one in whose place it stands.
        within: int64[n], its place among those that stand there.
        address: uint64[n].
    """

    owner: I64
    place: I64
    within: I64
    address: U64


def _among_native(native: _Frames, python: _Frames, batch: StackBatch) -> StackBatch:
    """The stacks with these frames, in the order of their places."""
    owner, place, within, address = (np.concatenate(each) for each in zip(native, python, strict=True))
    order = np.lexsort((within, place, owner))
    walk, stacks = batch.walk.copy(), len(batch.walk)
    guess = walk["guessed_from"].astype(np.int64)
    moved = np.bincount(owner[place < guess[owner]], minlength=stacks)
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=stacks))]).astype(np.uint64)
    # What is guessed may lie in what was left away.
    walk["guessed_from"] = np.where((guess > 0) & (moved < np.diff(start).astype(np.int64)), moved, 0)
    return replace(batch, walk=walk, start=start, address=address[order])
