"""The lines of folded stacks: their order and their text, in compiled code (``native/folded.c``) where it was built."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I64, U32, U64
from tdprof.model.profile import FrameStacks
from tdprof.native.library import load_native
from tdprof.native.stacks import FoldedColumns, StackNames
from tdprof.values import dataclass

_CHUNK_BYTES = 1 << 20
_ROWS_AT_ONCE = 1 << 14  # where nothing was compiled


class Labels:
    """Names of frames as they stand in lines, each with the semicolon behind it.

    Args:
        names: printable; a semicolon within a name becomes a colon, for it separates frames.

    Attributes:
        texts: the names.
        start, text: ragged bytes.
        inner_rank, leaf_rank: uint32[n], from 1: the order of lines that differ first in this frame, which has a callee
            or is the last; equal names have one rank.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.texts = [f"{name.replace(';', ':')};" for name in names]
        encoded = [text.encode() for text in self.texts]
        self.start = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        self.text = np.frombuffer(b"".join(encoded), np.uint8)
        # Behind a leaf follow a space and its weight's digits; whichever, they decide against no letter or sign.
        leaves = [f"{text[:-1]} 5" for text in self.texts]
        rank = {text: number for number, text in enumerate(sorted({*self.texts, *leaves}), 1)}
        self.inner_rank = np.array([rank[text] for text in self.texts], np.uint32)
        self.leaf_rank = np.array([rank[text] for text in leaves], np.uint32)

    def as_native(self) -> StackNames:
        """Pointers into this object, which has to stay."""
        columns = (self.start, self.text, self.inner_rank, self.leaf_rank)
        return StackNames(*(column.ctypes.data for column in columns))


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """What becomes lines.

    Attributes:
        stacks, functions: the stacks' frames; the name of function i is row ``i + 1`` of the labels.
        threads: the root frames.
        thread, stack: uint32[n], row in ``threads``, number in ``stacks``.
        weight: uint64[n].
    """

    stacks: FrameStacks
    functions: Labels
    threads: Labels
    thread: U32
    stack: U32
    weight: U64


def rank_stacks(stacks: FrameStacks, functions: Labels) -> tuple[U32, U32]:
    """Put stacks in the order of their frames' names, from the root.

    Returns:
        rank: uint32[n], from 0; stacks of the same names have the same.
        representative: uint32[ranks], one stack of each.
    """
    count = len(stacks.start) - 1
    order, rank = np.arange(count, dtype=np.uint32), np.empty(count, np.uint32)
    if (library := load_native()) is None:
        symbols = [_symbols(stacks, functions, number) for number in range(count)]
        order = np.array(sorted(range(count), key=symbols.__getitem__), np.uint32)
        number_of = {text: number for number, text in enumerate(sorted(set(symbols)))}
        rank[:] = [number_of[text] for text in symbols]
        ranks = len(number_of)
    else:
        names = functions.as_native()
        start, function = _held(stacks)
        ranks = library.tdprof_rank_stacks(
            start.ctypes.data, function.ctypes.data, ctypes.byref(names), order.ctypes.data, count, rank.ctypes.data
        )
    representative = np.empty(ranks, np.uint32)
    representative[rank[order]] = order
    return rank, representative


def _symbols(stacks: FrameStacks, functions: Labels, number: int) -> tuple[int, ...]:
    leaf, *callers = (stacks.function[stacks.start[number] : stacks.start[number + 1]] + 1).tolist()
    return (*functions.inner_rank[callers[::-1]].tolist(), int(functions.leaf_rank[leaf]))


def _held(stacks: FrameStacks) -> tuple[I64, NDArray[np.int32]]:
    return np.ascontiguousarray(stacks.start, np.int64), np.ascontiguousarray(stacks.function, np.int32)


def write_lines(rows: FoldedRows, out: BinaryIO) -> None:
    """Write a line for each row."""
    library = load_native()
    for piece in _python_lines(rows) if library is None else _native_lines(rows, library):
        out.write(piece)


def _native_lines(rows: FoldedRows, library: Any) -> Iterator[memoryview]:
    start, function = _held(rows.stacks)
    thread, stack, weight = (np.ascontiguousarray(column) for column in (rows.thread, rows.stack, rows.weight))
    given = FoldedColumns(
        start=start.ctypes.data,
        function=function.ctypes.data,
        names=rows.functions.as_native(),
        thread_start=rows.threads.start.ctypes.data,
        thread_text=rows.threads.text.ctypes.data,
        thread=thread.ctypes.data,
        stack=stack.ctypes.data,
        weight=weight.ctypes.data,
        rows=len(thread),
    )
    write = library.tdprof_folded_lines
    done, written = 0, ctypes.c_uint64()
    buffer = np.empty(_CHUNK_BYTES, np.uint8)
    while done < len(thread):
        done = write(ctypes.byref(given), done, buffer.ctypes.data, len(buffer), ctypes.byref(written))
        if not written.value:  # not even one line has room
            buffer = np.empty(2 * len(buffer), np.uint8)
        yield buffer[: written.value].data


def _python_lines(rows: FoldedRows) -> Iterator[bytes]:
    stacks, texts = rows.stacks, rows.functions.texts
    for at in range(0, len(rows.stack), _ROWS_AT_ONCE):
        piece = slice(at, at + _ROWS_AT_ONCE)
        columns = zip(rows.thread[piece].tolist(), rows.stack[piece].tolist(), rows.weight[piece].tolist(), strict=True)
        lines = []
        for thread, stack, weight in columns:
            frames = (stacks.function[stacks.start[stack] : stacks.start[stack + 1]][::-1] + 1).tolist()
            line = "".join([rows.threads.texts[thread], *(texts[frame] for frame in frames)])
            lines.append(f"{line[:-1]} {weight}\n")
        yield "".join(lines).encode()
