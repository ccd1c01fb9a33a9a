"""The pieces of code that CPython on x86-64 calls its functions through with ``-X perf``: memory that is full of them.

They keep no frame pointers, and no table tells of them; but all are copies of one (Python/asm_trampoline.S).
"""

import os

# sub $8,%rsp; call *%rcx; add $8,%rsp; ret, in builds for CET behind endbr64. Later ones keep frame pointers.
_CODE = bytes.fromhex("4883ec08ffd14883c408c3")
_FORMS = (_CODE, bytes.fromhex("f30f1efa") + _CODE)
_ARENA_BYTES = 16 * 4096  # that are filled at a time (new_code_arena in Python/perf_trampoline.c)
MOST_TRAMPOLINE_BYTES = 64 * _ARENA_BYTES


def are_trampolines(code: bytes) -> bool:
    """Whether memory is filled with them, or was just being so, and holds no other code."""
    written = code.rstrip(b"\0")
    for form in _FORMS:
        for unit in (form, form.ljust(16, b"\0")):
            filled = (unit * (_ARENA_BYTES // len(unit))).ljust(_ARENA_BYTES, b"\0")
            if written.startswith(form) and (filled * -(-len(code) // _ARENA_BYTES)).startswith(written):
                return True
    return False


def read_code(pid: int, start: int, size: int) -> bytes:
    """Some of a process's memory.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, start)
    finally:
        os.close(fd)
