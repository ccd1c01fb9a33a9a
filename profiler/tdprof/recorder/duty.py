"""What records for a part of the time only: when it is on, and for how long it was."""

from collections.abc import Sequence

from tdprof.errors import TdprofError
from tdprof.model.duty import NAMES, SPE, TOPDOWN, DutyInfo
from tdprof.recorder.host import describe_host, read_text
from tdprof.text import printable
from tdprof.values import dataclass

LEAST_ON_NS = 100_000_000  # what is drained ten times a second
MOST_EVERY_NS = 86_400_000_000_000
_EXAMPLE = "--duty topdown=10s/10m,spe=1s/10m"


@dataclass(frozen=True, slots=True)
class DutyCycle:
    """On for ``on_ns`` in every ``every_ns``."""

    on_ns: int
    every_ns: int


@dataclass(frozen=True, slots=True)
class Duties:
    """What of a recording is on for a part of the time; None: all the time, or not at all.

    Attributes:
        topdown_hz: samples a second of each of Topdown's events while they are counted.
        topdown_rows: the recording's events that are Topdown's.
    """

    topdown: DutyCycle | None = None
    spe: DutyCycle | None = None
    topdown_hz: int = 0
    topdown_rows: range = range(0)


def parse_duty(text: str) -> Duties:
    """Read ``topdown=10s/10m,spe=1s/10m``, or one of the two.

    Raises:
        TdprofError: it is neither, or a time that cannot be.
    """
    from tdprof.model.time_range import parse_span_ns  # slow to load

    found: dict[str, DutyCycle] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        on, _, every = value.partition("/")
        on_ns, every_ns = parse_span_ns(on), parse_span_ns(every)
        if name not in NAMES or on_ns is None or every_ns is None:
            raise _refusal(f"--duty does not take '{printable(part)}'")
        if name in found:
            raise _refusal(f"--duty names {name} twice")
        if on_ns < LEAST_ON_NS or every_ns > MOST_EVERY_NS:
            raise _refusal(f"--duty {printable(part)}: on for 0.1 s or more, of a day at most")
        if on_ns >= every_ns:
            raise _refusal(f"--duty {printable(part)}: that is all the time")
        found[name] = DutyCycle(on_ns, every_ns)
    return Duties(found.get(TOPDOWN), found.get(SPE))


def _refusal(message: str) -> TdprofError:
    return TdprofError(message, hint=f"{_EXAMPLE}: so long in so much time", status=2)


def machine_phase(what: str, every_ns: int) -> int:
    """When in each ``every_ns`` of the wall clock this machine's turn begins: another time on each, and always the
    same, so that at any moment some hosts of a fleet are being measured and none is measured by chance alone."""
    import hashlib  # only now: it maps all of libcrypto

    machine = read_text("/etc/machine-id") or describe_host().hostname
    number = hashlib.blake2b(f"{machine} {what}".encode(), digest_size=8).digest()
    return int.from_bytes(number) % every_ns


class DutyTimer:
    """When one thing is on, and when it was in the capture that is being written. Times are CLOCK_MONOTONIC's.

    Args:
        what: as `DutyInfo` has it.
        cycle: how often.
        begins_ns: when some turn of it begins.
    """

    def __init__(self, what: str, cycle: DutyCycle, begins_ns: int) -> None:
        self.what = what
        self.is_on = False
        self._cycle = cycle
        self._begins_ns = begins_ns
        self._since_ns: int | None = None
        self._windows: list[list[int]] = []

    def is_due(self, now_ns: int) -> bool:
        """Whether it is to be switched, on or off."""
        return ((now_ns - self._begins_ns) % self._cycle.every_ns < self._cycle.on_ns) != self.is_on

    def wait_ns(self, now_ns: int) -> int:
        """Until it is to be switched next; at least 1."""
        at = (now_ns - self._begins_ns) % self._cycle.every_ns
        return 1 if self.is_due(now_ns) else (self._cycle.on_ns if self.is_on else self._cycle.every_ns) - at

    def switch_on(self, now_ns: int, *, is_recording: bool = True) -> None:
        """Its turn began, in which it records, or was refused."""
        self.is_on = True
        self._since_ns = now_ns if is_recording else None

    def switch_off(self, now_ns: int) -> None:
        """Its turn is over."""
        self.is_on = False
        self._end_window(now_ns)
        self._since_ns = None

    def begin_capture(self, now_ns: int) -> None:
        """What was on before is another capture's; what is on goes on in this one."""
        self._windows = []
        if self._since_ns is not None:
            self._since_ns = now_ns

    def info(self, now_ns: int) -> DutyInfo:
        """What the capture says of it up to now."""
        under_way = [] if self._since_ns is None or now_ns <= self._since_ns else [[self._since_ns, now_ns]]
        return DutyInfo(self.what, self._cycle.on_ns, self._cycle.every_ns, [*self._windows, *under_way])

    def _end_window(self, now_ns: int) -> None:
        if self._since_ns is not None and now_ns > self._since_ns:
            self._windows.append([self._since_ns, now_ns])


def start_timers(duties: Duties, monotonic_ns: int, realtime_ns: int) -> Sequence[DutyTimer]:
    """A timer for each duty, by both clocks as they are now."""
    timers = []
    for what, cycle in ((TOPDOWN, duties.topdown), (SPE, duties.spe)):
        if cycle:
            into_turn = (realtime_ns - machine_phase(what, cycle.every_ns)) % cycle.every_ns
            timers.append(DutyTimer(what, cycle, monotonic_ns - into_turn))
    return timers
