"""Call stacks as a tree of calls: merged from the root on, and its order."""

from dataclasses import dataclass

import numpy as np

from tdprof.model.arrays import I32, I64, U64
from tdprof.model.profile import FrameStacks


@dataclass(frozen=True, slots=True)
class CallTree:
    """The stacks as a tree of calls; row = node. Parents stand before children, and those of one parent together.

    Attributes:
        parent: int64[n], never falling; -1 for node 0, the root, which is no function.
        function: int32[n], function id; of the root -1.
        node_of_stack: int64[stacks], where each stack ends.
    """

    parent: I64
    function: I32
    node_of_stack: I64


def call_tree(stacks: FrameStacks) -> CallTree:
    """Merge the stacks from the root on, by function whatever their lines and addresses."""
    depth = np.diff(stacks.start)
    node = np.zeros(len(depth), np.int64)
    parents, functions = [np.array([-1])], [np.array([-1])]
    nodes = 1
    width = int(stacks.function.max(initial=-1)) + 2
    active = np.arange(len(depth))
    for level in range(int(depth.max(initial=0))):
        active = active[depth[active] > level]
        function = stacks.function[stacks.start[active + 1] - 1 - level]
        distinct, child = np.unique(node[active] * width + function + 1, return_inverse=True)
        node[active] = nodes + child
        nodes += len(distinct)
        parents.append(distinct // width)
        functions.append(distinct % width - 1)
    return CallTree(np.concatenate(parents), np.concatenate(functions).astype(np.int32), node)


def with_roots(stacks: FrameStacks, stack: I64, root: I32) -> FrameStacks:
    """Some of the stacks, each with one more frame at its root.

    Args:
        stacks: of a profile.
        stack: int64[n], which of them; one may stand here several times.
        root: int32[n], the id of each one's new root frame, none of a function.
    """
    depth = np.diff(stacks.start)[stack]
    start = np.concatenate(([0], np.cumsum(depth + 1)))
    # The frames of the n stacks one after the other, with a gap behind each for its root.
    index = np.arange(start[-1]) - np.repeat(start[:-1] - stacks.start[stack], depth + 1)
    ends = start[1:] - 1
    index[ends] = 0
    function, line = stacks.function[index], stacks.line[index]
    function[ends], line[ends] = root, 0
    return FrameStacks(start, function, line)


def node_totals(tree: CallTree, weight: U64) -> I64:
    """int64[nodes]: the weight of all stacks that go through each node.

    Args:
        tree: of n stacks.
        weight: uint64[n], which adds up to less than 2^63.
    """
    total = np.zeros(len(tree.parent), np.int64)
    np.add.at(total, tree.node_of_stack, weight.astype(np.int64))
    for level in reversed(node_levels(tree)):
        np.add.at(total, tree.parent[level], total[level])
    return total


def widest_first(tree: CallTree, weight: U64) -> I64:
    """int64[n]: the order of the stacks in which, at each call, callees of more weight come before those of less.

    Args:
        tree, weight: as `node_totals` takes them.
    """
    total = node_totals(tree, weight)
    # A stack that ends where others go on comes behind them.
    calls = _places(tree, total, total) + total
    end = tree.node_of_stack
    np.subtract.at(calls, end, weight.astype(np.int64))
    return np.lexsort((end, calls[end]))


def preorder(tree: CallTree, total: I64) -> I64:
    """int64[nodes]: the nodes, each before its calls, and of these those of more weight with all their calls first."""
    size = np.ones(len(total), np.int64)
    for level in reversed(node_levels(tree)):
        np.add.at(size, tree.parent[level], size[level])
    return np.argsort(_places(tree, total, size, own=1))


def _places(tree: CallTree, total: I64, size: I64, own: int = 0) -> I64:
    """Where each node begins if it takes ``size``, ``own`` of it before its calls, heavier ones first."""
    order = np.lexsort((-total, tree.parent))
    before = np.cumsum(size[order]) - size[order]
    is_first = np.diff(tree.parent[order], prepend=-2) != 0
    place = np.zeros(len(total), np.int64)
    place[order] = before - before[is_first][np.cumsum(is_first) - 1]
    for level in node_levels(tree):
        place[level] += place[tree.parent[level]] + own
    return place


def node_levels(tree: CallTree) -> list[slice]:
    """The nodes by their depth, without the root."""
    levels, begin, end = [], 0, 1
    while end < len(tree.parent):
        begin, end = end, int(np.searchsorted(tree.parent, end))
        levels.append(slice(begin, end))
    return levels
