"""Runs a program of x86-64 one instruction at a time, and keeps the call stack that its calls and returns make.

Layouts: struct user_regs_struct (sys/user.h); opcodes: Intel's manual, volume 2, CALL and RET.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PTRACE_TRACEME, PTRACE_PEEKTEXT, PTRACE_POKETEXT, PTRACE_CONT, PTRACE_SINGLESTEP = 0, 1, 4, 7, 9
PTRACE_GETREGS, PTRACE_SETREGS = 12, 13
# struct user_regs_struct to DWARF numbers 0 to 15 and rip.
ORDER = (10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16)
RIP, RSP = 16, 19
AT_A_TIME = 1000
SYSCALL = b"\x0f\x05"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


@dataclass
class Stepped:
    """Each stop: registers as the walker takes them, the stack's bytes from SP on, the return addresses, leaf first."""

    registers: list[list[int]] = field(default_factory=list)
    stacks: list[bytes] = field(default_factory=list)
    callers: list[list[int]] = field(default_factory=list)
    maps: str = ""
    vdso: bytes = b""


def step_through(program: Path, start: int, most: int) -> Iterator[Stepped]:
    """Step from the address ``start`` on to the program's end, or ``most`` instructions.

    Stops come some at a time: the stacks of all together are two gigabytes, where a frame is large.
    """
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_WRONLY)
        os.dup2(null, 1)
        _libc.ptrace(PTRACE_TRACEME, 0, None, None)
        os.execv(program, [str(program)])
    try:
        os.waitpid(pid, 0)
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _run_to(pid, start)
            yield from _step(pid, memory, most)
        finally:
            os.close(memory)
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def _run_to(pid: int, address: int) -> None:
    word = _libc.ptrace(PTRACE_PEEKTEXT, pid, address, None)
    _libc.ptrace(PTRACE_POKETEXT, pid, address, word & ~0xFF | 0xCC)
    _libc.ptrace(PTRACE_CONT, pid, None, None)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSTOPPED(status)
    assert os.WSTOPSIG(status) == signal.SIGTRAP
    _libc.ptrace(PTRACE_POKETEXT, pid, address, word)
    registers = _registers(pid)
    registers[RIP] = address
    _libc.ptrace(PTRACE_SETREGS, pid, None, (ctypes.c_ulonglong * 27)(*registers))


def _registers(pid: int) -> list[int]:
    block = (ctypes.c_ulonglong * 27)()
    _libc.ptrace(PTRACE_GETREGS, pid, None, block)
    return list(block)


def _step(pid: int, memory: int, most: int) -> Iterator[Stepped]:
    found = Stepped(maps=Path(f"/proc/{pid}/maps").read_text())
    top = 0
    for line in found.maps.splitlines():
        if line.endswith("[stack]"):
            top = int(line.split()[0].split("-")[1], 16)
        elif line.endswith("[vdso]"):
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            found.vdso = os.pread(memory, last - first, first)
    registers = _registers(pid)
    shadow: list[int] = []
    for number in range(1, most + 1):
        pc, sp = registers[RIP], registers[RSP]
        found.registers.append([registers[i] for i in ORDER])
        found.stacks.append(os.pread(memory, min(top - sp, 1 << 17), sp))
        found.callers.append(shadow[::-1])
        code = os.pread(memory, 16, pc)
        _libc.ptrace(PTRACE_SINGLESTEP, pid, None, None)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            break
        delivered = os.WSTOPSIG(status)
        registers = _registers(pid)
        if code[:2] == SYSCALL and registers[RIP] != pc + 2:
            shadow.pop()  # rt_sigreturn: what was interrupted goes on
        else:
            _follow(shadow, code, struct.unpack("<Q", os.pread(memory, 8, registers[RSP]))[0])
        if delivered != signal.SIGTRAP:
            # The handler's frame: what it interrupts, and the return address that the kernel wrote for it.
            interrupted = registers[RIP]
            _libc.ptrace(PTRACE_SINGLESTEP, pid, None, delivered)
            os.waitpid(pid, 0)
            registers = _registers(pid)
            shadow.append(interrupted + 1)
            shadow.append(struct.unpack("<Q", os.pread(memory, 8, registers[RSP]))[0])
        if number % AT_A_TIME == 0:
            yield found
            found = Stepped(maps=found.maps, vdso=found.vdso)
    if found.registers:
        yield found


def _follow(shadow: list[int], code: bytes, top: int) -> None:
    """What an instruction did to the call stack; ``top``: the word at SP after it."""
    at = 0
    while code[at] in (0xF2, 0xF3, 0x3E, 0x66) or 0x40 <= code[at] <= 0x4F:
        at += 1
    if code[at] == 0xE8 or (code[at] == 0xFF and code[at + 1] >> 3 & 7 == 2):
        shadow.append(top)
    elif code[at] in (0xC3, 0xC2) and shadow:
        shadow.pop()
