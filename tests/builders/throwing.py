"""A program that does little but throw exceptions through a function that cleans up, and what its samples say."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

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
REWRITTEN = ["[incomplete: bad-sp]", "between", "_Unwind_Resume"]
CALLED_BY = {"_Unwind_RaiseException": THROWN_THROUGH, "_Unwind_Resume": THROWN_THROUGH[:-1]}


def build_throwing(folder: Path, flags: Sequence[str] = ("-O0",)) -> Path:
    """The program, by default with frame pointers."""
    source, program = folder / "throwing.cc", folder / "throwing"
    source.write_text(THROWING)
    subprocess.run(["g++", *flags, source, "-o", program], check=True)
    return program


class Thrown(NamedTuple):
    """Weights of samples.

    Attributes:
        total: of all.
        wrong: with a caller that is none.
        incomplete: that say so.
        rewritten: of these, those in what `_Unwind_Resume` ends with: it writes the handler's registers over the frame
            pointer that led on from the function that has cleaned up. How long that takes is up to the processor.
        resuming: in `_Unwind_Resume`.
    """

    total: int
    wrong: int
    incomplete: int
    rewritten: int
    resuming: int


def judge_thrown(samples: Iterable[tuple[Sequence[str], int]]) -> Thrown:
    """What samples of the program say, each with the names of its functions, the outermost first."""
    total = wrong = incomplete = rewritten = resuming = 0
    for names, weight in samples:
        own = [name for name in names if name in THROWN_THROUGH]
        total += weight
        resuming += weight if "_Unwind_Resume" in names else 0
        if any(name.startswith("[incomplete") for name in names):
            incomplete += weight
            rewritten += weight if REWRITTEN in (names[-3:], names[-4:-1]) else 0
        elif own != THROWN_THROUGH[: len(own)] or any(own != CALLED_BY[name] for name in names if name in CALLED_BY):
            wrong += weight
    return Thrown(total, wrong, incomplete, rewritten, resuming)
