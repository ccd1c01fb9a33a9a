"""Stacks in compiled code give what NumPy and plain Python give, and folded lines are sorted text."""

import contextlib
import io
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.profiles import profiles
from tdprof.attribute import places
from tdprof.export import folded_lines
from tdprof.export.folded import write_folded
from tdprof.model.profile import FrameStacks, KeptStacks, Profile
from tdprof.native.library import load_native
from tdprof.profile.frames import frame_stacks, function_names, merge_stacks, thread_labels
from tdprof.profile.rows import code_rows
from tdprof.text import printable

needs_native = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

CHAINS = st.lists(st.lists(st.integers(0, 6) | st.integers(0, 2**64 - 1), max_size=7), min_size=1, max_size=12)
CONTEXTS = st.sampled_from([0, 1, 2**32 - 1])


def named(numbered: places.Places) -> list[list[tuple[int, int]]]:
    names = list(zip(numbered.context.tolist(), numbered.address.tolist(), strict=True))
    assert len(set(names)) == len(names)
    bounds = zip(numbered.start, numbered.start[1:], strict=False)
    return [[names[number] for number in numbered.place[first:last]] for first, last in bounds]


@needs_native
@given(CHAINS, st.data())
def test_chains_become_places(chains: list[list[int]], data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.tuples(st.integers(0, len(chains) - 1), CONTEXTS), max_size=12))
    offsets = np.cumsum([0, *map(len, chains)], dtype=np.int32)
    addresses = np.array([word for chain in chains for word in chain], np.uint64)
    rows, context = np.array([row for row, _ in wanted], np.int64), np.array([c for _, c in wanted], np.uint32)
    with patch.object(places, "_FIRST_CAPACITY", 3):  # so that the table has to grow
        numbered = places.number_places(offsets, addresses, rows, context)
    expected = [[(ctx, (word - (at > 0)) % 2**64) for at, word in enumerate(chains[row])] for row, ctx in wanted]
    assert named(numbered) == expected
    with patch.object(places, "load_native", return_value=None):
        assert named(places.number_places(offsets, addresses, rows, context)) == expected

    flags = data.draw(st.lists(st.booleans(), min_size=len(numbered.address), max_size=len(numbered.address)))
    outside = np.array(flags, bool)
    lengths, used = places.cut_chains(numbered, outside)
    pairs = st.lists(st.tuples(*[st.integers(-1, len(wanted) - 1)] * 2), max_size=6)
    stacks = np.array(data.draw(pairs), np.int64).reshape(-1, 2)
    number = np.arange(len(outside), dtype=np.int32) * 3
    gathered = places.gather_numbered(numbered, lengths, number, stacks)
    with patch.object(places, "load_native", return_value=None):
        for ours, theirs in zip(places.cut_chains(numbered, outside), (lengths, used), strict=True):
            assert ours.tolist() == theirs.tolist()
        for ours, theirs in zip(places.gather_numbered(numbered, lengths, number, stacks), gathered, strict=True):
            assert ours.tolist() == theirs.tolist()
    for row, kept in enumerate(lengths.tolist()):
        chain = numbered.place[numbered.start[row] : numbered.start[row + 1]]
        assert kept == next((at for at in range(1, len(chain)) if outside[chain[at]]), len(chain))


@needs_native
@given(profiles())
def test_stacks_of_frames(profile: Profile) -> None:
    stacks = frame_stacks(profile)
    merged, representative = merge_stacks(stacks)
    with patch("tdprof.profile.frames.load_native", return_value=None):
        reference = frame_stacks(replace(profile, kept_stacks=KeptStacks()))
        others, _ = merge_stacks(stacks)
    assert stacks.start.tolist() == reference.start.tolist()
    assert stacks.function.tolist() == reference.function.tolist()
    assert stacks.line.tolist() == reference.line.tolist()
    pairs = set(zip(merged.tolist(), others.tolist(), strict=True))
    assert len(pairs) == len({new for new, _ in pairs}) == len({old for _, old in pairs})
    assert merged[representative].tolist() == list(range(len(representative)))


def folded(profile: Profile) -> bytes:
    out = io.BytesIO()
    write_folded(profile, out)
    return out.getvalue()


@given(profiles())
def test_folded_lines_are_the_sums_by_text(profile: Profile) -> None:
    stacks, names, threads = frame_stacks(profile), function_names(profile), thread_labels(profile)
    sums: Counter[str] = Counter()
    samples = profile.samples
    for event, thread, stack, weight in zip(
        samples.event, samples.thread_name, samples.stack, samples.weight.tolist(), strict=True
    ):
        frames = stacks.function[stacks.start[stack] : stacks.start[stack + 1]][::-1]
        if event == 0:
            texts = [printable(text).replace(";", ":") for text in (threads[thread], *(names[i] for i in frames))]
            sums[";".join(texts)] += weight
    assert sorted(folded(profile).decode().splitlines()) == sorted(f"{text} {sums[text]}" for text in sums)


@needs_native
@given(profiles())
def test_folded_lines_are_the_same_without_compiled_code(profile: Profile) -> None:
    with patch.object(folded_lines, "_CHUNK_BYTES", 16):
        compiled = folded(profile)
    with patch.object(folded_lines, "load_native", return_value=None):
        assert folded(profile) == compiled


LETTERS = st.text("a (;-", max_size=3)


@given(st.lists(st.lists(LETTERS, min_size=1, max_size=4), min_size=1, max_size=20))
def test_ranks_are_those_of_the_texts(chains: list[list[str]]) -> None:
    texts = sorted({name for chain in chains for name in chain})
    function = np.array([texts.index(name) - 1 for chain in chains for name in chain], np.int32)
    start = np.cumsum([0, *(len(chain) for chain in chains)], dtype=np.int64)
    stacks = FrameStacks(start, function, np.zeros(len(function), np.uint32))
    rank, representative = folded_lines.rank_stacks(stacks, folded_lines.Labels(texts))
    lines = [";".join(name.replace(";", ":") for name in chain[::-1]) + " 7" for chain in chains]
    distinct = sorted(set(lines))
    assert [distinct[number] for number in rank.tolist()] == lines
    assert rank[representative].tolist() == list(range(len(distinct)))


@given(profiles(), st.booleans(), st.sampled_from([True, False] if load_native() else [False]), st.integers(1, 5))
def test_rows_are_what_stacks_hold(profile: Profile, by_line: bool, is_compiled: bool, at_once: int) -> None:
    stacks = frame_stacks(profile)
    expected = []
    for first, last in zip(stacks.start, stacks.start[1:], strict=False):
        lines = stacks.line[first:last].tolist() if by_line else [0] * int(last - first)
        expected.append(list(zip(stacks.function[first:last].tolist(), lines, strict=True)))
    with patch("tdprof.profile.rows._FRAMES_AT_ONCE", at_once), contextlib.ExitStack() as stack:
        if not is_compiled:
            stack.enter_context(patch("tdprof.profile.rows.load_native", return_value=None))
        rows = code_rows(profile, by_line=by_line)
    names = list(zip(rows.function.tolist(), rows.line.tolist(), strict=True))
    assert len(set(names)) == len(names) == len(rows)
    assert [names[row] for row in rows.leaf] == [frames[0] for frames in expected]
    pairs = [(number, names[row]) for number, row in zip(rows.stack.tolist(), rows.row.tolist(), strict=True)]
    assert [number for number, _ in pairs] == sorted(number for number, _ in pairs)
    assert sorted(pairs) == sorted((number, name) for number, frames in enumerate(expected) for name in set(frames))
