"""A program that does little but throw exceptions through a function that cleans up, and what its samples say."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

THROWING = """
#include <ctime>
#ifndef SECONDS
#define SECONDS 0.5
#endif
#define ALONE extern "C" __attribute__((noinline))
#define STAY __asm__ volatile("" ::: "memory")
struct Cleanup { volatile int *at; ~Cleanup() { *at += 1; STAY; } };
ALONE int thrower(int x) { STAY; throw x; }
ALONE int between(int x) { volatile int n = x; Cleanup cleanup{&n}; int r = thrower(x); STAY; return r + n; }
ALONE int catcher(int x) { try { x += between(x); STAY; } catch (int e) { x += e; } return x; }
ALONE int outer(int x) { int r = catcher(x); STAY; return r + 1; }
int main()
{
    while (clock() < SECONDS * CLOCKS_PER_SEC)
        for (int i = 0; i < 1000; i++)
            outer(i);
}
"""
THROWN_THROUGH = ["main", "outer", "catcher", "between", "thrower"]
CALLED_BY = {"_Unwind_RaiseException": THROWN_THROUGH, "_Unwind_Resume": THROWN_THROUGH[:-1]}


def build_throwing(folder: Path, flags: Sequence[str] = ("-O0",)) -> Path:
    """The program, by default with frame pointers."""
    source, program = folder / "throwing.cc", folder / "throwing"
    source.write_text(THROWING)
    subprocess.run(["g++", *flags, source, "-o", program], check=True)
    return program


def judge_thrown(samples: Iterable[tuple[Sequence[str], int]]) -> tuple[int, int, int]:
    """Weights of all samples, of those with a wrong caller, and of those that are said to be incomplete."""
    total = wrong = incomplete = 0
    for names, weight in samples:
        own = [name for name in names if name in THROWN_THROUGH]
        total += weight
        if any(name.startswith("[incomplete") for name in names):
            incomplete += weight
        elif own != THROWN_THROUGH[: len(own)] or any(own != CALLED_BY[name] for name in names if name in CALLED_BY):
            wrong += weight
    return total, wrong, incomplete
