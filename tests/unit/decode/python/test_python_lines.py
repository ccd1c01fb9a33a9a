"""Lines of instructions, as CPython's own tables have them."""

import ast
import dis
import inspect
import json
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.decode.python.lines import LineTable

HERE = sys.version_info[:2]


def code_objects(code: types.CodeType) -> list[types.CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return [code, *(found for each in inner for found in code_objects(each))]


@pytest.mark.parametrize("module", [ast, dis, inspect, json.decoder])
def test_every_instruction_of_real_modules(module: types.ModuleType) -> None:
    for code in code_objects(compile(inspect.getsource(module), "name", "exec")):
        table = LineTable(HERE, code.co_linetable, code.co_firstlineno)
        found = {offset: table.line(offset) for start, end, _ in code.co_lines() for offset in range(start, end, 2)}
        begins = next((start for start, _, line in code.co_lines() if line), 0)
        want = {
            offset: line or (code.co_firstlineno if offset < begins else 0)
            for start, end, line in code.co_lines()
            for offset in range(start, end, 2)
        }
        assert found == want


def test_what_readies_the_frame_of_a_closure_is_of_its_first_line() -> None:
    # COPY_FREE_VARS without a location, RESUME on the first line, then the next one.
    table = bytes([0x80 | 15 << 3, 0x80 | 10 << 3, 0, 0, 0x80 | 11 << 3, 0, 0])
    assert [LineTable((3, 12), table, 7).line(at) for at in (0, 2, 4)] == [7, 7, 8]
    # Up to 3.10 likewise; and what has no line at all has none.
    assert [LineTable((3, 10), bytes([4, 128, 4, 1]), 7).line(at) for at in (0, 2)] == [7, 8]
    assert LineTable((3, 12), bytes([0x80 | 15 << 3]), 7).line(0) == 0


def test_before_the_first_instruction_is_the_first_line() -> None:
    assert LineTable((3, 12), b"", 7).line(0xFFFFFFFE) == 7


def test_a_table_that_was_cut_short_knows_no_more() -> None:
    code = code_objects(compile(inspect.getsource(json.decoder), "name", "exec"))[0]
    whole = LineTable(HERE, code.co_linetable, 1)
    for length in range(len(code.co_linetable)):
        cut = LineTable(HERE, code.co_linetable[:length], 1, is_cut=True)
        lines = [cut.line(offset) for offset in range(0, len(code.co_code), 2)]
        assert all(line in (0, whole.line(2 * at)) for at, line in enumerate(lines))
        assert lines[-1] == 0


def test_a_cut_number_of_lines_is_none() -> None:
    # 70 lines on, of which the lowest six bits are there; of the stretch before that all is.
    table = bytes([0x80 | 11 << 3, 0, 0, 0x80 | 13 << 3, 140 & 63 | 64])
    assert [LineTable((3, 12), table, 7, is_cut=True).line(at) for at in (0, 2)] == [8, 0]


def test_up_to_3_9_the_last_line_goes_on_to_the_end_only_where_that_was_read() -> None:
    table = bytes([6, 1, 4, 127])
    assert [LineTable((3, 9), table, 10).line(at) for at in (0, 6, 10, 1000)] == [10, 11, 138, 138]
    assert [LineTable((3, 9), table, 10, is_cut=True).line(at) for at in (0, 6, 10, 1000)] == [10, 11, 0, 0]
    assert LineTable((3, 9), b"", 10, is_cut=True).line(0) == 0


def test_up_to_3_9() -> None:
    # Bytes and lines to go on by: line 10 up to byte 6, then 11, then 300 lines on (two entries), then back by 2.
    table = LineTable((3, 9), bytes([6, 1, 4, 127, 0, 127, 0, 46, 2, 254]), 10)
    assert [table.line(at) for at in (0, 5, 6, 9, 10, 11, 12, 1000)] == [10, 10, 11, 11, 311, 311, 309, 309]


def test_3_10_counts_instructions_and_has_stretches_without_a_line() -> None:
    table = LineTable((3, 10), bytes([4, 0, 2, 128, 6, 1]), 10)
    assert [table.line(at) for at in range(7)] == [10, 10, 0, 11, 11, 11, 0]


@given(st.sampled_from([(3, 9), (3, 10), (3, 11), (3, 14)]), st.binary(max_size=64), st.integers(0, 2**32 - 1))
def test_any_bytes_are_a_table(version: tuple[int, int], table: bytes, instruction: int) -> None:
    LineTable(version, table, 1).line(instruction)


@pytest.mark.parametrize("change", [-5, 1 << 28])
def test_no_line_is_before_the_file_or_beyond_what_an_int_holds(change: int) -> None:
    number, digits = abs(change) << 1 | (change < 0), []
    while number >= 64:
        digits.append(number & 63 | 64)
        number >>= 6
    stretch = bytes([0x80 | 13 << 3, *digits, number])
    assert LineTable((3, 11), 20 * stretch, 1).line(2 * 19) == 0
