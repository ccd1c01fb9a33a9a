"""Who ended sleeps: named by their own program's function, interrupts told from threads, and put into call stacks."""

from dataclasses import replace

import pytest

from builders.woken import woken
from tdprof.model.choices import Basis, Selection
from tdprof.model.profile import Profile
from tdprof.profile.compare import compare
from tdprof.profile.frames import frame_stacks
from tdprof.profile.selection import select
from tdprof.profile.wakers import (
    INTERRUPT,
    WOKEN_BY,
    cut_interrupts,
    sample_wakers,
    with_waker_stacks,
    with_wakers_alone,
)


@pytest.fixture
def profile() -> Profile:
    return woken()


def frames(profile: Profile, row: int) -> list[str]:
    stacks = frame_stacks(profile)
    chosen = slice(*stacks.start[profile.samples.stack[row] :][:2])
    return [profile.functions.name[each] for each in stacks.function[chosen]]


def test_each_sleep_has_who_ended_it(profile: Profile) -> None:
    names, number = sample_wakers(cut_interrupts(profile))
    assert [names[each] for each in number] == [
        "push of feeder",
        f"hrtimer_wakeup of {INTERRUPT}",
        "[not known]",
        "[waited for a CPU]",
        "[on a CPU]",
    ]


def test_wakers_stand_above_what_they_ended_and_sums_stay(profile: Profile) -> None:
    woken = with_waker_stacks(cut_interrupts(profile))
    assert frames(woken, 0) == [
        "feeder", "main", "push", "pthread_cond_signal", "futex_wake", WOKEN_BY, "futex_wait", "wait", "main",
    ]  # fmt: skip
    # Whom an interrupt interrupted has nothing to do with it.
    assert frames(woken, 1) == [INTERRUPT, "sysvec_x", "hrtimer_wakeup", WOKEN_BY, "do_nanosleep", "nap", "main"]
    for row in (2, 3, 4):
        assert frames(woken, row) == frames(profile, row)
    assert woken.total_weight().tolist() == profile.total_weight().tolist()


def test_wakers_are_those_of_chosen_samples(profile: Profile) -> None:
    chosen = select(cut_interrupts(profile), Selection(functions=["nap"]))
    names, number = sample_wakers(chosen)
    assert [names[each] for each in number] == [f"hrtimer_wakeup of {INTERRUPT}"]
    assert INTERRUPT in frames(with_waker_stacks(chosen), 0)


def test_the_idle_task_is_no_thread_that_wakes(profile: Profile) -> None:
    assert profile.wakers
    idle = cut_interrupts(replace(profile, wakers=replace(profile.wakers, thread_name=["swapper/3", "spinner"])))
    assert idle.wakers
    assert idle.wakers.thread_name == [INTERRUPT, INTERRUPT]


def test_recordings_without_wakers_export_as_ever(profile: Profile) -> None:
    without = replace(profile, wakers=None)
    assert with_waker_stacks(without) is without


def test_who_ended_sleeps_is_compared_as_functions_are() -> None:
    a, b = (with_wakers_alone(cut_interrupts(woken(push_ns=ns))) for ns in (30, 300))
    found = compare(a, b, basis=Basis.SHARE)
    column = found.self_changes.column("off-cpu")
    shares = {name: (found.self_changes.a[row, column], found.self_changes.b[row, column])
              for row, name in enumerate(found.functions.names)}  # fmt: skip
    assert shares["push of feeder"] == pytest.approx((100 * 30 / 65, 100 * 300 / 335))
    assert shares[f"hrtimer_wakeup of {INTERRUPT}"] == pytest.approx((100 * 20 / 65, 100 * 20 / 335))
    assert set(shares) == {
        "push of feeder", f"hrtimer_wakeup of {INTERRUPT}", "[not known]", "[waited for a CPU]", "[on a CPU]",
    }  # fmt: skip
