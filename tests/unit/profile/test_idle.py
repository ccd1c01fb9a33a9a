"""Waits of threads with nothing to do are told from those that hold work up."""

from collections.abc import Sequence

import numpy as np
import pytest

from builders.profiles import CLOCK, ProfileBuilder
from builders.waiting import ends_within
from tdprof.model.choices import GroupKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.model.thread_state import ThreadState
from tdprof.profile.frames import frame_stacks
from tdprof.profile.groups import group_samples
from tdprof.profile.hotspots import find_hotspots
from tdprof.profile.idle import IDLE, idle_ns, is_idle, mark_idle
from tdprof.report.summary import facts

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 1_000_000))
CONDITION = ("pthread_cond_wait@@GLIBC_2.3.2", "__futex_wait")
SEMAPHORE = ("__new_sem_wait_slow64 [constprop.0]", "__futex_wait")
KERNEL_THREAD = ("ret_from_fork_asm", "ret_from_fork", "kthread")
PYTHON_LOCK = ("lock_PyThread_acquire_lock", "PyThread_acquire_lock_timed", *SEMAPHORE)


def waiting(*rows: tuple[int, ThreadState, Sequence[str]]) -> Profile:
    """Each row's thread waits there for as many milliseconds as its place in order."""
    builder = ProfileBuilder(EVENTS).add("main", "work", weight=5)
    for number, (tid, state, stack) in enumerate(rows):
        builder.add("main", *stack, event=1, weight=(number + 1) * 1_000_000, tid=tid, state=state)
    return mark_idle(builder.build())


ASLEEP = ThreadState.INTERRUPTIBLE


@pytest.mark.parametrize(
    ("rows", "idle"),
    [
        ([(1, ASLEEP, ("serve", "epoll_wait", "do_epoll_wait"))], [True]),
        ([(1, ASLEEP, ("serve", "accept4", "inet_csk_accept"))], [True]),
        ([(1, ASLEEP, ("works", *CONDITION)), (2, ASLEEP, ("works", *CONDITION))], [True, True]),
        # Alone, from another place, or the same thread again: what comes then may be what all wait for.
        ([(1, ASLEEP, ("works", *CONDITION)), (2, ASLEEP, ("result", *CONDITION))], [False, False]),
        ([(1, ASLEEP, ("works", *CONDITION)), (1, ASLEEP, ("works", *CONDITION))], [False, False]),
        # Locks, sleeps, devices and CPUs are waited for in pools as well.
        ([(tid, ASLEEP, ("works", "pthread_mutex_lock", "futex_wait")) for tid in (1, 2)], [False, False]),
        ([(tid, ASLEEP, ("works", "clock_nanosleep")) for tid in (1, 2)], [False, False]),
        ([(1, ThreadState.UNINTERRUPTIBLE, ("serve", "do_epoll_wait", "page_fault"))], [False]),
        ([(1, ThreadState.RUNNABLE, ("serve", "do_epoll_wait"))], [False]),
        ([(1, ASLEEP, ("my_epoll_waiter",))], [False]),
        ([(1, ASLEEP, ("pause", "__do_sys_pause"))], [True]),
        # Runtimes' pools, locks and sleeps, which wait by the same means; and their own threads.
        ([(tid, ASLEEP, ("works", *SEMAPHORE)) for tid in (1, 2)], [True, True]),
        ([(tid, ASLEEP, ("Queue.get", "Condition.wait", *PYTHON_LOCK)) for tid in (1, 2)], [True, True]),
        ([(tid, ASLEEP, ("with_lock", *PYTHON_LOCK)) for tid in (1, 2)], [False, False]),
        ([(tid, ASLEEP, ("works", "take_gil", *CONDITION)) for tid in (1, 2)], [False, False]),
        ([(tid, ASLEEP, ("Interpreter", "JVM_Sleep", *CONDITION)) for tid in (1, 2)], [False, False]),
        ([(tid, ASLEEP, ("ObjectMonitor::enter(JavaThread*)", *CONDITION)) for tid in (1, 2)], [False, False]),
        ([(tid, ASLEEP, ("java.lang.Thread.join", "Unsafe_Park", *CONDITION)) for tid in (1, 2)], [False, False]),
        ([(1, ASLEEP, ("VMThread::wait_for_operation()", *CONDITION))], [True]),
        ([(1, ASLEEP, ("VMThread::run()", "WorkGang::run_task(AbstractGangTask*)", *CONDITION))], [False]),
        ([(1, ASLEEP, ("G1ConcurrentMarkThread::run_service()", "Monitor::wait(long)", *CONDITION))], [True]),
        ([(1, ASLEEP, ("G1ConcurrentMarkThread::run_service()", "WorkGang::run_task()", *SEMAPHORE))], [False]),
        ([(1, ASLEEP, ("G1ConcurrentMarkThread::run_service()", "VMThread::execute()", *CONDITION))], [False]),
        ([(1, ASLEEP, ("java.lang.ref.ReferenceQueue.remove", "JVM_MonitorWait", *CONDITION))], [True]),
        ([(1, ASLEEP, ("Interpreter", "JVM_MonitorWait", *CONDITION))], [False]),
        ([(1, ASLEEP, ("JLI_Launch", "CallJavaMainInNewThread", "__pthread_clockjoin_ex", "__futex_wait"))], [True]),
        ([(1, ASLEEP, ("runtime.stopm", "runtime.futex.abi0"))], [True]),
        # A thread of the kernel in its own function, by itself or until a time; but not in what that calls.
        ([(1, ASLEEP, (*KERNEL_THREAD, "worker_thread"))], [True]),
        ([(1, ASLEEP, (*KERNEL_THREAD, "kcompactd", "schedule_timeout"))], [True]),
        ([(1, ASLEEP, (*KERNEL_THREAD, "worker_thread", "process_one_work"))], [False]),
        ([(1, ASLEEP, (*KERNEL_THREAD, "rcu_gp_kthread", "rcu_gp_fqs_loop", "schedule_timeout"))], [False]),
        ([(1, ThreadState.RUNNABLE, (*KERNEL_THREAD, "worker_thread"))], [False]),
        ([(1, ASLEEP, ("kthread", "worker_thread"))], [False]),
        ([(1, ASLEEP, (*KERNEL_THREAD,)), (2, ASLEEP, ("schedule_timeout",))], [False, False]),
        (
            [(tid, ASLEEP, ("pool::work", "std::sys::sync::condvar::futex::Condvar::wait")) for tid in (1, 2)],
            [True, True],
        ),
    ],
)
def test_idle_is_told_by_where_threads_wait(
    rows: Sequence[tuple[int, ThreadState, Sequence[str]]], idle: Sequence[bool]
) -> None:
    assert is_idle(waiting(*rows)).tolist() == [False, *idle]


