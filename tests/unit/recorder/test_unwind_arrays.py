"""The recorder's side of the kernel's arrays: layouts, extents, and what a command maps first."""

import mmap
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tdprof.recorder.bpf import unwind_arrays
from tdprof.recorder.bpf.array_sizes import ArraySizes
from tdprof.recorder.executable_maps import executable_lines
from tdprof.recorder.first_files import files_of_command

BPF = Path(__file__).parents[3] / "bpf"
NATIVE = Path(__file__).parents[3] / "profiler" / "native"


def test_layouts_are_those_of_the_headers(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to ask for the layout")
    sizes = ["struct sample_mapping", "struct address_space", "struct missing_mapping"]
    sizes += ["struct unwind_header", "struct unwind_segment"]
    lines = [f'printf("%zu\\n", sizeof({name}));' for name in sizes]
    source = '#include <stdio.h>\n#include <linux/types.h>\n#include "sample.h"\n#include "unwind_api.h"\n'
    (tmp_path / "layout.c").write_text(source + f"int main(void) {{ {' '.join(lines)} return 0; }}\n")
    command = ["gcc", f"-I{BPF}", f"-I{NATIVE}", "-o", str(tmp_path / "layout"), str(tmp_path / "layout.c")]
    subprocess.run(command, check=True)
    output = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    mapping, space, question, header, segment = map(int, output.split())
    assert mapping == unwind_arrays._MAPPING.size
    assert space == unwind_arrays._SPACE.size
    assert question == 8
    assert header + 16 * segment == unwind_arrays.TABLE_BEGINNING_BYTES


def test_elements_are_reused_only_when_nobody_can_read_them_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(unwind_arrays.time, "monotonic", lambda: now)
    extents = unwind_arrays._Extents(10)
    assert [extents.take(4), extents.take(4), extents.take(4)] == [0, 4, None]
    extents.give_back(0, 4)
    assert extents.take(3) is None
    now += 10
    assert [extents.take(3), extents.take(2), extents.take(1)] == [0, 8, 3]
    assert extents.take(1) is None


def test_runs_side_by_side_are_one_for_who_needs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(unwind_arrays.time, "monotonic", lambda: now)
    extents = unwind_arrays._Extents(9)
    assert [extents.take(3), extents.take(3), extents.take(3)] == [0, 3, 6]
    extents.give_back(3, 3)
    extents.give_back(0, 3)
    now += 10
    extents.give_back(6, 3)
    assert extents.take(7) is None  # the last may still be read
    assert extents.take(6) == 0
    now += 10
    assert extents.take(3) == 6


def test_free_runs_stay_few_while_processes_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now, dice = 100.0, random.Random(1)
    monkeypatch.setattr(unwind_arrays.time, "monotonic", lambda: now)
    extents = unwind_arrays._Extents(1 << 20)
    taken: list[tuple[int, int]] = []
    for _ in range(20_000):
        now += 0.01
        count = dice.randrange(1, 60)
        first = extents.take(count)
        assert first is not None
        assert all(first + count <= begin or begin + length <= first for begin, length in taken)
        taken.append((first, count))
        if len(taken) > 20:
            extents.give_back(*taken.pop(dice.randrange(20)))
    assert len(extents._free) <= 512
    assert extents._used < 50_000  # they are used again


def test_tables_go_to_larger_arrays_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mapped counts as the recorder's memory."""
    monkeypatch.setattr(unwind_arrays, "_COPIED_BYTES", 2 * mmap.PAGESIZE)
    content = random.Random(1).randbytes(7 * mmap.PAGESIZE)
    (tmp_path / "rows").write_bytes(content)
    (tmp_path / "larger").write_bytes(bytes(9 * mmap.PAGESIZE))
    lengths = []

    def mapped(fd: int, length: int, **others: int) -> mmap.mmap:
        lengths.append(length)
        return mmap.mmap(fd, length, **others)

    monkeypatch.setattr(unwind_arrays, "mmap", SimpleNamespace(mmap=mapped))
    with (tmp_path / "rows").open("r+b") as old, (tmp_path / "larger").open("r+b") as new:
        arrays = unwind_arrays.UnwindArrays(
            {"unwind_rows": old.fileno()}, ArraySizes(), cast(Any, None), cast(Any, None), cast(Any, None)
        )
        arrays._session.row_count = len(content) // 4
        arrays._copy_tables({"unwind_rows": new.fileno()})
    assert (tmp_path / "larger").read_bytes() == content + bytes(2 * mmap.PAGESIZE)
    assert max(lengths) == 2 * mmap.PAGESIZE


def test_code_lines_of_a_process() -> None:
    text = (
        "55d000000000-55d000001000 r--p 00000000 fe:00 77 /bin/app\n"
        "55d000001000-55d000003000 r-xp 00001000 fe:00 77 /bin/app with a space\n"
        "7f0000000000-7f0000001000 rwxp 00000000 00:00 0 \n"
        "7f0000002000-7f0000003000 r-xp 00000000 00:01 9 /memfd:jit (deleted)\n"
        "7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0 [vdso]\n"
    )
    lines = list(executable_lines(text))
    assert [(line.start, line.end, line.file_offset) for line in lines][:2] == [
        (0x55D000001000, 0x55D000003000, 0x1000),
        (0x7F0000000000, 0x7F0000001000, 0),
    ]
    assert [line.path for line in lines] == ["/bin/app with a space", "", "/memfd:jit (deleted)", "[vdso]"]
    assert [line.is_file for line in lines] == [True, False, True, False]
    assert [line.may_be_memory for line in lines] == [False, False, True, False]


def test_a_commands_files_are_the_program_its_interpreter_and_its_libraries(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/usr/bin/env {sys.executable}\n")
    script.chmod(0o755)
    found = files_of_command([str(script)])
    assert found[0] == Path(sys.executable).resolve()
    names = [path.name for path in found]
    assert any(name.startswith("ld-") for name in names)
    assert any(name.startswith(("libc.so", "libc-")) for name in names)


@pytest.mark.parametrize("launcher", ["lib/libjli.so", "lib/jli/libjli.so"], ids=["JDK 9 and later", "JDK 8"])
def test_javas_launcher_will_load_the_jvm(tmp_path: Path, launcher: str) -> None:
    """Which it does not link to."""
    jvm = tmp_path / "lib/server/libjvm.so"
    for path in (tmp_path / launcher, jvm):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(sys.executable).resolve(), path)
        path.chmod(0o755)
    assert jvm in files_of_command([str(tmp_path / launcher)])


@pytest.mark.parametrize(
    "text", [b"#!", b"#!/does/not/exist\n", b"", b"\x7fELF", struct.pack("<16sHH", b"\x7fELF\2\1", 3, 62)]
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, text: bytes) -> None:
    program = tmp_path / "program"
    program.write_bytes(text)
    program.chmod(0o755)
    assert files_of_command([str(program)]) == []
