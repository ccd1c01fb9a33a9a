"""Python frames among native ones: which stand where, and what is said where they do not fit."""

import ctypes
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from builders.bpf_spool import python_code, python_stack, stack_record
from tdprof.capture.schema import MAPPINGS
from tdprof.decode.bpf_aggregates import StackBatch, decode_stacks_python
from tdprof.decode.python.merged import PythonFrames
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.model.addresses import INTERPRETED_ADDRESS
from tdprof.model.stack_ends import StackEnd

PID = 7
LOOP = 0x5000  # a call within the loop returns to 0x5010
GREENLET = 0x7000
HERE = sys.version_info[:2]


def in_memory(text: str) -> bytes:
    """A str object's header and text."""
    return ctypes.string_at(id(text), min(256, sys.getsizeof(text)))


def lines_of(function: object) -> bytes:
    table: bytes = function.__code__.co_linetable  # type: ignore[attr-defined]
    return table


def frames(
    tmp_path: Path,
    python: Sequence[tuple[int, int, int]],
    *,
    is_cut: bool = False,
    names: Sequence[str] = ("leaf", "middle", "outer"),
    identity: int = 1,
) -> PythonFrames:
    (tmp_path / "python_stacks.bpf").write_bytes(python_stack(identity, PID, python, is_cut=is_cut))
    process = {"process": PID, "version": HERE, "mapped": 0x4000, "time_ns": 5}
    process |= {"loops": [[LOOP, LOOP + 0x100]], "switchers": [[GREENLET, GREENLET + 0x100]]}
    (tmp_path / "python.jsonl").write_text(json.dumps(process) + "\n")
    path = in_memory("/srv/app.py")
    codes = [python_code(10 + at, PID, in_memory(name), path, b"", first_line=at) for at, name in enumerate(names)]
    (tmp_path / "codes.bpf").write_bytes(b"".join(codes))
    return PythonFrames(tmp_path, SpoolDamage())


def native(addresses: Sequence[int], end: StackEnd = StackEnd.COMPLETE, guessed_from: int = 0) -> StackBatch:
    record = stack_record(1, addresses, end=end, guessed_from=guessed_from)
    return decode_stacks_python(record + stack_record(2, [1, 2], end=StackEnd.COMPLETE))[0]


def shown(found: PythonFrames, batch: StackBatch) -> list[str | int]:
    """The first stack, Python functions by name."""
    merged = found.merge(batch)
    symbols = found.symbols()["frames"].to_pylist()
    assert merged.address[int(merged.start[1]) :].tolist() == [1, 2]  # the other stack is left alone
    return [
        symbols[(address - int(INTERPRETED_ADDRESS)) >> 1][0]["function"] if address >= INTERPRETED_ADDRESS else address
        for address in merged.address[: int(merged.start[1])].tolist()
    ]


def test_a_loop_stands_for_the_frames_up_to_the_one_that_c_code_called(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 0), (11, 0, 1), (12, 0, 1)])
    assert shown(found, native([0x100, LOOP + 16, 0x200, LOOP + 16, 0x300])) == [
        *(0x100, "leaf", "middle"),
        *(0x200, "outer", 0x300),
    ]
    assert found.unplaced == 0


def test_the_leaf_may_be_in_the_loop_itself(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1)])
    assert shown(found, native([LOOP, 0x300])) == ["leaf", 0x300]


def test_the_address_behind_the_loop_is_another_functions(tmp_path: Path) -> None:
    """A call at its very end returns to where another function begins; a leaf there is in that one."""
    found = frames(tmp_path, [(10, 0, 1)])
    assert shown(found, native([0x100, LOOP + 0x100, 0x300])) == [0x100, "leaf", 0x300]
    assert shown(found, native([LOOP + 0x100, LOOP + 16])) == [LOOP + 0x100, "leaf"]


