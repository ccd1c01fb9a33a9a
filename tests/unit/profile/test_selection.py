"""Some of a profile's samples, by process, thread, module and function."""

from dataclasses import replace

import numpy as np
import pytest

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.errors import TdprofError
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.choices import Selection
from tdprof.model.profile import Profile
from tdprof.profile.commands import command_names
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import find_hotspots
from tdprof.profile.selection import select

LIB = "/usr/lib/libz.so.1"


def some() -> Profile:
    """make (1) runs cc as 2, whose main thread was sh before, and which has a worker 3."""
    builder = ProfileBuilder(
        files=[MappedFile("/bin/app"), MappedFile(LIB), MappedFile("[kernel]", kind=FileKind.KERNEL)]
    )
    builder.add("main", weight=1, pid=1, tid=1, thread="make")
    builder.add("main", "parse", weight=2, pid=2, tid=2, thread="sh")
    builder.add("main", "parse", Frame("inflate", module=LIB), weight=4, pid=2, tid=2, thread="cc")
    builder.add("run", Call((Frame("inflate", module=LIB),), 0x99), weight=8, pid=2, tid=3, thread="worker")
    builder.add(weight=16, pid=2, tid=3, thread="worker")
    return builder.build(process_names={1: "make", 2: "cc"})


def weight_of(selection: Selection) -> int:
    return int(select(some(), selection).samples.weight.sum())


@pytest.mark.parametrize(
    ("selection", "weight"),
    [
        (Selection(pids=(2,)), 30),
        (Selection(tids=(3,)), 24),
        (Selection(tids=(3, 1)), 25),
        (Selection(comms=("cc",)), 28),  # its main thread as it was called then, its worker by its last name
        (Selection(comms=("sh",)), 2),
        (Selection(comms=("worker", "make")), 25),
        (Selection(modules=("libz.so.1",)), 12),
        (Selection(modules=(LIB, "app")), 15),
        (Selection(functions=("parse",)), 6),
        (Selection(functions=("parse", "inflate")), 4),
        (Selection(functions=("inflate",), tids=(3,)), 8),
    ],
)
def test_only_the_samples_that_are_asked_for_stay(selection: Selection, weight: int) -> None:
    assert weight_of(selection) == weight


def test_what_is_left_is_a_whole_profile_that_says_what_it_is() -> None:
    profile = some()
    profile = replace(profile, events=[replace(profile.events[0], total=31)])
    found = select(profile, Selection(functions=("parse",)))
    names = function_names(found)
    assert {names[row] for row in find_hotspots(found).function} == {"main", "parse", "inflate"}
    assert len(found.stacks.start) == 3
    assert found.notes[0] == "only samples of --function parse: 2 of 5 samples (40.0%); shares are of these"
    assert found.events[0].total is None  # that of these samples nobody counted
    assert select(profile, Selection()) is profile


def test_a_few_samples_of_many_are_not_none() -> None:
    profile = ProfileBuilder().add("main", count=9_999).add("rare").build()
    [note] = select(profile, Selection(functions=("rare",))).notes
    assert note.startswith("only samples of --function rare: 1 of 10,000 samples (<0.1%)")


@pytest.mark.parametrize(
    ("selection", "message", "hint"),
    [
        (Selection(comms=("wroker",)), "no sample is of --comm wroker", "--comm worker"),
        (Selection(pids=(7,)), "no sample is of --pid 7", "--pid 1, 2"),
        (Selection(modules=("libz.so",)), "no sample is of --module libz.so", "--module libz.so.1"),
        (
            Selection(pids=(1,), tids=(3,)),
            "no sample is of --pid 1 --tid 3",
            "tdprof report --by process, or --by module",
        ),
        (Selection(functions=("prase",)), "the capture has no samples in a function 'prase'", "did you mean parse?"),
    ],
)
def test_nothing_to_show_is_an_error_with_a_way_out(selection: Selection, message: str, hint: str) -> None:
    with pytest.raises(TdprofError) as error:
        select(some(), selection)
    assert (error.value.message, error.value.hint, error.value.status) == (message, hint, 2)


def test_commands_are_named_as_their_main_thread_was() -> None:
    names, of_sample = command_names(some())
    assert [names[row] for row in of_sample] == ["make", "sh", "cc", "cc", "cc"]
    unknown = replace(some(), process_names={})
    names, of_sample = command_names(unknown)
    assert [names[row] for row in of_sample] == ["make", "sh", "cc", "[unknown]", "[unknown]"]


def test_an_empty_profile_has_no_commands() -> None:
    names, of_sample = command_names(ProfileBuilder().build())
    assert (names, of_sample.tolist(), of_sample.dtype) == ([], [], np.int32)
