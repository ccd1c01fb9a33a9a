"""Which stacks a capture's samples refer to, and their table."""

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import STACKS
from tdprof.capture.tables import TableWriter
from tdprof.decode.perf.columns import NO_CHAIN, Chains, Table
from tdprof.decode.perf.walked import FIRST_WALKED, WalkedStacks
from tdprof.decode.stack_walks import WALK, walk_columns
from tdprof.model.arrays import I32, I64, U64, distinct

_AT_ONCE = 1 << 13
_WALKED_IDENTITY = 1 << 40  # of the first walked stack; numbers of chains have 31 bits


def stack_identities(numbers: I32) -> U64:
    """What stands for a chain, or a walked stack, in the tables."""
    wide = numbers.astype(np.int64)
    return np.where(wide <= FIRST_WALKED, _WALKED_IDENTITY + FIRST_WALKED - wide, wide + 1).astype(np.uint64)


class UsedStacks:
    """Notes which stacks the rows written so far refer to, and as what.

    Args:
        walked: stacks that are no chains of the file, or None.
    """

    def __init__(self, walked: WalkedStacks | None) -> None:
        self._walked = walked
        self._used = {"user_chain": _Marks(), "kernel_chain": _Marks()}
        self._used_walked = _Marks()

    def use(self, rows: Table) -> None:
        """Rows of ``groups.GROUP`` that are written."""
        for name, used in self._used.items():
            numbers = rows[name].astype(np.int64)
            used.add(numbers[numbers > NO_CHAIN])
        user = rows["user_chain"].astype(np.int64)
        self._used_walked.add(FIRST_WALKED - user[user <= FIRST_WALKED])

    def write(self, chains: Chains, writer: TableWriter) -> U64:
        """Write the stacks; returns the distinct kernel addresses."""
        kernel = []
        for name, used in self._used.items():
            is_kernel = name == "kernel_chain"
            for some in used.batches():
                starts, ends = (chains.offsets[some + at].astype(np.int64) for at in (0, 1))
                frames = self._write(writer, some.astype(np.int32), starts, ends, chains.frames, is_kernel=is_kernel)
                if is_kernel:
                    kernel.append(distinct(frames))
        if self._walked:
            for some in self._used_walked.batches():
                walk, lengths, walked = self._walked.rows(some)
                ends = walked.offsets[some + 1].astype(np.int64)
                numbers = (FIRST_WALKED - some).astype(np.int32)
                self._write(writer, numbers, ends - lengths, ends, walked.frames, walk)
        return distinct(np.concatenate(kernel)) if kernel else np.empty(0, np.uint64)

    def _write(
        self,
        writer: TableWriter,
        numbers: I32,
        starts: I64,
        ends: I64,
        frames: U64,
        walk: Table | None = None,
        *,
        is_kernel: bool = False,
    ) -> U64:
        """Write stacks ``frames[starts[i]:ends[i]]``; returns their addresses."""
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        # Nothing is copied where none in between is left out.
        is_whole = ends[-1] - starts[0] == offsets[-1]
        gathered = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1]) if not is_whole else None
        addresses = frames[starts[0] : ends[-1]] if gathered is None else frames[gathered]
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(addresses))
        columns = [stack_identities(numbers), np.full(len(numbers), is_kernel), lists]
        stacks = pa.table(columns, names=STACKS.names).cast(STACKS)
        if self._walked:
            for name, column in walk_columns(np.zeros(len(numbers), WALK) if walk is None else walk, lengths):
                stacks = stacks.append_column(name, column)
        writer.write("stacks", stacks)
        return addresses


class _Marks:
    """A set of numbers from 0."""

    def __init__(self) -> None:
        self._marked = np.zeros(0, bool)

    def add(self, numbers: I64) -> None:
        if len(numbers) and int(numbers.max()) >= len(self._marked):
            more = np.zeros(int(numbers.max()) + 1 + len(self._marked), bool)
            self._marked = np.concatenate([self._marked, more])
        self._marked[numbers] = True

    def batches(self) -> list[I64]:
        """The numbers in order, some thousand at a time."""
        numbers = np.flatnonzero(self._marked)
        return [numbers[at : at + _AT_ONCE] for at in range(0, len(numbers), _AT_ONCE)]