def test_a_loop_that_is_being_entered_has_no_frame_yet(tmp_path: Path) -> None:
    found = frames(tmp_path, [(12, 0, 1)])
    assert shown(found, native([LOOP, 0x200, LOOP + 16, 0x300])) == [LOOP, 0x200, "outer", 0x300]


@pytest.mark.parametrize("loops", [1, 4])
def test_what_fits_no_loop_is_left_native_and_counted(tmp_path: Path, loops: int) -> None:
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 1)])
    addresses = [LOOP + 16] * loops
    assert shown(found, native(addresses)) == addresses
    assert found.unplaced == 1
    assert any("without Python frames" in note for note in found.notes())


def test_no_loop_runs_what_an_exception_is_thrown_through(tmp_path: Path) -> None:
    """`throw` calls the innermost of generators that wait for each other, as if the others had."""
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 3), (12, 0, 1)])
    thrown = [0x100, LOOP + 16, 0x200, 0x210, LOOP + 16, 0x300]
    assert shown(found, native(thrown)) == [0x100, "leaf", 0x200, 0x210, "middle", "outer", 0x300]
    assert shown(found, native([LOOP + 16, 0x200, LOOP + 16, GREENLET + 8, LOOP + 16])) == [
        *("leaf", 0x200, "middle", "outer", GREENLET + 8)
    ]
    assert found.unplaced == 0


def test_who_threw_is_left_native_where_the_outermost_frame_waits(tmp_path: Path) -> None:
    """CPython 3.9 has no caller of a generator that another one was thrown through."""
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 1), (12, 0, 3)])
    own = [0x100, LOOP + 16, 0x200, LOOP + 16, 0x210, 0x220]
    called = [0x100, "leaf", 0x200, "middle", 0x210, 0x220, "outer"]
    for others in ([LOOP + 16, 0x300, LOOP + 16], [LOOP + 16, 0x300, LOOP + 16, LOOP + 16, 0x400]):
        assert shown(found, native([*own, *others])) == [*called, *others]
    assert (found.thrown, found.unplaced) == (2, 0)
    assert [note for note in found.notes() if "CPython 3.9 does not say" in note]
    # Where the outermost traces itself no loop is left.
    traced = [LOOP + 16, 0x200, LOOP + 16, 0x210, LOOP + 16, 0x300]
    assert shown(found, native(traced)) == ["leaf", 0x200, "middle", 0x210, "outer", 0x300]
    assert found.thrown == 2


def test_what_is_traced_as_it_calls_has_its_loop(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 3), (12, 0, 1)])
    traced = [LOOP + 16, 0x200, LOOP + 16, 0x210, LOOP + 16]
    assert shown(found, native(traced)) == ["leaf", 0x200, "middle", 0x210, "outer"]
    assert found.unplaced == 0


@pytest.mark.parametrize(
    ("calls", "loops"),
    [
        pytest.param((1, 3, 3), 2, id="one of two"),
        pytest.param((3, 1, 1), 2, id="the leaf calls nobody"),
        pytest.param((0, 3, 1), 1, id="a loop called the leaf"),
    ],
)
def test_which_one_no_loop_runs_is_not_guessed(tmp_path: Path, calls: tuple[int, ...], loops: int) -> None:
    found = frames(tmp_path, [(10 + at, 0, call) for at, call in enumerate(calls)])
    addresses = [LOOP + 16] * loops
    assert shown(found, native(addresses)) == addresses
    assert found.unplaced == 1


@pytest.mark.parametrize("others", [1, 3])
@pytest.mark.parametrize("end", [StackEnd.COMPLETE, StackEnd.NO_MAPPING])
def test_a_greenlets_stack_is_whole_where_it_was_begun(tmp_path: Path, others: int, end: StackEnd) -> None:
    """What stands beyond was left there by others."""
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 1)])
    own, rest = [0x100, LOOP + 16, LOOP + 16, GREENLET + 8], [GREENLET + 9, 0x200, LOOP + 16] * others
    batch = native([*own, *rest], end)
    assert shown(found, batch) == [0x100, "leaf", "middle", GREENLET + 8]
    assert found.unplaced == 0
    assert found.merge(batch).walk["end"].tolist() == [StackEnd.COMPLETE, StackEnd.COMPLETE]


