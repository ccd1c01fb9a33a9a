"""Call stacks as a tree: its totals and the order that shows the widest first."""

import numpy as np
import pytest
from hypothesis import given

from builders.profiles import ProfileBuilder
from builders.profiles import profiles as any_profile
from tdprof.model.profile import FrameStacks, Profile
from tdprof.profile.call_tree import call_tree, node_depths, node_totals, preorder, widest_first, with_roots
from tdprof.profile.frames import frame_stacks


def test_a_node_holds_the_weight_of_all_that_goes_through_it() -> None:
    profile = ProfileBuilder().add("main", "f", "g").add("main", "f").add("main", "h").add("other").build()
    tree = call_tree(frame_stacks(profile))
    total = node_totals(tree, np.array([1, 2, 4, 8], np.uint64))
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 3]
    assert sorted(total.tolist()) == [1, 3, 4, 7, 8, 15]
    assert total[0] == 15
    assert total[tree.node_of_stack].tolist() == [1, 3, 4, 8]


def test_the_widest_callee_comes_first_and_a_function_behind_what_it_calls() -> None:
    names = ["main f", "main f g", "main h", "main", "other x"]
    builder = ProfileBuilder()
    for name in names:
        builder.add(*name.split())
    tree = call_tree(frame_stacks(builder.build()))
    order = widest_first(tree, np.array([2, 3, 6, 1, 50], np.uint64))
    assert [names[row] for row in order] == ["other x", "main h", "main f g", "main f", "main"]


@given(any_profile())
def test_the_compiled_tree_is_the_same(profile: Profile) -> None:
    stacks = frame_stacks(profile)
    weight = np.arange(len(stacks.start) - 1, dtype=np.uint64)

    def everything() -> list[list[int]]:
        tree = call_tree(stacks)
        total = node_totals(tree, weight)
        columns = [tree.parent.tolist(), tree.function.tolist(), tree.node_of_stack.tolist()]
        sums = (total, node_depths(tree), preorder(tree, total), widest_first(tree, weight))
        return columns + [each.tolist() for each in sums]

    compiled = everything()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tdprof.profile.call_tree.load_native", lambda: None)
        assert everything() == compiled


def test_stacks_that_part_at_the_very_end_share_all_else() -> None:
    deep = np.arange(20_000, dtype=np.int32) % 7
    function = np.concatenate([[100], deep, [101], deep]).astype(np.int32)
    stacks = FrameStacks(np.array([0, 20_001, 40_002]), function, np.zeros(len(function), np.uint32))
    tree = call_tree(stacks)
    assert len(tree.parent) == 1 + 20_000 + 2
    assert node_depths(tree)[tree.node_of_stack].tolist() == [20_001, 20_001]
    assert node_totals(tree, np.array([3, 4], np.uint64))[[0, 20_000, 20_001]].tolist() == [7, 7, 3]


def test_stacks_get_roots_and_may_stand_several_times() -> None:
    stacks = frame_stacks(ProfileBuilder().add("main", "f").add().add("g").build())
    f, main, g = stacks.function[[0, 1, 3]].tolist()
    rooted = with_roots(stacks, np.array([2, 0, 1, 0]), np.array([90, 91, 92, 90], np.int32))
    parts = np.split(rooted.function, rooted.start[1:-1])
    assert [part.tolist() for part in parts] == [[g, 90], [f, main, 91], [-1, 92], [f, main, 90]]


@given(any_profile())
def test_the_order_has_every_stack_once_and_breaks_no_call_apart(profile: Profile) -> None:
    tree = call_tree(frame_stacks(profile))
    weight = np.arange(len(tree.node_of_stack), dtype=np.uint64) % np.uint64(3)
    order = widest_first(tree, weight)
    assert sorted(order.tolist()) == list(range(len(order)))
    rows_below: dict[int, list[int]] = {}
    for row, end in enumerate(tree.node_of_stack[order[weight[order] > 0]].tolist()):
        node = end
        while node > 0:
            rows_below.setdefault(node, []).append(row)
            node = int(tree.parent[node])
    for rows in rows_below.values():
        assert rows == list(range(rows[0], rows[0] + len(rows))), "a call that was left is entered again"
