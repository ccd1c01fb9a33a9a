"""The program's walker and gdb over the same core file."""

import functools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from builders.core_file import CoreFile, read_core
from tdprof.native import unwind_api
from tdprof.unwind import sections, tables, walk

MOST_STACK = 1 << 23  # bytes

# gdb's frames, without those that are not on the stack: of inlined calls, and of tail calls that it infers.
GDB_SCRIPT = """
import gdb
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frame, pcs = gdb.newest_frame(), []
    while frame is not None and len(pcs) < 250:
        if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pcs.append(frame.pc())
        try:
            frame = frame.older()
        except gdb.error:
            break
    print("STACK", thread.ptid[1] or thread.ptid[0], *(hex(pc) for pc in pcs))
"""


@dataclass
class Compared:
    """One thread's stack by both.

    Attributes:
        ours, gdb: addresses, leaf first.
        end: why ours ended.
        methods: callers by tables, frame pointers, link register.
    """

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
    script.write_text(GDB_SCRIPT)
    past = ["-iex", "set backtrace past-main on", "-iex", "set backtrace past-entry on"]
    command = ["gdb", "-nx", "-batch", *past, "-p", str(pid), "-ex", f"gcore {path}", "-x", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not path.exists():
        return {}
    lines = (line.split() for line in done.stdout.splitlines() if line.startswith("STACK "))
    return {int(tid): [int(pc, 16) for pc in pcs] for _, tid, *pcs in lines}


def compare_core(path: Path, truth: dict[int, list[int]]) -> list[Compared]:
    """Walk all threads, beside what gdb saw of them."""
    core = read_core(path)
    world = maps_world(path.with_suffix(".maps").read_text(), path.with_suffix(".vdso"))
    found = []
    for tid, registers in core.threads:
        walked = walk_thread(core, registers, world)
        end = unwind_api.end_words()[walked.end[0]]
        found.append(Compared(walked.addresses.tolist(), truth.get(tid, []), end, tuple(map(int, walked.methods[0]))))
    return found


def walk_thread(core: CoreFile, registers: list[int], world: walk.World) -> walk.Walked:
    sp = registers[7 if core.machine == sections.EM_X86_64 else 2]
    stack = np.frombuffer(core.read(sp, MOST_STACK), np.uint8)
    return walk.walk_stacks(
        walk.CopiedStacks(
            core.machine,
            np.array([registers], np.uint64),
            np.zeros(1, np.uint32),
            np.zeros(1, np.uint64),
            np.array([len(stack)], np.uint32),
            stack,
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
