"""The program's walker and gdb over the same core file."""

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from builders.core_file import read_core
from tdprof.native import unwind_api
from tdprof.unwind import sections, tables, walk

MOST_STACK = 1 << 23  # bytes

# For gdb: the addresses of a thread's frames, without those that are not on the stack: of inlined calls, and of tail
# calls that it infers.
FRAMES = """
def frames():
    frame, pcs = gdb.newest_frame(), []
    while frame is not None and len(pcs) < 250:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    return pcs
"""
PAST_MAIN = ("-iex", "set backtrace past-main on", "-iex", "set backtrace past-entry on")
_SCRIPT = f"""{FRAMES}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    print("STACK", thread.ptid[1] or thread.ptid[0], *map(hex, frames()))
"""


@dataclass
class Compared:
    """One thread's stack by both.

    Attributes:
        tid: the thread.
        ours, gdb: addresses, leaf first.
        end: why ours ended.
        methods: callers by tables, frame pointers, link register.
    """

    tid: int
    ours: list[int]
    gdb: list[int]
    end: str
    methods: tuple[int, ...]


def take_core(pid: int, path: Path) -> dict[int, list[int]]:
    """Write the core file of a running process, which goes on then; beside it what gdb leaves out, since files hold it:
    its mappings, and the vDSO.

    Returns:
        The addresses of each thread's frames, by its tid, as the same gdb sees them; empty if it may not.
    """
    maps = Path(f"/proc/{pid}/maps").read_text()
    path.with_suffix(".maps").write_text(maps)
    with open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps.splitlines():
            if line.endswith("[vdso]"):
                start, end = (int(part, 16) for part in line.split()[0].split("-"))
                path.with_suffix(".vdso").write_bytes(os.pread(memory.fileno(), end - start, start))
    script = path.with_suffix(".py")
    script.write_text(_SCRIPT)
    command = ["gdb", "-nx", "-batch", *PAST_MAIN, "-p", str(pid), "-ex", f"gcore {path}", "-x", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not path.exists():
        return {}
    lines = (line.split() for line in done.stdout.splitlines() if line.startswith("STACK "))
    return {int(tid): [int(pc, 16) for pc in pcs] for _, tid, *pcs in lines}


def eu_stacks(path: Path, program: Path) -> dict[int, list[int]]:
    """The addresses of each thread's frames in a core file, by its tid, as elfutils' eu-stack sees them."""
    command = ["eu-stack", "-q", "-n", "250", f"--core={path}", f"--executable={program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    stacks: dict[int, list[int]] = {}
    tid = 0
    for line in done.stdout.splitlines():
        if line.startswith("TID "):
            tid = int(line[4:].rstrip(":"))
            stacks[tid] = []
        elif line.startswith("#"):
            stacks[tid].append(int(line.split()[1], 16))
    return stacks


def compare_core(path: Path, truth: dict[int, list[int]]) -> list[Compared]:
    """Walk all threads, beside what gdb saw of them."""
    core = read_core(path)
    world = maps_world(path.with_suffix(".maps").read_text(), path.with_suffix(".vdso"))
    found = []
    for tid, registers in core.threads:
        sp = registers[7 if core.machine == sections.EM_X86_64 else 2]
        walked = walk_thread(core.machine, registers, core.read(sp, MOST_STACK), world)
        found.append(compared(walked, tid, truth.get(tid, [])))
    return found


def compared(walked: walk.Walked, tid: int, truth: list[int]) -> Compared:
    """A thread's stack beside the debugger's."""
    end = unwind_api.end_words()[walked.end[0]]
    return Compared(tid, walked.addresses.tolist(), truth, end, tuple(map(int, walked.methods[0])))


def walk_thread(machine: int, registers: list[int], stack: bytes, world: walk.World) -> walk.Walked:
    """Walk one stack, of which the bytes are given from the stack pointer on."""
    return walk.walk_stacks(
        walk.CopiedStacks(
            machine,
            np.array([registers], np.uint64),
            np.zeros(1, np.uint32),
            np.zeros(1, np.uint64),
            np.array([len(stack)], np.uint32),
            np.frombuffer(stack, np.uint8),
        ),
        world,
    )


def maps_world(maps: str, vdso: Path) -> walk.World:
    """The tables of all files with executable mappings; memory of no file is generated code."""
    numbers: dict[str, int] = {}
    built: list[bytes] = []
    rows = []
    for line in maps.splitlines():
        place, flags, offset, _, inode, *names = line.split(maxsplit=5)
        if "x" not in flags:
            continue
        start, end = (int(part, 16) for part in place.split("-"))
        name = names[0] if names and (inode != "0" or names[0] == "[vdso]") else ""
        if name and name not in numbers:
            table = tables.build_file_table(vdso) if name == "[vdso]" else _table(Path(name))
            numbers[name] = len(built) if table else -1
            built += [table] if table else []
        number = numbers.get(name, -1)
        kind = walk.MappingKind.JIT if not name else walk.MappingKind.NO_TABLE if number < 0 else walk.MappingKind.TABLE
        rows.append((start, end, int(offset, 16), max(number, 0), kind))
    return walk.World([np.array(rows, walk.MAPPING)], built)


@functools.cache
def _table(path: Path) -> bytes | None:
    return tables.build_file_table(path)
