"""Change told from chance: two counts of samples, how much they scatter, and many tests at once.

What is allowed for beside the chance of sampling is described, with its limits, in docs/diff.md.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64
from tdprof.profile.statistics import Z_95, satterthwaite, two_sided_p
from tdprof.values import dataclass

FAMILY_ERROR = 0.05  # chance that anything at all is called significant where nothing changed
# Fewer samples of a function in both profiles together tell nothing, and would cost the others power.
FEWEST_SAMPLES = 20
# Samples of a function in a piece below which its scatter there is not looked at.
_FEWEST_IN_PIECE = 5
# A piece counts for no more than this many times the usual: where phases of two runs meet askew is no scatter.
_LARGEST_SQUARE = 9.0
_MEDIAN_OF_SQUARE = 0.4549  # of the square of a standard normal variable
# How many pieces' worth the scatter of all functions together counts in that of one.
_POOLED_PIECES = 32
# How far a function's share is taken to hold its own scatter back; of one with nearly all samples nothing is known.
_LARGEST_SHARE_OF_SCATTER = 0.5
# Weight of "the machine was as fast" beside the functions' own evidence, each of which weighs 1 / its variance.
_PRIOR_WEIGHT = 2000.0
# With shares: the most that one function weighs, as a part of what the others weigh.
_MOST_OF_OTHERS = 0.6


@dataclass(frozen=True, slots=True)
class Noise:
    """How two runs of one program on one machine differ where nothing changed.

    Attributes:
        machine: the largest relative change of everything alike that is put down to the machine.
        function: relative standard deviation of one function's time from run to run, beside that.
        kernel: standard deviation of a kernel function's share from run to run: what else the machine does, its
            interrupts and the scheduler, lands in any program.
    """

    machine: float
    function: float
    kernel: float

    @classmethod
    def of_percent(cls, percent: float) -> "Noise":
        """What ``--noise`` states: the allowance for everything alike. Of it the others are a quarter and an eighth."""
        return cls(percent / 100, percent / 400, percent / 800)

    def variance(self, counts: "Counts") -> F64:
        """float64[n]: of the logarithm of b/a, beside chance and what is alike for all."""
        of_share = np.where(counts.is_kernel, self.kernel, 0) / np.maximum(counts.share, 1e-9)
        return np.asarray(2 * (self.function**2 + of_share**2))


@dataclass(frozen=True, slots=True)
class Counts:
    """One event's samples of n functions in both profiles.

    Attributes:
        a, b: float64[n], samples; where their weights differ, as many as are worth the same.
        is_kernel: bool[n], functions of the kernel.
        all_a, all_b: of all functions.
        unit_a, unit_b: what one sample stands for, in the unit in which the profiles are compared.
        is_share: shares are compared, not amounts.
        is_total_exact: what all samples together stand for is known without the chance of sampling.
        pieces_a, pieces_b: float64[n, pieces], the samples of as many successive parts of each run.
    """

    a: F64
    b: F64
    is_kernel: NDArray[np.bool_]
    all_a: float
    all_b: float
    unit_a: float
    unit_b: float
    is_share: bool
    is_total_exact: bool
    pieces_a: F64
    pieces_b: F64

    @property
    def share(self) -> F64:
        """float64[n]: of all samples of both profiles."""
        return np.asarray((self.a + self.b) / max(self.all_a + self.all_b, 1))

    @property
    def spread(self) -> F64:
        """float64[n]: of the logarithm of the ratio b/a, the variance that independent samples would have."""
        part = np.maximum(1 - self.share, 1 / max(self.all_a + self.all_b, 1)) if self.is_total_exact else 1.0
        return np.asarray(part * (1 / (self.a + 0.5) + 1 / (self.b + 0.5)))

    def scatter(self, dispersion: "Dispersion") -> F64:
        """float64[n]: the variance of the logarithm of b/a, with what functions scatter beyond independent samples.

        That scatter was seen in shares. Where a function itself is what varies, its amount varies by more than its
        share, which it holds back itself: by 1 / (1 - share).
        """
        held_back: F64 | float = 1.0
        if not self.is_share:
            held_back = np.maximum(1 - self.share, _LARGEST_SHARE_OF_SCATTER) ** 2
        return np.asarray(self.spread * (1 + (dispersion.factor - 1) / held_back))

    @property
    def is_enough(self) -> NDArray[np.bool_]:
        """bool[n]: whether there are samples enough to compare."""
        return self.a + self.b >= FEWEST_SAMPLES


@dataclass(frozen=True, slots=True)
class Dispersion:
    """How much functions' shares scatter, as a multiple of what independent samples would.

    Attributes:
        factor: float64[n], never below 1.
        freedom: degrees of freedom of what is above 1.
    """

    factor: F64
    freedom: int


def find_dispersion(counts: Counts) -> Dispersion:
    """Compare the k-th piece of one run with the k-th of the other: what differs from piece to piece is chance.

    Phases of a program stand at the same place in both, so that they cancel. The scatter of each function is drawn
    towards that of all, since a handful of pieces says little.
    """
    pieces = counts.pieces_a.shape[1]
    if pieces < 2:
        return Dispersion(np.ones(len(counts.a)), 1)
    all_a, all_b = counts.pieces_a.sum(axis=0), counts.pieces_b.sum(axis=0)
    share = counts.share[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        difference = counts.pieces_a / all_a - counts.pieces_b / all_b
        expected = share * (1 - share) * (1 / all_a + 1 / all_b)
    known = np.isfinite(difference) & (share * np.minimum(all_a, all_b) >= _FEWEST_IN_PIECE) & (expected > 0)
    usable = np.flatnonzero(known.sum(axis=1) >= 2)
    factor = np.ones(len(counts.a))
    if not len(usable):
        return Dispersion(factor, pieces - 1)
    rows = np.where(known[usable], difference[usable], np.nan)
    square = (rows - np.nanmedian(rows, axis=1, keepdims=True)) ** 2 / np.where(known, expected, np.nan)[usable]
    usual = np.nanmedian(square, axis=1, keepdims=True) / _MEDIAN_OF_SQUARE
    square = np.minimum(square, _LARGEST_SQUARE * np.maximum(usual, 1))
    seen = known[usable].sum(axis=1)
    own = np.nansum(square, axis=1) / (seen - 1)
    pooled = max(1.0, float(np.median(own)))
    factor[:] = pooled
    factor[usable] = (_POOLED_PIECES * pooled + (seen - 1) * own) / (_POOLED_PIECES + seen - 1)
    return Dispersion(np.maximum(factor, 1), pieces - 1)


def find_common_change(counts: Counts, dispersion: Dispersion, noise: Noise) -> tuple[float, float]:
    """The logarithm of the factor by which most functions changed alike, and its variance.

    The weighted median of the functions' changes. Of amounts, as opposed to shares, "no change" is among them, and no
    more than the machine's noise is taken for common.
    """
    enough = np.minimum(counts.a, counts.b) >= FEWEST_SAMPLES
    change = np.log(counts.b[enough] * counts.unit_b) - np.log(counts.a[enough] * counts.unit_a)
    variance = (counts.scatter(dispersion) + noise.variance(counts))[enough]
    values = np.append(change, 0.0)
    weight = 1 / np.maximum(variance, 1e-12)
    if counts.is_share:
        # One function's change is the opposite of the others', who would be blamed if it alone made the median.
        weight = np.minimum(weight, _MOST_OF_OTHERS * (weight.sum() - weight))
    weights = np.append(weight, 1.0 if counts.is_share else _PRIOR_WEIGHT)
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    middle = float(values[order][np.searchsorted(reached, reached[-1] / 2)])
    # The median of normal values has pi/2 times the variance of their mean.
    certainty = math.pi / 2 / float(weights.sum())
    if counts.is_share:
        return middle, certainty
    limit = math.log1p(noise.machine)
    # All that is allowed: no chance can make it more.
    return (middle, certainty) if abs(middle) < limit else (math.copysign(limit, middle), 0.0)


def test_counts(
    counts: Counts, dispersion: Dispersion, common: tuple[float, float], noise: Noise
) -> tuple[F64, F64, F64]:
    """Whether each function changed, and otherwise than the rest: both have to be beyond chance, in one direction.

    Two Poisson counts are compared by the arcsine of the root of their proportion, which is near normal also for few
    samples (Anscombe 1948).

    Returns:
        p: float64[n], two-sided; NaN where there are too few samples.
        low, high: float64[n], the 95 % interval of b's amount minus a's.
    """
    change, change_variance = common
    from_rest, from_nothing = (_distance(counts, expected) for expected in (change, 0.0))
    distance = np.where(
        from_rest * from_nothing > 0,
        np.where(np.abs(from_rest) < np.abs(from_nothing), from_rest, from_nothing),
        0.0,
    )
    independent = 1 / (counts.a + 0.5) + 1 / (counts.b + 0.5)
    chance = counts.scatter(dispersion)
    extra = noise.variance(counts)
    variance = chance + extra + change_variance
    z = distance * np.sqrt(independent / variance)
    freedom = satterthwaite(variance, chance - counts.spread, dispersion.freedom)
    p = np.where(counts.is_enough, two_sided_p(z, freedom), np.nan)

    a, b = counts.a * counts.unit_a, counts.b * counts.unit_b
    part = chance / independent  # of the variance that Poisson counts have
    samples_variance = part * (counts.unit_a**2 * (counts.a + 0.5) + counts.unit_b**2 * (counts.b + 0.5))
    half = Z_95 * np.sqrt(samples_variance + extra * ((a + b) / 2) ** 2)
    return p, b - a - half, b - a + half


def _distance(counts: Counts, change: float) -> F64:
    """float64[n]: how far counts are from having changed by a factor of ``exp(change)``, in Poisson's deviations."""
    both = counts.a + counts.b
    odds = math.exp(change) * counts.unit_a / counts.unit_b
    root = np.arcsin(np.sqrt((counts.b + 0.375) / (both + 0.75)))
    return np.asarray(2 * np.sqrt(both + 0.5) * (root - math.asin(math.sqrt(odds / (1 + odds)))))


def test_total(
    counts: Counts, dispersion: Dispersion, common: tuple[float, float], noise: Noise
) -> tuple[F64, F64, F64]:
    """Whether the amount of all functions together changed otherwise than by the machine; as ``test_counts``, n = 1."""
    change, change_variance = common
    a, b = counts.all_a * counts.unit_a, counts.all_b * counts.unit_b
    if min(a, b) <= 0:
        nothing = np.full(1, np.nan)
        return nothing, nothing, nothing
    scatter = float(np.sum(counts.share**2 * (counts.scatter(dispersion) - counts.spread)))
    chance = scatter
    if not counts.is_total_exact:
        chance += 1 / counts.all_a + 1 / counts.all_b
    variance = np.array([chance + 2 * noise.function**2])
    whole = math.log(b / a)
    beyond = min(whole - change, whole, key=abs) if whole * (whole - change) > 0 else 0.0
    z = beyond / np.sqrt(variance + change_variance)
    half = Z_95 * math.sqrt(float(variance[0])) * (a + b) / 2
    freedom = satterthwaite(variance, np.array([scatter]), dispersion.freedom)
    return two_sided_p(z, freedom), np.array([b - a - half]), np.array([b - a + half])