@pytest.mark.parametrize("wait", ["JVM_MonitorWait", "Unsafe_Park"])
def test_javas_own_threads_are_idle_at_the_outermost_place_where_they_wait(wait: str) -> None:
    """Its functions have no names while they are interpreted; what a `finalize` waits for has more callers."""
    begin = ("JavaCalls::call_helper(JavaValue*, methodHandle const&)", "Interpreter")
    idle, held_up = (*begin, wait, *CONDITION), (*begin, "Interpreter", "Interpreter", wait, *CONDITION)
    builder = ProfileBuilder(EVENTS)
    expected = []
    for thread, pid, stack, is_expected in (
        ("Finalizer", 1, held_up, False),
        ("Finalizer", 1, idle, True),
        ("Finalizer", 1, ("[incomplete: no-table]", wait, *CONDITION), False),
        ("Finalizer", 1, (*begin, wait, "pthread_cond_timedwait", "__futex_wait"), False),
        ("Common-Cleaner", 5, (*begin, wait, "pthread_cond_timedwait", "__futex_wait"), True),
        ("Cleaner-0", 2, held_up, True),
        ("worker", 4, idle, False),
        ("Finalizer", 3, ("wait_for_it", *CONDITION), False),
    ):
        builder.add("main", *stack, event=1, thread=thread, pid=pid, tid=10 * pid + len(thread), state=ASLEEP)
        expected.append(is_expected)
    assert is_idle(mark_idle(builder.build())).tolist() == expected


def test_a_name_costs_what_it_weighs() -> None:
    """Who made the program chose it."""
    name = "work" + " [a]" * 250_000 + "X"
    with ends_within(60, AssertionError("more than its length")):
        assert not is_idle(waiting((1, ASLEEP, (name, *CONDITION)))).any()


def test_idle_is_the_innermost_frame_and_the_last_row() -> None:
    profile = waiting(
        (1, ASLEEP, ("works", *CONDITION)),
        (2, ASLEEP, ("works", *CONDITION)),
        (3, ASLEEP, ("main_loop", "do_epoll_wait")),
        (4, ASLEEP, ("save", "fsync")),
    )
    hotspots = find_hotspots(profile, sort_event=1)
    names = [profile.functions.name[each] for each in hotspots.function]
    assert (names[0], names[-1]) == ("fsync", IDLE)
    assert hotspots.self_weight[-1].tolist() == [0, 6_000_000]
    assert hotspots.self_weight[:, 1].sum() == 10_000_000 == profile.total_weight()[1]
    stacks = frame_stacks(profile)
    last = slice(*stacks.start[profile.samples.stack[1] :][:2])
    assert [profile.functions.name[each] for each in stacks.function[last]] == [
        IDLE, "__futex_wait", "pthread_cond_wait@@GLIBC_2.3.2", "works", "main",
    ]  # fmt: skip
    groups = group_samples(profile, GroupKind.STATE, 1)
    assert dict(zip(groups.name, groups.weight[:, 1].tolist(), strict=True)) == {
        "asleep, with nothing to do": 6_000_000, "asleep": 4_000_000, "on a CPU": 0,
    }  # fmt: skip
    assert idle_ns(profile) == 6_000_000
    assert ("idle", "6.000 ms of threads with nothing to do, [idle] in call stacks") in facts(profile)


def test_other_profiles_stay_as_they_are() -> None:
    profile = ProfileBuilder().add("serve", "do_epoll_wait").build()
    assert mark_idle(profile) is profile
    assert np.count_nonzero(is_idle(profile)) == idle_ns(profile) == 0
    assert mark_idle(waiting((1, ASLEEP, ("nap",)))).functions.name == ["work", "main", "nap"]
