"""Self and inclusive values of every function or source line of a profile."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.errors import TdprofError
from tdprof.model.addresses import Unknown
from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.model.choices import Order
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.idle import IDLE
from tdprof.profile.rows import CodeRows, code_rows
from tdprof.profile.statistics import wilson_95
from tdprof.values import dataclass

# Values of each row and event at most: four tables of eight bytes each.
_SPARE_CELLS, _CELLS_A_SAMPLE = 6 << 20, 8


@dataclass(frozen=True, slots=True)
class Hotspots:
    """One row for each function, or for each source line of each function; highest self value first.

    Attributes:
        function: int32[n], function id; -1 for samples without a call stack.
        line: uint32[n], the source line, or for a function the line of it with the highest self value; 0 if unknown.
        self_weight, inclusive_weight: uint64[n, events], in each event's unit. Recursion counts once.
        self_samples, inclusive_samples: uint64[n, events].
    """

    function: I32
    line: U32
    self_weight: U64
    inclusive_weight: U64
    self_samples: U64
    inclusive_samples: U64

    def __len__(self) -> int:
        return len(self.function)

    def rows(self, chosen: slice | NDArray[Any]) -> "Hotspots":
        """Only the chosen rows, in that order."""
        return Hotspots(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class UnknownSamples:
    """Samples whose leaf could not be given a function, for one reason.

    Attributes:
        reason: why; None if the samples have no call stack.
        samples: over all events.
        weight: uint64[events].
    """

    reason: Unknown | None
    samples: int
    weight: U64


def check_room(profile: Profile, rows: int, what: str, events: int, *, tables: int = 1) -> None:
    """Raises TdprofError: so many rows of so many events that so many tables of all have no room in memory."""
    if tables * rows * events > _SPARE_CELLS + _CELLS_A_SAMPLE * len(profile.samples.stack):
        raise TdprofError(
            f"{rows:,} {what} with values of {events:,} events are too many to add up",
            hint="record fewer events at once, or export the stacks: tdprof export",
        )


def find_hotspots(
    profile: Profile,
    *,
    by_line: bool = False,
    sort_event: int = 0,
    order: Order = Order.SELF,
    with_hottest_lines: bool = True,
) -> Hotspots:
    """Add up a profile by function, or by function and source line; inlined frames are functions too.

    Args:
        by_line: one row for each source line instead of one for each function.
        sort_event: index of the event whose values order the rows.
        order: by self, then inclusive values, or the other way round.
        with_hottest_lines: of functions, which source line has most; else it stays unknown, which takes less time.

    Raises:
        TdprofError: so many rows of so many events that the table of all has no room in memory.
    """
    rows = code_rows(profile, by_line=by_line)
    check_room(profile, len(rows), "source lines" if by_line else "functions", len(profile.events))
    places = _order(profile, rows, sort_event, order)
    function = rows.function[places]
    if by_line:
        line = rows.line[places]
    elif with_hottest_lines:
        line = _hottest_lines(profile, function, sort_event)
    else:
        line = np.zeros(len(function), np.uint32)
    weights = _sums(profile, rows, profile.samples.weight, places)
    return Hotspots(function, line, *weights, *_sums(profile, rows, profile.samples.count, places))


def unknown_samples(profile: Profile) -> list[UnknownSamples]:
    """Count the samples whose leaf has no known function by reason, most first; empty if there are none."""
    location_count = np.diff(profile.stacks.start.astype(np.int64))
    has_stack = location_count > 0
    reason = np.full(len(location_count), len(Unknown), np.int64)  # one past the reasons: no stack
    leaf = profile.stacks.location[profile.stacks.start[:-1][has_stack]]
    reason[has_stack] = profile.locations.reason[leaf]

    samples = np.zeros(len(Unknown) + 1, np.uint64)
    reason_of = reason[profile.samples.stack]
    np.add.at(samples, reason_of, profile.samples.count)
    weight = np.zeros((len(Unknown) + 1, len(profile.events)), np.uint64)
    np.add.at(weight, (reason_of, profile.samples.event), profile.samples.weight)
    found = [
        UnknownSamples(Unknown(i) if i < len(Unknown) else None, int(samples[i]), weight[i])
        for i in range(len(samples))
        if i != Unknown.KNOWN and samples[i]
    ]
    return sorted(found, key=lambda unknown: -unknown.samples)


def effective_samples(profile: Profile, event: int) -> float:
    """Kish's effective number of an event's samples, (sum of weights)^2 / sum of weights^2; 0 without samples."""
    chosen = profile.samples.event == event
    return effective_number(profile.samples.weight[chosen], profile.samples.count[chosen])


def effective_number(weight: U64, count: U64) -> float:
    """Kish's effective number of samples that are added up to rows of these weights and counts."""
    weights = weight.astype(np.float64)
    # Within an aggregated row the samples' weights are taken as equal.
    squares = float(np.sum(weights**2 / count))
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def share_half_width(share: NDArray[np.float64], profile: Profile, event: int) -> NDArray[np.float64]:
    """Half the width of the 95 % interval of shares of an event's samples, as fractions (sampling error alone).

    Samples of unequal weight count as ``effective_samples``.
    """
    return wilson_95(share, effective_samples(profile, event))[1]


