"""What `--call-graph` takes, and what the head of a report says of call stacks."""

from dataclasses import replace

import pytest

from builders.profiles import example
from tdprof.errors import TdprofError
from tdprof.model.profile import StackWalks
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder.call_graph import CallGraph, parse_call_graph
from tdprof.report.summary import facts


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("auto", (CallGraph.AUTO, 0)),
        ("fp", (CallGraph.FRAME_POINTERS, 0)),
        ("dwarf", (CallGraph.DWARF, 0)),
        ("dwarf,16384", (CallGraph.DWARF, 16384)),
        ("dwarf,1025", (CallGraph.DWARF, 1032)),
        ("no", (CallGraph.NONE, 0)),
    ],
)
def test_perfs_words(text: str, way: tuple[CallGraph, int]) -> None:
    assert parse_call_graph(text) == way


@pytest.mark.parametrize("text", ["", "lbr", "dwarf,", "dwarf,x", "fp,1", "dwarf,-1", "dwarf,1,2"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(TdprofError, match="--call-graph takes"):
        parse_call_graph(text)


@pytest.mark.parametrize("text", ["dwarf,0", "dwarf,512", "dwarf,65529", "dwarf,65536"])
def test_as_many_bytes_as_a_record_has_room_for(text: str) -> None:
    with pytest.raises(TdprofError, match="copies 1024 to 65528 bytes"):
        parse_call_graph(text)


def said(ends: dict[StackEnd, int], guessed: int = 0, language: str = "") -> str | None:
    profile = replace(example(), walks=StackWalks(ends, guessed), runtimes={7: [language]} if language else {})
    return dict(facts(profile)).get("stacks")


def test_the_share_of_complete_stacks_and_the_reasons() -> None:
    ends = {StackEnd.COMPLETE: 9781, StackEnd.JIT: 110, StackEnd.NO_TABLE: 80, StackEnd.BAD_SP: 29}
    assert said(ends, guessed=3) == (
        "97.8% of samples have complete user stacks (1.1% jit: code made at run time, without frame pointers; "
        "0.8% no-table: the program's unwind table was not there yet; 0.3% for other reasons); "
        "in <0.1% some callers are guessed (their names say so)"
    )


@pytest.mark.parametrize(
    ("language", "way"), [("Java", " (Java keeps them with -XX:+PreserveFramePointer)"), ("Node", ""), ("", "")]
)
def test_advice_is_that_of_the_runtime_that_was_seen(language: str, way: str) -> None:
    assert said({StackEnd.JIT: 5}, language=language) == (
        f"0.0% of samples have complete user stacks (100.0% jit: code made at run time, without frame pointers{way})"
    )


def test_all_is_said_only_of_all() -> None:
    assert said({StackEnd.COMPLETE: 5}) == "100.0% of samples have complete user stacks"
    assert said({StackEnd.COMPLETE: 99_999, StackEnd.TOO_DEEP: 1}) == (
        ">99.9% of samples have complete user stacks (<0.1% too-deep: more frames than are taken)"
    )


def test_frame_pointers_tell_nothing() -> None:
    assert (
        said({StackEnd.FRAME_POINTERS_ONLY: 5})
        == "frame pointers only: callers may be missing or wrong, and which is not known"
    )


def test_an_old_capture_says_nothing() -> None:
    assert "stacks" not in dict(facts(example()))