def test_a_loop_that_a_greenlet_is_entering_has_no_frame_yet(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1)])
    batch = native([LOOP + 16, 0x100, LOOP + 16, GREENLET + 8, 0x200, LOOP + 16], StackEnd.NO_MAPPING)
    assert shown(found, batch) == [LOOP + 16, 0x100, "leaf", GREENLET + 8]


def test_what_is_guessed_beyond_a_greenlet_makes_no_guess_of_it(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1)])
    batch = native([0x100, LOOP + 16, GREENLET + 8, 0x200, 0x300], StackEnd.NO_MAPPING, guessed_from=3)
    assert found.merge(batch).walk["guessed_from"][0] == 0


def test_what_a_greenlet_calls_to_switch_ends_none(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1)])
    assert shown(found, native([GREENLET + 8, LOOP + 16, 0x300])) == [GREENLET + 8, "leaf", 0x300]


def test_a_stack_that_is_not_whole_counts_from_the_leaf_and_has_the_rest_above(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 0), (12, 0, 1)])
    assert shown(found, native([0x100, LOOP + 16, 0x200], StackEnd.NO_UNWIND_INFO)) == [
        *(0x100, "leaf", 0x200),
        *("middle", "outer"),
    ]
    assert found.unplaced == 0


def test_frames_that_were_cut_are_counted_from_the_leaf_and_have_no_caller_beyond(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 0)], is_cut=True)
    batch = native([LOOP + 16, 0x200, LOOP + 16, 0x300, LOOP + 16])
    assert shown(found, batch) == ["leaf", 0x200, "middle"]
    assert found.merge(batch).walk["end"].tolist() == [StackEnd.TOO_DEEP, StackEnd.COMPLETE]


def test_a_native_stack_that_ends_first_has_its_own_reason(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 1), (11, 0, 0)], is_cut=True)
    batch = native([LOOP + 16, 0x200], StackEnd.UNREADABLE)
    assert shown(found, batch) == ["leaf", 0x200, "middle"]
    assert found.merge(batch).walk["end"][0] == StackEnd.UNREADABLE


def test_frames_whose_order_nobody_knows_are_left_away_and_counted(tmp_path: Path) -> None:
    found = frames(tmp_path, [], is_cut=True)
    addresses = [0x100, LOOP + 16, 0x200, LOOP + 16, LOOP + 16]
    assert shown(found, native(addresses)) == addresses
    assert (found.unordered, found.unplaced) == (1, 0)
    assert [note for note in found.notes() if "several subinterpreters" in note]


def test_what_is_guessed_stays_what_it_was(tmp_path: Path) -> None:
    found = frames(tmp_path, [(10, 0, 0), (11, 0, 1)])
    merged = found.merge(native([0x100, LOOP + 16, 0x200, 0x300], StackEnd.JIT, guessed_from=2))
    assert merged.walk["guessed_from"].tolist() == [3, 0]
    assert merged.address[3] == 0x200


def test_names_of_every_kind_of_text(tmp_path: Path) -> None:
    names = ["plain", "grüße", "π.<locals>.λ", "🐍" * 4, "x" * 400]
    found = frames(tmp_path, [(10 + at, 0, 1) for at in range(5)], names=names)
    functions = [row[0]["function"] for row in found.symbols()["frames"].to_pylist()]
    assert functions[:4] == names[:4]
    assert functions[4].startswith("x" * 200)
    assert functions[4].endswith("…")


def test_functions_of_one_name_and_file_are_told_apart_by_where_they_begin(tmp_path: Path) -> None:
    """A property's getter and setter, lambdas, before CPython 3.11 methods of several classes."""
    found = frames(tmp_path, [(10 + at, 0, 1) for at in range(4)], names=["<module>", "value", "other", "value"])
    functions = [row[0]["function"] for row in found.symbols()["frames"].to_pylist()]
    assert functions == ["<module>", "value:1", "other", "value:3"]


