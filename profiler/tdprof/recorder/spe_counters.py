"""Counts SPE's own sampling beside it, by the cores' PMU."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Self

from tdprof.recorder.counter_set import CounterSet, CountingTarget
from tdprof.recorder.events import core_pmus, parse_event
from tdprof.recorder.host import online_cpus
from tdprof.recorder.perf_event import Count
from tdprof.recorder.targets import SamplingTarget

# Arm ARM, "SPE events": the population, the samples taken, those that passed the filters, those dropped because one was
# in flight.
SAMPLING_EVENTS = {"SAMPLE_POP": 0x4000, "SAMPLE_FEED": 0x4001, "SAMPLE_FILTRATE": 0x4002, "SAMPLE_COLLISION": 0x4003}


class SamplingCounters:
    """Those events, as one group; nothing where there is no PMU to count them. A context manager.

    Args:
        target: as of the SPE events themselves.
        modifiers: of the SPE events, so that both count the same code.
        is_possible: there are counters for it.

    Raises:
        TdprofError: the kernel refuses to count at all.
    """

    def __init__(self, target: SamplingTarget, modifiers: str, *, is_possible: bool) -> None:
        pmus = [pmu for pmu in core_pmus() if pmu.startswith("armv")] if is_possible else []
        self._events = [
            replace(parse_event(f"{pmu}/config={code:#x}/{modifiers}"), name=name)
            for pmu in pmus[:1]
            for name, code in SAMPLING_EVENTS.items()
        ]
        self._sets: list[CounterSet] = []
        if target.is_system_wide:
            self._open(CountingTarget(cpus=tuple(online_cpus())))
        else:
            self._open(CountingTarget(tids=tuple(target.tasks), starts_on_exec=target.starts_at_exec))

    def _open(self, target: CountingTarget) -> Iterable[CounterSet]:
        """What was opened is returned, and kept."""
        opened = [CounterSet([self._events], target)] if self._events else []
        self._sets += opened
        return opened

    def count_cpu(self, cpu: int) -> None:
        """Count a CPU that came (back) online, too: what was opened for it before counts nothing more.

        Raises:
            TdprofError: it is gone again.
        """
        for counters in self._open(CountingTarget(cpus=(cpu,))):
            counters.enable()

    def enable(self) -> None:
        """Start; not for events that start at exec."""
        for counters in self._sets:
            counters.enable()

    def disable(self) -> None:
        """Stop."""
        for counters in self._sets:
            counters.disable()

    def read(self) -> dict[str, list[int]]:
        """[count, enabled ns, running ns] of each event that this PMU has."""
        totals: dict[str, Count] = {}
        for counters in self._sets:
            for group in counters.read():
                for name, count in group.items():
                    totals[name] = totals.get(name, Count(0, 0, 0)) + count
        return {name: [count.value, count.enabled_ns, count.running_ns] for name, count in totals.items()}

    def close(self) -> None:
        """Close everything."""
        for counters in self._sets:
            counters.close()
        self._sets.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
