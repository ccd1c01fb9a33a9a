"""What a recording's loop does when, and what it waits for."""

import os

import pytest

from tdprof.recorder import pace as pace_module
from tdprof.recorder.pace import LOOK_INTERVAL_NS, Pace
from tdprof.recorder.wakeups import open_wakeups

S = 1_000_000_000


class Clock:
    """Stands still until it is set."""

    now_ns = 100 * S

    def monotonic_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace_module, "time", clock)
    return clock


def test_it_waits_for_what_is_due_first_and_no_longer_than_it_is_told(clock: Clock) -> None:
    pace = Pace(5.0, 2 * S)
    assert pace.wait_ms(100) == 100
    assert pace.wait_ms(10_000) == 2000
    pace.check_in(S // 4)
    assert pace.wait_ms(10_000) == 250
    clock.now_ns += S
    assert pace.wait_ms(10_000) == 0
    assert pace.is_check_due()
    pace.check_no_more()
    assert not pace.is_check_due()
    assert pace.wait_ms(10_000) == 1000


def test_it_is_over_when_its_time_is_and_not_when_there_is_nothing_to_wait_for(clock: Clock) -> None:
    pace, endless = Pace(5.0, 2 * S), Pace(None, 2 * S)
    assert pace.wait_ms(0) == 0
    assert not pace.is_over()
    clock.now_ns += 5 * S - 1
    assert not pace.is_over()
    clock.now_ns += 1
    assert pace.is_over()
    assert not endless.is_over()


def test_an_interval_that_ends_early_takes_nothing_from_the_next(clock: Clock) -> None:
    pace = Pace(None, 2 * S)
    clock.now_ns += S
    assert not pace.is_drain_due()
    pace.drained()
    clock.now_ns += 2 * S
    assert not pace.is_drain_due()
    clock.now_ns += S
    assert pace.is_drain_due()
    pace.interval_ns = S
    pace.drained()
    clock.now_ns += S
    assert pace.is_drain_due()


def test_one_looks_about_once_a_while(clock: Clock) -> None:
    pace = Pace(None, 60 * S)
    assert not pace.is_look_due()
    clock.now_ns += LOOK_INTERVAL_NS
    assert pace.is_look_due()
    pace.looked()
    assert not pace.is_look_due()


def test_all_ends_have_to_come_and_what_hung_up_wakes_no_more() -> None:
    first, second, other = os.pipe(), os.pipe(), os.pipe()
    with open_wakeups([other[0]], command=first[0], pids=[], is_endless=False) as wakeups:
        wakeups.ending.add(second[0])
        wakeups.add([second[0]])
        assert wakeups.wait(0) == set()
        os.write(other[1], b"x")
        assert wakeups.wait(1000) == {other[0]}
        assert wakeups.ending == {first[0], second[0]}
        os.close(other[1])
        assert wakeups.wait(1000) == {other[0]}
        os.close(first[1])
        assert wakeups.wait(1000) == {first[0]}
        assert wakeups.ending == {second[0]}
        os.close(second[1])
        assert wakeups.wait(1000) == {second[0]}
        assert not wakeups.ending
        assert wakeups.wait(0) == set()
    for fd in (first[0], second[0], other[0]):
        os.close(fd)


def test_of_a_machine_no_end_of_a_process_is_the_end() -> None:
    with open_wakeups([], command=None, pids=[os.getpid(), 1 << 30], is_endless=True) as wakeups:
        assert len(wakeups.ending) == 2
        assert wakeups.wait(0) == set()
        assert wakeups.ending
