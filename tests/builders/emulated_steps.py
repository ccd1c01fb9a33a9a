"""Runs an aarch64 program in QEMU one instruction at a time, and keeps the call stack that its calls and returns make.

Protocol: GDB's manual, "Remote Protocol"; instructions: Arm ARM, C4.1.66, branches, exception generating and system.
"""

import contextlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from builders.elf import EM_AARCH64, ElfFile, Symbol
from builders.single_steps import AT_A_TIME, CallStack, Stepped
from tdprof.linux.elf import PF_X, ElfError, open_elf

QEMU = "qemu-aarch64-static"
SYSTEM = Path("/usr/aarch64-linux-gnu")  # where Debian's cross compiler has its libraries
X8, X29, X30, SP, PC = 8, 29, 30, 31, 32  # in a reply to `g`
SVC = b"\x01\x00\x00\xd4"
RT_SIGRETURN = 139  # number of the system call, in x8
BREAKPOINT_STOP = "05"  # SIGTRAP
MOST_STACK = 1 << 17
PAGE = 4096


class Effect(Enum):
    """Of an instruction on the call stack."""

    NONE = 0
    CALL = 1
    RETURN = 2


def effect_of(code: bytes) -> Effect:
    """Of the instruction that these bytes begin with."""
    word = int.from_bytes(code[:4], "little")
    # BL; BLR; BLRAA, BLRAB and their forms with a zero modifier.
    if word >> 26 == 0b100101 or word & 0xFFFFFC1F == 0xD63F0000 or word & 0xFEFFF800 == 0xD63F0800:
        return Effect.CALL
    # RET; RETAA, RETAB.
    return Effect.RETURN if word & 0xFFFFFC1F == 0xD65F0000 or word & 0xFFFFFBFF == 0xD65F0BFF else Effect.NONE


class Stub:
    """QEMU's side of the remote protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        for _ in range(1000):
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                self._socket.connect(str(path))
                break
            time.sleep(0.01)
        self._received = b""

    def ask(self, text: str) -> str:
        """Send a packet; the reply's text."""
        self._socket.sendall(f"${text}#{sum(text.encode()) & 255:02x}".encode())
        while (end := self._received.find(b"#")) < 0 or len(self._received) < end + 3:
            data = self._socket.recv(1 << 16)
            if not data:
                return "W"
            self._received += data
        reply = self._received[: end + 3].lstrip(b"+")[1:-3].decode()
        self._received = self._received[end + 3 :]
        self._socket.sendall(b"+")
        return reply

    def registers(self) -> tuple[int, ...]:
        """x0 to x30, sp, pc."""
        return struct.unpack_from("<33Q", bytes.fromhex(self.ask("g")))

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


def step_through_emulated(program: Path, start: int, most: int, folder: Path) -> Iterator[Stepped]:
    """Step from the address ``start`` on to the program's end, or ``most`` instructions; stops come some at a time."""
    at = folder / "stub"
    qemu = subprocess.Popen([QEMU, "-g", at, "-L", SYSTEM, program], stdout=subprocess.DEVNULL)
    try:
        stub = Stub(at)
        memory = os.open(f"/proc/{qemu.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stub.ask(f"Z0,{start:x},4")
            stub.ask("c")
            stub.ask(f"z0,{start:x},4")
            yield from _step(stub, memory, Path(f"/proc/{qemu.pid}/maps").read_text(), most)
        finally:
            os.close(memory)
            stub.close()
    finally:
        qemu.kill()
        qemu.wait()


def _step(stub: Stub, memory: int, maps: str, most: int) -> Iterator[Stepped]:
    """The emulator gives the program the addresses that it has itself."""
    registers = stub.registers()
    stack_end = next(end for first, end, _, _ in _mapped(maps) if first <= registers[SP] < end)
    found = Stepped(maps=executable_maps(maps))
    shadow = CallStack()
    signal = ""  # one that waits to be delivered
    for number in range(1, most + 1):
        pc, sp, system_call = registers[PC], registers[SP], registers[X8]
        code = os.pread(memory, 4, pc)
        if not signal:
            found.registers.append([registers[X29], registers[X30], sp, pc])
            found.stacks.append(os.pread(memory, min(stack_end - sp, MOST_STACK), sp))
            found.callers.append(shadow.callers())
        stop = stub.ask(f"vCont;S{signal}" if signal else "vCont;s")
        if stop[0] not in "ST":
            break
        registers = stub.registers()
        if signal:
            # The handler's frame: what it interrupts, and the return address that the emulator gave it.
            shadow.call(pc + 1, sp)
            shadow.call(registers[X30], registers[SP])
            if not found.vdso:
                found.vdso, line = _signal_return(memory, registers[X30])
                found.maps = "".join(sorted([*found.maps.splitlines(True), line], key=_start_of))
        else:
            if code == SVC:
                # What was interrupted goes on, or the next instruction; of which the emulator has made one step, too.
                pc = shadow.leave() - 1 if system_call == RT_SIGRETURN else pc + 4
                code = os.pread(memory, 4, pc) if registers[PC] != pc else b""
            effect = effect_of(code)
            returns_to, sp_then = shadow.last()
            if effect is Effect.CALL:
                shadow.call(registers[X30], registers[SP])
            elif effect is Effect.RETURN and registers[PC] != returns_to and registers[SP] > sp_then:
                shadow.go_on(registers[SP])
            elif effect is Effect.RETURN:
                shadow.leave()
        signal = "" if stop[1:3] == BREAKPOINT_STOP else stop[1:3]
        if number % AT_A_TIME == 0:
            yield found
            found = Stepped(maps=found.maps, vdso=found.vdso)
    if found.registers:
        yield found


def _mapped(maps: str) -> Iterator[tuple[int, int, int, str]]:
    """Start, end, file offset and file of each mapping."""
    for line in maps.splitlines():
        place, _, offset, *more = line.split(maxsplit=5)
        first, end = (int(part, 16) for part in place.split("-"))
        yield first, end, int(offset, 16), more[2] if len(more) > 2 else ""


def _start_of(line: str) -> int:
    return int(line.split("-")[0], 16)


def executable_maps(maps: str) -> str:
    """What the program has mapped to execute: the emulator maps it to be read, so only the files tell."""
    lines = []
    for first, end, offset, file in _mapped(maps):
        if not file.startswith("/") or os.path.samefile(file, f"/usr/bin/{QEMU}"):
            continue
        try:
            segments = [s for s in open_elf(Path(file)).segments if s.flags & PF_X and s.file_size]
        except ElfError:  # data
            continue
        if any(s.offset & -PAGE <= offset < s.offset + s.file_size for s in segments):
            lines.append(f"{first:x}-{end:x} r-xp {offset:x} 00:00 1 {file}\n")
    return "".join(lines)


def _signal_return(memory: int, address: int) -> tuple[bytes, str]:
    """What signal handlers return to, as a vDSO has it: the file, and its line in the maps."""
    before = b"\x1f\x20\x03\xd5" * (PAGE // 4)
    symbol = Symbol("__kernel_rt_sigreturn", PAGE, 8)
    file = ElfFile(before + os.pread(memory, 8, address), 0, dynamic_symbols=[symbol], machine=EM_AARCH64)
    line = f"{address - PAGE:x}-{address + 8:x} r-xp {ElfFile.TEXT_OFFSET:x} 00:00 0 [vdso]\n"
    return file.to_bytes(), line
