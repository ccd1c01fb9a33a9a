"""Functions that have no linkage name are told apart by what they stand in."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from builders.programs import need
from tdprof.linux.elf import PF_X, PT_LOAD, open_elf, read_build_id
from tdprof.model.addresses import Locations, MappedFile
from tdprof.model.arrays import U64
from tdprof.native.library import load_native
from tdprof.symbolize.demangling import demangle
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled part is not built")

# Each does something else with `sink`, so that no two are one piece of code.
SOURCE = """
extern volatile long sink;
#define INLINE inline __attribute__((always_inline))
namespace one { static INLINE void helper(int n) { for (int i = 0; i < n; i++) sink |= i; } }
namespace two { namespace { INLINE void helper(int n) { for (int i = 0; i < n; i++) sink -= i; } }
namespace { struct Local { INLINE void step(int n) { for (int i = 0; i < n; i++) sink += 5 * i; } }; }
extern "C" INLINE void plain_c(int n) { for (int i = 0; i < n; i++) sink ^= 9 * i; } }
namespace three { __attribute__((noinline)) void first(int n)
{
    auto add = [=](int m) { for (int i = 0; i < m; i++) sink += i; };
    auto take = [=](int m) { for (int i = 0; i < m; i++) sink -= 3 * i; };
    add(n); take(n); one::helper(n);
} }
static __attribute__((noinline)) void second(double n)
{
    struct Inner { static INLINE void go(int m) { for (int i = 0; i < m; i++) sink |= 7 * i; } };
    struct { INLINE void go(int m) { for (int i = 0; i < m; i++) sink += 11 * i; } } unnamed;
    [=](int m) { for (int i = 0; i < m; i++) sink ^= 3 * i; }((int)n);
    two::helper((int)n); two::Local().step((int)n); two::plain_c((int)n); Inner::go((int)n); unnamed.go((int)n);
}
void run(int n) { three::first(n); second(n); }
"""
MAIN = "volatile long sink; void run(int); int main(int argc, char **) { run(argc); return 0; }"


WAYS = pytest.mark.parametrize("flags", [["-gdwarf-4"], ["-gdwarf-5"], ["-gdwarf-5", "-flto"]], ids=" ".join)


def build(folder: Path, flags: list[str]) -> tuple[Path, U64]:
    """A program and the file offsets of its code."""
    (folder / "a.cc").write_text(SOURCE)
    (folder / "main.cc").write_text(MAIN)
    program = folder / "program"
    subprocess.run([need("g++"), "-O1", "-g", *flags, "a.cc", "main.cc", "-o", program], check=True, cwd=folder)
    (text,) = [s for s in open_elf(program).segments if s.type == PT_LOAD and s.flags & PF_X]
    return program, np.arange(text.offset, text.offset + text.file_size, dtype=np.uint64)


def locate(program: Path, offsets: U64) -> Locations:
    with Symbolizer(cache=None) as symbolizer:
        return symbolizer.locate(MappedFile(str(program), read_build_id(program)), offsets)


@WAYS
def test_functions_without_a_linkage_name_are_told_apart_by_their_scopes(tmp_path: Path, flags: list[str]) -> None:
    found = locate(*build(tmp_path, flags))
    named = {found.strings[number] for number in np.unique(found.function).tolist()}
    names = {name for name in demangle(sorted(named)) if "helper" in name or "{" in name or "::" in name}
    assert names >= {
        "one::helper",
        "two::(anonymous namespace)::helper",
        "two::(anonymous namespace)::Local::step",
        "three::first(int)::{lambda#1}::operator()",
        "three::first(int)::{lambda#2}::operator()",
    }
    inner = [name.partition("::")[2] for name in names if name.startswith("second(")]
    assert sorted(inner) == ["Inner::go", "{lambda#1}::operator()", "{unnamed type#1}::go"], names
    assert "plain_c" in named


@WAYS
def test_a_function_has_the_same_name_whatever_else_is_asked_for(tmp_path: Path, flags: list[str]) -> None:
    program, offsets = build(tmp_path, flags)
    every = locate(program, offsets)
    innermost = every.function[every.frame_start[:-1]]
    seen = 0
    for function in np.unique(innermost).tolist():
        name = every.strings[function]
        if "helper" not in name and "{" not in name:
            continue
        alone = locate(program, offsets[np.flatnonzero(innermost == function)[:1]])
        assert alone.strings[int(alone.function[0])] == name
        seen += 1
    assert seen >= 5
