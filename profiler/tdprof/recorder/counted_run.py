"""Runs a command, or watches processes or CPUs, while counters count, until it ends or the user stops it."""

import os
import resource
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from tdprof.errors import TdprofError
from tdprof.linux.readable import is_readable
from tdprof.recorder.counter_set import CounterSet, CountingTarget
from tdprof.recorder.events import Event
from tdprof.recorder.perf_event import Count
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.targets import MOST_LOOKS, threads_of
from tdprof.recorder.workload import Workload
from tdprof.values import dataclass

# How long an interrupted command gets to end by itself; Ctrl-C in a terminal reaches it too.
_GRACE_S = 1.0
# By which the kernel's two ways to tell processor time may differ, and what the command takes before it is executed.
_SAME_SHARE, _SAME_NS = 0.1, 50_000_000


@dataclass(frozen=True, slots=True)
class CountedSpan:
    """Counts over a span of time: one dict per group of events.

    Attributes:
        end_s, seconds: when the span ended, from the start of counting, and its length.
    """

    end_s: float
    seconds: float
    counts: tuple[dict[str, Count], ...]


@dataclass(frozen=True, slots=True)
class CountedRun:
    """A finished run: its totals, and what befell it.

    Attributes:
        exit_status: the command's, as a shell gives it; None where no command was run.
        refused: event name to why it could not be opened.
        user_only: whether the kernel's share was left out for want of permission.
        stopped_cpus: of those that went offline, for how many ns they were counted.
        uncounted_ns: processor time of the command, and of what it started and waited for, that no counter saw.
    """

    total: CountedSpan
    exit_status: int | None
    refused: dict[str, str]
    user_only: bool
    was_interrupted: bool
    stopped_cpus: dict[int, int]
    uncounted_ns: int


@dataclass(frozen=True, slots=True)
class Subject:
    """What is counted: processes, or all these CPUs, or else the command; a command beside them sets the duration."""

    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    cpus: tuple[int, ...] = ()


def count_run(
    subject: Subject,
    groups: Sequence[Sequence[Event]],
    *,
    interval_s: float | None = None,
    on_interval: Callable[[CountedSpan], None] = lambda _: None,
) -> CountedRun:
    """Count until the command or all processes end, or until the user interrupts.

    Args:
        groups: events that are counted together; each group shares the PMU with the others in turn.
        interval_s: how often to hand the counts since the last time to ``on_interval``.

    Raises:
        TdprofError: the command or process cannot be run, found or counted.
    """
    used_before_ns = _used_by_children_ns()
    with ExitStack() as stack:
        workload = stack.enter_context(Workload(subject.command)) if subject.command else None
        follows_command = workload is not None and not subject.pids and not subject.cpus
        if workload and follows_command:
            counters = CounterSet(groups, CountingTarget((workload.pid,), starts_on_exec=True))
        elif subject.pids:
            counters = _open_settled(groups, subject.pids)
        else:
            counters = CounterSet(groups, CountingTarget(cpus=subject.cpus))
        stack.enter_context(counters)
        signals = stack.enter_context(StopSignals())
        # Where a command merely sets the duration, its end is what counts, as in perf stat.
        ends = [workload.pidfd] if workload else [stack.enter_context(_open_pidfd(pid)) for pid in subject.pids]
        ticker = _Ticker(counters, interval_s, on_interval)
        if not follows_command:
            counters.enable()
        if workload:
            workload.start()
        _wait(ends, ticker, signals)
        if workload and signals.received is not None:
            _end_command(workload)
        stopped_cpus = {} if follows_command or subject.pids else counters.stopped_cpus()
        if not follows_command:
            counters.disable()
        total = ticker.finish()
        status = workload.wait() if workload else None
        was_interrupted = signals.received is not None
        uncounted_ns = _uncounted_ns(_used_by_children_ns() - used_before_ns, total) if follows_command else 0
        return CountedRun(
            total, status, counters.refused, counters.user_only, was_interrupted, stopped_cpus, uncounted_ns
        )


