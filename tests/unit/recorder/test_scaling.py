"""How many events each way to record opens on many CPUs: the counts of docs/scaling.md, by the recorder's own code."""

import itertools
import os
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tdprof.recorder import attach, spe, spe_counters
from tdprof.recorder import perf_event as pe
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.events import parse_events
from tdprof.recorder.locked_memory import RingSizes, fit
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.spe_options import SpeOptions, SpePmu
from tdprof.recorder.spe_threads import KeptThreads
from tdprof.recorder.targets import Rate, SamplingTarget
from tdprof.recorder.wanted_events import WantedEvents

CPUS, THREADS, EVENTS = range(192), 50, 2
FIRST = 1 << 20  # of the descriptors' numbers, which no real one has
SIZES = RingSizes.wanted(has_spe=True)
COMMAND = SamplingTarget([1], [1], starts_at_exec=True)
PROCESS = SamplingTarget([*range(1, THREADS + 1)], [1])
EVERYTHING = SamplingTarget([-1])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what is opened, instead of opening it: all, and what a new thread has a copy of ("inherited")."""
    counts: Counter[str] = Counter()
    numbers = itertools.count(FIRST)

    def count(attr: pe.PerfEventAttr, pid: int, cpu: int, group_fd: int = -1, *, is_cgroup: bool = False) -> int:
        assert not is_cgroup
        counts["descriptors"] += pid != 0  # what is opened on the recorder itself is a trial
        counts["inherited"] += bool(attr.inherit and pid == 1)  # what one task has, its threads inherit
        return next(numbers)

    def ring(fd: int, *_: int) -> SimpleNamespace:
        counts["rings"] += 1
        return SimpleNamespace(fd=fd, close=lambda: None)

    monkeypatch.setattr(pe, "perf_event_open", count)
    for name in ("set_output", "set_bpf", "enable", "disable"):
        monkeypatch.setattr(pe, name, lambda *_: None)
    close = os.close
    monkeypatch.setattr(os, "close", lambda fd: None if fd >= FIRST else close(fd))
    monkeypatch.setattr(attach, "PerfRing", ring)
    monkeypatch.setattr(spe, "AuxRing", ring)
    monkeypatch.setattr(spe_counters, "core_pmus", list)
    return counts


def attached(
    target: SamplingTarget,
    *,
    has_bpf: bool,
    groups: list[list[int]] | None = None,
    names: str = "page-faults,context-switches",
) -> None:
    events = parse_events(names)
    programs = [1] * EVENTS if has_bpf else None
    AttachedEvents(WantedEvents(events, target, [Rate(period=1)] * EVENTS, programs, groups, sizes=SIZES), CPUS)


def filtered(target: SamplingTarget) -> SamplingTarget:
    """Events of CPUs, of which BPF programs take what they are to."""
    return SamplingTarget(target.tasks, target.processes, starts_at_exec=target.starts_at_exec, is_filtered=True)


@pytest.mark.parametrize(
    ("target", "descriptors", "inherited"),
    [
        (filtered(COMMAND), 192 * (1 + EVENTS) + 1 + EVENTS, 1 + EVENTS),
        (filtered(PROCESS), 192 * (1 + EVENTS) + THREADS * (1 + EVENTS), 1 + EVENTS),
        (EVERYTHING, 192 * (1 + EVENTS), 0),
    ],
)
def test_with_bpf_nothing_grows_as_threads_times_cpus(
    opened: Counter[str], target: SamplingTarget, descriptors: int, inherited: int
) -> None:
    attached(target, has_bpf=True)
    assert (opened["descriptors"], opened["inherited"], opened["rings"]) == (descriptors, inherited, 192)


@pytest.mark.parametrize(("names", "inherited"), [("cpu-clock,task-clock", 0), ("cpu-clock,page-faults", 2)])
def test_where_threads_are_timed_clocks_are_not_counted_besides(
    opened: Counter[str], names: str, inherited: int
) -> None:
    attached(replace(filtered(COMMAND), is_timed=True), has_bpf=True, names=names)
    assert (opened["descriptors"], opened["inherited"]) == (192 * (1 + EVENTS) + inherited, inherited)


def test_groups_with_bpf_follow_their_tasks(opened: Counter[str]) -> None:
    attached(PROCESS, has_bpf=True, groups=[[0, 1]])
    assert opened["descriptors"] == 192 + THREADS * (1 + EVENTS)
    assert opened["inherited"] == 1 + EVENTS


def test_without_bpf_each_thread_has_events_on_each_cpu(opened: Counter[str]) -> None:
    attached(PROCESS, has_bpf=False)
    assert opened["descriptors"] == THREADS * (192 * (1 + EVENTS) + 1)
    assert opened["inherited"] == 192 * (1 + EVENTS) + 1


@pytest.mark.parametrize(("target", "events"), [(COMMAND, 192), (PROCESS, 192 * THREADS), (EVERYTHING, 192)])
def test_spe_has_one_buffer_for_each_cpu(opened: Counter[str], target: SamplingTarget, events: int) -> None:
    pmu = SpePmu("arm_spe_0", tuple(CPUS), frozenset(), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spe, "spe_event", lambda *_: parse_events("page-faults")[0])
        patch.setattr(spe, "restrict_to_permitted", lambda event: event)
        all_of_them = SpeEvents([pmu], SpeOptions(), target, CPUS, SIZES)
        assert (opened["descriptors"], opened["rings"]) == (events, 192)
        all_of_them.tell_switches()
    assert (opened["descriptors"], opened["rings"]) == (2 * events, 192)


def test_spe_of_whole_cpus_has_one_event_for_each(opened: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spe, "spe_event", lambda *_: parse_events("page-faults")[0])
    monkeypatch.setattr(spe, "restrict_to_permitted", lambda event: event)
    monkeypatch.setattr(spe_counters, "core_pmus", lambda: ["armv8_pmuv3_0"])
    monkeypatch.setattr(spe_counters, "parse_event", lambda _: parse_events("page-faults")[0])
    pmu = SpePmu("arm_spe_0", tuple(CPUS), frozenset(), {})
    SpeEvents([pmu], SpeOptions(), PROCESS, CPUS, SIZES, threads=KeptThreads([1], PROCESS.tasks))
    # What counts SPE's sampling stays that of the threads.
    assert (opened["descriptors"], opened["inherited"], opened["rings"]) == (192 + 4 * THREADS, 4, 192)


@pytest.mark.parametrize(("period", "is_said"), [(1023, True), (1024, False)])
def test_a_period_below_the_hardwares_minimum_is_said(
    opened: Counter[str], monkeypatch: pytest.MonkeyPatch, period: int, is_said: bool
) -> None:
    monkeypatch.setattr(spe, "spe_event", lambda *_: parse_events("page-faults")[0])
    monkeypatch.setattr(spe, "restrict_to_permitted", lambda event: event)
    pmu = SpePmu("arm_spe_0", (0,), frozenset(), {"min_interval": 1024})
    events = SpeEvents([pmu], SpeOptions(period=period), COMMAND, [0], SIZES)
    told = f"arm_spe_0 samples every 1024 operations at most: a period of {period} is that as well"
    assert (told in events.notes) == is_said


def test_sampling_is_not_counted_where_topdown_has_the_counters(
    opened: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spe, "spe_event", lambda *_: parse_events("page-faults")[0])
    monkeypatch.setattr(spe, "restrict_to_permitted", lambda event: event)
    monkeypatch.setattr(spe_counters, "core_pmus", lambda: ["armv8_pmuv3_0"])
    monkeypatch.setattr(spe_counters, "parse_event", lambda _: parse_events("page-faults")[0])
    pmu = SpePmu("arm_spe_0", (0,), frozenset(), {})
    found = {}
    for has_counters in (True, False):
        opened.clear()
        events = SpeEvents([pmu], SpeOptions(), COMMAND, [0], SIZES, has_counters=has_counters)
        found[has_counters] = opened["descriptors"], any("not counted beside" in note for note in events.notes)
    assert found == {True: (1 + 4, False), False: (1, True)}


def test_memory_is_by_cpu_and_shrinks_to_a_budget() -> None:
    assert 192 * SIZES.locked_bytes < 1 << 30
    small = fit(SIZES, 192, 192 * (516 << 10) + (64 << 10))
    assert 192 * small.locked_bytes <= 192 * (516 << 10) + (64 << 10)


@pytest.mark.parametrize(
    ("running_ns", "enabled_ns"), [(10**9, 10**9), (10**9 - 3648, 10**9 - 3648), (5 * 10**8, 10**9)]
)
def test_what_two_contexts_of_a_task_differ_by_is_no_share_of_the_time(
    opened: Counter[str], monkeypatch: pytest.MonkeyPatch, running_ns: int, enabled_ns: int
) -> None:
    """Before Linux 6.2 the PMU's events are put on and taken off just before the clock; 3,648 ns as seen with 5.10."""
    read_counts = itertools.chain([pe.Count(0, 10**9, 10**9)], itertools.repeat(pe.Count(7, 0, running_ns)))
    events = AttachedEvents(
        WantedEvents(parse_events("page-faults"), COMMAND, [Rate(period=1)], None, sizes=SIZES), [0]
    )
    monkeypatch.setattr(pe, "read_count", lambda _: next(read_counts))
    assert list(events.counts()) == [pe.Count(7, enabled_ns, running_ns)]
