"""Waits of threads that have nothing to do, which are most of a server's and none of its hotspots.

A wait is told to be idle by where the thread waits, since no kernel says what for:

- in a call that takes whatever comes next, as a server's loop does: epoll_wait, accept, io_uring, sigwait, pause; or
  where a runtime keeps threads of its own that have nothing to do; or in the own function of a thread of the kernel;
- or in one that waits for a condition, a semaphore, a message or any of some files, where another thread of the process
  waits at the same place, with the same callers: then they are a pool, of which one is as good as another.

A lock is never idle, nor is a sleep or what waits for a device, a CPU, a thread or a process; those of CPython and of
JVMs, which wait for conditions, too, are told by their functions.
"""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import group_of_row, group_rows
from tdprof.model.events import OFF_CPU
from tdprof.model.profile import KeptStacks, Profile, StackTable
from tdprof.model.thread_state import ThreadState
from tdprof.profile.frames import frame_stacks, merge_stacks
from tdprof.profile.markers import with_markers

IDLE = "[idle]"
# Patterns, which only time off a CPU is looked at with: compiled at the start they take a twentieth of a short report.
# The kernel's functions and the C library's; its own have underscores before and sizes behind.
# Go's threads without a goroutine to run, and the one that looks after them; Java's first, which waits for the one that
# runs main.
_TAKES_ANYTHING = (
    r"_*(do_epoll_wait|ep_poll|epoll_p?wait2?|inet_csk_accept|accept4?|io_cqring_wait|do_sigtimedwait|"
    r"(do_sys_)?pause|sigsuspend)|runtime\.(stopm|sysmon)|CallJavaMainInNewThread|ContinueInNewThread0"
)
# Rust's conditions are no C library's.
_WAITS_FOR_ITS_TURN = (
    r"_*(pthread_cond_(timed|clock)?wait|new_sem_(timed|clock)?wait(_slow)?|sem_(timed|clock)?wait|do_sys_poll|do_poll|"
    r"do_select|core_sys_select|do_msgrcv|wq_sleep)(64)?|(\w+::)*Condvar::wait\w*"
)
# HotSpot's own threads, of which most kinds have one: these wait for what comes.
_OF_HOTSPOT = (
    r"GangWorker::loop|WorkerThread::run|VMThread::wait_for_operation|CompileQueue::get|os::signal_wait|"
    r"JVM_WaitForReferencePendingList|ServiceThread::service_thread_entry|NotificationThread::notification_thread_entry|"
    r"MonitorDeflationThread::monitor_deflation_thread_entry|NMethodSweeper::sweeper_loop|WatcherThread::sleep|"
    r"G1ServiceThread::(sleep_before_next_cycle|wait_for_task)|G1ConcurrentRefineThread::run_service|"
    r"G1ConcurrentMarkThread::(run_service|wait_for_next_cycle)|(.*\.)?ReferenceQueue\.(remove|await)\w*"
)
# Those of them that run Java's functions, which have no names while they are interpreted. What they run for others may
# wait by the same means, but mostly with more callers, and of the first kind for some time.
_FINALIZER, _CLEANERS = r"Finalizer", r"(Common-)?Cleaner(-\d+)?"
_JAVA_BEGINS, _JAVA_WAITS = r"JavaCalls::call_helper", r"JVM_MonitorWait|Unsafe_Park"
_FOR_SOME_TIME = r"pthread_cond_(timed|clock)wait"
# Among this is what HotSpot's threads wait for in the midst of their work: workers, and operations of the VM.
_IS_HELD_UP = (
    r"(WorkGang|WorkerThreads)::run_task|VMThread::execute|SuspendibleThreadSet::\w+|take_gil|JVM_Sleep|JavaThread::sleep|Object(Monitor|Synchronizer)::\w*enter\w*|"
    r"(.*\.)?(AbstractQueuedSynchronizer\.acquire\w*|Thread\.(join|sleep)\w*)"
)
# Of CPython's locks alone is its condition made.
_PYTHON_LOCK = r"(lock_PyThread_acquire_|rlock_|lock_)(acquire|lock)\w*|_?PyMutex_Lock\w*"
_PYTHON_CONDITION = r"(Condition\.)?wait"
# Where a thread of the kernel begins, below its own function, which sleeps by itself or until a time.
_KERNEL_THREAD = (r"kthread", r"ret_from_fork(_asm)?")
_UNTIL_A_TIME = r"schedule_(hr)?timeout\w*"
_ADDED = re.compile(r"@|\(| \[")  # begins what versions of symbols, compilers and parameters add to a function's name


def mark_idle(profile: Profile) -> Profile:
    """The profile with `IDLE` as the innermost frame of waits that are idle."""
    events = [each.name for each in profile.events]
    if OFF_CPU not in events:
        return profile
    samples = profile.samples
    is_asleep = (samples.event == events.index(OFF_CPU)) & (samples.state == ThreadState.INTERRUPTIBLE)
    if not (is_idle := is_asleep & _has_nothing_to_do(profile, is_asleep)).any():
        return profile
    chosen, which = np.unique(samples.stack[is_idle], return_inverse=True)
    stack = samples.stack.copy()
    stack[is_idle] = len(profile.stacks.start) - 1 + which
    return replace(
        with_markers(profile, [IDLE]),
        stacks=_with_leaf(profile.stacks, chosen, len(profile.locations.address)),
        samples=replace(samples, stack=stack),
        kept_stacks=KeptStacks(),
    )


