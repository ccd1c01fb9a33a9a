"""What varies the periods of clocks begins and ends; what it does to samples tests/live/test_known_splits.py shows."""

import os
import threading

import pytest

from tdprof.recorder import clock_periods
from tdprof.recorder.clock_periods import VariedClock


def threads() -> int:
    return threading.active_count()


def test_it_ends_at_once_however_rare_samples_are() -> None:
    before = threads()
    with open(os.devnull) as nothing:  # no event: the kernel refuses its periods
        clock = VariedClock([nothing.fileno()], 1)
        assert threads() == before + 1
        clock.close()
    assert threads() == before


@pytest.mark.parametrize("most_hz", [999, 500])
def test_the_kernels_limit_leaves_no_room(monkeypatch: pytest.MonkeyPatch, most_hz: int) -> None:
    monkeypatch.setattr(clock_periods, "read_setting", lambda _: most_hz)
    before = threads()
    clock = VariedClock([0], 999)
    assert threads() == before
    clock.close()