def _used_by_children_ns() -> int:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def _uncounted_ns(used_ns: int, total: CountedSpan) -> int:
    """What no counter was on for; 0 where it is no more than what may differ, or nothing could be counted."""
    enabled = [count.enabled_ns for group in total.counts for count in group.values()]
    missing_ns = used_ns - max(enabled, default=used_ns)
    return missing_ns if missing_ns > _SAME_NS + _SAME_SHARE * used_ns else 0


def _open_settled(groups: Sequence[Sequence[Event]], pids: Sequence[int]) -> CounterSet:
    """Counters of all threads that processes have by then.

    Of a thread that is new once they are open nobody knows whether it inherited them, so they are opened anew.
    """
    tids = threads_of(pids)
    counters = CounterSet(groups, CountingTarget(tuple(tids)))
    for _ in range(MOST_LOOKS):
        later = tids
        with suppress(TdprofError):  # a process has ended: there is nothing more to come
            later = threads_of(pids)
        if set(later) <= set(tids):
            break
        counters.close()
        tids = later
        counters = CounterSet(groups, CountingTarget(tuple(tids)))
    return counters


class _Ticker:
    """Reads the counters at intervals and keeps what was read last."""

    def __init__(
        self, counters: CounterSet, interval_s: float | None, on_interval: Callable[[CountedSpan], None]
    ) -> None:
        self.counters, self.interval_s, self.on_interval = counters, interval_s, on_interval
        self.start = self.last_s = time.monotonic()
        self.last: list[dict[str, Count]] | None = None

    def remaining_ms(self) -> int | None:
        """Until the next interval ends."""
        if self.interval_s is None:
            return None
        return max(0, round((self.last_s + self.interval_s - time.monotonic()) * 1000))

    def tick(self) -> list[dict[str, Count]]:
        now, counts = time.monotonic(), self.counters.read()
        if self.interval_s is not None:
            before = self.last or [{} for _ in counts]
            span = tuple(
                {name: _difference(count, old.get(name)) for name, count in group.items()}
                for group, old in zip(counts, before, strict=True)
            )
            self.on_interval(CountedSpan(now - self.start, now - self.last_s, span))
        self.last, self.last_s = counts, now
        return counts

    def finish(self) -> CountedSpan:
        counts = self.tick()
        seconds = self.last_s - self.start
        return CountedSpan(seconds, seconds, tuple(counts))


def _difference(count: Count, before: Count | None) -> Count:
    if before is None:
        return count
    return Count(count.value - before.value, count.enabled_ns - before.enabled_ns, count.running_ns - before.running_ns)


def _wait(ends: Sequence[int], ticker: _Ticker, signals: StopSignals) -> None:
    """Until all descriptors say that their process has ended, or an interrupt."""
    poller = select.poll()
    open_ends = set(ends)
    for fd in (*open_ends, signals.fileno()):
        poller.register(fd, select.POLLIN)
    while signals.received is None and (open_ends or not ends):
        ready = poller.poll(ticker.remaining_ms())
        for fd, _ in ready:
            poller.unregister(fd)
            open_ends.discard(fd)
        if not ready:
            ticker.tick()


def _end_command(workload: Workload) -> None:
    """Let an interrupted command end by itself, then ask it to."""
    end = time.monotonic() + _GRACE_S
    while workload.poll() is None and time.monotonic() < end:
        is_readable(workload.pidfd, _GRACE_S)
    workload.terminate()


@contextmanager
def _open_pidfd(pid: int) -> Iterator[int]:
    try:
        fd = os.pidfd_open(pid)
    except OSError as error:
        raise TdprofError(f"no process {pid}: {error.strerror}", hint="pgrep -a NAME") from error
    try:
        yield fd
    finally:
        os.close(fd)
