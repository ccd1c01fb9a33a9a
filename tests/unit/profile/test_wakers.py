"""Who ended sleeps: named by their own program's function, interrupts told from threads, and put into call stacks."""

from dataclasses import replace

import numpy as np
import pytest

from builders.profiles import CLOCK, Call, Frame, ProfileBuilder
from tdprof.model.addresses import FileKind
from tdprof.model.choices import Selection
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.off_cpu import ThreadState
from tdprof.model.profile import Profile, WakerTable
from tdprof.profile.frames import frame_stacks
from tdprof.profile.selection import select
from tdprof.profile.wakers import INTERRUPT, WOKEN_BY, cut_interrupts, sample_wakers, with_waker_stacks

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 1_000_000))


def kernel(name: str) -> Call:
    return Call((Frame(name, module="[kernel]"),))


def libc(name: str) -> Call:
    return Call((Frame(name, module="/lib/libc.so.6"),))


@pytest.fixture
def profile() -> Profile:
    """Sleeps that a thread, an interrupt and nobody known have ended, a wait for a CPU, and work."""
    builder = ProfileBuilder(EVENTS)
    asleep = ThreadState.INTERRUPTIBLE
    builder.add("main", "wait", kernel("futex_wait"), weight=30, event=1, state=asleep)
    builder.add("main", "nap", kernel("do_nanosleep"), weight=20, event=1, state=asleep)
    builder.add("main", "wait", kernel("futex_wait"), weight=10, event=1, state=asleep)
    builder.add("main", "wait", kernel("schedule"), weight=5, event=1, state=ThreadState.RUNNABLE)
    builder.add("main", "work", weight=7)
    # What stacks wakers have; these rows are taken off again.
    builder.add("main", "push", libc("pthread_cond_signal"), kernel("futex_wake"), weight=1)
    builder.add("other", "spin", kernel("asm_sysvec_x"), kernel("sysvec_x"), kernel("hrtimer_wakeup"), weight=1)
    built = builder.build()
    files = [replace(file, kind=FileKind.KERNEL) if file.path == "[kernel]" else file for file in built.mapped_files]
    columns = {name: getattr(built.samples, name)[:5] for name in type(built.samples).__slots__}
    columns["waker"] = np.array([0, 1, -1, -1, -1], np.int32)
    return replace(
        built,
        mapped_files=files,
        samples=type(built.samples)(**columns),
        wakers=WakerTable(["feeder", "spinner"], built.samples.stack[5:]),
    )


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
