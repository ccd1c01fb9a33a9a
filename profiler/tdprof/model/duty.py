"""What a recording had on for a part of its time only. Loads no NumPy, for a recorder's sake."""

from collections.abc import Sequence
from dataclasses import field

from tdprof.values import dataclass

TOPDOWN, SPE = "topdown", "spe"
NAMES = {TOPDOWN: "Topdown", SPE: "SPE"}


@dataclass(frozen=True, slots=True)
class DutyInfo:
    """Of one thing that takes turns with nothing.

    Attributes:
        what: ``TOPDOWN`` or ``SPE``.
        on_ns, every_ns: as asked for: so long in so much time.
        windows: when it was on, in order: [from, to] in CLOCK_MONOTONIC; the last may be under way.
    """

    what: str
    on_ns: int
    every_ns: int
    windows: list[list[int]] = field(default_factory=list)

    @property
    def recorded_ns(self) -> int:
        """How long it was on in this recording."""
        return sum(max(window[1] - window[0], 0) for window in self.windows if len(window) == 2)


def recorded_ns_of(what: str, duty: Sequence[DutyInfo], duration_ns: int) -> int:
    """How long something was on in a recording: all the time, unless its duty says otherwise."""
    return next((min(each.recorded_ns, duration_ns) for each in duty if each.what == what), duration_ns)


def duty_notes(duty: Sequence[DutyInfo], duration_ns: int) -> list[str]:
    """What the reader of a recording should know of each, a sentence each."""
    notes = []
    for each in duty:
        on_ns = recorded_ns_of(each.what, duty, duration_ns)
        share = on_ns / duration_ns if duration_ns else 0.0
        said = "metrics are estimates over that time alone" if each.what == TOPDOWN else "operations are of that time"
        notes.append(
            f"{NAMES.get(each.what, each.what)} was on for {on_ns / 1e9:.1f} s of {duration_ns / 1e9:.1f} s "
            f"({share:.2%}): {said}, and counts are not scaled up to the rest"
        )
    return notes
