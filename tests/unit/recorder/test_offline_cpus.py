"""A CPU that goes offline between its listing and its opening is not blamed on the PMU, and costs no other counts."""

import errno
import os
from types import SimpleNamespace

import pytest

from tdprof.errors import TdprofError
from tdprof.recorder import attach, refusals, spe
from tdprof.recorder import perf_event as pe
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.counter_set import CounterSet, CountingTarget
from tdprof.recorder.events import parse_events
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.spe_options import SpeOptions, SpePmu
from tdprof.recorder.targets import Rate, SamplingTarget
from tdprof.recorder.wanted_events import WantedEvents

CPUS, GONE = [0, 1, 2], 1
SIZES = RingSizes.wanted(has_spe=True)


class Machine:
    """Has listed three CPUs, of which one is not there any more."""

    def __init__(self) -> None:
        self.online = {0, 2}

    def open(self, _attr: pe.PerfEventAttr, _task: int, cpu: int, _leader: int = -1, *, is_cgroup: bool = False) -> int:
        assert not is_cgroup
        if cpu >= 0 and cpu not in self.online:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(pe, "perf_event_open", machine.open)
    monkeypatch.setattr(refusals, "online_cpus", lambda: sorted(machine.online))
    for name in ("set_output", "enable", "disable"):
        monkeypatch.setattr(pe, name, lambda *_: None)
    monkeypatch.setattr(pe, "read_count", lambda _fd: pe.Count(7, 5, 5))
    for module, name in ((attach, "PerfRing"), (spe, "AuxRing")):
        monkeypatch.setattr(module, name, lambda fd, *_: SimpleNamespace(fd=fd, close=lambda: None))
    return machine


def attached(target: SamplingTarget) -> AttachedEvents:
    return AttachedEvents(WantedEvents(parse_events("page-faults"), target, [Rate(period=1)], None, sizes=SIZES), CPUS)


def test_a_recording_of_cpus_goes_on_and_takes_the_cpu_when_it_is_back(machine: Machine) -> None:
    events = attached(SamplingTarget([-1]))
    assert events.recorded_cpus() == [0, 2]
    with pytest.raises(TdprofError, match="CPU 1 is offline"):
        events.open_again(GONE)
    assert events.recorded_cpus() == [0, 2]
    machine.online.add(GONE)
    events.open_again(GONE)
    assert sorted(events.recorded_cpus()) == CPUS
    # A CPU that had been recorded, and is away when it is to be opened, keeps what it had.
    machine.online.discard(0)
    with pytest.raises(TdprofError):
        events.open_again(0)
    assert sorted(events.recorded_cpus()) == CPUS
    events.close()


def test_of_groups_that_follow_tasks_the_side_band_alone_is_opened_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pe, "set_bpf", lambda *_: None)
    target = SamplingTarget([1, 2], [1])
    rates = [Rate(period=1)] * 2
    wanted = WantedEvents(parse_events("page-faults,context-switches"), target, rates, [1, 1], [[0, 1]], sizes=SIZES)
    events = AttachedEvents(wanted, CPUS)
    assert events.is_told_per_cpu
    assert (events.recorded_cpus(), len(events.side_band)) == ([0, 2], 2)
    of_tasks = [list(fds) for fds in events.sampling]
    assert [len(fds) for fds in of_tasks] == [2, 2]
    machine.online.add(GONE)
    events.open_again(GONE)
    assert (sorted(events.recorded_cpus()), len(events.side_band)) == (CPUS, 3)
    assert events.sampling == of_tasks
    events.close()


def test_where_nobody_would_notice_that_it_is_back_it_is_said(machine: Machine) -> None:
    with pytest.raises(TdprofError, match="CPU 1 went offline while recording began"):
        attached(SamplingTarget([os.getpid()], [os.getpid()]))


@pytest.mark.usefixtures("machine")
def test_counts_of_other_cpus_stay() -> None:
    with CounterSet([parse_events("page-faults,context-switches")], CountingTarget(cpus=tuple(CPUS))) as counters:
        assert counters.refused == {}
        assert {name: count.value for name, count in counters.read()[0].items()} == {
            "page-faults": 14,
            "context-switches": 14,
        }
        assert counters.stopped_cpus()[GONE] == 0


def test_spe_goes_on_without_it_and_begins_when_it_is_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spe, "spe_event", lambda *_: parse_events("page-faults")[0])
    monkeypatch.setattr(spe, "restrict_to_permitted", lambda event: event)
    pmu = SpePmu("arm_spe_0", tuple(CPUS), frozenset(), {})
    events = SpeEvents([pmu], SpeOptions(), SamplingTarget([-1]), CPUS, SIZES)
    assert sorted(events.rings) == [0, 2]
    assert not events.open_again(GONE)
    machine.online.add(GONE)
    assert events.open_again(GONE)
    assert sorted(events.rings) == CPUS
    machine.online.discard(GONE)
    with pytest.raises(TdprofError, match="CPU 1 went offline while recording began"):
        SpeEvents([pmu], SpeOptions(), SamplingTarget([1], [1]), CPUS, SIZES)
