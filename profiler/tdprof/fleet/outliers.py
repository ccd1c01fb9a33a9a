"""Hosts on which a function takes another share than on the hosts like it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdprof.fleet.read import rates
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import FALSE_DISCOVERIES, FunctionCounts, OutlierHosts, Stratum
from tdprof.profile.statistics import benjamini_hochberg, two_sided_p

# With fewer hosts the others' scatter is too badly known to call one of them unlike them.
FEWEST_TO_COMPARE = 10
# A function is compared where so many samples of it are to be expected, and where most hosts have it: whether a host
# ought to run what hardly another runs, its shares do not tell.
_FEWEST_EXPECTED = 20.0
_MOST_HOSTS = 0.5
# Hosts further from the middle than so many deviations do not say how much hosts usually differ.
_CLIP = 6.0
_USUAL = 3.0  # within so many are nearly all hosts that are like the others, by which it is told how much each counts
_ROUNDS = 3  # in which what hosts differ by and how much each counts for that settle
_MAD_TO_DEVIATION = 1.4826  # of a normal distribution
_CELLS = 1 << 20  # of functions times hosts at once


def find_outliers(counts: FunctionCounts, stratum: Stratum) -> OutlierHosts:
    """Test every function on every host against the other hosts of its kind, on the logarithm of its self share.

    What a host may differ by is the chance of its own samples and what the other hosts differ by, those that are far
    off themselves aside. All tests are one family.
    """
    share = rates(counts.self_weight, counts.host, stratum) / stratum.rate[counts.host]
    hosts, n = len(stratum.hosts), len(counts.functions)
    found: list[tuple[I64, I64, F64, F64, F64]] = []
    tests = 0
    if hosts >= FEWEST_TO_COMPARE:
        for first, dense in _blocks(counts, share, n, hosts):
            p, rest = _test(dense, stratum.effective)
            tested = np.isfinite(p)
            rows, columns = np.nonzero(tested)
            tests += int(tested.sum())
            found.append((rows + first, columns, dense[tested], rest[tested], p[tested]))
    function, host, share_here, rest, p = (
        np.concatenate([part[i] for part in found]) if found else np.zeros(0) for i in range(5)
    )
    q = benjamini_hochberg(p)
    kept = np.flatnonzero(q <= FALSE_DISCOVERIES)
    kept = kept[np.lexsort((host[kept], function[kept], p[kept]))]
    return OutlierHosts(
        stratum,
        counts.functions,
        function[kept].astype(np.int64),
        host[kept].astype(np.int64),
        share_here[kept],
        rest[kept],
        p[kept],
        q[kept],
        tests,
    )


def _blocks(counts: FunctionCounts, share: F64, n: int, hosts: int) -> Iterator[tuple[int, F64]]:
    """Some functions at a time: the first one's number, and float64[functions, hosts] of shares."""
    step = max(1, _CELLS // hosts)
    for first in range(0, n, step):
        last = min(n, first + step)
        rows = slice(*np.searchsorted(counts.function, [first, last]).tolist())
        dense = np.zeros((last - first, hosts))
        dense[counts.function[rows] - first, counts.host[rows]] = share[rows]
        yield first, dense


def _test(share: F64, effective: F64) -> tuple[F64, F64]:
    """float64[functions, hosts] each: p-values, NaN where nothing is tested, and the share on the other hosts."""
    count = share * effective
    value = np.log((count + 0.5) / (effective + 1))
    value[:, effective <= 0] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        middle = np.nanmedian(value, axis=1, keepdims=True)
        distance = np.abs(value - middle)
        deviation = _MAD_TO_DEVIATION * np.nanmedian(distance, axis=1, keepdims=True)
        # What chance alone makes of a host with few samples is no reason to leave it out.
        chance = 1 / (np.exp(middle) * effective + 0.5)
        off = distance / np.maximum(deviation, np.sqrt(chance))
        kept = off <= _CLIP
        others = (kept.sum(axis=1, keepdims=True) - kept).astype(np.float64)
        # Hosts count by how well their values are known: one with few samples says little of how much others differ.
        between = deviation**2
        for _ in range(_ROUNDS):
            weight = 1 / (chance + between)
            between = _spread(value - middle, chance, weight, partial(_of_all, kept=off <= _USUAL)).between
        weight = 1 / (chance + between)
        offset, between, known, squared = _spread(value - middle, chance, weight, partial(_of_others, kept=kept))
        rest = np.exp(middle + offset)
        expected = rest * effective
        variance = 1 / expected + between
        # By half a sample less, towards what is expected: counts are whole, and their tails otherwise too light.
        nearer = np.where(count > expected, np.maximum(count - 0.5, expected), np.minimum(count + 0.5, expected))
        distance = _stable(nearer, between) - _stable(expected, between)
        t = distance / np.sqrt(1 + 1 / known / variance)
        # Chance is known without hosts, but not which part of the scatter it is: twice the variance's square by its
        # own variance (Satterthwaite), of hosts alike their number less one.
        freedom = (others - 1) * np.clip(variance**2 * squared / others, 1 / (others - 1), 1.0)
        enough = (others >= FEWEST_TO_COMPARE - 1) & (expected >= _FEWEST_EXPECTED) & np.isfinite(t)
        enough &= ((share > 0).mean(axis=1) >= _MOST_HOSTS)[:, None]
    p = np.full(share.shape, np.nan)
    p[enough] = two_sided_p(t[enough], freedom[enough])
    return p, rest


def _stable(count: F64, between: F64) -> F64:
    """Counts on a scale on which their variance is one, whatever they are.

    Of a count e that scatters by e + between * e^2; without scatter between hosts it is Anscombe's root.
    """
    root = np.sqrt(np.maximum(between, 1e-12))
    return np.asarray(2 / root * np.arcsinh(root * np.sqrt(count + 0.375)))


class _Spread(NamedTuple):
    """What is known of hosts' values.

    Attributes:
        mean: weighted; ``between``: the variance of what hosts differ by, without chance.
        weights, squared: the sum of the weights and that of their squares.
    """

    mean: F64
    between: F64
    weights: F64
    squared: F64


def _spread(value: F64, chance: F64, weight: F64, added: Callable[[F64], F64]) -> _Spread:
    """Mean and variance of hosts' values.

    Args:
        chance: the variance that each has by chance.
        weight: of each, one by its whole variance as far as that is known.
        added: over the hosts that are meant.
    """
    weights, squared = added(weight), added(weight**2)
    mean = added(weight * value) / weights
    squares = added((weight * value) ** 2) - 2 * mean * added(weight**2 * value) + mean**2 * squared
    # Each is nearer to their mean than to the truth, whose variance is one by all weights.
    between = (squares - added(weight**2 * chance)) / squared + 1 / weights
    return _Spread(mean, np.maximum(between, 0), weights, squared)


def _of_all(values: F64, kept: NDArray[np.bool_]) -> F64:
    """float64[functions, 1]: the sum over the hosts that are kept."""
    return np.asarray(np.where(kept, values, 0).sum(axis=1, keepdims=True))


def _of_others(values: F64, kept: NDArray[np.bool_]) -> F64:
    """float64[functions, hosts]: for each host the sum over the others that are kept."""
    return np.asarray(_of_all(values, kept) - np.where(kept, values, 0))


def shared_attributes(hosts: Sequence[str], attributes: dict[str, dict[str, str]]) -> list[tuple[str, int]]:
    """What all of some hosts have in common and not all hosts have, what fewest others have first.

    Args:
        hosts: two or more.
        attributes: by host and name.

    Returns:
        ``NAME=VALUE`` each, and how many other hosts have it.
    """
    first = attributes[hosts[0]]
    found = []
    for name, value in sorted(first.items()):
        holders = [host for host, told in attributes.items() if told.get(name) == value]
        if set(hosts) <= set(holders) and len(holders) < len(attributes):
            found.append((f"{name}={value}", len(holders) - len(hosts)))
    return sorted(found, key=lambda each: (each[1], each[0]))
