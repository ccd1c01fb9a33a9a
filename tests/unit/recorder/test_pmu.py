"""The core PMU: found in sysfs, and its free counters found by counting."""

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tdprof.catalog.choose import CatalogChoice, load_packaged
from tdprof.errors import TdprofError
from tdprof.pipeline.count import Plan, plan_counting
from tdprof.recorder import perf_event as pe
from tdprof.recorder import pmu as trial
from tdprof.recorder import refusals
from tdprof.recorder.events import parse_events
from tdprof.recorder.pmu import CPU_CYCLES_CODE, CorePmu, Counters, find_arm_pmu, probe_counters, read_core_pmu
from tdprof.recorder.readiness.machine import Machine
from tdprof.recorder.readiness.pmus import LargestGroup, count_together

INST_RETIRED_CODE = 0x0008
V1 = load_packaged("neoverse-v1")
REPORTED = frozenset(event.code for event in V1.events.values() if event.code & ~0x403F == 0)


def write_pmu(folder: Path, name: str, *, kind: int, cpus: str, events: dict[str, str]) -> None:
    (folder / name / "events").mkdir(parents=True)
    (folder / name / "type").write_text(f"{kind}\n")
    (folder / name / "cpus").write_text(f"{cpus}\n")
    for event, text in events.items():
        (folder / name / "events" / event).write_text(f"{text}\n")


def test_the_pmu_of_the_catalogs_cpus_is_found(tmp_path: Path) -> None:
    write_pmu(tmp_path, "armv8_pmuv3_0", kind=8, cpus="0-3", events={"cpu_cycles": "event=0x0011"})
    write_pmu(tmp_path, "armv8_pmuv3_1", kind=9, cpus="4-7", events={"cpu_cycles": "event=0x0011", "x": "config=1"})
    write_pmu(tmp_path, "arm_spe_0", kind=10, cpus="0-7", events={})
    assert find_arm_pmu((4, 5), tmp_path) == CorePmu("armv8_pmuv3_1", 9, frozenset({4, 5, 6, 7}), frozenset({0x11}))
    first = find_arm_pmu((), tmp_path)
    assert first is not None
    assert (first.name, first.event("CPU_CYCLES", 0x11).config) == ("armv8_pmuv3_0", 0x11)
    assert find_arm_pmu((64,), tmp_path) is None


@pytest.mark.parametrize(("text", "slots"), [("0x00000008", 8), ("0x00000000", None)])
def test_the_slots_that_the_core_itself_tells_are_read(text: str, slots: int | None, tmp_path: Path) -> None:
    write_pmu(tmp_path, "armv8_pmuv3_0", kind=8, cpus="0-3", events={})
    (tmp_path / "armv8_pmuv3_0/caps").mkdir()
    (tmp_path / "armv8_pmuv3_0/caps/slots").write_text(f"{text}\n")
    assert read_core_pmu("armv8_pmuv3_0", tmp_path).slots == slots


def test_another_makers_pmu_is_not_taken(tmp_path: Path) -> None:
    write_pmu(tmp_path, "cpu", kind=4, cpus="0-3", events={"cpu-cycles": "event=0x3c"})
    assert find_arm_pmu((), tmp_path) is None


