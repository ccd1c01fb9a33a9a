"""The pieces of code that CPython on x86-64 calls its functions through with ``-X perf``: memory that is full of them.

They keep no frame pointers, and no table tells of them; but all are copies of one (Python/asm_trampoline.S).
"""

from collections.abc import Callable

# sub $8,%rsp; call *%rcx; add $8,%rsp; ret, in builds for CET behind endbr64. Later ones keep frame pointers.
_CODE = bytes.fromhex("4883ec08ffd14883c408c3")
_FORMS = (_CODE, bytes.fromhex("f30f1efa") + _CODE)
_ARENA_BYTES = 16 * 4096  # that are filled at a time (new_code_arena in Python/perf_trampoline.c)
_MOST_BYTES = 64 * _ARENA_BYTES
_FIRST_BYTES = 64  # tell nearly all other code from them


def are_trampolines(code: bytes) -> bool:
    """Whether memory is filled with them, or was just being so, and holds no other code."""
    written = code.rstrip(b"\0")
    for form in _FORMS:
        for unit in (form, form.ljust(16, b"\0")):
            filled = (unit * (_ARENA_BYTES // len(unit))).ljust(_ARENA_BYTES, b"\0")
            if written.startswith(form) and (filled * -(-len(code) // _ARENA_BYTES)).startswith(written):
                return True
    return False


def hold_trampolines(read: Callable[[int, int], bytes], start: int, size: int) -> bool:
    """Whether so many bytes of a process's memory are filled with them; of other code only the beginning is read.

    Args:
        read: memory at an address, so many bytes, or fewer where what is mapped ends.
        start: where the code begins.
        size: its bytes; more than CPython would map at once are not looked at.

    Raises:
        OSError: from ``read``.
    """
    return size <= _MOST_BYTES and all(are_trampolines(read(start, part)) for part in (_FIRST_BYTES, size))
