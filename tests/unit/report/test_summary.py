"""What every report begins with, of recordings that tell where threads' time went."""

from builders.profiles import ProfileBuilder, thread_times
from tdprof.model.off_cpu import ThreadTimes
from tdprof.report.summary import facts

SPENT = [(1, 1, [1_000_000_000, 500_000_000, 0, 0], 0), (1, 2, [500_000_000, 0, 7_000_000_000, 0], 0)]


def said(times: ThreadTimes | None) -> dict[str, str]:
    return dict(facts(ProfileBuilder().add("main").build(thread_times=times)))


def test_where_time_went_adds_up() -> None:
    found = said(thread_times(*SPENT))
    assert found["spent"] == (
        "1.500 s on a CPU + 500.0 ms waiting for one + 7.000 s asleep + 0 ns asleep beyond signals "
        "= 9.000 s of 2 threads"
    )
    assert "no sample" not in found
    assert "spent" not in said(None)


def test_time_that_is_in_no_state_is_said() -> None:
    found = said(thread_times(*SPENT, more_ns=500_000))
    assert found["spent"].endswith("= 9.001 s of 2 threads, but for 1.000 ms that is not accounted for")


def test_waits_without_an_end_are_a_line_of_their_own() -> None:
    found = said(thread_times(*SPENT, (1, 3, [0, 0, 4_000_000_000, 0], 4_000_000_000)))
    assert found["no sample"] == "4.000 s of it: 1 thread still waited in the end"
