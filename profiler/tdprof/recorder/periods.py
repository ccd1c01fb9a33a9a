"""How many events stand between two samples of each event of a Topdown recording.

Every event gets a fixed period that is corrected a few times, further and further apart, by what it has counted.

The kernel's frequency mode would follow each thread by itself, but it shifts counts between functions. It shortens the
period in code where an event is rare and stretches it where the event is frequent; a sample stands for the period that
ends with it, so whichever code runs after a change of pace is charged with the pace before. Where the pace drops at
once it throws away what was counted since the last sample. With a period that stays, code is sampled in proportion to
its events, whatever the pace.

Corrections are few because each discards the period under way, and because threads that run already keep the period
that they inherited: PERF_EVENT_IOC_PERIOD does not reach them, only those that start later. So the first guess has to
do, and no period goes far below it: a thread may be a thousand times as fast as all that was seen before it.
"""

import re
from collections.abc import Sequence

from tdprof.recorder.perf_event import Count

# A Neoverse's clock; one event a cycle is an upper guess for most of what its PMU counts.
_COMMON_PER_SECOND = 3_000_000_000
# What caches, TLBs and branch predictors miss: one in a hundred cycles is a lot, one in ten thousand not rare.
_RARE = re.compile(r"REFILL|MISS|MIS_PRED|WALK")
_RARE_SHARE = 0.01
_LEAST_SHARE = 0.1  # of the first guess
_FIRST_CHECK_NS = 5_000_000
_CHECK_GROWTH = 2
_TOLERANCE = 1.5


class PeriodControl:
    """The periods of a recording's events.

    Args:
        names: of each event, as the catalog has them; None of one that is none of Topdown's.
        frequency_hz: samples a second that each should give while it is counted on a CPU.
    """

    def __init__(self, names: Sequence[str | None], frequency_hz: int) -> None:
        self._hz = frequency_hz
        self._taken: set[int] = set()
        self.periods = [0 if name is None else self._unlike_others(self._guess(name)) for name in names]
        """Of each event; 0: it has a rate of its own."""
        self._least = [round(period * _LEAST_SHARE) for period in self.periods]
        self._wait_ns = _FIRST_CHECK_NS

    def _guess(self, name: str) -> float:
        return _COMMON_PER_SECOND * (_RARE_SHARE if _RARE.search(name) else 1) / self._hz

    def _unlike_others(self, about: float) -> int:
        """A prime that no other event has: neither loops nor events keep step with it."""
        period = next_prime(round(about))
        while period in self._taken:
            period = next_prime(period + 1)
        self._taken.add(period)
        return period

    def next_check_ns(self) -> int:
        """How long after the start, or after this was last asked, to correct the periods."""
        wait_ns = self._wait_ns
        self._wait_ns *= _CHECK_GROWTH
        return wait_ns

    def correct(self, counts: Sequence[Count | None]) -> dict[int, int]:
        """New periods, by event, for those whose pace is far from the first guess or from what it was.

        Args:
            counts: of each event since the start; None of one that is not open.
        """
        changed = {}
        for row, count in enumerate(counts):
            if count is None or not count.running_ns or not self.periods[row]:
                continue
            wanted = max(count.value * 1e9 / count.running_ns / self._hz, self._least[row], 1)
            if not 1 / _TOLERANCE < wanted / self.periods[row] < _TOLERANCE:
                changed[row] = self.periods[row] = self._unlike_others(wanted)
        return changed


def next_prime(number: int) -> int:
    """The smallest prime that is not below a number."""
    candidate = max(2, number) | 1 if number > 2 else 2
    while any(candidate % divisor == 0 for divisor in range(3, int(candidate**0.5) + 1, 2)):
        candidate += 2
    return candidate
