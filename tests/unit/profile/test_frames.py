"""Stacks as functions and lines."""

from dataclasses import replace

import numpy as np
import pytest

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.model.addresses import MappedFile
from tdprof.profile.frames import NO_STACK, frame_stacks, function_names, merge_stacks, number_pairs, number_values
from tdprof.text import printable


def test_frames_stand_leaf_first_with_inlined_ones_expanded() -> None:
    inlined = Call((Frame("inner", 1), Frame("outer", 2)))
    profile = ProfileBuilder().add("main", inlined).add().add("main").build()
    stacks = frame_stacks(profile)
    names = function_names(profile)
    by_stack = [[names[f] for f in stacks.function[a:b]] for a, b in zip(stacks.start, stacks.start[1:], strict=False)]
    assert by_stack == [["inner", "outer", "main"], [NO_STACK], ["main"]]
    assert stacks.line.tolist() == [1, 2, 0, 0, 0]


def test_stacks_are_expanded_once_for_all_copies_of_a_profile() -> None:
    profile = ProfileBuilder().add("leaf", "main").build()
    stacks = frame_stacks(profile)
    assert frame_stacks(profile.without("nothing is missing")) is stacks
    assert frame_stacks(profile.only_event(0)) is stacks
    longer = ProfileBuilder().add("leaf", "middle", "main").build()
    other = replace(profile, functions=longer.functions, locations=longer.locations, stacks=longer.stacks)
    assert len(frame_stacks(other).function) == 3
    with pytest.raises(ValueError, match="read-only"):
        stacks.line[0] = 1


def test_a_profile_without_stacks_has_none() -> None:
    stacks = frame_stacks(ProfileBuilder().build())
    assert stacks.start.tolist() == [0]
    assert len(stacks.function) == 0
    assert [len(each) for each in merge_stacks(stacks)] == [0, 0]


def test_one_file_with_and_without_its_build_id_has_one_set_of_functions() -> None:
    frame, other_name = Frame("f"), Frame("f", linkage_name="f.constprop.0")
    files = [MappedFile("/bin/app"), MappedFile("/bin/app", "ab12")]
    profile = ProfileBuilder(files=files).add(frame).add(other_name).build()
    profile.functions.mapped_file[:] = [0, 1]
    assert frame_stacks(profile).function.tolist() == [0, 0]
    apart = ProfileBuilder().add(frame).add(Frame("f", module="/lib/x.so")).add(Frame("f", file="f.c"))
    assert frame_stacks(apart.build()).function.tolist() == [0, 1, 2]


def test_merged_stacks_have_the_same_functions_in_the_same_order() -> None:
    profile = (
        ProfileBuilder()
        .add(Frame("a", 1), Frame("b", 1))
        .add(Frame("a", 2), Frame("b", 9))
        .add("b", "a")
        .add("a")
        .add("a", "b", "b")
        .add()
        .build()
    )
    merged, representative = merge_stacks(frame_stacks(profile))
    assert merged[0] == merged[1]
    assert len(set(merged.tolist())) == 5
    assert merged[representative].tolist() == list(range(5))


def test_printable_text_has_no_controls_and_encodes() -> None:
    assert (
        printable("a\x1b[31m\n\x9bb\udcff") == "a\N{REPLACEMENT CHARACTER}[31m" + "\N{REPLACEMENT CHARACTER}" * 2 + "b?"
    )
    assert printable("héλ") == "héλ"


@pytest.mark.parametrize("largest", [1, 3, 50, 1000, 2**31, 2**64 - 1])
def test_values_are_numbered_in_order_whether_small_or_large(largest: int) -> None:
    rng = np.random.default_rng(largest)
    values = rng.integers(0, largest, 300, np.uint64, endpoint=True)
    values[:2] = largest, 0
    known, number = number_values(values)
    expected, inverse = np.unique(values, return_inverse=True)
    assert known.dtype == np.uint64
    assert number.dtype == np.int32
    assert known.tolist() == expected.tolist()
    assert number.tolist() == inverse.tolist()


@pytest.mark.parametrize(("firsts", "seconds"), [(1, 1), (3, 70), (2**31 - 1, 2**31 - 1), (1, 2**31 - 1)])
def test_pairs_are_numbered_in_order(firsts: int, seconds: int) -> None:
    rng = np.random.default_rng(firsts)
    first, second = (rng.integers(0, most, 300, np.int64, endpoint=True) for most in (firsts, seconds))
    first[0], second[0] = firsts, seconds
    first[150:], second[150:] = first[:150], second[:150]
    known_first, known_second, number = number_pairs(first, second)
    pairs = sorted(set(zip(first.tolist(), second.tolist(), strict=True)))
    assert list(zip(known_first.tolist(), known_second.tolist(), strict=True)) == pairs
    assert [pairs[each] for each in number.tolist()] == list(zip(first.tolist(), second.tolist(), strict=True))


def test_nothing_is_numbered() -> None:
    nothing = np.zeros(0, np.int64)
    assert [len(each) for each in number_values(nothing.astype(np.uint64))] == [0, 0]
    assert [len(each) for each in number_pairs(nothing, nothing)] == [0, 0, 0]
