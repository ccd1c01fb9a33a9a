"""Each instruction's callers by the unwind tables, compared with those that the program's calls and returns made."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from builders.single_steps import Stepped
from builders.unwind_cores import maps_world
from tdprof.native import unwind_api
from tdprof.unwind import walk

MOST_STEPS = 30_000


@dataclass(frozen=True, slots=True)
class Found:
    """A stack that is not whole and right: why it ended, and its and the true addresses, leaf first."""

    end: str
    chain: tuple[str, ...]
    expected: tuple[str, ...]


@dataclass(slots=True)
class Compared:
    """Steps in all, stacks with a wrong caller, and those that end early."""

    steps: int = 0
    wrong: list[Found] = field(default_factory=list)
    incomplete: list[Found] = field(default_factory=list)


def build_program(build: Sequence[str], source: Path, folder: Path) -> tuple[Path, int]:
    """A program as this command compiles it, and the address of its main."""
    program = folder / source.stem
    subprocess.run([*build, "-no-pie", source, "-o", program], check=True)
    out = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return program, next(int(line.split()[0], 16) for line in out.splitlines() if line.endswith(" T main"))


def compare_callers(stops: Iterable[Stepped], machine: int, folder: Path) -> Compared:
    """Walk the stack of each stop; the first is at the program's main, in whose caller all others end."""
    maps, world, below = "", None, []
    words = unwind_api.end_words()
    found = Compared()
    for stepped in stops:
        if world is None or stepped.maps != maps:
            maps = stepped.maps
            vdso = folder / "vdso"
            vdso.write_bytes(stepped.vdso)
            world = maps_world(stepped.maps, vdso)
        walked = walk_steps(stepped, machine, world)
        if not found.steps:
            assert words[walked.end[0]] == "complete"
            below = walked.addresses[1 : walked.depth[0]].tolist()  # who called main
        found.steps += len(stepped.registers)
        at = np.concatenate([[0], np.cumsum(walked.depth, dtype=np.int64)]).astype(int)
        for i, callers in enumerate(stepped.callers):
            chain = walked.addresses[at[i] : at[i + 1]].tolist()
            expected = [chain[0], *callers, *below]
            stack = Found(words[walked.end[i]], tuple(map(hex, chain[:5])), tuple(map(hex, expected[:5])))
            if chain != expected[: len(chain)]:
                found.wrong.append(stack)
            elif stack.end != "complete" or len(chain) != len(expected):
                found.incomplete.append(stack)
    return found


def walk_steps(stepped: Stepped, machine: int, world: walk.World) -> walk.Walked:
    """The stacks of all these stops."""
    sizes = np.array([len(stack) for stack in stepped.stacks], np.uint32)
    return walk.walk_stacks(
        walk.CopiedStacks(
            machine,
            np.array(stepped.registers, np.uint64),
            np.zeros(len(sizes), np.uint32),
            np.concatenate([[0], np.cumsum(sizes[:-1])]).astype(np.uint64),
            sizes,
            np.frombuffer(b"".join(stepped.stacks), np.uint8),
        ),
        world,
    )