def _has_nothing_to_do(profile: Profile, is_asleep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[samples]: of those asleep, which are idle."""
    stacks, of_sample = frame_stacks(profile), profile.samples.stack
    if not len(stacks.function):
        return np.zeros(len(of_sample), bool)
    names = [_ADDED.split(name, 1)[0] for name in profile.functions.name]

    def of_frames(pattern: str) -> NDArray[np.bool_]:
        is_name = re.compile(pattern).fullmatch
        return np.array([*(bool(is_name(name)) for name in names), False])[stacks.function]

    def has(pattern: str) -> NDArray[np.bool_]:
        return np.asarray(np.logical_or.reduceat(of_frames(pattern), stacks.start[:-1])[of_sample])

    is_held_up = has(_IS_HELD_UP) | (has(_PYTHON_LOCK) & ~has(_PYTHON_CONDITION))
    callers = _frames_from(stacks.start, of_frames(_JAVA_WAITS))[of_sample]
    is_theirs = _is_of_thread(profile, _CLEANERS) | (_is_of_thread(profile, _FINALIZER) & ~has(_FOR_SOME_TIME))
    is_of_java = is_asleep & (callers > 0) & has(_JAVA_BEGINS) & is_theirs
    is_one_of_many = has(_OF_HOTSPOT) | _is_of_pool(profile, is_asleep) | _has_fewest(profile, is_of_java, callers)
    is_at_rest = _is_outside_of(stacks.start, of_frames(_UNTIL_A_TIME), *map(of_frames, _KERNEL_THREAD))
    takes_anything = has(_TAKES_ANYTHING) | is_at_rest[of_sample]
    return takes_anything | (has(_WAITS_FOR_ITS_TURN) & is_one_of_many & ~is_held_up)


def _frames_from(start: NDArray[np.integer], is_it: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[stacks]: from the innermost of such frames to the outermost of all; 0 where there is none."""
    first, end = start[:-1].astype(np.int64), start[1:].astype(np.int64)
    ends = np.repeat(end, end - first)
    return np.maximum.reduceat(np.where(is_it, ends - np.arange(len(ends)), 0), first)


def _is_of_thread(profile: Profile, pattern: str) -> NDArray[np.bool_]:
    is_name = re.compile(pattern).fullmatch
    return np.array([bool(is_name(name)) for name in profile.thread_names], bool)[profile.samples.thread_name]


def _has_fewest(profile: Profile, chosen: NDArray[np.bool_], callers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[samples]: of those chosen, which have as few callers as any of the thread."""
    rows = np.flatnonzero(chosen)
    found = np.zeros(len(chosen), bool)
    if len(rows):
        order, start = group_rows(profile.samples.pid[rows], profile.samples.tid[rows])
        fewest = np.minimum.reduceat(callers[rows[order]], start)
        found[rows] = callers[rows] == fewest[group_of_row(order, start)]
    return found


def _is_outside_of(
    start: NDArray[np.integer], may_be_first: NDArray[np.bool_], *outside: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """bool[stacks]: which have, but for an innermost frame that may be first, one frame and outside it these.

    Args:
        start: where each stack begins among the frames, and their end.
        may_be_first, outside: bool[frames].
    """
    first, end = start[:-1].astype(np.int64), start[1:].astype(np.int64)
    own = first + may_be_first[np.minimum(first, len(may_be_first) - 1)]
    found = np.ones(len(first), bool)
    for distance, is_it in enumerate(outside, 1):
        at = own + distance
        found &= (at < end) & is_it[np.minimum(at, len(is_it) - 1)]
    return found


def is_idle(profile: Profile) -> NDArray[np.bool_]:
    """bool[samples]: which are idle, of a profile where they are marked."""
    if IDLE not in profile.functions.name:
        return np.zeros(len(profile.samples.stack), bool)
    stacks = frame_stacks(profile)
    is_marked = stacks.function[stacks.start[:-1]] == profile.functions.name.index(IDLE)
    return np.asarray(is_marked[profile.samples.stack])


def idle_ns(profile: Profile) -> int:
    """How long threads were idle, by samples of time off a CPU."""
    return int(profile.samples.weight[is_idle(profile)].sum())


def _with_leaf(stacks: StackTable, chosen: NDArray[np.integer], location: int) -> StackTable:
    """The stacks, and behind them some of them again with one more location innermost."""
    start = stacks.start.astype(np.int64)
    lengths = (start[1:] - start[:-1])[chosen] + 1
    ends = np.cumsum(lengths)
    index = np.repeat(start[:-1][chosen] - 1 - (ends - lengths), lengths) + np.arange(lengths.sum())
    more = stacks.location[np.maximum(index, 0)] if len(stacks.location) else np.zeros(len(index), np.int32)
    more[ends - lengths] = location
    return StackTable(
        np.concatenate([stacks.start, stacks.start[-1] + ends.astype(np.uint32)]),
        np.concatenate([stacks.location, more]),
    )


def _is_of_pool(profile: Profile, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool[samples]: of those chosen, with call stacks that other threads of the process have as well."""
    samples = profile.samples
    place = merge_stacks(frame_stacks(profile))[0][samples.stack]
    rows = np.flatnonzero(chosen)
    found = np.zeros(len(chosen), bool)
    pid, tid, place = samples.pid[rows], samples.tid[rows], place[rows]
    order, start = group_rows(pid, place, tid)
    first = order[start]
    places, begins = group_rows(pid[first], place[first])
    threads = np.diff(begins, append=len(first))[group_of_row(places, begins)]
    found[rows] = (threads > 1)[group_of_row(order, start)]
    return found
