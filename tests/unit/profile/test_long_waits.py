"""Time off a CPU lies in the intervals in which it passed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.profiles import CLOCK, ProfileBuilder
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.profile import long_waits
from tdprof.profile.intervals import find_intervals
from tdprof.profile.long_waits import spread_waits

MS = 1_000_000
START_NS = 1 << 40
PERIOD_NS = 10 * MS
EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, PERIOD_NS))


def profile(*rows: tuple[int, int, str, int], interval_ms: int = 1000) -> Profile:
    """Of each row: when its interval ends, in milliseconds; the thread, where it waits, and how many periods."""
    builder = ProfileBuilder(EVENTS)
    for end_ms, tid, place, count in rows:
        time_ns = START_NS + end_ms * MS
        if tid:
            weight = count * PERIOD_NS
            builder.add("main", place, event=1, weight=weight, count=count, time_ns=time_ns, tid=tid, state=2)
        else:  # others' samples, so that there is an interval
            builder.add("work", count=count, time_ns=time_ns)
    last = max(end_ms for end_ms, *_ in rows)
    return builder.build(start_monotonic_ns=START_NS, duration_ns=last * MS, interval_ns=interval_ms * MS)


def spread(*rows: tuple[int, int, str, int], interval_ms: int = 1000) -> Counter[tuple[int, int, int]]:
    """Periods by end of the interval in milliseconds, thread and stack."""
    samples = spread_waits(profile(*rows, interval_ms=interval_ms)).samples
    found: Counter[tuple[int, int, int]] = Counter()
    for at in np.flatnonzero(samples.event == 1):
        assert samples.weight[at] == samples.count[at] * PERIOD_NS
        end_ms = int(samples.time_ns[at] - START_NS) // MS
        found[end_ms, int(samples.tid[at]), int(samples.stack[at])] += int(samples.count[at])
    return found


def test_a_wait_that_is_longer_than_its_interval_began_before() -> None:
    others = [(end_ms, 0, "", 1) for end_ms in (1000, 2000, 3000, 4000)]
    found = spread(*others, (4000, 1, "slow", 250), (4000, 1, "fast", 20))
    slow, fast = 1, 2
    # 2.7 s that end in a second: 1.7 s before it, of the longest.
    assert found == {(4000, 1, slow): 80, (4000, 1, fast): 20, (3000, 1, slow): 100, (2000, 1, slow): 70}


def test_no_thread_waits_longer_than_an_interval_in_it() -> None:
    """What the next interval's wait takes of one is taken from what ended in that, and so on."""
    others = [(end_ms, 0, "", 1) for end_ms in (1000, 2000, 3000)]
    found = spread(*others, (4000, 1, "a", 130), (3000, 1, "b", 100), (2000, 1, "c", 60), (3000, 2, "b", 100))
    a, b, c = 1, 2, 3
    assert found == {
        (4000, 1, a): 100,
        (3000, 1, a): 30,
        (3000, 1, b): 70,
        (2000, 1, b): 30,
        (2000, 1, c): 60,
        (3000, 2, b): 100,
    }
    # One lasts longer than the interval before it, in which another ended.
    found = spread(*others, (4000, 1, "a", 220), (3000, 1, "b", 10), (2000, 1, "c", 60))
    assert found == {(4000, 1, a): 100, (3000, 1, a): 100, (2000, 1, a): 20, (2000, 1, b): 10, (2000, 1, c): 60}


def test_what_fits_stays_where_it_is() -> None:
    rows = [(1000, 1, "a", 60), (1000, 1, "b", 40), (1000, 2, "a", 100), (2000, 1, "a", 100), (9000, 1, "a", 90)]
    before = profile(*rows)
    assert spread_waits(before) is before
    assert spread_waits(only_clock := ProfileBuilder().add("work").build()) is only_clock


def test_time_without_any_samples_gets_intervals() -> None:
    found = spread((1000, 0, "", 1), (8000, 1, "slow", 700), interval_ms=1000)
    assert found.total() == 700
    # In the interval, in six that were not there, and so that each has its second.
    assert len(found) == 7
    assert set(found.values()) == {100}


@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(1, 3), st.sampled_from("abc"), st.integers(1, 10_000)), min_size=1
    ),
    st.booleans(),
)
def test_sums_stay_the_same(rows: list[tuple[int, int, str, int]], is_coarse: bool) -> None:
    before = profile(*((100 * end, *rest) for end, *rest in rows), interval_ms=100)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        if is_coarse:
            patch.setattr(long_waits, "_LEAST_MOST_PIECES", 1)
            patch.setattr(long_waits, "_MOST_PIECES_A_ROW", 1)
        after = spread_waits(before)

    def sums(of: Profile) -> dict[tuple[int, ...], tuple[int, int]]:
        samples = of.samples
        found: dict[tuple[int, ...], tuple[int, int]] = {}
        for at in range(len(samples.stack)):
            key = tuple(
                int(getattr(samples, name)[at]) for name in ("event", "pid", "tid", "stack", "state", "thread_name")
            )
            count, weight = found.get(key, (0, 0))
            found[key] = count + int(samples.count[at]), weight + int(samples.weight[at])
        return found

    assert sums(after) == sums(before)
    assert (after.samples.count > 0).all()
    assert (find_intervals(after).end <= find_intervals(before).end[-1]).all()
