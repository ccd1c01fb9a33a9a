"""Methods that a JVM interprets, in stacks."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from builders.bpf_spool import in_ring, java_code, java_method, stack_record
from tdprof.capture.java_code import JavaMethod
from tdprof.capture.named_code import MethodCode
from tdprof.capture.schema import MAPPINGS
from tdprof.decode.bpf_aggregates import StackBatch, decode_stacks_python
from tdprof.decode.java_frames import CODE, METHOD, MOST_LINE_BYTES, JavaFrames
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.model.stack_ends import StackEnd

BPF = Path(__file__).parents[3] / "bpf"
PID = 7
TEXTS = (b"app/Main", b"work", b"(I)J", b"Main.java")
LINES = bytes([0 << 3 | 5, 4 << 3 | 2, 0])  # bytecodes from 0 on are of line 5, from 4 on of line 7


def frame(identity: int, bytecode: int) -> int:
    return 1 << 62 | identity << 16 | bytecode


def batch(addresses: Sequence[int], *, is_kernel: bool = False) -> StackBatch:
    return decode_stacks_python(stack_record(1, addresses, is_kernel=is_kernel, end=StackEnd.COMPLETE))[0]


def spooled(folder: Path, *methods: bytes) -> tuple[JavaFrames, SpoolDamage]:
    (folder / "methods.bpf").write_bytes(b"".join(methods))
    damage = SpoolDamage()
    return JavaFrames(folder, damage), damage


def shown(found: JavaFrames, addresses: Sequence[int]) -> list[object]:
    """The stack, with methods by name, file and line."""
    merged = found.merge(batch(addresses)).address.tolist()
    (row,) = found.mappings(mapped((PID, "/usr/lib/jvm/libjvm.so", 3))).to_pylist()
    symbols = found.symbols()["frames"].to_pylist()
    inside = range(row["address"], row["address"] + row["length"])
    return [
        tuple(symbols[(each - (at > 0) - inside.start) >> 1][0].values()) if each in inside else each
        for at, each in enumerate(merged)
    ]


def mapped(*rows: tuple[int, str, int]) -> pa.Table:
    empty = {"address": 0, "length": 1, "file_offset": 0, "build_id": None}
    return pa.Table.from_pylist([empty | {"pid": p, "path": name, "time_ns": t} for p, name, t in rows], MAPPINGS)


def test_methods_stand_where_the_interpreter_was(tmp_path: Path) -> None:
    native = (b"app/Main$Inner", b"native", b"()V", b"")
    found, damage = spooled(tmp_path, java_method(10, PID, TEXTS, LINES), java_method(2**46 - 1, PID, native))
    assert shown(found, [frame(10, 5), 0x1000, frame(2**46 - 1, 0), frame(10, 3)]) == [
        ("long app.Main.work(int)", "app/Main.java", 7),
        0x1000,
        ("void app.Main$Inner.native()", None, 0),
        ("long app.Main.work(int)", "app/Main.java", 5),
    ]
    assert damage.stacks == 0
    assert not list(found.notes())


def test_lines_of_later_versions(tmp_path: Path) -> None:
    table = bytes([255, 1 + 2 * 40, 1 + 2 * 50, 0])  # their numbers have no byte that is 0
    found, _ = spooled(tmp_path, java_method(10, PID, TEXTS, table, lowest_byte=1))
    assert shown(found, [frame(10, 39), frame(10, 40)]) == [
        ("long app.Main.work(int)", "app/Main.java", 0),
        ("long app.Main.work(int)", "app/Main.java", 50),
    ]


def test_what_was_not_read_is_said(tmp_path: Path) -> None:
    found, damage = spooled(tmp_path, in_ring(b"?" * 100), java_method(11, PID, TEXTS))
    assert shown(found, [frame(10, 0)]) == [("[method not read]", None, 0)]
    assert damage.stacks + damage.bytes > 0
    assert list(found.notes()) == ["1 place in interpreted Java methods without a name: none could be read"]


def test_long_texts_are_cut(tmp_path: Path) -> None:
    texts = (b"p/" + b"C" * 300, b"m" * 200, b"(" + b"Lp/A;" * 200 + b")V", b"")
    found, _ = spooled(tmp_path, java_method(10, PID, texts))
    name = str(shown(found, [frame(10, 0)]))
    assert f"p.{'C' * 254}….{'m' * 128}…(p.A, p.A" in name
    assert len(name) < 1000


def test_other_addresses_stay(tmp_path: Path) -> None:
    found, _ = spooled(tmp_path, java_method(10, PID, TEXTS))
    kernel = [0xFFFF_FFFF_8100_0000, frame(10, 0)]
    assert found.merge(batch(kernel, is_kernel=True)).address.tolist() == kernel
    assert found.merge(batch([0x7FFF_FFFF_F000])).address.tolist() == [0x7FFF_FFFF_F000]
    assert not found


def test_numbers_on_the_stack_of_who_has_no_jvm_are_no_methods(tmp_path: Path) -> None:
    found, _ = spooled(tmp_path)
    two_and_a_half = 0x4004_0000_0000_0000
    assert found.merge(batch([0x1000, two_and_a_half])).address.tolist() == [0x1000, two_and_a_half]
    assert not list(found.notes())


def test_processes_have_places_since_they_have_a_jvm(tmp_path: Path) -> None:
    found, _ = spooled(tmp_path, java_method(10, PID, TEXTS), java_method(11, 8, TEXTS))
    found.merge(batch([frame(10, 0)]))
    table = mapped(
        (PID, "/a/libjvm.so", 3), (PID, "/bin/sh", 2), (9, "/a/libjvm.so", 4), (8, "/b/libjvm.so (deleted)", 5)
    )
    rows = found.mappings(table).to_pylist()
    assert [(row["pid"], row["time_ns"], row["path"]) for row in rows] == [(PID, 3, "[java]"), (8, 5, "[java]")]


def test_compiled_code_is_of_methods_that_were_read(tmp_path: Path) -> None:
    found, damage = spooled(
        tmp_path,
        java_method(10, PID, TEXTS, LINES, lowest_byte=1),
        java_method(11, PID, (b"p/" + b"C" * 300, b"cut", b"()V", b"")),
        java_method(12, PID, (b"A", b"f\n1 1 forged", b"()V", b"")),
        java_code(10, PID, 0x1000, 0x1100, 5),
        *(java_code(method, PID, 0x2000, 0x2100, 6) for method in (11, 12, 13)),
        java_code(10, 8, 0x1000, 0x1000, 7),
        java_code(10, 8, 0x1000, 0x1010, 8),
    )
    method = JavaMethod(*TEXTS, LINES)
    assert found.compiled() == {
        PID: [MethodCode(0x1000, 0x1100, 5, method, 1)],
        8: [MethodCode(0x1000, 0x1010, 8, method, 1)],
    }
    assert damage.stacks == 0
    assert not found  # none of them stands in a stack


def test_the_programs_have_the_same_layout(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to ask for the layout")
    assert METHOD.names
    assert METHOD.fields
    lines = [f'printf("%zu ", offsetof(struct java_method, {name}));' for name in METHOD.names]
    lines += ['printf("%zu %d ", offsetof(struct java_method, lines), MOST_JAVA_LINE_BYTES);']
    assert CODE.names
    assert CODE.fields
    lines += [f'printf("%zu ", offsetof(struct java_code, {name}));' for name in CODE.names]
    lines += ['printf("%zu", sizeof(struct java_code));']
    source = "#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n"
    source += f'#include "{BPF}/java_frames.h"\nint main(void) {{ {" ".join(lines)} return 0; }}\n'
    (tmp_path / "layout.c").write_text(source)
    subprocess.run(["gcc", "-o", tmp_path / "layout", tmp_path / "layout.c"], check=True)
    offsets = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    mirrored = [METHOD.fields[name][1] for name in METHOD.names]
    code = [CODE.fields[name][1] for name in CODE.names]
    assert [int(each) for each in offsets] == [*mirrored, METHOD.itemsize, MOST_LINE_BYTES, *code, CODE.itemsize]
