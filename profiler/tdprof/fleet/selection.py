"""Which of a store's recordings are meant: by time, host, core kind, build and label."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from tdprof.errors import TdprofError
from tdprof.fleet.spans import Span
from tdprof.fleet.store import Stem
from tdprof.values import dataclass

_AGO = re.compile(r"(\d{1,5})([hdw])", re.ASCII)
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}
_NS = 1_000_000_000
COLUMNS = ("core", "host", "kernel", "build")
_EXAMPLES = "host=web-1, core=neoverse-v1, build=BUILD-ID, kernel=6.12.1, or a label such as version=1.2"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Recordings that began in some time and satisfy every condition.

    Attributes:
        since_ns, until_ns: since the epoch; the latter is outside.
        where: NAME and VALUE each: a column, or a label that was given when a capture was added. Of several with one
            name any may hold.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    where: Sequence[tuple[str, str]] = ()

    def may_take(self, stem: Stem) -> bool:
        """Whether the path alone does not rule a recording out."""
        is_late = self.since_ns is None or stem.date >= _date(self.since_ns)
        is_early = self.until_ns is None or stem.date <= _date(self.until_ns)
        return is_late and is_early

    def takes(self, stem: Stem, row: Mapping[str, object]) -> bool:
        """Whether a recording is meant.

        Args:
            row: any of its rows in the roll-up.
        """
        start = int(row["start_ns"])  # type: ignore[call-overload]  # the table's schema has a number there
        if (self.since_ns is not None and start < self.since_ns) or (
            self.until_ns is not None and start >= self.until_ns
        ):
            return False
        return self.holds(stem.core_name, stem.host_name, row)

    def holds(self, core: str, host: str, row: Mapping[str, object]) -> bool:
        """Whether what was recorded on a host satisfies every condition, at whatever time.

        Args:
            row: its kernel and labels, and its builds, if a condition is on these.
        """
        return all(
            any(_holds(core, host, row, name, value) for key, value in self.where if key == name)
            for name in {name for name, _ in self.where}
        )

    def takes_all_of(self, span: Span) -> bool:
        """Whether some days are meant as a whole."""
        is_late = self.since_ns is None or span.start_ns >= self.since_ns
        return is_late and (self.until_ns is None or span.end_ns <= self.until_ns)

    @property
    def has_builds(self) -> bool:
        """Whether a condition is on what only single recordings tell."""
        return any(name == "build" for name, _ in self.where)

    def and_also(self, where: Sequence[tuple[str, str]]) -> "Chosen":
        """The same with more conditions."""
        return Chosen(self.since_ns, self.until_ns, [*self.where, *where])


def _date(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns // _NS, UTC).strftime("%Y-%m-%d")


def _holds(core: str, host: str, row: Mapping[str, object], name: str, value: str) -> bool:
    if name == "core":
        return core == value
    if name == "host":
        return host == value
    if name == "kernel":
        return row["kernel"] == value
    values = row["builds" if name == "build" else "labels"]
    assert isinstance(values, list)
    return value in values if name == "build" else f"{name}={value}" in values


def parse_where(text: str) -> tuple[str, str]:
    """Read NAME=VALUE.

    Raises:
        TdprofError: it is none.
    """
    name, _, value = text.partition("=")
    if not name or not value:
        raise TdprofError(f"'{text}' is not NAME=VALUE", hint=_EXAMPLES, status=2)
    return name, value


def parse_label(text: str) -> str:
    """Read a label, NAME=VALUE.

    Raises:
        TdprofError: it is none, or its name is that of a column.
    """
    name, _ = parse_where(text)
    if name in COLUMNS or not text.isprintable() or len(text) > 200:
        raise TdprofError(f"'{text}' cannot be a label", hint="--label version=1.2", status=2)
    return text


def parse_time(text: str, now: datetime) -> int:
    """Read a time, as 36h before now, or as a date or time of ISO 8601 (UTC unless it says otherwise).

    7d and 2w are days: the beginning of that one, in UTC.

    Returns:
        Nanoseconds since the epoch.

    Raises:
        TdprofError: it is none.
    """
    if match := _AGO.fullmatch(text):
        before = now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        if match[2] != "h":
            before = before.replace(hour=0, minute=0, second=0, microsecond=0)
        return int(before.timestamp()) * _NS
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise TdprofError(f"'{text}' is no time", hint="7d, 36h, or 2026-11-22", status=2) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * _NS
