"""User stacks that samples carried as memory, walked: chains beside those that the file holds itself.

In ``Samples.user_chain`` they are the numbers from ``FIRST_WALKED`` down.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tdprof.decode.perf.chains import ChainTable
from tdprof.decode.perf.columns import Chains, Copies, Samples
from tdprof.decode.stack_walks import WALK
from tdprof.model.arrays import I64, U32, U64
from tdprof.native.library import load_native
from tdprof.native.perf_records import PerfChains
from tdprof.unwind.walk import Walked

FIRST_WALKED = -2
# What the walk says of a stack: one word in front of its addresses, so that stacks found in different ways differ. As
# struct ring_walk_head of profiler/native/ring_walk.h.
_HEAD = np.dtype([("end", "u1"), ("guessed_from", "u1"), ("by_table", "<u2"), ("by_fp", "<u2"), ("by_lr", "<u2")])

Walk = Callable[[U32, U64, Copies], Walked]  # pid and time of the samples, their stacks


class WalkedStacks:
    """Walks copied stacks and numbers the distinct results; needs the compiled library.

    Args:
        walk: how they are walked; no stack has more than 255 addresses.
    """

    def __init__(self, walk: Walk) -> None:
        library = load_native()
        assert library is not None, "stacks are walked in compiled code"
        self._table = ChainTable(library, PerfChains())
        self._walk = walk

    @property
    def count(self) -> int:
        """How many stacks differ."""
        return len(self._table.chains())

    def replace(self, samples: Samples, copies: Copies) -> None:
        """Give each sample with a copied stack the chain that is found in it."""
        if not len(copies):
            return
        rows = copies.sample.astype(np.int64)
        walked = self._walk(samples.pid[rows], samples.time_ns[rows], copies)
        starts = np.concatenate([[0], np.cumsum(walked.depth + np.uint32(1), dtype=np.uint64)]).astype(np.uint64)
        is_address = np.ones(int(starts[-1]), bool)
        is_address[starts[:-1].astype(np.int64)] = False
        words = np.empty(len(is_address), np.uint64)
        words[is_address] = walked.addresses
        words[~is_address] = _heads(walked)
        samples.user_chain[rows] = FIRST_WALKED - self._table.add(words, starts)

    def rows(self, numbers: I64) -> tuple[NDArray[np.void], I64, Chains]:
        """Some of the stacks: how they were found (``WALK``), lengths, and where their addresses are.

        Args:
            numbers: int64[n], rising, from 0.
        """
        chains = self._table.chains()
        walk, lengths = walks_of(chains, numbers)
        return walk, lengths, chains


def walks_of(chains: Chains, numbers: I64) -> tuple[NDArray[np.void], I64]:
    """How chains with a head, by number, were found (``WALK``), and their lengths without it."""
    head = chains.frames[chains.offsets[numbers].astype(np.int64)].view(_HEAD)
    lengths = (chains.offsets[numbers + 1] - chains.offsets[numbers]).astype(np.int64) - 1
    walk = np.zeros(len(numbers), WALK)
    walk["depth"] = lengths
    for name in _HEAD.names or ():
        walk[name] = head[name]
    return walk, lengths


def _heads(walked: Walked) -> U64:
    heads = np.zeros(len(walked.end), _HEAD)
    heads["end"], heads["guessed_from"] = walked.end, walked.guessed_from
    heads["by_table"], heads["by_fp"], heads["by_lr"] = walked.methods.T
    return heads.view(np.uint64)
