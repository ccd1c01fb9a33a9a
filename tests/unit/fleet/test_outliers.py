"""Which hosts are called unlike the others, on fleets that are drawn alike."""

import numpy as np

from tdprof.fleet.outliers import find_outliers
from tdprof.model.fleet import FleetFunction, FunctionCounts, OutlierHosts, Stratum

SHARE, SCATTER, FUNCTIONS = 0.05, 0.1, 400


def drawn(samples: np.ndarray, *, times: float = 1.0) -> OutlierHosts:
    """What is found on hosts with so many samples each; ``times``: what the first has more of the first function."""
    rng = np.random.default_rng(19)
    own = SHARE * rng.lognormal(0, SCATTER, (FUNCTIONS, len(samples)))
    own[0, 0] *= times
    count = rng.poisson(own * samples)
    function, host = np.nonzero(count)
    values, weight = count[function, host].astype(np.int64), count[function, host].astype(np.float64)
    names = [f"host {number}" for number in range(len(samples))]
    ones, total = np.ones(len(samples)), samples.astype(np.float64)
    stratum = Stratum("core", "cycles", "count", names, len(samples), ones, total, total, samples, total)
    functions = [FleetFunction("app", f"{number:03}") for number in range(FUNCTIONS)]
    return find_outliers(FunctionCounts(functions, function, host, weight, weight, values, values), stratum)


def test_hosts_with_many_samples_beside_hosts_with_few_are_like_them() -> None:
    """What hosts differ by is known from those with many samples alone, which are few."""
    assert not len(drawn(np.array([50_000] * 5 + [1000] * 15)).host)
    assert not len(drawn(np.array([20_000, 1000] * 15)).host)


def test_one_with_many_samples_that_is_unlike_them_is_found() -> None:
    found = drawn(np.array([50_000] * 15 + [1000] * 15), times=3.0)
    assert (0, 0) in set(zip(found.function.tolist(), found.host.tolist(), strict=True))
    assert len(found.host) < 3