@pytest.mark.parametrize("lines_left", [0, 1])
def test_lines_are_those_of_the_instruction_where_they_were_read(tmp_path: Path, lines_left: int) -> None:
    def function() -> list[int]:
        found = [1]
        found.append(2)
        return found

    code = function.__code__
    (start, _, line) = list(code.co_lines())[-1]
    frames(tmp_path, [(10, start, 1)])
    texts = in_memory("f"), in_memory("f.py"), lines_of(function)
    record = python_code(10, PID, *texts, first_line=code.co_firstlineno, lines_left=lines_left)
    (tmp_path / "codes.bpf").write_bytes(record)
    [[row]] = PythonFrames(tmp_path, SpoolDamage()).symbols()["frames"].to_pylist()
    assert row == {"function": "f", "file": "f.py", "line": 0 if lines_left else line}


def test_a_code_object_that_was_not_read_has_no_name_and_is_counted(tmp_path: Path) -> None:
    found = frames(tmp_path, [(99, 0, 1)])
    assert shown(found, native([LOOP, 0x300])) == ["[code object not read]", 0x300]
    assert found.unnamed == 1


def test_addresses_belong_to_their_process(tmp_path: Path) -> None:
    rows = [
        {"time_ns": 3, "pid": PID, "address": 0x4000, "length": 1, "file_offset": 0, "path": "/p", "build_id": None}
    ]
    mappings = frames(tmp_path, [(10, 0, 1)]).mappings(pa.Table.from_pylist(rows, MAPPINGS)).to_pylist()
    assert [(each["pid"], each["time_ns"], each["path"]) for each in mappings] == [
        *((PID, 3, "[python]"), (PID, 5, "[python]")),  # when it was mapped, and when it was found
    ]
    assert {each["address"] for each in mappings} == {INTERPRETED_ADDRESS}


def test_a_process_that_executes_another_python_is_as_it_was_at_each_time(tmp_path: Path) -> None:
    later = 1 << 22 | PID
    old, new = [[LOOP, LOOP + 0x100]], [[LOOP + 0x1000, LOOP + 0x1100]]
    processes = [
        {"process": PID, "version": (3, 9), "mapped": 0x4000, "time_ns": 5, "loops": old},
        {"process": later, "version": HERE, "mapped": 0x4000, "time_ns": 9, "loops": new},
    ]
    (tmp_path / "python.jsonl").write_text("".join(json.dumps(each) + "\n" for each in processes))
    stacks = python_stack(1, PID, [(10, 0, 1)]) + python_stack(2, later, [(10, 0, 1)])
    (tmp_path / "python_stacks.bpf").write_bytes(stacks)
    (tmp_path / "codes.bpf").write_bytes(b"")
    found = PythonFrames(tmp_path, SpoolDamage())
    records = [stack_record(1, [LOOP + 16, 0x300]), stack_record(2, [LOOP + 0x1010, 0x400])]
    merged = found.merge(decode_stacks_python(b"".join(records))[0])
    assert [address >= INTERPRETED_ADDRESS or address for address in merged.address.tolist()] == [
        *(True, 0x300),
        *(True, 0x400),
    ]
    at = {"pid": PID, "address": 0x4000, "length": 1, "file_offset": 0, "path": "/p", "build_id": None}
    mapped = pa.Table.from_pylist([at | {"time_ns": 3}, at | {"time_ns": 7}], MAPPINGS)
    rows = found.mappings(mapped).to_pylist()
    assert {(row["pid"], row["time_ns"]) for row in rows} >= {(PID, 3), (PID, 7)}