def _sums(profile: Profile, rows: CodeRows, values: U64, order: I64) -> tuple[U64, U64]:
    """Self and inclusive sums of a column of the sample table: each uint64[rows, events], rows in this order."""
    own, inclusive = (np.empty((len(rows), len(profile.events)), np.uint64) for _ in range(2))
    by_event = np.argsort(profile.samples.event, kind="stable")
    starts = np.searchsorted(profile.samples.event[by_event], np.arange(len(profile.events) + 1))
    # One event after the other: stacks by events, spread over all their frames, would be the largest table of all.
    for event in range(len(profile.events)):
        mine = by_event[starts[event] : starts[event + 1]]
        own_sums, inclusive_sums = _event_sums(profile, rows, mine, values)
        own[:, event], inclusive[:, event] = own_sums[order], inclusive_sums[order]
    return own, inclusive


def _event_sums(profile: Profile, rows: CodeRows, samples: I64, values: U64) -> tuple[U64, U64]:
    """uint64[rows] each: self and inclusive sums of a column, of some samples."""
    per_stack, own, inclusive = (np.zeros(n, np.uint64) for n in (len(rows.leaf), len(rows), len(rows)))
    np.add.at(per_stack, profile.samples.stack[samples], values[samples])
    np.add.at(own, rows.leaf, per_stack)
    np.add.at(inclusive, rows.row, per_stack[rows.stack])
    return own, inclusive


def _order(profile: Profile, rows: CodeRows, sort_event: int, order: Order) -> I64:
    names = function_names(profile)
    # Names settle ties, so that the same samples always print the same report.
    rank_of_name = np.empty(len(names), np.int64)
    rank_of_name[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    leading = np.flatnonzero(profile.samples.event == sort_event)
    own, inclusive = _event_sums(profile, rows, leading, profile.samples.weight)
    most = np.iinfo(np.uint64).max  # descending
    values = (most - inclusive, most - own) if order is Order.SELF else (most - own, most - inclusive)
    is_idle = np.array([name == IDLE for name in names])[rows.function]
    return np.lexsort((rows.line, rank_of_name[rows.function], *values, is_idle))


def _hottest_lines(profile: Profile, functions: I32, sort_event: int) -> U32:
    """uint32[len(functions)]: the known line of each function that comes first among all lines."""
    lines = code_rows(profile, by_line=True)
    order = _order(profile, lines, sort_event, Order.SELF)
    known = order[lines.line[order] != 0]
    ids, first = np.unique(lines.function[known], return_index=True)
    hottest = np.zeros(int(max(functions.max(initial=-1), ids.max(initial=-1))) + 2, np.uint32)
    hottest[ids] = lines.line[known[first]]
    hottest[-1] = 0
    return hottest[functions]
