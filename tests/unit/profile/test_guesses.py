"""Callers that are guesses: one function whether it is known or guessed, and marks that say how often it is."""

import io
import json

import numpy as np

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.export.folded import write_folded
from tdprof.export.pprof import build_pprof
from tdprof.export.speedscope import write_speedscope
from tdprof.model.profile import Profile
from tdprof.profile.call_lines import call_lines, callees, callers
from tdprof.profile.guesses import guess_marks, guessed_frames, guessed_shares, mark_guesses, marked_names
from tdprof.profile.hotspots import find_hotspots
from tdprof.report.calls.json import rows_json
from tdprof.report.page.functions import functions_header
from tdprof.report.profile.json import render_json


def guess(name: str) -> Call:
    return Call((Frame(name),), is_guess=True)


def profile() -> Profile:
    """Of 10 samples of ``leaf``, ``run`` is known to be the caller of 9, and a guess in one; ``main`` in four."""
    return (
        ProfileBuilder()
        .add("main", "run", "leaf", count=6)
        .add(guess("main"), "run", "leaf", count=3)
        .add(guess("main"), guess("run"), "leaf")
        .add(guess("other"), "leaf")
        .build()
    )


def test_a_guess_is_a_location_of_the_same_function_of_its_own() -> None:
    known = ProfileBuilder().add("f", "g", "h").build()
    stacks = np.array([0, 1, 2, 1, 0], np.int32)
    locations, marked = mark_guesses(known.locations, stacks, np.array([0, 0, 0, 1, 1], bool))
    assert locations.is_guess[marked].tolist() == [False, False, False, True, True]
    for column in (locations.address, locations.frame_function[locations.frame_start[:-1]], locations.mapped_file):
        assert column[marked].tolist() == column[stacks].tolist()
    assert mark_guesses(known.locations, stacks, np.zeros(5, bool)) == (known.locations, stacks)


def test_a_function_is_one_row_whether_it_is_known_or_a_guess() -> None:
    it = profile()
    hotspots = find_hotspots(it)
    names = [it.functions.name[id_] for id_ in hotspots.function]
    assert sorted(names) == ["leaf", "main", "other", "run"]
    assert dict(zip(names, hotspots.inclusive_samples[:, 0].tolist(), strict=True)) == {
        "leaf": 11, "main": 10, "run": 10, "other": 1,
    }  # fmt: skip


def test_names_say_in_what_part_of_its_samples_a_function_is_a_guess() -> None:
    it = profile()
    assert sorted(marked_names(it)) == [
        "[no call stack]",
        "leaf",
        "main [guessed 40 %]",
        "other [guessed]",
        "run [guessed 10 %]",
    ]
    assert guess_marks(np.array([0, 1e-4, 0.5, 1 - 1e-4, 1])) == [
        "", " [guessed <1 %]", " [guessed 50 %]", " [guessed >99 %]", " [guessed]",
    ]  # fmt: skip
    rows = json.loads("".join(render_json(it, find_hotspots(it), [])))["functions"]
    assert {row["name"]: row["guessed"] for row in rows} == {"leaf": 0, "main": 0.4, "run": 0.1, "other": 1}
    header = functions_header(it, np.arange(4, dtype=np.int32))
    assert {name: header["marks"][mark] for name, mark in zip(header["names"], header["mark"], strict=True)} == {
        "leaf": "", "main": "guessed 40 %", "run": "guessed 10 %", "other": "guessed",
    }  # fmt: skip


def test_what_is_known_in_one_place_of_a_recursion_is_known() -> None:
    it = ProfileBuilder().add(guess("f"), "f", "g").add(guess("f"), guess("f"), "g").build()
    assert guessed_shares(it)[it.functions.name.index("f")] == 0.5


def test_samples_without_a_call_stack_are_no_guesses() -> None:
    it = ProfileBuilder().add(guess("f"), "g").add().add(guess("f"), "g", time_ns=2).add().build()
    assert guessed_frames(it).sum() == 1 + (len(it.stacks.start) > 4)
    assert guessed_shares(it)[-1] == 0
    assert guessed_shares(ProfileBuilder().build()).tolist() == [0]


def test_trees_say_it_of_each_call() -> None:
    it = profile()
    ids = [it.functions.name.index("leaf")]
    for tree, expected in (
        (call_lines(it, 0), {"main": 4, "run": 1, "leaf": 0, "other": 1}),
        (callers(it, 0, ids), {"leaf": 0, "run": 1, "main": 4, "other": 1}),
        (callees(it, 0, [it.functions.name.index("run")]), {"run": 1, "leaf": 0}),
    ):
        found: dict[str, int] = {}
        for row in rows_json(it, tree, 0):
            found[row["function"]] = found.get(row["function"], 0) + row["guessed"]
        assert found == expected


def test_exports_say_it() -> None:
    it = profile()
    folded, speedscope = io.BytesIO(), io.BytesIO()
    write_folded(it, folded)
    assert folded.getvalue().decode().splitlines() == [
        "app;main [guessed];run [guessed];leaf 1000000",
        "app;main [guessed];run;leaf 1000000",
        "app;main;run;leaf 1000000",
        "app;other [guessed];leaf 1000000",
    ]
    write_speedscope(it, speedscope)
    frames = [frame["name"] for frame in json.loads(speedscope.getvalue())["shared"]["frames"]]
    assert {"main [guessed 40 %]", "run [guessed 10 %]", "leaf", "other [guessed]"} < set(frames)
    message = build_pprof(it)
    text = message.string_table
    assert sorted(text[each.name] for each in message.function) == ["leaf", "main", "other", "run"]
    labels = [{text[label.key]: text[label.str] for label in sample.label} for sample in message.sample]
    counts = [(sample.value[0], mine.get("callers")) for sample, mine in zip(message.sample, labels, strict=True)]
    assert sorted(counts, key=str) == [(1, "guessed"), (1, "guessed"), (3, "guessed"), (6, None)]
