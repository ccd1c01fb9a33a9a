"""Who calls whom, as lines of a tree: all calls from the root down, or those that lead to a function and from it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I32, I64, U64
from tdprof.model.profile import FrameStacks, Profile
from tdprof.profile.call_tree import CallTree, call_tree, node_depths, node_totals, preorder
from tdprof.profile.frames import frame_stacks
from tdprof.profile.guesses import guessed_frames
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class CallLines:
    """A tree of calls; row = node, each behind its parent and before that one's lighter children.

    Attributes:
        function: int32[n], function id; -1 for samples without a call stack.
        parent: int64[n], a row above, or -1.
        depth: int64[n], from 0.
        total, own: uint64[n], the weight of all samples through a node, and of those that end there; in a tree of
            callers of those that end in the function called.
        samples: uint64[n], through it.
        guessed: uint64[n], those of them of which it is a guess that they are.
        share: float64[n], of all samples of the event, as a fraction.
    """

    function: I32
    parent: I64
    depth: I64
    total: U64
    own: U64
    samples: U64
    guessed: U64
    share: F64

    def __len__(self) -> int:
        return len(self.function)

    def heaviest(self, most: int, least_share: float = 0.0) -> I64:
        """The rows of most total weight, in their order; a row's parents are always among them.

        Args:
            most: how many, 0 for all.
            least_share: rows below are left out.
        """
        rows = np.arange(len(self))
        order = np.lexsort((rows, self.depth, -self.total.astype(np.float64)))
        order = order[self.share[order] >= least_share]
        return np.sort(order[:most] if most else order)


def call_lines(profile: Profile, event: int) -> CallLines:
    """All calls of an event's samples, from the root down."""
    stacks = frame_stacks(profile)
    return _lines(profile, event, stacks, np.arange(len(profile.stacks.start) - 1), guessed_frames(profile))


def callees(profile: Profile, event: int, functions: Sequence[int]) -> CallLines:
    """A function, given by its ids, and what it calls, from its outermost call in each stack on."""
    stack, at = _outermost(profile, functions)
    stacks = frame_stacks(profile)
    first = stacks.start[stack]
    start, index = _slices(first, at + 1 - first, step=1)
    return _part(profile, event, start, index, stack, functions)


def callers(profile: Profile, event: int, functions: Sequence[int]) -> CallLines:
    """A function, given by its ids, and below it who called it, and who called those."""
    stack, at = _outermost(profile, functions)
    stacks = frame_stacks(profile)
    end = stacks.start[stack + 1]
    start, index = _slices(end - 1, end - at, step=-1)
    is_leaf = np.isin(stacks.function[stacks.start[stack]], functions)
    return _part(profile, event, start, index, stack, functions, ends_in_root=is_leaf)


def _outermost(profile: Profile, functions: Sequence[int]) -> tuple[I64, I64]:
    """The stacks that hold a function, and where in their frames its outermost call stands."""
    stacks = frame_stacks(profile)
    positions = np.flatnonzero(np.isin(stacks.function, functions))
    stack = np.searchsorted(stacks.start, positions, side="right") - 1
    is_last = np.diff(stack, append=-1) != 0
    return stack[is_last], positions[is_last]


def _slices(first: I64, length: I64, *, step: int) -> tuple[I64, I64]:
    """Parts of stacks, from ``first`` on, forwards or backwards: where each begins, and which frame each one is."""
    start = np.concatenate(([0], np.cumsum(length)))
    return start, np.repeat(first, length) + step * (np.arange(start[-1]) - np.repeat(start[:-1], length))


def _part(
    profile: Profile,
    event: int,
    start: I64,
    index: I64,
    stack: I64,
    root: Sequence[int],
    *,
    ends_in_root: NDArray[np.bool_] | None = None,
) -> CallLines:
    """The tree of parts of stacks; pieces of the function at its root have ids of their own, there they are one."""
    stacks, is_guess = frame_stacks(profile), guessed_frames(profile)[index]
    function, ends = stacks.function[index], start[1:] - 1
    function[ends] = min(root, default=-1)
    parts = FrameStacks(start, function, stacks.line[index])
    return _lines(profile, event, parts, stack, is_guess, ends_in_root=ends_in_root)


def _lines(
    profile: Profile,
    event: int,
    stacks: FrameStacks,
    stack: I64,
    is_guess: NDArray[np.bool_],
    *,
    ends_in_root: NDArray[np.bool_] | None = None,
) -> CallLines:
    """The tree of some stacks.

    Args:
        stack: of which of the profile's each is a part.
        ends_in_root: the stacks whose weight is the root's own; None: the parts end where the stacks do.
    """
    tree = call_tree(stacks)
    weight, count = (
        _per_stack(profile, event, column)[stack] for column in (profile.samples.weight, profile.samples.count)
    )
    total, samples = node_totals(tree, weight), node_totals(tree, count)
    if ends_in_root is None:
        own = np.zeros(len(total), np.int64)
        np.add.at(own, tree.node_of_stack, weight.astype(np.int64))
    else:
        own = node_totals(tree, np.where(ends_in_root, weight, np.uint64(0)))
    order = preorder(tree, total)
    order = order[(total[order] > 0) & (order > 0)]
    row_of = np.full(len(total), -1)
    row_of[order] = np.arange(len(order))
    whole = float(profile.total_weight()[event])
    return CallLines(
        tree.function[order],
        row_of[tree.parent[order]],
        node_depths(tree)[order] - 1,
        total[order].astype(np.uint64),
        own[order].astype(np.uint64),
        samples[order].astype(np.uint64),
        _guessed(tree, stacks, count, is_guess)[order],
        total[order] / whole if whole else np.full(len(order), np.nan),
    )


def _guessed(tree: CallTree, stacks: FrameStacks, count: U64, is_guess: NDArray[np.bool_]) -> U64:
    """uint64[nodes]: the samples through each one, ``count`` by stack, whose frame there is a guess."""
    guessed = np.zeros(len(tree.parent), np.uint64)
    has_guess = np.flatnonzero(np.logical_or.reduceat(is_guess, stacks.start[:-1]))
    node, frame, end = tree.node_of_stack[has_guess], stacks.start[has_guess], stacks.start[has_guess + 1]
    weight = count[has_guess]
    while len(node):
        here = is_guess[frame]
        np.add.at(guessed, node[here], weight[here])
        goes_on = frame + 1 < end
        node, frame, end, weight = tree.parent[node[goes_on]], frame[goes_on] + 1, end[goes_on], weight[goes_on]
    return guessed


def _per_stack(profile: Profile, event: int, column: U64) -> U64:
    sums = np.zeros(len(profile.stacks.start) - 1, np.uint64)
    chosen = profile.samples.event == event
    np.add.at(sums, profile.samples.stack[chosen], column[chosen])
    return sums
