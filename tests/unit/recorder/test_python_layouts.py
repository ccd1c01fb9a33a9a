"""How the frames of each CPython are found: from its version, or from what it says of itself."""

import struct
from collections.abc import Sequence

import pytest

from tdprof.recorder.bpf.python_walk import NONE
from tdprof.recorder.python_layouts import OFFSETS_BYTES, UnknownLayoutError, runtime_of

# The beginning of _PyRuntime of CPython 3.13.0 on x86-64.
OF_3_13 = (
    *(0x6775626564786574 + 4, 0x030D00F0, 0, 283320, 608, 632),
    *(194968, 7272, 7264, 7344, 7400, 7656, 7640, 7648, 16, 7752, 0, 7768, 7760),
    *(304, 0, 8, 16, 72, 152, 160, 232, 32),
    *(80, 8, 0, 56, 72, 70),
    *(208, 112, 120, 128, 136, 68, 52, 96, 104, 200),
)
COOKIE = int.from_bytes(b"xdebugpy", "little")


def beginning(words: Sequence[int]) -> bytes:
    words = [COOKIE, *words[1:]]
    return struct.pack(f"<{len(words)}Q", *words).ljust(OFFSETS_BYTES, b"\0")


def changed(at: int, value: int) -> bytes:
    words = list(OF_3_13)
    words[at] = value
    return beginning(words)


def test_what_3_13_says_of_itself() -> None:
    runtime = runtime_of((3, 13), 0x1000, beginning(OF_3_13))
    assert runtime.first_interpreter == 0x1000 + 632
    assert (runtime.next_interpreter, runtime.first_thread, runtime.next_thread) == (7264, 7344, 8)
    assert (runtime.thread_id, runtime.pthread_id) == (160, NONE)
    assert (runtime.thread_frame, runtime.inner_frame) == (72, NONE)
    assert (runtime.frame_code, runtime.frame_previous, runtime.frame_instruction, runtime.frame_entry) == (
        0,
        8,
        56,
        70,
    )
    assert (runtime.code_names, runtime.code_line, runtime.code_instructions) == (112, 68, 200)
    assert runtime.has_qualified_names


@pytest.mark.parametrize("minor", [9, 10, 11, 12])
def test_before_3_13_the_version_says_it(minor: int) -> None:
    runtime = runtime_of((3, minor), 0x1000, b"")
    assert runtime.first_interpreter == 0x1000 + (40 if minor > 10 else 32)
    assert (runtime.pthread_id == NONE) == (minor > 10)
    assert runtime.has_qualified_names == (minor > 10)
    assert (runtime.frame_top == 0) == (minor > 11)


@pytest.mark.parametrize(
    ("version", "start", "why"),
    [
        ((3, 8), b"", "before 3.9"),
        ((2, 7), b"", "before 3.9"),
        ((3, 13), b"", "is not there"),
        ((3, 13), bytes(OFFSETS_BYTES), "is not there"),
        ((3, 14), beginning(OF_3_13), "another version's"),
        ((3, 99), changed(1, 0x036300F0), "newer than this tdprof"),
        ((3, 13), changed(2, 1), "free-threaded"),
        ((3, 13), changed(5, 1 << 40), "makes no sense"),
        ((3, 13), changed(9, 1 << 16), "makes no sense"),
        ((3, 13), changed(29, 4096), "makes no sense"),
        ((3, 13), changed(36, 500), "side by side"),
        ((3, 13), changed(39, 20), "far from the names"),
    ],
)
def test_what_is_not_known_is_said(version: tuple[int, int], start: bytes, why: str) -> None:
    with pytest.raises(UnknownLayoutError, match=why):
        runtime_of(version, 0x1000, start)
