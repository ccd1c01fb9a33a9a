"""Periods of a Topdown recording: about as many samples of each event, few corrections, nothing in step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.recorder.perf_event import Count
from tdprof.recorder.periods import PeriodControl, next_prime

HZ = 199
SECOND = 1_000_000_000


def settled(rate: float, name: str = "L1D_CACHE_REFILL") -> int:
    """The period after a second of CPU time at so many events a second."""
    control = PeriodControl([name], HZ)
    control.correct([Count(round(rate), SECOND, SECOND)])
    return control.periods[0]


@pytest.mark.parametrize("rate", [3e6, 1e8, 1.5e10])
def test_a_counted_event_gives_the_samples_asked_for(rate: float) -> None:
    assert HZ / 1.5 <= rate / settled(rate) <= HZ * 1.5


def test_the_time_that_a_group_waited_does_not_count() -> None:
    control = PeriodControl(["INST_RETIRED"], HZ)
    control.correct([Count(400_000_000, 13 * SECOND, SECOND)])
    assert 400_000_000 / control.periods[0] == pytest.approx(HZ, rel=1e-3)


def test_an_event_that_has_not_happened_yet_is_sampled_should_it_begin_to() -> None:
    """Should a thread that inherits this period be fast, it gives ten times the samples, not thousands."""
    for name, guess in (("L2D_CACHE_REFILL", 3e7), ("FP_DP_SPEC", 3e9)):
        assert guess / settled(0, name) == pytest.approx(10 * HZ, rel=0.01)


def test_rare_events_start_with_shorter_periods_than_common_ones() -> None:
    names = ["CPU_CYCLES", "DTLB_WALK", "BR_MIS_PRED_RETIRED", "LL_CACHE_MISS_RD", "L1D_TLB_REFILL"]
    cycles, *rare = PeriodControl(names, HZ).periods
    assert all(cycles > 90 * period for period in rare)


def test_small_deviations_leave_the_period_alone() -> None:
    control = PeriodControl(["CPU_CYCLES"], HZ)
    assert control.correct([Count(2_500_000_000, SECOND, SECOND)]) == {}
    assert list(control.correct([Count(1_000_000_000, SECOND, SECOND)])) == [0]


def test_events_that_did_not_run_or_are_not_open_keep_their_periods() -> None:
    control = PeriodControl(["CPU_CYCLES", "INST_RETIRED"], HZ)
    assert control.correct([Count(0, SECOND, 0), None]) == {}


def test_no_two_events_keep_step() -> None:
    control = PeriodControl(["CPU_CYCLES"] * 91, HZ)
    control.correct([Count(10**9, SECOND, SECOND)] * 91)
    assert len(set(control.periods)) == 91
    assert all(period == next_prime(period) for period in control.periods)


def test_checks_become_rare() -> None:
    control = PeriodControl(["CPU_CYCLES"], HZ)
    waits = [control.next_check_ns() for _ in range(12)]
    assert waits[0] <= 10_000_000
    assert waits[-1] > 10 * SECOND


@given(st.integers(0, 200_000))
def test_next_prime(number: int) -> None:
    found = next_prime(number)
    assert found >= number
    assert all(found % divisor for divisor in range(2, int(found**0.5) + 1))
    assert not any(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(number, 2), found))
