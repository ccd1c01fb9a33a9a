"""Self and inclusive values of every function or source line of a profile."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import Unknown
from tdprof.model.arrays import I32, I64, U32, U64
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.rows import code_rows
from tdprof.profile.statistics import wilson_95


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


def find_hotspots(profile: Profile, *, by_line: bool = False, sort_event: int = 0) -> Hotspots:
    """Add up a profile by function, or by function and source line; inlined frames are functions too.

    Args:
        by_line: one row for each source line instead of one for each function.
        sort_event: index of the event whose self, then inclusive, values order the rows.
    """
    rows = code_rows(profile, by_line=by_line)
    weight = _per_stack(profile, profile.samples.weight)
    samples = _per_stack(profile, profile.samples.count)
    n = len(rows)
    all_stacks = np.arange(len(rows.leaf))
    hotspots = Hotspots(
        function=rows.function,
        line=rows.line,
        self_weight=_sum(rows.leaf, weight, all_stacks, n),
        inclusive_weight=_sum(rows.row, weight, rows.stack, n),
        self_samples=_sum(rows.leaf, samples, all_stacks, n),
        inclusive_samples=_sum(rows.row, samples, rows.stack, n),
    )
    hotspots = hotspots.rows(_order(profile, hotspots, sort_event))
    if not by_line:
        hotspots.line[:] = _hottest_lines(hotspots, find_hotspots(profile, by_line=True, sort_event=sort_event))
    return hotspots


def unknown_samples(profile: Profile) -> list[UnknownSamples]:
    """Count the samples whose leaf has no known function by reason, most first; empty if there are none."""
    location_count = np.diff(profile.stacks.start.astype(np.int64))
    has_stack = location_count > 0
    reason = np.full(len(location_count), len(Unknown), np.int64)  # one past the reasons: no stack
    leaf = profile.stacks.location[profile.stacks.start[:-1][has_stack]]
    reason[has_stack] = profile.locations.reason[leaf]

    samples = np.zeros(len(Unknown) + 1, np.uint64)
    np.add.at(samples, reason, _per_stack(profile, profile.samples.count).sum(axis=1))
    weight = np.zeros((len(Unknown) + 1, len(profile.events)), np.uint64)
    np.add.at(weight, reason, _per_stack(profile, profile.samples.weight))
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


def _per_stack(profile: Profile, values: U64) -> U64:
    """uint64[stacks, events]: sums of a column of the sample table."""
    sums = np.zeros((len(profile.stacks.start) - 1, len(profile.events)), np.uint64)
    np.add.at(sums, (profile.samples.stack, profile.samples.event), values)
    return sums


def _sum(row: I64, per_stack: U64, stack: I64, n: int) -> U64:
    """uint64[n, events]: for each row, the sum of its stacks' values."""
    sums = np.zeros((n, per_stack.shape[1]), np.uint64)
    np.add.at(sums, row, per_stack[stack])
    return sums


def _order(profile: Profile, hotspots: Hotspots, sort_event: int) -> I64:
    names = function_names(profile)
    # Names settle ties, so that the same samples always print the same report.
    rank_of_name = np.empty(len(names), np.int64)
    rank_of_name[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    if not profile.events:
        return np.lexsort((hotspots.line, rank_of_name[hotspots.function]))
    descending = np.iinfo(np.uint64).max
    return np.lexsort(
        (
            hotspots.line,
            rank_of_name[hotspots.function],
            descending - hotspots.inclusive_weight[:, sort_event],
            descending - hotspots.self_weight[:, sort_event],
        )
    )


def _hottest_lines(functions: Hotspots, lines: Hotspots) -> U32:
    """uint32[len(functions)]: the first known line of each function in a table sorted by lines' values."""
    known = lines.rows(np.flatnonzero(lines.line))
    ids, first = np.unique(known.function, return_index=True)
    hottest = np.zeros(int(max(functions.function.max(initial=-1), ids.max(initial=-1))) + 2, np.uint32)
    hottest[ids] = known.line[first]
    hottest[-1] = 0
    return hottest[functions.function]
