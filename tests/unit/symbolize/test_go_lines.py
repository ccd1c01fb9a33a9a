"""Names, lines and inlined calls by Go's own table, which stripped programs keep."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.go_table import GoCode, GoFunction, go_program
from tdprof.linux.elf import parse_elf
from tdprof.model.addresses import Locations, MappedFile, Unknown
from tdprof.native.library import load_native
from tdprof.symbolize.go_lines import open_go_lines
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

TEXT, TEXT_OFFSET = 0x401000, 0x1000
FILES = ["shop/main.go", "shop/price.go", "runtime/proc.go"]
# serve 0x10 to 0x50: its own code, price inlined at byte 0x10, round inlined into that at 0x18.
SERVE = GoFunction(
    "main.serve",
    0x10,
    [GoCode(0x10, 0, 7), GoCode(8, 1, 21, 0), GoCode(8, 1, 30, 1), GoCode(0x20, 0, 9)],
    [("main.price", 0x8), ("main.round", 0x14)],
)
MAIN = GoFunction("main.main", 0x50, [GoCode(0x30, 0, 40)])
Frame = tuple[str, str, int]


def stacks(locations: Locations) -> list[list[Frame]]:
    """(function, file, line) of each address, the innermost first."""
    starts, strings = locations.frame_start.tolist(), locations.strings
    return [
        [
            (strings[locations.function[i]], strings[locations.file[i]] if locations.file[i] >= 0 else "", line)
            for i, line in zip(range(a, b), locations.line[a:b].tolist(), strict=True)
        ]
        for a, b in itertools.pairwise(starts)
    ]


def locate(path: Path, program: bytes, places: Sequence[int]) -> list[list[Frame]]:
    """Of places from the text on."""
    path.write_bytes(program)
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(path)), np.array(places, np.uint64) + np.uint64(TEXT_OFFSET))
        assert not symbolizer.notes()
    assert all(reason in (Unknown.KNOWN, Unknown.STRIPPED) for reason in found.reason.tolist())
    return stacks(found)


@pytest.mark.parametrize("is_pie", [False, True])
@pytest.mark.parametrize("version", ["1.18", "1.20", "1.27"])
def test_a_stripped_program_has_names_lines_and_inlined_calls(tmp_path: Path, version: str, is_pie: bool) -> None:
    program = go_program([SERVE, MAIN], FILES, version, is_pie=is_pie)
    own, price, rounded, after, main, outside, before = locate(
        tmp_path / "shop", program, [0x10, 0x20, 0x28, 0x4F, 0x50, 0x80, 0xF]
    )
    assert own == [("main.serve", FILES[0], 7)]
    assert price == [("main.price", FILES[1], 21), ("main.serve", FILES[0], 7)]
    assert rounded == [("main.round", FILES[1], 30), ("main.price", FILES[1], 21), ("main.serve", FILES[0], 7)]
    assert after == [("main.serve", FILES[0], 9)]
    assert main == [("main.main", FILES[0], 40)]
    assert not outside
    assert not before


def test_where_text_begins_behind_c_code_its_own_word_for_it_counts(tmp_path: Path) -> None:
    """As C's linker puts it: the section's address is not what functions count from."""
    program = go_program([SERVE, MAIN], FILES, "1.18", text=TEXT + 0x100, is_pie=True)
    assert locate(tmp_path / "shop", program, [0x110, 0x10]) == [[("main.serve", FILES[0], 7)], []]


def test_a_table_that_c_s_linker_put_among_other_data_is_found(tmp_path: Path) -> None:
    before = b"\xf0\xff\xff\xff\0\0\1\x08" * 8  # begins like a table
    program = go_program([SERVE, MAIN], FILES, "1.18", is_pie=True, before=before)
    assert locate(tmp_path / "shop", program, [0x10]) == [[("main.serve", FILES[0], 7)]]


def test_before_go_1_18_lines_of_inlined_calls_are_not_known(tmp_path: Path) -> None:
    program = go_program([SERVE, MAIN], FILES, "1.16")
    own, price, main = locate(tmp_path / "shop", program, [0x10, 0x20, 0x50])
    assert own == [("main.serve", FILES[0], 7)]
    assert price == [("main.serve", "", 0)]
    assert main == [("main.main", FILES[0], 40)]


def test_a_tree_that_is_its_own_parent_is_not_believed(tmp_path: Path) -> None:
    function = GoFunction("main.loop", 0x10, [GoCode(8, 0, 1, 0), GoCode(8, 0, 2, 1)], [("a", 0x8), ("b", 0x0)])
    program = go_program([function, MAIN], FILES, "1.20")
    assert locate(tmp_path / "loop", program, [0x10, 0x18]) == [[("main.loop", "", 0)]] * 2


def test_calls_are_asked_for_one_by_one_and_stay_known(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    path.write_bytes(go_program([SERVE, MAIN], FILES, "1.20"))
    with Symbolizer() as symbolizer:
        for _ in range(2):
            for place, line in ((0x10, 7), (0x50, 40), (0x4F, 9)):
                found = symbolizer.locate(MappedFile(str(path)), np.array([TEXT_OFFSET + place], np.uint64))
                assert stacks(found)[0][0][2] == line


def test_functions_that_share_one_long_table_are_not_all_read(tmp_path: Path) -> None:
    """What would become many times the file's size is cut off, and said: no place beyond has another's line."""
    path = tmp_path / "shared"
    long = GoFunction("main.long", 0, [GoCode(1, 0, line) for line in range(1, 20001)])
    program = bytearray(
        go_program([long, *(GoFunction("f", 20000 * n, [GoCode(20000, 0, 1)]) for n in range(1, 60))], FILES, "1.20")
    )
    table = program.index(b"\xff\xff\xff\0\0\1\x08") - 1
    lines = table + int.from_bytes(program[table + 64 : table + 72], "little")
    first = int.from_bytes(program[lines + 4 : lines + 8], "little")
    for number in range(1, 60):
        program[lines + 8 * number + 4 : lines + 8 * number + 8] = first.to_bytes(4, "little")
    path.write_bytes(program)
    go = open_go_lines(parse_elf(memoryview(bytes(program))))
    assert go is not None
    index = go.index_for(np.arange(TEXT, TEXT + 60 * 20000, 500, dtype=np.uint64))
    assert go.is_spent
    assert len(index.range_start) < 100_000 < 60 * 20_000
    known = index.lookup(np.arange(TEXT, TEXT + 60 * 20000, 500, dtype=np.uint64))
    expected = 1 + (np.arange(TEXT, TEXT + 60 * 20000, 500) - TEXT) % 20000
    assert (index.range_line[known[known >= 0]] == expected[known >= 0]).all()
    assert 0 < (known >= 0).sum() < len(known)


@st.composite
def functions(draw: st.DrawFn) -> list[GoFunction]:
    found, start = [], draw(st.integers(0, 64))
    for number in range(draw(st.integers(1, 6))):
        sizes = draw(st.lists(st.integers(1, 300), min_size=1, max_size=8))
        # A call's parent is at the function's first byte, which is the function's own, or at an earlier call's.
        parts, calls, at = [GoCode(sizes[0], draw(st.integers(0, 2)), draw(st.integers(1, 5000)))], [], sizes[0]
        begins = [0]
        for size in sizes[1:]:
            is_call = draw(st.booleans())
            if is_call:
                calls.append((f"inlined{draw(st.integers(0, 3))}", draw(st.sampled_from(begins))))
            call = len(calls) - 1 if is_call else -1
            parts.append(GoCode(size, draw(st.integers(0, 2)), draw(st.integers(1, 5000)), call))
            begins.append(at)
            at += size
        found.append(GoFunction(f"main.f{number}", start, parts, calls))
        start = found[-1].end
    return found


def expected(function: GoFunction, place: int) -> list[Frame]:
    at, frames = place, []
    while True:
        part, begin = function.code[0], 0
        for part in function.code:
            if at < begin + part.size:
                break
            begin += part.size
        name = function.calls[part.call][0] if part.call >= 0 else function.name
        frames.append((name, FILES[part.file], part.line))
        if part.call < 0:
            return frames
        at = function.calls[part.call][1]


@given(functions(), st.sampled_from(["1.18", "1.20", "1.27"]), st.booleans())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
def test_every_address_has_the_stack_that_was_written(
    tmp_path: Path, written: list[GoFunction], version: str, is_pie: bool
) -> None:
    places = [place for f in written for place in range(f.start, f.end, 7)]
    wanted = [expected(f, place - f.start) for f in written for place in range(f.start, f.end, 7)]
    assert locate(tmp_path / "program", go_program(written, FILES, version, is_pie=is_pie), places) == wanted


@given(st.sampled_from(["1.16", "1.18", "1.27"]), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255))))
@settings(max_examples=60, deadline=None)
def test_damaged_tables_say_something_in_order_or_nothing(version: str, changes: list[tuple[int, int]]) -> None:
    program = bytearray(go_program([SERVE, MAIN], FILES, version))
    table = program.index(b"\xff\xff\xff\0\0\1\x08") - 1
    for at, value in changes:
        program[table + at % 0x200] = value
    lines = open_go_lines(parse_elf(memoryview(bytes(program))))
    if lines is None:
        return
    names = lines.functions()
    names.names(range(len(names)))
    index = lines.index_for(np.arange(TEXT, TEXT + 0x100, dtype=np.uint64))
    assert (np.diff(index.range_start.astype(object)) > 0).all()
    nodes = index.range_node[index.range_node != 0xFFFFFFFF]
    assert (nodes < len(index.node_parent)).all()
    parents = index.node_parent
    assert ((parents == 0xFFFFFFFF) | (parents < np.arange(len(parents)))).all()
    index.function_names(index.node_function)
    index.file_names(index.range_file[index.range_file != 0xFFFFFFFF])
