"""The phases of a recording: stretches of its time within which the profile stays alike, and what changes between them.

Change points are searched by circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler 2004): of all parts
of a stretch of time the one is tried first that differs most from the rest of it. How much is a chi-square of the
shares of functions, their own and with what they call, added up; and likewise of how much there was at all. Whether
that is more than chance is told by permutation: the intervals in random order are the same but for their time, so what
they reach too often is nothing. That takes no model of how samples scatter from interval to interval.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, group_rows
from tdprof.model.profile import Profile
from tdprof.profile.intervals import Intervals, even_intervals
from tdprof.profile.rows import code_rows
from tdprof.values import dataclass

# The chance that a recording whose intervals are alike is cut at all: half of it for each of the two tests.
FALSE_POSITIVE_RATE = 0.01
_PERMUTATIONS = 399
_EXCEEDING = int(FALSE_POSITIVE_RATE / 2 * (_PERMUTATIONS + 1)) - 1  # that may reach a difference, for it to stand
# Of two neighbours that were found as parts of something larger, one permutation in twenty may.
_EXCEEDING_BETWEEN = (_PERMUTATIONS + 1) // 20 - 1
_AT_A_TIME = 40
# What differs less is no phase, however sure it is: of a share, and of how much there is at all.
LEAST_CHANGE = 0.05
LEAST_ACTIVITY_CHANGE = 0.2
LEAST_BINS = 2  # of a phase
# Parts are tested between so many stretches: longer ones depend less on each other, which permutation cannot tell.
_TESTED_BINS = 120
_MOST_BINS = 1200
_MOST_FUNCTIONS = 24


@dataclass(frozen=True, slots=True)
class Change:
    """What of a phase is not as in the one before.

    Attributes:
        function: function id, -1 for samples without a call stack; None: how much there was at all.
        is_self: its own share; else with what it calls.
        before, after: shares of each phase's samples; of how much there was: of the most at any time.
    """

    function: int | None
    is_self: bool
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one event, in order of time.

    Attributes:
        stretches: when each was, and which one each row of samples is in.
        changes: of each phase, what changed since the one before, most first; of the first nothing.
    """

    stretches: Intervals
    changes: Sequence[Sequence[Change]]


@dataclass(frozen=True, slots=True)
class Observed:
    """What is compared: features of each stretch of time, and what these are parts of.

    Attributes:
        part: float64[bins, features], in samples.
        whole: float64[bins].
        least_change: of a feature's share, that a phase must have.
    """

    part: F64
    whole: F64
    least_change: float

    def slice(self, begin: int, end: int) -> "Observed":
        """Of some bins."""
        return replace(self, part=self.part[begin:end], whole=self.whole[begin:end])

    def together(self, bins: int) -> "Observed":
        """So many neighbours made one."""
        first = np.arange(0, len(self.part), bins)
        return replace(self, part=np.add.reduceat(self.part, first), whole=np.add.reduceat(self.whole, first))

    def shares(self) -> F64:
        """float64[features], over all bins."""
        return np.asarray(self.part.sum(axis=0) / (self.whole.sum() or 1.0))

    def deviations(self) -> F64:
        """float64[bins, features]: from the share over all bins, in standard deviations of one sample."""
        share = self.shares()
        deviation = np.sqrt(np.maximum(share * (1 - share), 0))
        return np.asarray((self.part - self.whole[:, None] * share) / np.where(deviation > 0, deviation, np.inf))

    def differs(self, is_inside: NDArray[np.bool_]) -> bool:
        """Whether some bins differ from the others by enough."""
        inside, outside = (replace(self, part=self.part[at], whole=self.whole[at]) for at in (is_inside, ~is_inside))
        return bool(np.abs(inside.shares() - outside.shares()).max(initial=0) >= self.least_change)


def find_phases(profile: Profile, event: int) -> Phases:
    """The phases of a profile by one event; one, if nothing changes beyond chance."""
    bins = even_intervals(profile, _MOST_BINS)
    if not len(bins.end):
        return Phases(bins, [])
    composition, activity, functions = _observe(profile, bins, event)
    cuts = find_cuts([composition, activity])
    edges = [0, *cuts, len(bins.end)]
    first, last = np.array(edges[:-1]), np.array(edges[1:]) - 1
    number = np.searchsorted(first, bins.number, side="right") - 1
    changes: list[list[Change]] = [[]]
    for before, cut, after in zip(edges, edges[1:], edges[2:], strict=False):
        changes.append(_changes(composition, activity, functions, (before, cut, after)))
    return Phases(Intervals(bins.begin[first], bins.end[last], number), changes)


