"""What is said of samples that do not stand for what was counted."""

from dataclasses import replace

import pytest

from builders.profiles import Frame, ProfileBuilder
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import NEVER_REACHED, Losses
from tdprof.profile.reliability import count_doubt, cut_doubt, event_doubts, group_doubt, kernel_share, masked_doubt

NO_LOSSES = Losses()


def doubts(event: EventInfo, weight: int, losses: Losses = NO_LOSSES) -> str:
    return " ".join(event_doubts([event], [10], [weight], losses))


@pytest.mark.parametrize("weight", [91, 100, 109])
def test_nothing_where_samples_and_total_agree(weight: int) -> None:
    assert doubts(EventInfo("cycles", Unit.COUNT, 0, 999, 100), weight) == ""


def test_nothing_without_a_total_or_samples() -> None:
    assert doubts(EventInfo("cycles", Unit.COUNT, 0, 999, None), 5) == ""
    assert list(event_doubts([EventInfo("cycles", Unit.COUNT, 0, 999, 100)], [0], [0], NO_LOSSES)) == []


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


CLOCK = EventInfo("cpu-clock", Unit.NANOSECONDS, 0, 999, 100)


@pytest.mark.parametrize(
    "losses", [Losses(samples_ring_full=30), Losses(samples_map_full=30), Losses(by_reason={NEVER_REACHED: 30})]
)
def test_lost_samples_are_the_cause_and_the_only_one(losses: Losses) -> None:
    said = doubts(CLOCK, 25, losses)
    assert "30 samples lost on the way; shares are right only if" in said
    assert "idle" not in said
    assert "not all" not in said


def test_losses_that_explain_too_little_are_not_made_out_to_be_all() -> None:
    said = doubts(CLOCK, 25, Losses(samples_ring_full=2))
    assert "2 samples lost" in said
    assert "not all that is missing" in said
    assert "idle" not in said


def test_samples_of_other_namespaces_are_not_lost_for_a_rate() -> None:
    said = doubts(CLOCK, 25, Losses(samples_outside_namespace=30))
    assert "the rest is mostly of processes outside the recorder's pid namespace" in said
    assert "a lower -F" not in said
    said = doubts(CLOCK, 25, Losses(samples_outside_namespace=30, samples_map_full=5))
    assert "no row has; and 5 samples lost on the way" in said


@pytest.mark.parametrize(
    "event", [CLOCK, EventInfo("cycles", Unit.COUNT, 0, 999, 100), EventInfo("x", Unit.COUNT, 5, 0, 100)]
)
def test_pauses_are_named_where_samples_are_missing_and_not_the_frequency(event: EventInfo) -> None:
    said = doubts(event, 27, Losses(throttled=236))
    assert said.startswith(
        f"the samples of {event.name} stand for 27% of what was counted: the kernel paused events 236 times"
    )
    assert "idle" not in said
    assert "guesses" not in said
    # No pause makes samples stand for more.
    assert "paused" not in doubts(event, 828, Losses(throttled=236))


def test_losses_are_not_blamed_for_too_much_weight() -> None:
    faults = EventInfo("page-faults", Unit.COUNT, 0, 99, 100)
    assert "guesses the periods" in doubts(faults, 828, Losses(samples_ring_full=2))


@pytest.mark.parametrize(
    ("losses", "cause"),
    [
        (NO_LOSSES, "threads that end"),
        (Losses(samples_ring_full=9), "9 samp"),
        (Losses(throttled=3), "the kernel paused events 3 times"),
    ],
)
def test_groups_have_one_cause(losses: Losses, cause: str) -> None:
    (said,) = group_doubt([CLOCK, CLOCK], [10, 10], [20, 100], losses)
    assert "1 of 2 events" in said
    assert said.split("counted: ")[1].startswith(cause)


KERNEL = MappedFile("[kernel]", "", FileKind.KERNEL)


def test_the_kernels_share_is_of_the_innermost_code_of_the_first_event_that_interrupts() -> None:
    builder = ProfileBuilder((CLOCK, CLOCK), files=[KERNEL])
    builder.add("main", Frame("unlock", module="[kernel]"), weight=30)
    builder.add(Frame("entry", module="[kernel]"), "main", weight=50)
    builder.add(Frame("unlock", module="[kernel]"), weight=1000, event=1)
    builder.add("main", weight=20)
    profile = builder.build()
    assert kernel_share(profile) == 0.3
    # The kernel's own events are sampled where they happen, masked or not; the other event is all in the kernel.
    for name, share in (
        ("cycles:u", 1),
        ("armv8_pmuv3/cycles/upp", 1),
        ("context-switches", 1),
        ("page-faults:k", 1),
        ("off-cpu", 1),
        ("cycles:uk", 0.3),
        ("net:queue", 0.3),
    ):
        named = replace(profile, events=[replace(profile.events[0], name=name), *profile.events[1:]])
        assert kernel_share(named) == share, name
    alone = replace(profile, events=[replace(event, name="context-switches") for event in profile.events])
    assert kernel_share(alone) == 0
    assert kernel_share(ProfileBuilder().build()) == 0


@pytest.mark.parametrize(
    ("percent", "has_pmu_nmi", "is_doubted"),
    [(30, False, True), (30, True, False), (30, None, False), (0.1, False, False)],
)
def test_where_interrupts_wait_the_kernels_samples_are_doubted(
    percent: float, has_pmu_nmi: bool | None, is_doubted: bool
) -> None:
    builder = ProfileBuilder((CLOCK,), files=[KERNEL])
    builder.add("main", Frame("unlock", module="[kernel]"), weight=int(10 * percent))
    builder.add("main", weight=1000 - int(10 * percent))
    said = " ".join(masked_doubt(builder.build(), has_pmu_nmi=has_pmu_nmi))
    assert ("30.0% is in the kernel" in said) is is_doubted


def test_cut_stacks() -> None:
    assert list(cut_doubt(0, 5)) == []
    assert "3 samples (30.0%)" in next(cut_doubt(3, 10))


@pytest.mark.parametrize(
    ("counted", "held", "is_doubted"), [(None, 3, False), (10, 4, False), (10, 5, True), (4, 0, True)]
)
def test_a_table_that_holds_other_samples_than_were_counted(counted: int | None, held: int, is_doubted: bool) -> None:
    losses = Losses(samples_map_full=1, samples_outside_namespace=2, by_reason={NEVER_REACHED: 3, "others": 100})
    assert bool(list(count_doubt(counted, losses, held))) == is_doubted
