"""An aarch64 program in QEMU, stopped again and again: the walker's stacks beside those of gdb-multiarch."""

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from builders.emulated_steps import QEMU, executable_maps
from builders.unwind_cores import FRAMES, MOST_STACK, PAST_MAIN, Compared, compared, maps_world, walk_thread
from tdprof.unwind import sections

SP = 2  # of the walker's registers: x29, x30, sp, pc

# QEMU stops a program between blocks of code only: some more instructions lead into prologues and epilogues.
_STOPS = """
import json, random, sys
random.seed(1)
gdb.execute("handle SIGUSR1 stop nopass", to_string=True)
for _ in range({stops}):
    print("RUNNING", flush=True)
    gdb.execute("continue", to_string=True)
    gdb.execute(f"stepi {{random.randrange(1, 30)}}", to_string=True)
    stopped = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        registers = [int(frame.read_register(name)) % 2**64 for name in ("x29", "x30", "sp", "pc")]
        stopped.append((thread.num, registers, frames()))
    print("STOPPED", json.dumps(stopped), flush=True)
    sys.stdin.readline()
gdb.execute("kill")
"""


def compare_emulated(
    command: Sequence[str], root: Path, folder: Path, stops: int, seconds: float
) -> Iterator[tuple[Compared, str]]:
    """Each thread's stack at each stop, and the program's executable mappings then.

    Args:
        command: the program's path below ``root``, and its arguments.
        root: an aarch64 system's files.
        folder: for the debugger's script and socket.
        stops: how often to look.
        seconds: to run between two stops.
    """
    at = folder / "stub"
    program = f"{root}{command[0]}"
    script = folder / "stops.py"
    script.write_text(FRAMES + _STOPS.format(stops=stops))
    null = subprocess.DEVNULL
    qemu = subprocess.Popen([QEMU, "-g", at, "-L", root, program, *command[1:]], stdin=null, stdout=null, stderr=null)
    try:
        while not at.exists() and qemu.poll() is None:
            time.sleep(0.01)
        settings = ["-iex", f"set sysroot {root}", "-iex", "set architecture aarch64", *PAST_MAIN]
        gdb = subprocess.Popen(
            ["gdb-multiarch", "-nx", "-batch", *settings, program, "-ex", f"target remote {at}", "-x", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert gdb.stdin
        assert gdb.stdout
        for line in gdb.stdout:
            if line == "RUNNING\n":
                time.sleep(seconds * (0.5 + random.random()))
                os.kill(qemu.pid, signal.SIGUSR1)
            elif line.startswith("STOPPED "):
                yield from _walk(json.loads(line[8:]), qemu.pid, folder)
                gdb.stdin.write("\n")
                gdb.stdin.flush()
        gdb.wait()
    finally:
        qemu.kill()
        qemu.wait()


def _walk(stopped: list[tuple[int, list[int], list[int]]], pid: int, folder: Path) -> Iterator[tuple[Compared, str]]:
    maps = executable_maps(Path(f"/proc/{pid}/maps").read_text())
    world = maps_world(maps, folder / "vdso")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for thread, registers, truth in stopped:
            stack = _read(memory, registers[SP], MOST_STACK)
            yield compared(walk_thread(sections.EM_AARCH64, registers, stack, world), thread, truth), maps


def _read(memory: IO[bytes], start: int, most: int) -> bytes:
    """What can be read from an address on."""
    try:
        return os.pread(memory.fileno(), most, start)
    except OSError:
        return b""
