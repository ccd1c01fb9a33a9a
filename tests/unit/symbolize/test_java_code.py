"""What a JVM has inlined, and lines, looked up in what a capture keeps of its compiled code."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.java_code import Scopes, lines
from builders.llvm_symbolizer import our_stacks
from tdprof.capture.java_code import NO_METHOD, JavaCode, JavaHeader, JavaMethod
from tdprof.capture.java_methods import external_name
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.symbolize.symbolizer import Symbolizer

OUTER, INNER, LEAF = "long app.A.outer(int)", "void app.B$C.inner(java.lang.String[], double)", "int A.leaf()"


def methods(lowest_byte: int) -> list[JavaMethod]:
    far = lines((0, 10), (5, 11), (40, 9), (300, 4000), lowest_byte=lowest_byte)
    return [
        JavaMethod(b"app/A", b"outer", b"(I)J", b"A.java", far),
        JavaMethod(b"app/B$C", b"inner", b"([Ljava/lang/String;D)V", b"B.java", lines((0, 7), lowest_byte=lowest_byte)),
        JavaMethod(b"A", b"leaf", b"()I", b"", b""),
    ]


def code(lowest_byte: int, begin: int = 0x1000, compilation: int = 1) -> JavaCode:
    """A call at 0x1010 returns in leaf() within inner() within outer(), one at 0x1020 in outer() itself."""
    scopes = Scopes(lowest_byte)
    for _ in range(100):  # so that offsets take several bytes
        scopes.add(0, 1, 0)
    outer = scopes.add(0, 1, 300)
    leaf = scopes.add(scopes.add(outer, 2, 3), 3, 0)
    scopes.place(0x10, leaf)
    scopes.place(0x20, scopes.add(0, 1, 44))
    numbers = struct.pack("<3I", 0, 1, 2)
    return JavaCode(begin, begin + 0x100, compilation, 0, scopes.table(), scopes.data, numbers)


def write(folder: Path, *codes: JavaCode, is_everywhere: bool = False, lowest_byte: int = 0, name: str = OUTER) -> None:
    records: list[JavaMethod | JavaCode] = [*methods(lowest_byte), *codes]
    header = JavaHeader(lowest_byte, is_everywhere).to_bytes()
    (folder / "perf-42.java").write_bytes(header + b"".join(record.to_bytes() for record in records))
    (folder / "perf-42.map").write_text(f"1000 100 {name}\n")


def stacks(folder: Path, *addresses: int) -> list[list[tuple[str, str]]]:
    with Symbolizer(perf_map_dir=folder) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        return our_stacks(symbolizer.locate(file, np.array(addresses, np.uint64)))


WHOLE = [(LEAF, "??:0"), (INNER, "app/B.java:7"), (OUTER, "app/A.java:4000")]


@pytest.mark.parametrize("lowest_byte", [0, 1])
def test_callers_have_what_is_inlined(tmp_path: Path, lowest_byte: int) -> None:
    write(tmp_path, code(lowest_byte), lowest_byte=lowest_byte)
    assert stacks(tmp_path, 0x100F, 0x101F) == [WHOLE, [(OUTER, "app/A.java:9")]]


def test_between_calls_only_the_compiled_method_is_known(tmp_path: Path) -> None:
    write(tmp_path, code(0))
    plain = [(OUTER, "app/A.java:0")]  # with its file, or what it calls would be another function's
    assert stacks(tmp_path, 0x1000, 0x100E, 0x1010, 0x1030, 0x10FF) == [plain] * 5


def test_all_instructions_where_the_jvm_says_so(tmp_path: Path) -> None:
    write(tmp_path, code(0), is_everywhere=True)
    outer = [(OUTER, "app/A.java:9")]
    assert stacks(tmp_path, 0x1000, 0x100F, 0x1010, 0x101E, 0x1020) == [
        WHOLE,
        WHOLE,
        outer,
        outer,
        [(OUTER, "app/A.java:0")],
    ]


def test_another_name_in_the_map_is_believed(tmp_path: Path) -> None:
    write(tmp_path, code(0), name="long app.A.other(int)")
    assert stacks(tmp_path, 0x100F) == [[("long app.A.other(int)", "??:0")]]


def test_of_methods_of_one_name_in_several_files_none_is_known(tmp_path: Path) -> None:
    other = JavaMethod(b"app/A", b"outer", b"(I)J", b"Generated.java", b"")
    write(tmp_path, code(0))
    with (tmp_path / "perf-42.java").open("ab") as file:
        file.write(other.to_bytes())
    assert stacks(tmp_path, 0x1000) == [[(OUTER, "??:0")]]


def test_code_in_anothers_place_says_nothing(tmp_path: Path) -> None:
    write(tmp_path, code(0), code(0, 0x1008, 2))
    assert stacks(tmp_path, 0x100F) == [[(OUTER, "app/A.java:0")]]


def test_a_method_that_is_not_known_leaves_the_stack_as_it_was(tmp_path: Path) -> None:
    known = code(0)
    numbers = struct.pack("<3I", 0, NO_METHOD, 2)
    write(tmp_path, JavaCode(known.begin, known.end, 1, 0, known.places, known.scopes, numbers))
    assert stacks(tmp_path, 0x100F) == [[(OUTER, "app/A.java:0")]]


def test_scopes_that_go_in_circles_end(tmp_path: Path) -> None:
    scopes = Scopes()
    scopes.place(0x10, scopes.add(len(scopes.data), 1, 0))
    write(tmp_path, JavaCode(0x1000, 0x1100, 1, 0, scopes.table(), scopes.data, struct.pack("<I", 0)))
    assert stacks(tmp_path, 0x100F) == [[(OUTER, "app/A.java:0")]]


@pytest.mark.parametrize(
    ("signature", "holder", "name"),
    [
        ("()V", "A", "void A.f()"),
        ("(BCFSZ[[J)[LB;", "p/A", "B[] p.A.f(byte, char, float, short, boolean, long[][])"),
        ("(J)I", "A$$Lambda+0x00007f", "int A$$Lambda/0x00007f.f(long)"),
        ("(Lp", "A", " A.f(p)"),
    ],
)
def test_names_are_as_in_maps(signature: str, holder: str, name: str) -> None:
    assert external_name(JavaMethod(holder.encode(), b"f", signature.encode(), b"", b"")) == name


@given(cut=st.integers(0, 2000), at=st.integers(0, 2000), byte=st.integers(0, 255))
def test_damaged_files_are_no_error(tmp_path_factory: pytest.TempPathFactory, cut: int, at: int, byte: int) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    write(folder, code(0), is_everywhere=True)
    data = bytearray((folder / "perf-42.java").read_bytes())
    data[at % len(data)] = byte
    (folder / "perf-42.java").write_bytes(data[: max(1, len(data) - cut)])
    assert all(stack[-1][0] == OUTER for stack in stacks(folder, 0x1000, 0x100F, 0x101F, 0x10FF))