class FakePmu:
    """Opens as the kernel does, against an empty PMU, and then runs only what fits the counters that are free."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        counters: int,
        free: int,
        cycle_counter: bool,
        instruction_counter: bool = False,
    ) -> None:
        self.counters, self.free, self.cycle_counter = counters, free, cycle_counter
        self.instruction_counter = instruction_counter
        self.group: list[int] = []
        monkeypatch.setattr(pe, "perf_event_open", self.open)
        monkeypatch.setattr(pe, "enable", lambda _: None)
        monkeypatch.setattr(pe, "read_count", self.read)

    def open(self, attr: pe.PerfEventAttr, pid: int, cpu: int, group_fd: int = -1, *, is_cgroup: bool = False) -> int:
        assert not is_cgroup
        self.group = [*(self.group if group_fd >= 0 else []), attr.config]
        if self.needed(has_cycle_counter=True) > self.counters:
            raise OSError(errno.EINVAL, "Invalid argument")
        return os.open(os.devnull, os.O_RDONLY)

    def needed(self, *, has_cycle_counter: bool) -> int:
        own = [CPU_CYCLES_CODE] * has_cycle_counter + [INST_RETIRED_CODE] * self.instruction_counter
        return len(self.group) - sum(code in self.group for code in own)

    def read(self, _: int) -> pe.Count:
        runs = self.needed(has_cycle_counter=self.cycle_counter) <= self.free
        return pe.Count(0, 1000, 1000 if runs else 0)


@pytest.mark.parametrize("counters", [1, 5, 6, 31])
@pytest.mark.parametrize("cycle_counter", [True, False])
def test_free_counters_are_found_by_counting(
    monkeypatch: pytest.MonkeyPatch, counters: int, cycle_counter: bool
) -> None:
    FakePmu(monkeypatch, counters=counters, free=counters, cycle_counter=cycle_counter)
    assert probe_counters(CorePmu("fake", 8, frozenset(), frozenset())) == Counters(counters, cycle_counter)


@pytest.mark.parametrize("cycle_counter", [True, False])
def test_the_fixed_instruction_counter_is_no_free_one(monkeypatch: pytest.MonkeyPatch, cycle_counter: bool) -> None:
    FakePmu(monkeypatch, counters=6, free=6, cycle_counter=cycle_counter, instruction_counter=True)
    assert probe_counters(CorePmu("fake", 8, frozenset(), frozenset())) == Counters(6, cycle_counter)


def test_counters_that_others_hold_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePmu(monkeypatch, counters=6, free=4, cycle_counter=True)
    assert probe_counters(CorePmu("fake", 8, frozenset(), frozenset())) == Counters(4, True)
    FakePmu(monkeypatch, counters=6, free=0, cycle_counter=True)
    assert probe_counters(CorePmu("fake", 8, frozenset(), frozenset())) is None


@pytest.mark.parametrize(("free", "cycle_counter"), [(4, True), (6, False), (0, True)])
def test_doctor_promises_what_record_and_stat_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, cycle_counter: bool
) -> None:
    pmus = tmp_path / "sys/bus/event_source/devices"
    write_pmu(pmus, "armv8_pmuv3_0", kind=8, cpus="", events={"cpu_cycles": "event=0x0011"})
    FakePmu(monkeypatch, counters=6, free=free, cycle_counter=cycle_counter)
    pmu = find_arm_pmu((), pmus)
    assert pmu is not None
    got = probe_counters(pmu)
    together = got.programmable + got.has_cycle_counter if got else 0
    assert count_together(Machine(tmp_path), "armv8_pmuv3_0") == LargestGroup(together)
    assert together == (free + cycle_counter if free else 0)


def test_counters_are_tried_on_the_pmus_own_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    FakePmu(monkeypatch, counters=6, free=6, cycle_counter=True)
    before, kept = {0, 1, 2, 3}, []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: before)
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: kept.append(cpus))
    assert probe_counters(CorePmu("little", 8, frozenset({2, 3, 9}), frozenset())) == Counters(6, True)
    assert kept == [{2, 3}, before]
    assert probe_counters(CorePmu("elsewhere", 8, frozenset({9}), frozenset())) is None


@pytest.mark.parametrize("has_native", [True, False])
def test_a_trial_does_what_no_interpreter_does(monkeypatch: pytest.MonkeyPatch, has_native: bool) -> None:
    """An event of what only compiled code executes."""
    FakePmu(monkeypatch, counters=6, free=6, cycle_counter=True)
    did: list[tuple[int, int]] = []

    class Native:
        def tdprof_vary_work(self, start: int, size: int, state: int) -> int:
            assert start
            did.append((size, state))
            return state + 1

    monkeypatch.setattr(trial, "load_native", lambda: Native() if has_native else None)
    looks = itertools.count(1)
    monkeypatch.setattr(pe, "read_count", lambda _: pe.Count(len(did) >= 3, 0, next(looks) * 10**6))
    assert trial.counts_anything(CorePmu("fake", 8, frozenset(), frozenset()).event("ASE_SPEC", 0x74)) == has_native
    assert [state for _, state in did] == [1, 2, 3][: 3 * has_native]


def test_a_trial_lasts_until_the_event_had_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others' groups have all of them at first."""
    FakePmu(monkeypatch, counters=6, free=6, cycle_counter=True)
    now = itertools.count(step=500_000)
    event = CorePmu("fake", 8, frozenset(), frozenset()).event("LD_SPEC", 0x70)

    def counts(waits_ns: int, *, is_silent: bool) -> bool:
        """Its time is 500 us a look; it counts from the first look on at which it has a counter, or never."""
        had = itertools.chain([0] * (waits_ns // 500_000), itertools.count(500_000, 500_000))

        def read(_: int) -> pe.Count:
            running_ns = next(had)
            return pe.Count(0 if is_silent else running_ns, 0, running_ns)

        monkeypatch.setattr(pe, "read_count", read)
        return trial.counts_anything(event)

    monkeypatch.setattr("time.thread_time_ns", lambda: next(now))
    assert counts(20_000_000, is_silent=False)
    assert not counts(20_000_000, is_silent=True)
    assert not counts(10**9, is_silent=False)  # it ends, whatever others do


def test_no_permission_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_options: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(pe, "perf_event_open", refuse)
    monkeypatch.setattr(refusals, "perf_event_paranoid", lambda: 3)
    with pytest.raises(TdprofError) as caught:
        probe_counters(CorePmu("fake", 8, frozenset(), frozenset()))
    assert "perf_event_paranoid" in caught.value.hint


def plan(pmu: CorePmu | None, counters: Counters | None, metrics: Sequence[str] = tuple(V1.metrics)) -> Plan:
    chosen = tuple(V1.metrics[name] for name in metrics)
    return plan_counting(CatalogChoice(V1, (0,), ()), chosen, parse_events("page-faults"), pmu, counters)


def test_a_whole_pmu_measures_every_metric_in_seven_groups() -> None:
    found = plan(CorePmu("armv8_pmuv3_0", 8, frozenset(), REPORTED), Counters(6, True))
    assert len(found.groups) == 7
    assert found.notes == tuple(V1.caveats_of(V1.metrics.values()))
    for group, events in found.groups:
        assert [(event.name, event.type) for event in events] == [(name, 8) for name in group.events]
        assert [event.config for event in events] == [V1.events[name].code for name in group.events]


def test_formulas_for_other_slots_than_the_cores_are_told_by_name() -> None:
    def notes(slots: int | None, *metrics: str) -> tuple[str, ...]:
        return plan(CorePmu("armv8_pmuv3_0", 8, frozenset(), REPORTED, slots), Counters(6, True), metrics).notes

    [note] = notes(5, "retiring", "ipc")
    assert "5 slots a cycle, and the formulas of Neoverse V1 are for 8: retiring cannot be right" in note
    assert notes(8, "retiring", "ipc") == notes(None, "retiring", "ipc") == notes(5, "ipc") == ()


def test_no_pmu_leaves_the_software_events_and_says_so() -> None:
    found = plan(None, None)
    assert found.groups == ()
    assert [event.name for event in found.plain] == ["page-faults"]
    assert found.notes == (
        "this machine has no Arm core PMU: hardware events are not counted, so their metrics have no value",
    )
    assert plan(CorePmu("p", 8, frozenset(), REPORTED), None).notes[0].startswith("no counter of p is free")


def test_a_guests_pmu_with_cycles_and_instructions_gives_what_these_give() -> None:
    found = plan(CorePmu("armv8_pmuv3_0", 8, frozenset(), frozenset({0x08, 0x11})), Counters(4, True))
    assert [(group.events, group.metrics) for group, _ in found.groups] == [(("CPU_CYCLES", "INST_RETIRED"), ("ipc",))]
    assert "35 of 36 metrics have no value" in found.notes[0]


def test_a_taken_cycle_counter_costs_topdown_its_group() -> None:
    found = plan(
        CorePmu("armv8_pmuv3_0", 8, frozenset(), REPORTED), Counters(6, False), V1.groups["Topdown_L1"].metrics
    )
    assert len(found.groups) == 2
    assert "Topdown_L1 does not fit" in found.notes[0]
