"""Memory that is full of CPython's trampolines, and other memory."""

import pytest

from tdprof.recorder.python_trampolines import are_trampolines, hold_trampolines

ARENA = 65536
CODE = bytes.fromhex("4883ec08ffd14883c408c3")
START = 0x7F0000000000


@pytest.mark.parametrize("unit", [CODE, CODE.ljust(16, b"\0"), b"\xf3\x0f\x1e\xfa" + CODE])
@pytest.mark.parametrize("arenas", [1, 3])
def test_arenas_of_copies_are_known_also_while_they_are_filled(unit: bytes, arenas: int) -> None:
    arena = (unit * (ARENA // len(unit))).ljust(ARENA, b"\0")
    assert are_trampolines(arena * arenas)
    assert are_trampolines(unit.ljust(ARENA, b"\0"))
    assert are_trampolines(arena + (unit * 40).ljust(ARENA, b"\0"))


def test_other_code_is_none() -> None:
    arena = (CODE * (ARENA // len(CODE))).ljust(ARENA, b"\0")
    assert not are_trampolines(bytes(ARENA))
    assert not are_trampolines(b"")
    assert not are_trampolines(arena[:-1] + b"\xc3")
    assert not are_trampolines(arena + b"\x55".ljust(ARENA, b"\0"))
    assert not are_trampolines(CODE[:8].ljust(ARENA, b"\0"))


@pytest.mark.parametrize(
    ("code", "size", "is_filled", "sizes"),
    [
        (CODE * 100, ARENA, True, [64, ARENA]),
        (CODE * 100 + b"\x55", ARENA, False, [64, ARENA]),
        (b"\x55" + CODE, ARENA, False, [64]),
        (CODE, 65 * ARENA, False, []),
    ],
)
def test_no_more_is_read_than_tells_other_code(code: bytes, size: int, is_filled: bool, sizes: list[int]) -> None:
    read = list[tuple[int, int]]()

    def memory(address: int, part: int) -> bytes:
        read.append((address, part))
        return code.ljust(size, b"\0")[:part]

    assert hold_trampolines(memory, START, size) == is_filled
    assert read == [(START, part) for part in sizes]
