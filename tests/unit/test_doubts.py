"""What is said of samples that do not stand for what was counted."""

import pytest

from tdprof.doubts import count_doubt, cut_doubt, event_doubts
from tdprof.measured import NEVER_REACHED, EventInfo, Losses, Unit


def doubts(event: EventInfo, weight: int) -> str:
    return " ".join(event_doubts([event], [10], [weight]))


@pytest.mark.parametrize("weight", [91, 100, 109])
def test_nothing_where_samples_and_total_agree(weight: int) -> None:
    assert doubts(EventInfo("cycles", Unit.COUNT, 0, 999, 100), weight) == ""


def test_nothing_without_a_total_or_samples() -> None:
    assert doubts(EventInfo("cycles", Unit.COUNT, 0, 999, None), 5) == ""
    assert list(event_doubts([EventInfo("cycles", Unit.COUNT, 0, 999, 100)], [0], [0])) == []


@pytest.mark.parametrize(
    ("event", "weight", "cause"),
    [
        (EventInfo("cpu-clock", Unit.NANOSECONDS, 0, 999, 100), 27, "shorter than a sampling interval"),
        (EventInfo("cpu-clock:k", Unit.NANOSECONDS, 0, 999, 100), 2, "whichever is sampled"),
        (EventInfo("page-faults", Unit.COUNT, 0, 99, 100), 828, "guesses the periods"),
        (EventInfo("page-faults", Unit.COUNT, 1, 0, 100), 50, "samples are missing"),
    ],
)
def test_each_cause_is_named_with_the_share(event: EventInfo, weight: int, cause: str) -> None:
    said = doubts(event, weight)
    assert cause in said
    assert f"{weight}%" in said


def test_cut_stacks() -> None:
    assert list(cut_doubt(0, 5)) == []
    assert "3 samples (30.0%)" in next(cut_doubt(3, 10))


@pytest.mark.parametrize(
    ("counted", "held", "is_doubted"), [(None, 3, False), (10, 4, False), (10, 5, True), (4, 0, True)]
)
def test_a_table_that_holds_other_samples_than_were_counted(counted: int | None, held: int, is_doubted: bool) -> None:
    losses = Losses(samples_map_full=1, samples_outside_namespace=2, by_reason={NEVER_REACHED: 3, "others": 100})
    assert bool(list(count_doubt(counted, losses, held))) == is_doubted
