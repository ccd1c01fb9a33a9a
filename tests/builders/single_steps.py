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


class CallStack:
    """What calls, returns and signals made: where each call returns to, and the stack pointer then."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, int]] = []

    def call(self, returns_to: int, sp: int) -> None:
        """A function is called, or a signal interrupts; ``sp`` is what it is behind the return."""
        self._calls.append((returns_to, sp))

    def leave(self) -> int:
        """A function returns; where to, 0 if it was not called."""
        return self._calls.pop()[0] if self._calls else 0

    def go_on(self, sp: int) -> None:
        """A jump goes on in a function whose stack pointer is this: what it called is left."""
        while self._calls and self._calls[-1][1] <= sp:
            self._calls.pop()

    def last(self) -> tuple[int, int]:
        """Of the last call."""
        return self._calls[-1] if self._calls else (0, 0)

    def callers(self) -> list[int]:
        """Return addresses, leaf first."""
        return [returns_to for returns_to, _ in reversed(self._calls)]


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
    shadow = CallStack()
    for number in range(1, most + 1):
        pc, sp = registers[RIP], registers[RSP]
        found.registers.append([registers[i] for i in ORDER])
        found.stacks.append(os.pread(memory, min(top - sp, 1 << 17), sp))
        found.callers.append(shadow.callers())
        code = os.pread(memory, 16, pc)
        _libc.ptrace(PTRACE_SINGLESTEP, pid, None, None)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            break
        delivered = os.WSTOPSIG(status)
        registers = _registers(pid)
        if code[:2] == SYSCALL and registers[RIP] != pc + 2:
            shadow.leave()  # rt_sigreturn: what was interrupted goes on
        else:
            _follow(shadow, code, struct.unpack("<Q", os.pread(memory, 8, registers[RSP]))[0], registers[RSP])
        if delivered != signal.SIGTRAP:
            # The handler's frame: what it interrupts, and the return address that the kernel wrote for it.
            interrupted, sp = registers[RIP], registers[RSP]
            _libc.ptrace(PTRACE_SINGLESTEP, pid, None, delivered)
            os.waitpid(pid, 0)
            registers = _registers(pid)
            shadow.call(interrupted + 1, sp)
            shadow.call(struct.unpack("<Q", os.pread(memory, 8, registers[RSP]))[0], registers[RSP] + 8)
        if number % AT_A_TIME == 0:
            yield found
            found = Stepped(maps=found.maps, vdso=found.vdso)
    if found.registers:
        yield found


def _follow(shadow: CallStack, code: bytes, top: int, sp: int) -> None:
    """What an instruction did to the call stack; ``sp`` after it, and ``top``, the word there."""
    at = 0
    while code[at] in (0xF2, 0xF3, 0x3E, 0x66) or 0x40 <= code[at] <= 0x4F:
        at += 1
    operation = code[at + 1] >> 3 & 7 if code[at] == 0xFF else None
    if code[at] == 0xE8 or operation == 2:
        shadow.call(top, sp + 8)
    elif code[at] in (0xC3, 0xC2):
        shadow.leave()
    elif operation == 4:  # who is jumped to as if it was called has its return address on top of the stack
        shadow.go_on(sp)
