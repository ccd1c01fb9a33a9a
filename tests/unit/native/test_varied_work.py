"""What a trial of the PMU does in C: it stays in its memory, and goes on from where it was."""

import ctypes
import mmap
import platform

import pytest

from tdprof.catalog.choose import is_reported
from tdprof.native.library import load_native
from tdprof.native.varied_work import varied_events


def test_it_reaches_all_of_its_memory_and_nothing_else() -> None:
    native = load_native()
    if native is None:
        pytest.skip("the compiled code is not built")
    size = mmap.PAGESIZE
    guarded = (ctypes.c_char * (3 * size))()
    state, states = 1, set()
    for _ in range(200):
        state = native.tdprof_vary_work(ctypes.addressof(guarded) + size, size, state)
        states.add(state)
    assert len(states) == 200
    raw = bytes(guarded)
    assert raw[:size] == raw[2 * size :] == bytes(size)
    # 102,400 stores to 4,096 places leave one of them out once in ten million runs; a few write a zero.
    assert raw[size : 2 * size].count(0) < size / 20


def test_it_names_only_events_that_nothing_reports() -> None:
    native = load_native()
    if native is None:
        pytest.skip("the compiled code is not built")
    events = varied_events(native)
    assert not any(map(is_reported, events))
    # Every aarch64 Linux has the barriers and vectors, and no other core has these events.
    assert (events >= {0x74, 0x7C, 0x7D, 0x7E}) == (platform.machine() == "aarch64")