def test_a_process_that_nobody_looked_at_is_as_its_program_at_other_addresses(tmp_path: Path) -> None:
    frames(tmp_path, [(10, 0, 1)])
    moved = -0x2000
    process = {"program": 3, "first": 0x900, "version": HERE, "mapped": 0x4000, "time_ns": 5}
    process["loops"] = [[LOOP - moved, LOOP + 0x100 - moved]]
    (tmp_path / "python.jsonl").write_text(json.dumps(process) + "\n")
    started = python_stack(0, PID, [(0x900 + moved & 0xFFFF_FFFF_FFFF_FFFF, 3, 0)])
    (tmp_path / "python_stacks.bpf").write_bytes(started + python_stack(1, PID, [(10, 0, 1)]))
    found = PythonFrames(tmp_path, SpoolDamage())
    assert shown(found, native([0x100, LOOP + 16, 0x200])) == [0x100, "leaf", 0x200]
    assert list(found.notes()) == []
    [mapping] = found.mappings(MAPPINGS.empty_table()).to_pylist()
    assert (mapping["pid"], mapping["time_ns"]) == (PID, 5)
    # Of a program that was never told of nothing is known.
    (tmp_path / "python_stacks.bpf").write_bytes(python_stack(0, PID, [(0x900, 4, 0)]))
    assert PythonFrames(tmp_path, SpoolDamage()).mappings(MAPPINGS.empty_table()).num_rows == 0


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", "[]", "\xff", "[" * 100_000, '{"process": 1}', '{"process": 1e999}'),
        '{"process": "x", "version": [3], "loops": 1}',
    ],
)
def test_lines_that_make_no_sense_are_left_out(tmp_path: Path, line: str) -> None:
    (tmp_path / "python.jsonl").write_text(line + "\n", encoding="latin-1")
    assert len(PythonFrames(tmp_path, SpoolDamage())) == 0


def test_records_cut_short_or_too_long_are_damage(tmp_path: Path) -> None:
    frames(tmp_path, [(10, 0, 1)])
    good = python_stack(1, PID, [(10, 0, 1)])
    lying = bytearray(good)
    lying[8 + 12 : 8 + 14] = (500).to_bytes(2, "little")
    (tmp_path / "python_stacks.bpf").write_bytes(bytes(lying) + good + good[:-3])
    damage = SpoolDamage()
    assert len(PythonFrames(tmp_path, damage)) == 1
    assert damage.stacks == 1
    assert damage.bytes > 0


def test_many_stacks_at_once_are_as_each_alone(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    records, python, want = [], [], []
    for number in range(1, 200):
        runs = int(generator.integers(1, 5))
        addresses: list[int] = []
        entries: list[tuple[int, int, int]] = []
        expected: list[str | int] = []
        for _ in range(runs):
            for _ in range(int(generator.integers(0, 3))):
                addresses.append(int(generator.integers(0x100, 0x4000)))
                expected.append(addresses[-1])
            addresses.append(LOOP + 16)
            length = int(generator.integers(1, 4))
            codes = [10 + int(at) for at in generator.integers(0, 3, length)]
            entries += [(code, 0, int(at == length - 1)) for at, code in enumerate(codes)]
            expected += [("leaf", "middle", "outer")[code - 10] for code in codes]
        records.append(stack_record(number, addresses, end=StackEnd.COMPLETE))
        python.append(python_stack(number, PID, entries))
        want.append(expected)
    frames(tmp_path, [(10, 0, 1)])
    (tmp_path / "python_stacks.bpf").write_bytes(b"".join(python))
    found = PythonFrames(tmp_path, SpoolDamage())
    merged = found.merge(decode_stacks_python(b"".join(records))[0])
    symbols = found.symbols()["frames"].to_pylist()
    for number, expected in enumerate(want):
        addresses = merged.address[int(merged.start[number]) : int(merged.start[number + 1])].tolist()
        base = int(INTERPRETED_ADDRESS)
        assert [symbols[each - base >> 1][0]["function"] if each >= base else each for each in addresses] == expected
