"""How much SPE may write: the period that a rate in bytes a second leads to, and standing still where more comes."""

import math
import os
import re
import time
from collections.abc import Collection

from tdprof.errors import TdprofError
from tdprof.recorder.cpu_quota import cpu_quota
from tdprof.recorder.targets import SamplingTarget
from tdprof.text import plural
from tdprof.values import dataclass

DEFAULT_BYTES_A_SECOND = 64_000_000
LEAST_BYTES_A_SECOND = 100_000
# What a busy core of 3 GHz seldom gets beyond for long; standing still helps if it does.
OPERATIONS_A_SECOND = 4_000_000_000
RECORD_BYTES = 64  # a Neoverse's slot; other cores' records are shorter
LEAST_PERIOD = 4096  # unless asked for: the densest rate at which collisions are rare
MOST_PERIOD = 0xFFFFFF00  # PMSIRR_EL1.INTERVAL, in 256 operations
_BURST_S = 0.25
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def parse_rate(text: str) -> int:
    """Bytes a second from "64M", "500k", "2G" or a number; units are powers of ten.

    Raises:
        TdprofError: it is none of these, or less than a record now and then.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text)
    rate = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if rate < LEAST_BYTES_A_SECOND:
        raise TdprofError(
            f"--spe=rate is in bytes a second, from 100k on, not '{text}'", hint="--spe=rate=64M", status=2
        )
    return rate


def busy_cpus(
    target: SamplingTarget, cpus: Collection[int], load: float, allowed: Collection[int], quota: float = math.inf
) -> int:
    """How many CPUs will be at work on what is recorded, as far as that can be foretold.

    Args:
        target: what is recorded.
        cpus: CPUs that are up.
        load: the machine's, of the last minute: of a recording of everything.
        allowed: CPUs that a command may use, which may use them all.
        quota: so many CPUs' time is what control groups leave a command or processes.
    """
    if target.is_system_wide:
        return max(1, min(len(cpus), math.ceil(load)))
    most = len(set(cpus) & set(allowed)) if target.starts_at_exec else min(len(cpus), len(target.tasks))
    return max(1, math.ceil(min(most, quota)))


def period_for(bytes_a_second: int, busy: int) -> int:
    """Operations between samples at which so many busy CPUs write no more than that."""
    wanted = busy * OPERATIONS_A_SECOND * RECORD_BYTES / bytes_a_second
    return min(max(math.ceil(wanted / 256) * 256, LEAST_PERIOD), MOST_PERIOD)


def choose_period(
    bytes_a_second: int, target: SamplingTarget, cpus: Collection[int], *, is_of_cpus: bool = False
) -> tuple[int, str]:
    """The period for a recording of this machine as it is now, and what to say of it.

    ``is_of_cpus``: what others execute is sampled, too.
    """
    load, allowed = os.getloadavg()[0], os.sched_getaffinity(0)
    busy = busy_cpus(target, cpus, load, allowed, cpu_quota(target.processes) if target.processes else math.inf)
    if is_of_cpus:
        busy = max(busy, busy_cpus(SamplingTarget([-1]), cpus, load, allowed))
    period = period_for(bytes_a_second, busy)
    note = (
        f"SPE samples one in {period:,} operations, by which {plural(busy, 'busy CPU', 's')} write no more than "
        f"{bytes_a_second / 1e6:g} MB a second (--spe=rate=…, or --spe=period=… to choose yourself)"
    )
    return period, note


@dataclass(slots=True)
class Budget:
    """What may be written yet: grows with time, up to a quarter of a second's worth, and shrinks by what is written.

    SPE stands still on all CPUs at once while it is below zero, so that none is sampled less than others.

    Attributes:
        bytes_a_second: how it grows.
        left_bytes: now.
        at_ns: when that was.
        still_since_ns: since when SPE stands still; None while it samples.
        still_ns: how long it stood still before.
    """

    bytes_a_second: int
    left_bytes: float
    at_ns: int
    still_since_ns: int | None = None
    still_ns: int = 0

    @staticmethod
    def starting(bytes_a_second: int) -> "Budget":
        """One that begins now."""
        return Budget(bytes_a_second, bytes_a_second * _BURST_S, time.monotonic_ns())

    def spend(self, written: int, now_ns: int) -> bool | None:
        """Note what was written; whether SPE is to sample from now on, None if that stays as it is."""
        grown = self.left_bytes + (now_ns - self.at_ns) * 1e-9 * self.bytes_a_second
        self.left_bytes = min(grown, self.bytes_a_second * _BURST_S) - written
        self.at_ns = now_ns
        if self.still_since_ns is None and self.left_bytes < 0:
            self.still_since_ns = now_ns
            return False
        if self.still_since_ns is not None and self.left_bytes > 0:
            self.still_ns += now_ns - self.still_since_ns
            self.still_since_ns = None
            return True
        return None

    def note(self, total_ns: int, now_ns: int) -> str:
        """What to say at the end of a recording that took so long; empty if SPE never stood still."""
        still_ns = self.still_ns + (now_ns - self.still_since_ns if self.still_since_ns is not None else 0)
        if not still_ns:
            return ""
        share = 100 * still_ns / max(total_ns, still_ns)
        return (
            f"SPE stood still for {share:.0f} % of the time, on all CPUs together, since more than "
            f"{self.bytes_a_second / 1e6:g} MB a second came (--spe=rate=… admits more, a longer period makes less)"
        )
