"""Bytes as the BPF rung spools them, packed field by field from bpf/sample.h and the kernel's ring-buffer layout."""

import struct
import zlib
from collections.abc import Sequence

BUSY, DISCARD = 1 << 31, 1 << 30


def stack_record(
    identity: int,
    addresses: Sequence[int],
    *,
    is_kernel: bool = False,
    end: int = 0,
    guessed_from: int = 0,
    found: tuple[int, int, int] = (0, 0, 0),
    flags: int = 0,
) -> bytes:
    """``found``: callers by table, along frame pointers, in the link register."""
    header = struct.pack("<QHBBHHHHI", identity, len(addresses), is_kernel, end, guessed_from, *found, 0)
    return in_ring(header + struct.pack(f"<{len(addresses)}Q", *addresses), flags)


def old_stack_record(identity: int, addresses: Sequence[int], *, is_kernel: bool = False, flags: int = 0) -> bytes:
    """As recorders wrote them that did not say how a stack ended."""
    header = struct.pack("<QII", identity, len(addresses), is_kernel)
    return in_ring(header + struct.pack(f"<{len(addresses)}Q", *addresses), flags)


def stack_copy(
    identity: int,
    time_ns: int,
    pid: int,
    registers: Sequence[int],
    stack: bytes,
    *,
    flags: int = 0,
    pages: int = (1 << 64) - 1,
) -> bytes:
    """A user stack that is still to be walked; 17 registers."""
    return in_ring(struct.pack("<QQIIQ17Q", identity, time_ns, pid, len(stack), pages, *registers) + stack, flags)


def python_stack(stack: int, pid: int, frames: Sequence[tuple[int, int, int]], *, is_cut: bool = False) -> bytes:
    """Python frames of a stack, leaf first: (code object, instruction, 1: C code called it, 2: its stack has a top)."""
    body = struct.pack("<QIHH", stack, pid, len(frames), is_cut)
    return in_ring(body + b"".join(struct.pack("<QII", *frame) for frame in frames), 0)


def python_code(
    identity: int, pid: int, name: bytes, path: bytes, lines: bytes, *, first_line: int = 1, lines_left: int = 0
) -> bytes:
    """A code object; name and path are str objects as they lie in memory. ``lines_left``: bytes that were not read."""
    head = struct.pack("<QIIIHH", identity, pid, first_line, len(lines) + lines_left, len(name), len(path))
    return in_ring(head + name.ljust(256, b"\0") + path.ljust(512, b"\0") + lines, 0)


def java_code(method: int, pid: int, begin: int, end: int, time_ns: int) -> bytes:
    """What a method was compiled to."""
    return in_ring(struct.pack("<QQQQII", method, begin, end, time_ns, pid, 0), 0)


def java_method(identity: int, pid: int, texts: Sequence[bytes], lines: bytes = b"", *, lowest_byte: int = 0) -> bytes:
    """A method; ``texts``: of its class, name, signature and source file, however long."""
    sizes = (256, 128, 512, 64)
    head = struct.pack("<QI6H", identity, pid, *map(len, texts), len(lines), lowest_byte)
    kept = (text[:size].ljust(size, b"\0") for text, size in zip(texts, sizes, strict=True))
    return in_ring(head + b"".join(kept) + lines, 0)


def thread_times(
    pid: int,
    tid: int,
    begin_ns: int,
    since_ns: int,
    spent_ns: tuple[int, int, int, int],
    *,
    state: int = 0,
    left_ns: int = 0,
    waits: int = 0,
    comm: bytes = b"app",
) -> bytes:
    """Where a thread's time went, outside a ring; ``spent_ns``: running, runnable, interruptible, uninterruptible."""
    head = struct.pack("<QQQ4QQ", begin_ns, since_ns, left_ns, *spent_ns, 0)
    return head + struct.pack("<IIIII4II16s", pid, tid, state, 0, 0, 0, 0, 0, 0, waits, comm)


def in_ring(body: bytes, flags: int = 0) -> bytes:
    return struct.pack("<II", len(body) | flags, 0) + body + bytes(-len(body) % 8)


def rows_frame(
    time_ns: int, rows: Sequence[tuple[int, int, int, int, int, bytes, int, int]], cgroups: Sequence[int] = ()
) -> bytes:
    """(user_stack, kernel_stack, pid, tid, event, comm, count, weight) each; ``cgroups`` as samples name theirs."""
    keyed = zip(rows, cgroups or [0] * len(rows), strict=True)
    keys = b"".join(struct.pack("<QQIIII16s", *row[:5], cgroup, row[5]) for row, cgroup in keyed)
    values = b"".join(struct.pack("<QQ", *row[6:]) for row in rows)
    payload = zlib.compress(keys + values)
    header = struct.pack("<4sIQI", b"TDR1", len(rows), time_ns, len(payload))
    return header + struct.pack("<I", zlib.crc32(header + payload)) + payload