def find_cuts(observed: Sequence[Observed], seed: int = 0) -> list[int]:
    """The bins that phases after the first begin with, ascending.

    Args:
        observed: what is tested, of the same bins, each at its part of the false-positive rate.
        seed: of the permutations.
    """
    random = np.random.default_rng(seed)
    step = -(-len(observed[0].part) // _TESTED_BINS) or 1
    coarse = [each.together(step) for each in observed]
    bins = len(coarse[0].part)
    todo, cuts = [(0, bins)], set[int]()
    while todo:
        begin, end = todo.pop()
        for each in coarse:
            if found := _part_that_differs(each.slice(begin, end), random):
                edges = [begin, begin + found[0], begin + found[1], end]
                todo += [(first, last) for first, last in pairwise(edges) if first < last]
                cuts.update({*edges} - {begin, end})
                break
    kept = _that_stand(coarse, sorted(cuts), random)
    return _that_still_differ(observed, _placed(observed, [cut * step for cut in kept], step))


def _part_that_differs(observed: Observed, random: np.random.Generator) -> tuple[int, int] | None:
    """The part of a stretch that differs most from its rest, if by enough and beyond chance."""
    bins = len(observed.part)
    if bins < 2 * LEAST_BINS:
        return None
    deviations = observed.deviations()
    differences = _differences(deviations, observed.whole)
    first, last = map(int, np.unravel_index(differences.argmax(), differences.shape))
    at = np.arange(bins)
    if not differences[first, last] or not observed.differs((at >= first) & (at < last)):
        return None
    found = differences[first, last] / _scatter(deviations, observed.whole)
    exceeding = 0
    for done in range(0, _PERMUTATIONS, _AT_A_TIME):
        order = np.argsort(random.random((min(_AT_A_TIME, _PERMUTATIONS - done), bins)), axis=1)
        shuffled = deviations[order], observed.whole[order]
        others = _differences(*shuffled).max(axis=(1, 2)) / _scatter(*shuffled)
        exceeding += int(np.count_nonzero(others >= found * (1 - 1e-9)))
        if exceeding > _EXCEEDING:
            return None
    return first, last


def _differences(deviations: F64, whole: F64) -> F64:
    """float64[…, bins + 1, bins + 1]: chi-square between the bins from one on to before another and all others; 0 where
    a part that this leaves is shorter than a phase.

    Args:
        deviations: float64[…, bins, features], which add up to 0.
        whole: float64[…, bins].
    """
    bins = whole.shape[-1]
    until, weight = _sums_until(deviations, -2), _sums_until(whole[..., None], -2)[..., 0]
    product = until @ np.swapaxes(until, -1, -2)
    square = np.diagonal(product, axis1=-2, axis2=-1)
    distance = square[..., :, None] + square[..., None, :] - 2 * product
    inside = weight[..., None, :] - weight[..., :, None]
    outside = weight[..., -1:, None] - inside
    first, last = np.arange(bins + 1)[:, None], np.arange(bins + 1)
    is_phase = (last - first >= LEAST_BINS) & (last - first <= bins - LEAST_BINS)
    for length in (first, bins - last):
        is_phase = is_phase & ((length == 0) | (length >= LEAST_BINS))
    is_known = is_phase & (inside > 0) & (outside > 0)
    scale = np.divide(inside + outside, inside * outside, out=np.zeros_like(inside), where=is_known)
    return np.asarray(np.maximum(distance, 0) * scale)


def _scatter(deviations: F64, whole: F64) -> F64:
    """float64[…]: how much neighbours differ, by which a difference between parts is measured: where phases come again
    and again, all bins in random order differ as much as the phases do, and only neighbours tell that these are steady.
    """
    roots = np.sqrt(np.where(whole > 0, whole, np.inf))[..., None]
    return np.asarray(np.mean(np.diff(deviations / roots, axis=-2) ** 2, axis=(-2, -1)))


def _sums_until(values: F64, axis: int) -> F64:
    """Cumulative sums, with 0 before the first."""
    sums = np.cumsum(values, axis=axis)
    return np.concatenate([np.zeros_like(np.take(sums, [0], axis)), sums], axis=axis)


def _that_stand(observed: Sequence[Observed], cuts: Sequence[int], random: np.random.Generator) -> list[int]:
    """Cuts whose both sides differ from each other as well, not only from the rest of some larger stretch."""
    kept: list[int] = []
    for cut, after in pairwise([*cuts, len(observed[0].part)]):
        begin = kept[-1] if kept else 0
        if any(_differ(each.slice(begin, after), cut - begin, random) for each in observed):
            kept.append(cut)
    return kept


def _differ(observed: Observed, cut: int, random: np.random.Generator) -> bool:
    bins = len(observed.part)
    if not observed.differs(np.arange(bins) < cut):
        return False
    deviations = observed.deviations()
    order = np.argsort(random.random((_PERMUTATIONS, bins)), axis=1)
    others = _differences_at(deviations[order], observed.whole[order])[:, cut - 1]
    difference = _differences_at(deviations, observed.whole)[cut - 1]
    return int(np.count_nonzero(others >= difference * (1 - 1e-9))) <= _EXCEEDING_BETWEEN


def _differences_at(deviations: F64, whole: F64) -> F64:
    """float64[…, bins]: chi-square between the bins up to each and those after it."""
    until, weight = np.cumsum(deviations, axis=-2), np.cumsum(whole, axis=-1)
    rest = weight[..., -1:] - weight
    scale = np.divide(weight + rest, weight * rest, out=np.zeros_like(weight), where=(weight > 0) & (rest > 0))
    return np.asarray((until**2).sum(axis=-1) * scale)


def _placed(observed: Sequence[Observed], cuts: Sequence[int], step: int) -> list[int]:
    """Cuts between stretches that several bins make, each moved to where its neighbours differ most."""
    if step == 1:
        return [*cuts]
    placed = [0]
    for cut, after in pairwise([*cuts, len(observed[0].part)]):
        begin = placed[-1]
        sides = [each.slice(begin, after) for each in observed]
        differences = sum(_differences_at(each.deviations(), each.whole) for each in sides)
        at = np.arange(begin + 1, after + 1)
        near = (np.abs(at - cut) <= step) & (at < after)
        placed.append(int(at[near][np.asarray(differences)[near].argmax()]))
    return placed[1:]


def _that_still_differ(observed: Sequence[Observed], cuts: Sequence[int]) -> list[int]:
    """Cuts whose sides differ by enough where they were placed: a stretch with a change within it may have had a cut on
    either side, of which but one is left."""
    kept: list[int] = []
    for cut, after in pairwise([*cuts, len(observed[0].part)]):
        begin = kept[-1] if kept else 0
        if any(each.slice(begin, after).differs(np.arange(after - begin) < cut - begin) for each in observed):
            kept.append(cut)
    return kept


def _observe(profile: Profile, bins: Intervals, event: int) -> tuple[Observed, Observed, list[tuple[int, bool]]]:
    """Shares of functions in each bin, how much there was at all, and which function each of the former is."""
    samples, n = profile.samples, len(bins.end)
    chosen = samples.event == event
    order, start = group_rows(bins.number[chosen], samples.stack[chosen])
    weight = np.add.reduceat(samples.weight[chosen].astype(np.float64)[order], start) if len(start) else np.zeros(0)
    bin_of, stack = bins.number[chosen][order][start], samples.stack[chosen][order][start]
    mean = weight.sum() / max(int(samples.count[chosen].sum()), 1)
    weight /= mean or 1.0
    rows = code_rows(profile)
    of_stack = np.bincount(stack, weight, len(rows.leaf))
    features: list[tuple[int, bool]] = []
    columns = []
    for is_self, total in (
        (True, np.bincount(rows.leaf, of_stack, len(rows))),
        (False, np.bincount(rows.row, of_stack[rows.stack], len(rows))),
    ):
        for row in np.argsort(-total, kind="stable")[:_MOST_FUNCTIONS].tolist():
            has_it = rows.leaf == row if is_self else np.zeros(len(rows.leaf), bool)
            if not is_self:
                has_it[rows.stack[rows.row == row]] = True
            features.append((int(rows.function[row]), is_self))
            columns.append(np.bincount(bin_of, weight * has_it[stack], n))
    whole: F64 = np.bincount(bin_of, weight, n).astype(np.float64)
    part: F64 = np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros((n, 0))
    return Observed(part, whole, LEAST_CHANGE), _activity(whole, bins), features


def _activity(whole: F64, bins: Intervals) -> Observed:
    """How much there was, of what there would have been at the highest rate of any stretch of usual length."""
    length = np.maximum(bins.end - bins.begin, 1)
    usual = length >= np.median(length) / 2
    most = (whole[usual] / length[usual]).max(initial=0) * length
    return Observed(whole[:, None], np.maximum(most, whole), LEAST_ACTIVITY_CHANGE)


def _changes(
    composition: Observed, activity: Observed, functions: Sequence[tuple[int, bool]], edges: tuple[int, int, int]
) -> list[Change]:
    before, cut, after = edges
    found = []
    for observed, which in ((composition, [*functions]), (activity, [(None, False)])):
        old, new = observed.slice(before, cut).shares(), observed.slice(cut, after).shares()
        found += [
            Change(function, is_self, float(old[row]), float(new[row]))
            for row, (function, is_self) in enumerate(which)
            if abs(new[row] - old[row]) >= observed.least_change
        ]
    return sorted(found, key=lambda each: (-abs(each.after - each.before), not each.is_self))
