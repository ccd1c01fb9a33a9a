"""CPUs that go offline and come back while the whole system is recorded.

The kernel takes a CPU's events off it when it goes offline and never puts them back (perf_event_exit_cpu): they stay
open, count nothing more and say so only by their enabled time, which stands still. A suspended machine does that to all
CPUs but one.
"""

import time
from collections.abc import Callable, Collection
from typing import Protocol

from tdprof.errors import TdprofError
from tdprof.recorder.host import online_cpus

_TICK_S = 0.011  # longer than one at CONFIG_HZ=100


class EventsOfCpus(Protocol):
    """What of a recording's events is watched."""

    def recorded_cpus(self) -> list[int]:
        """CPUs that events were opened on."""

    def enabled_ns(self, cpu: int) -> int:
        """How long the newest events of a CPU have been counting."""

    def open_again(self, cpu: int) -> None:
        """Open and enable events on a CPU beside those that it had.

        Raises:
            TdprofError, OSError: the CPU is gone again.
        """


class CpuFollower:
    """Opens events on CPUs that come (back) online, and knows what to say of it.

    Args:
        events: enabled already.
        now_ns: CLOCK_MONOTONIC, when they were.
        online: the CPUs that are up.
        open_spe: has SPE sample such a CPU again, too, and says whether it does; None: SPE does not record.
    """

    def __init__(
        self,
        events: EventsOfCpus,
        now_ns: int,
        online: Callable[[], Collection[int]] = online_cpus,
        *,
        open_spe: Callable[[int], bool] | None = None,
    ) -> None:
        self._events = events
        self._online = online
        self._began_ns = now_ns
        self._opened_ns = dict.fromkeys(events.recorded_cpus(), now_ns)
        self._stopped: dict[int, int] = {}  # CPU: when its events last counted
        self._notes: list[str] = []
        self._open_spe = open_spe

    def look(self) -> None:
        """Find out whose events have stopped."""
        for cpu, opened_ns in self._opened_ns.items():
            if cpu not in self._stopped and self._has_stopped(cpu):
                self._stopped[cpu] = opened_ns + self._events.enabled_ns(cpu)

    def follow(self, now_ns: int) -> list[int]:
        """Look, and open events where they are missing; returns those CPUs."""
        self.look()
        online = set(self._online())
        found = []
        for cpu in sorted(online & self._stopped.keys() | online - self._opened_ns.keys()):
            try:
                self._events.open_again(cpu)
            except (TdprofError, OSError):
                continue  # half up, or down again: the next look will tell
            found.append(cpu)
            self._opened_ns[cpu] = now_ns
            stopped_ns = self._stopped.pop(cpu, None)
            since = self._seconds(now_ns)
            has_lost_spe = self._open_spe is not None and not self._open_spe(cpu)
            if stopped_ns is None:
                but = ", but not by SPE" if has_lost_spe else ""
                self._notes.append(f"CPU {cpu} came online while recording; it is recorded from {since} on{but}")
            else:
                but = "; SPE records nothing of it since it went" if has_lost_spe else ""
                self._notes.append(
                    f"CPU {cpu} went offline and came back: nothing of it was recorded for "
                    f"{(now_ns - stopped_ns) / 1e9:.2f} s, until {since}, nor what was mapped there then{but}"
                )
        return found

    def notes(self) -> list[str]:
        """What to say when recording ends, after a last look."""
        for cpu, stopped_ns in self._stopped.items():
            self._notes.append(f"CPU {cpu} went offline: nothing of it was recorded after {self._seconds(stopped_ns)}")
        return self._notes

    def _has_stopped(self, cpu: int) -> bool:
        # Reading brings the time of events that count up to date, so that two reads never agree.
        enabled_ns = self._events.enabled_ns(cpu)
        if self._events.enabled_ns(cpu) != enabled_ns:
            return False
        time.sleep(_TICK_S)  # the kernel's clock may be one of ticks, where nothing better is stable
        return self._events.enabled_ns(cpu) == enabled_ns

    def _seconds(self, time_ns: int) -> str:
        return f"{(time_ns - self._began_ns) / 1e9:.1f} s"
