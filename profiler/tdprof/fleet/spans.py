"""Spans of days whose sums a store keeps: single days, and ever twice as many, so that any time is a few of them.

A span is known by a digest of what it adds up: where that is no longer what the store has, its sums count as nothing.
"""

import bisect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date

from tdprof.fleet.identity import digest
from tdprof.values import dataclass

_MOST_DAYS = 1024
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\+(\d{1,4})", re.ASCII)
_NS_A_DAY = 86_400 * 10**9
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Some days in a row.

    Attributes:
        first: the first one, since 1970.
        days: how many, a power of two.
    """

    first: int
    days: int

    @property
    def name(self) -> str:
        """As it stands in paths: the first day and how many."""
        return f"{date.fromordinal(self.first + _EPOCH).isoformat()}+{self.days}"

    @property
    def start_ns(self) -> int:
        """Since the epoch."""
        return self.first * _NS_A_DAY

    @property
    def end_ns(self) -> int:
        """Since the epoch; the first moment that is not of it."""
        return (self.first + self.days) * _NS_A_DAY


def parse_span(name: str) -> Span | None:
    """The span of that name; None if it is none."""
    found = _NAME.fullmatch(name)
    try:
        return Span(day_of(found[1]), int(found[2])) if found else None
    except ValueError:
        return None


def day_of(text: str) -> int:
    """The number of a day as it stands in paths, 2026-11-22 for instance.

    Raises:
        ValueError: there is no such day.
    """
    return date.fromisoformat(text).toordinal() - _EPOCH


@dataclass(frozen=True, slots=True)
class SpanSources:
    """What a span's sums are made of.

    Attributes:
        digest: of all that they add up.
        parts: the two spans that they are the sum of; none: a day, made of roll-ups.
    """

    digest: str
    parts: Sequence[Span] = ()


def plan_spans(files: Mapping[int, Iterable[str]]) -> dict[Span, SpanSources]:
    """The spans that are worth having, shortest first.

    Args:
        files: for each day, the names of all of its roll-ups. A longer span has to be over: days that are still to come
            would make it anew each time.
    """
    level: dict[int, Span] = {day: Span(day, 1) for day in files}
    planned = {
        Span(day, 1): SpanSources(digest(str(day).encode(), *(name.encode() for name in sorted(names))))
        for day, names in files.items()
    }
    last, days = max(files, default=0), 2
    while len(level) > 1 and days <= _MOST_DAYS:
        joined: dict[int, Span] = {}
        for span in sorted(level.values()):
            place = span.first // days
            if (other := joined.get(place)) and (place + 1) * days <= last + 1:
                whole = Span(place * days, days)
                parts = [other, span]
                planned[whole] = SpanSources(digest(*(planned[part].digest.encode() for part in parts)), parts)
                joined[place] = whole
            elif other is None:
                joined[place] = span
        level, days = joined, 2 * days
    return planned


def cover_days(wanted: Collection[int], there: Collection[int], spans: Collection[Span]) -> list[Span]:
    """The fewest spans for days that are wanted, each day in one of them; days that no span has are left out.

    Args:
        wanted: days that are wanted as a whole.
        there: all days of which the store has something.
        spans: whose sums can be used.
    """
    present, left, chosen = sorted(there), set(wanted), []
    for span in sorted(spans, key=lambda each: (-each.days, each.first)):
        inside = present[bisect.bisect_left(present, span.first) : bisect.bisect_left(present, span.first + span.days)]
        if inside and left.issuperset(inside):
            chosen.append(span)
            left.difference_update(inside)
    return sorted(chosen)
