"""Ranges of a recording's time, as users write them: since its start, before its end, by the clock, or in percent."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from enum import Enum, auto

from tdprof.errors import TdprofError
from tdprof.text import printable
from tdprof.values import dataclass

NS_PER_S = 1_000_000_000
_NS_PER_DAY = 86_400 * NS_PER_S
_UNITS = {"h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
# What is longer is no moment of any recording.
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_SPAN = rf"(?:{_NUMBER}(?:h|min|ms|m|us|µs|ns|s))+|{_NUMBER}"
_CLOCK = r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2}T)?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
_MOMENT = rf"{_CLOCK}|{_NUMBER}%|-?(?:{_SPAN})"
_RANGE = re.compile(rf"({_MOMENT})?-({_MOMENT})?")
_NO_MORE = "there is no more than 100 %"
_SLICE = re.compile(rf"({_NUMBER})%(?:/([0-9]{{1,9}}))?")
_FORMS = (
    "10s-20s, 10s-, -20s, -5s- (the last 5 s), 10:00:00-10:05:00 (UTC), 0%-10% or 10%/2 (the second tenth); "
    "several with commas"
)


class _From(Enum):
    START = auto()
    END = auto()
    MIDNIGHT = auto()  # UTC, of whichever day of the recording
    EPOCH = auto()
    PERCENT = auto()


@dataclass(frozen=True, slots=True)
class _Moment:
    """Nanoseconds from where its kind says, or percent of the recording."""

    kind: _From
    value: float

    def within(self, start_realtime_ns: int, duration_ns: int, text: str, length_ns: int = 0) -> int:
        """Nanoseconds since the recording's start; not in it, perhaps.

        Args:
            length_ns: of what begins then. Of some days the one is meant that the recording is in, or nearest to.
        """
        match self.kind:
            case _From.START:
                return round(self.value)
            case _From.END:
                return duration_ns - round(self.value)
            case _From.PERCENT:
                return round(self.value / 100 * duration_ns)
        if not start_realtime_ns:
            raise TdprofError(
                f"--time {text}: the recording does not tell by the clock when it began",
                hint="--time 10s-20s counts from its start",
                status=2,
            )
        if self.kind is _From.EPOCH:
            return round(self.value) - start_realtime_ns
        if duration_ns >= _NS_PER_DAY:
            raise TdprofError(
                f"--time {text} is of several days of this recording",
                hint=f"with a date: {datetime.fromtimestamp(start_realtime_ns // NS_PER_S, UTC):%Y-%m-%d}T10:00:00",
                status=2,
            )
        midnight = start_realtime_ns // _NS_PER_DAY * _NS_PER_DAY
        at = [midnight + day * _NS_PER_DAY + round(self.value) - start_realtime_ns for day in (-1, 0, 1, 2)]
        return min(at, key=lambda each: max(-each - length_ns, each - duration_ns))


@dataclass(frozen=True, slots=True)
class TimeRange:
    """One range, as it was written; without a beginning or an end it reaches to the recording's."""

    text: str
    begin: _Moment | None
    end: _Moment | None

    def __str__(self) -> str:
        return self.text

    def within(self, start_realtime_ns: int, duration_ns: int) -> tuple[int, int]:
        """Its beginning and its end, nanoseconds since the start of a recording, cut to what was recorded.

        Args:
            start_realtime_ns: the recording's start by the clock, since the epoch; 0 where it is not known.
            duration_ns: how long it took.

        Raises:
            TdprofError: nothing of the recording is in it, or it is by a clock that the recording does not tell.
        """
        begin, end, length = 0, duration_ns, self._length()
        if self.begin is not None:
            begin = self.begin.within(start_realtime_ns, duration_ns, self.text, length)
        if length:
            end = begin + length
        elif self.end is not None:
            end = self.end.within(start_realtime_ns, duration_ns, self.text)
        if self.begin is not None and self.end is not None and end <= begin:
            raise TdprofError(f"--time {self.text} ends where it begins, or before", hint=_hint(), status=2)
        if begin >= duration_ns or end <= 0:
            where = "after the recording's end" if begin >= duration_ns else "before the recording's start"
            raise TdprofError(
                f"--time {self.text} is {where}", hint=self._all(start_realtime_ns, duration_ns), status=2
            )
        return max(begin, 0), min(end, duration_ns)

    def _length(self) -> int:
        """Nanoseconds between two times of day, of which the second may be of the next; 0 where they are not two."""
        if not self.begin or not self.end or {self.begin.kind, self.end.kind} != {_From.MIDNIGHT}:
            return 0
        return round(self.end.value - self.begin.value) % _NS_PER_DAY

    def _all(self, start_realtime_ns: int, duration_ns: int) -> str:
        """The whole recording, as this range tells time."""
        took = f"it took {duration_ns / NS_PER_S:.3f} s"
        if not any(moment and moment.kind in (_From.MIDNIGHT, _From.EPOCH) for moment in (self.begin, self.end)):
            return f"{took}: --time 0s-{duration_ns / NS_PER_S:.3f}s is all of it"
        first, last = start_realtime_ns // NS_PER_S, -(-(start_realtime_ns + duration_ns) // NS_PER_S)
        clock = "-".join(f"{datetime.fromtimestamp(each, UTC):%Y-%m-%dT%H:%M:%S}" for each in (first, last))
        return f"{took}: --time {clock} (UTC) is all of it"


