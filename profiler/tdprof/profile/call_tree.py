"""Call stacks as a tree of calls: merged from the root on, and its order."""

import ctypes
import os
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I32, I64, U64
from tdprof.model.profile import FrameStacks
from tdprof.native.library import load_native
from tdprof.native.stacks import CallMerge
from tdprof.values import dataclass

_LEAST_NODES = 1 << 12  # that room is made for
_Number = TypeVar("_Number", bound=np.generic)


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
    library = load_native()
    return _merge_levels(stacks) if library is None else _merge_compiled(library, stacks)


def _merge_levels(stacks: FrameStacks) -> CallTree:
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


def _merge_compiled(library: ctypes.CDLL, stacks: FrameStacks) -> CallTree:
    """The same in time that grows with the frames, however deep they are."""
    start, function = np.ascontiguousarray(stacks.start, np.int64), np.ascontiguousarray(stacks.function, np.int32)
    node_of_stack = np.empty(len(start) - 1, np.int64)
    merge = CallMerge(
        start=start.ctypes.data,
        function=function.ctypes.data,
        stacks=len(node_of_stack),
        seed=int.from_bytes(os.urandom(8), "little"),
        nodes=1,
        node_of_stack=node_of_stack.ctypes.data,
    )
    parent, called, slots, done = np.full(1, -1), np.full(1, -1, np.int32), np.empty(0, np.uint64), 0
    while done < len(node_of_stack):
        capacity = int(max(2 * merge.nodes, merge.nodes + start[done + 1] - start[done], _LEAST_NODES))
        parent, called = (_longer(column, capacity) for column in (parent, called))
        slots = np.zeros(1 << (capacity * 4 // 3).bit_length(), np.uint64)
        merge.parent, merge.node_function, merge.capacity = parent.ctypes.data, called.ctypes.data, capacity
        merge.slots, merge.slot_mask = slots.ctypes.data, len(slots) - 1
        library.tdprof_rehash_calls(ctypes.byref(merge))
        done = library.tdprof_merge_calls(ctypes.byref(merge), done)
    del slots
    return _in_order(library, parent[: merge.nodes], called[: merge.nodes], node_of_stack)


def _in_order(library: ctypes.CDLL, parent: I64, function: I32, node_of_stack: I64) -> CallTree:
    """The tree, of nodes of which each stands behind its parent and no more is known."""
    callee = np.lexsort((function[1:], parent[1:]))
    callee += 1
    first = np.zeros(len(parent) + 1, np.int64)
    np.cumsum(np.bincount(parent[1:], minlength=len(parent)), out=first[1:])
    node, ordered_parent = np.empty_like(parent), np.empty_like(parent)
    outputs = (node.ctypes.data, ordered_parent.ctypes.data)
    library.tdprof_order_calls(callee.ctypes.data, first.ctypes.data, len(parent), *outputs)
    del callee, first
    place = np.empty_like(node)
    place[node] = np.arange(len(node))
    return CallTree(ordered_parent, function[node], place[node_of_stack])


def _longer(column: NDArray[_Number], length: int) -> NDArray[_Number]:
    longer = np.empty(length, column.dtype)
    longer[: len(column)] = column
    return longer


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
    _add_callees(tree, total)
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
    _add_callees(tree, size)
    return np.argsort(_places(tree, total, size, own=1))


def _places(tree: CallTree, total: I64, size: I64, own: int = 0) -> I64:
    """Where each node begins if it takes ``size``, ``own`` of it before its calls, heavier ones first."""
    order = np.lexsort((-total, tree.parent))
    before = np.cumsum(size[order]) - size[order]
    is_first = np.diff(tree.parent[order], prepend=-2) != 0
    place = np.zeros(len(total), np.int64)
    place[order] = before - before[is_first][np.cumsum(is_first) - 1]
    _add_caller(tree, place, own)
    return place


def node_depths(tree: CallTree) -> I64:
    """int64[nodes]: calls between the root, which has none, and each node."""
    depth = np.zeros(len(tree.parent), np.int64)
    _add_caller(tree, depth, 1)
    return depth


def _add_callees(tree: CallTree, values: I64) -> None:
    """Add to each node, in place, what its callees have, the deepest first."""
    if (library := load_native()) is not None:
        library.tdprof_add_callees(tree.parent.ctypes.data, len(values), values.ctypes.data)
        return
    for level in reversed(_levels(tree)):
        np.add.at(values, tree.parent[level], values[level])


def _add_caller(tree: CallTree, values: I64, own: int) -> None:
    """Add to each node but the root, in place, what its caller has then, and ``own``."""
    if (library := load_native()) is not None:
        library.tdprof_add_caller(tree.parent.ctypes.data, len(values), own, values.ctypes.data)
        return
    for level in _levels(tree):
        values[level] += values[tree.parent[level]] + own


def _levels(tree: CallTree) -> list[slice]:
    """The nodes by their depth, without the root."""
    levels, begin, end = [], 0, 1
    while end < len(tree.parent):
        begin, end = end, int(np.searchsorted(tree.parent, end))
        levels.append(slice(begin, end))
    return levels
