"""Names for locations, out of what symbol sources found in each mapped file."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tdprof.model.addresses import FileKind, Locations, MappedFile, Unknown
from tdprof.model.arrays import U64
from tdprof.model.profile import FunctionTable, LocationTable
from tdprof.profile.naming import base_name, limit_inlining, name_locations
from tdprof.symbolize.locations import unknown_locations

FILES = [MappedFile("/bin/app"), MappedFile("/lib/x.so")]
STRINGS = ("f", "g", "a.c", "f", "a.c")  # a source may hold a text twice


def locate(file: MappedFile, addresses: U64) -> Locations:
    """At 16 f() in g(), at 32 g(), both under either number of their names; nothing elsewhere."""
    frames = {16: [(0, 2, 1), (1, -1, 2)], 17: [(3, 4, 1), (1, -1, 2)], 32: [(1, -1, 3)]}
    found = [frames.get(address, []) for address in addresses.tolist()]
    rows = [frame for each in found for frame in each]
    return Locations(
        frame_start=np.cumsum([0, *map(len, found)]).astype(np.uint32),
        function=np.array([row[0] for row in rows], np.int32),
        file=np.array([row[1] for row in rows], np.int32),
        line=np.array([row[2] for row in rows], np.uint32),
        reason=np.array([Unknown.KNOWN if each else Unknown.NO_SYMBOL for each in found], np.uint8),
        strings=STRINGS,
    )


def named(file: Sequence[int], address: Sequence[int]) -> tuple[FunctionTable, LocationTable, list[list[str]]]:
    functions, locations = name_locations(
        FILES, np.array(file, np.int32), np.array(address, np.uint64), locate, lambda names: [f"{n}()" for n in names]
    )
    start = locations.frame_start.tolist()
    frames = [
        [functions.name[number] for number in locations.frame_function[first:last]]
        for first, last in itertools.pairwise(start)
    ]
    return functions, locations, frames


def test_frames_stand_in_the_order_of_the_locations_whatever_their_files() -> None:
    _, locations, frames = named([1, 0, 1, 0], [32, 16, 16, 32])
    assert frames == [["g()"], ["f()", "g()"], ["f()", "g()"], ["g()"]]
    assert locations.frame_line.tolist() == [3, 1, 2, 1, 2, 3]


def test_a_function_is_one_whichever_number_its_texts_have_and_in_each_file_another() -> None:
    functions, locations, _ = named([0, 0, 1], [16, 17, 16])
    assert locations.frame_function.tolist() == [0, 1, 0, 1, 2, 3]
    assert functions.linkage_name == ["f", "g", "f", "g"]
    assert functions.file == ["a.c", "", "a.c", ""]
    assert functions.mapped_file.tolist() == [0, 0, 1, 1]


def test_a_function_has_a_row_for_each_file_of_its_lines_and_all_point_to_that_of_the_whole() -> None:
    def of_two_files(_: MappedFile, addresses: U64) -> Locations:
        """At 16 f() of a.c in its line of x.inc, at 32 in its line of a.c; at 48 f() of b.c in its line of x.inc."""
        count = len(addresses)
        own = [2 if address < 48 else 3 for address in addresses.tolist()]
        return Locations(
            frame_start=np.arange(count + 1, dtype=np.uint32),
            function=np.zeros(count, np.int32),
            file=np.array([2 if address == 32 else 1 for address in addresses.tolist()], np.int32),
            line=np.ones(count, np.uint32),
            reason=np.zeros(count, np.uint8),
            strings=("f", "x.inc", "a.c", "b.c"),
            own_file=np.array(own, np.int32),
        )

    file, address = np.zeros(3, np.int32), np.array([16, 32, 48], np.uint64)
    functions, locations = name_locations(FILES, file, address, of_two_files, list)
    assert [functions.file[row] for row in locations.frame_function.tolist()] == ["x.inc", "a.c", "x.inc"]
    assert functions.whole is not None
    wholes = functions.whole[locations.frame_function].tolist()
    assert [functions.file[row] for row in wholes] == ["a.c", "a.c", "b.c"]
    assert functions.whole[wholes].tolist() == wholes
    assert not functions.is_inlined.any()


def test_only_functions_that_are_nowhere_outermost_are_inlined() -> None:
    functions, _, _ = named([0, 0], [16, 32])
    assert functions.is_inlined.tolist() == [1, 0]


def test_unknown_addresses_stay_apart_but_for_those_outside_any_file() -> None:
    functions, locations, frames = named([-1, 1, 1, -1], [5, 64, 65, 6])
    assert frames == [["[no mapping]"], ["[no symbol] x.so+0x40"], ["[no symbol] x.so+0x41"], ["[no mapping]"]]
    assert locations.reason.tolist() == [Unknown.NO_MAPPING, Unknown.NO_SYMBOL, Unknown.NO_SYMBOL, Unknown.NO_MAPPING]
    assert functions.mapped_file.tolist() == [-1, 1, 1]


def test_code_made_at_run_time_that_nobody_names_is_one_row_a_process() -> None:
    """Thousands of addresses of a heap, which are others in the next run, hide what else there is."""
    files = [MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=pid) for pid in (12, 13)]

    def nothing(file: MappedFile, addresses: U64) -> Locations:
        return unknown_locations(len(addresses), Unknown.NO_PERF_MAP)

    functions, locations = name_locations(
        files, np.array([0, 1, 0], np.int32), np.array([0x7F00, 0x7F00, 0x7F08], np.uint64), nothing, list
    )
    assert functions.name == ["[run-time code] [anon] of process 12", "[run-time code] [anon] of process 13"]
    assert locations.frame_function.tolist() == [0, 1, 0]
    assert locations.address.tolist() == [0x7F00, 0x7F00, 0x7F08]


def test_tags_are_no_part_of_a_name() -> None:
    assert [base_name(f"f(int){tag}") for tag in ("", " [cold]", " [isra.0 cold]")] == ["f(int)"] * 3
    assert base_name("[cold] f") == "[cold] f"


def test_nothing_to_name() -> None:
    functions, locations, _ = named([], [])
    assert len(functions.name) == 0
    assert locations.frame_start.tolist() == [0]


def test_unknown_addresses_beyond_what_anybody_tells_apart_are_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.profile.naming._MOST_UNKNOWN", 2)
    functions, _, frames = named([0, 0, 0, 0, 1], [1, 2, 3, 4, 5])
    assert [name for (name,) in frames] == [
        "[no symbol] app+0x1",
        "[no symbol] app+0x2",
        "[no symbol] app",
        "[no symbol] app",
        "[no symbol] x.so",
    ]
    assert len(functions.name) == 4


def test_the_innermost_of_too_many_inlined_calls_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.profile.naming._SPARE_FRAMES", 0)
    monkeypatch.setattr("tdprof.profile.naming._FRAMES_AN_ADDRESS", 3)
    counts = np.array([1, 9, 4])
    table = LocationTable(
        mapped_file=np.zeros(3, np.int32),
        address=np.arange(3, dtype=np.uint64),
        reason=np.zeros(3, np.uint8),
        frame_start=np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32),
        frame_function=np.arange(14, dtype=np.int32),
        frame_line=np.arange(14, dtype=np.uint32),
        is_guess=np.zeros(3, bool),
    )
    kept, note = limit_inlining(table, np.array([0, 1, 2], np.int32), 0)
    # Nine frames for three addresses: one, four and four are the most of equal depth.
    assert kept.frame_start.tolist() == [0, 1, 5, 9]
    assert kept.frame_function.tolist() == kept.frame_line.tolist() == [0, 6, 7, 8, 9, 10, 11, 12, 13]
    assert note == "calls inlined more than 3 deep are too many to show: the innermost are left out"
    assert limit_inlining(table, np.zeros(5, np.int32), 0) == (table, "")
    # What the files weigh bounds it, too, but leaves each address one frame.
    monkeypatch.setattr("tdprof.profile.naming._FRAMES_OF_ANY", 0)
    kept, _ = limit_inlining(table, np.array([0, 1, 2], np.int32), 3)
    assert kept.frame_start.tolist() == [0, 1, 3, 5]
    kept, _ = limit_inlining(table, np.array([0, 1, 2], np.int32), 0)
    assert kept.frame_start.tolist() == [0, 1, 2, 3]
