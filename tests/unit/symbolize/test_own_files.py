"""The file that a function stands in, where its lines are of others, too."""

import subprocess
from collections import defaultdict
from pathlib import Path, PurePath

import numpy as np
import pytest

from builders.programs import need
from tdprof.linux.elf import PF_X, PT_LOAD, open_elf, read_build_id
from tdprof.model.addresses import MappedFile
from tdprof.native.library import load_native
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

SOURCES = {
    "a.c": """
extern volatile long sink;
static inline __attribute__((always_inline)) void inlined(long n)
{
    for (long i = 0; i < n; i++) sink += i;
#include "body.inc"
}
static __attribute__((noinline)) void same(long n)
{
    sink -= n;
#include "body.inc"
}
__attribute__((noinline)) void parsed(long n)
{
    for (long i = 0; i < n; i++) sink ^= 3 * i;
#line 100 "grammar.y"
    for (long i = 0; i < n; i++) sink -= i;
#line 20 "a.c"
    sink = 7;
}
__attribute__((noinline)) void begins_elsewhere(long n)
{
#include "body.inc"
    inlined(n); inlined(2 * n); same(n); parsed(n); same(n + 3);
}
""",
    "b.c": """
extern volatile long sink;
static __attribute__((noinline)) void same(long n)
{
    sink += n;
#include "body.inc"
}
void b(long n) { same(n); same(sink); }
""",
    "body.inc": "for (long i = 0; i < n; i++) sink |= i + n;\n",
    "main.c": """
volatile long sink;
void begins_elsewhere(long);
void b(long);
int main(int n, char **names) { begins_elsewhere(n); b(n); return names == 0; }
""",
}
EXPECTED = {
    ("inlined", "a.c"): {"a.c", "body.inc"},
    ("parsed", "a.c"): {"a.c", "grammar.y"},
    ("begins_elsewhere", "a.c"): {"a.c", "body.inc"},
    ("same", "a.c"): {"a.c", "body.inc"},
    ("same", "b.c"): {"b.c", "body.inc"},
}


def build(folder: Path, *command: str) -> Path:
    for name, text in SOURCES.items():
        (folder / name).write_text(text)
    program = folder / "program"
    command = (need(command[0]), *command[1:], "-O2", "-Wl,--build-id", "a.c", "b.c", "main.c", "-o", str(program))
    subprocess.run(command, check=True, cwd=folder)
    return program


def files_of_lines(program: Path) -> dict[tuple[str, str], set[str]]:
    """By the name of each function and the file that it stands in: the files of its lines."""
    (text,) = [s for s in open_elf(program).segments if s.type == PT_LOAD and s.flags & PF_X]
    offsets = np.arange(text.offset, text.offset + text.file_size, dtype=np.uint64)
    with Symbolizer() as symbolizer:
        found = symbolizer.locate(MappedFile(str(program), read_build_id(program)), offsets)
    files = defaultdict(set)
    rows = zip(found.function.tolist(), found.own_files.tolist(), found.file.tolist(), strict=True)
    for function, own, file in rows:
        key = found.strings[function].partition(".")[0], PurePath(found.strings[own]).name if own >= 0 else ""
        files[key].add(PurePath(found.strings[file]).name if file >= 0 else "")
    names = {name for name, _ in EXPECTED}
    return {key: found for key, found in files.items() if key[0] in names}


@pytest.mark.parametrize(
    "command",
    [
        "gcc -gdwarf-4",
        "gcc -gdwarf-5",
        "gcc -g1",
        "gcc -gdwarf-5 -gsplit-dwarf",
        "gcc -gdwarf-5 -flto",
        "clang -gdwarf-4",
        "clang -gdwarf-5",
    ],
)
def test_a_function_stands_where_it_is_declared_whatever_its_lines_are_of(tmp_path, command):
    assert files_of_lines(build(tmp_path, *command.split())) == EXPECTED


def test_separate_debug_data_says_it_too(tmp_path):
    program = build(tmp_path, "gcc", "-g")
    debug = tmp_path / "program.debug"
    for tool, *arguments in (
        ["objcopy", "--only-keep-debug", str(program), str(debug)],
        ["strip", str(program)],
        ["objcopy", f"--add-gnu-debuglink={debug}", str(program)],
    ):
        subprocess.run([need(tool), *arguments], check=True)
    assert files_of_lines(program) == EXPECTED


def test_line_tables_alone_tell_it_by_where_the_function_begins(tmp_path):
    found = files_of_lines(build(tmp_path, "clang", "-gline-tables-only"))
    whole = {key: files for key, files in found.items() if key[0] in ("parsed", "same", "begins_elsewhere")}
    assert whole == {key: EXPECTED[key] for key in whole}
    assert len(whole) == 4