def parse_span_ns(text: str) -> int | None:
    """Nanoseconds of a length of time such as 0.5s, 100ms, 1m30s or 2 (seconds); None for what is none."""
    return _span_ns(text) if re.fullmatch(_SPAN, text) else None


def parse_time_ranges(text: str) -> Iterator[TimeRange]:
    """The ranges of an option's value, separated by commas or blanks.

    Percent are those of ``perf report --time``: ``A%-B%`` of the recording, ``A%/N`` the Nth slice of A percent.

    Raises:
        TdprofError: something in it is no range.
    """
    words = re.split(r"[,\s]+", text.strip())
    for word in words:
        if (found := _SLICE.fullmatch(word)) is not None:
            yield _slice(word, float(found[1]), int(found[2] or 1))
        elif (found := _RANGE.fullmatch(word)) is not None and word != "-":
            yield TimeRange(word, *(_moment(each, word) for each in found.groups()))
        else:
            raise _refusal(word)


def _slice(word: str, percent: float, number: int) -> TimeRange:
    if percent > 100:
        raise _refusal(word, _NO_MORE)
    if not percent or not 1 <= number <= 100 / percent + 1e-9:
        raise _refusal(
            word, f"of {percent:g} % there are the slices 1 to {int(100 / percent + 1e-9)}" if percent else ""
        )
    begin, end = percent * (number - 1), percent * number
    return TimeRange(word, _Moment(_From.PERCENT, begin), _Moment(_From.PERCENT, end))


def _moment(text: str | None, word: str) -> _Moment | None:
    if not text:
        return None
    if text.endswith("%"):
        if float(text[:-1]) > 100:
            raise _refusal(word, _NO_MORE)
        return _Moment(_From.PERCENT, float(text[:-1]))
    if ":" in text:
        return _clock(text, word)
    return _Moment(_From.END if text.startswith("-") else _From.START, _span_ns(text.removeprefix("-")))


def _span_ns(text: str) -> int:
    parts = re.findall(rf"({_NUMBER})(h|min|ms|m|us|µs|ns|s|$)", text)
    return round(sum(float(number) * _UNITS[unit or "s"] for number, unit in parts) * NS_PER_S)


def _clock(text: str, word: str) -> _Moment:
    day, _, clock = text.rpartition("T")
    whole, _, fraction = clock.partition(".")
    try:
        at = time.fromisoformat(whole)
        midnight = datetime.combine(date.fromisoformat(day), time(), UTC).timestamp() if day else 0
    except ValueError as error:
        raise _refusal(word, str(error)) from error
    ns = (at.hour * 3600 + at.minute * 60 + at.second) * NS_PER_S + int(fraction.ljust(9, "0"))
    return _Moment(_From.EPOCH, int(midnight) * NS_PER_S + ns) if day else _Moment(_From.MIDNIGHT, ns)


def _refusal(word: str, reason: str = "") -> TdprofError:
    why = f": {reason}" if reason else ""
    return TdprofError(f"'{printable(word)}' is no range of time for --time{why}", hint=_hint(), status=2)


def _hint() -> str:
    return f"--time takes {_FORMS}"
