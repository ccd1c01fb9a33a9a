"""What is counted and estimated over many hosts; n is functions, h hosts."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I64
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Stratum:
    """One event on all hosts of one kind of core, the only hosts whose numbers may be put together.

    Attributes:
        core: the kind of core.
        event: its name.
        unit: of weights.
        hosts: names of those that measured the event, in order.
        recordings: how many.
        seconds: float64[h], how long each host was recorded.
        weight: float64[h], events that each host's samples stand for.
        counted: float64[h], the same by the counters where they tell, else as ``weight``.
        samples: int64[h].
        effective: float64[h], as many equal samples would tell as much.
    """

    core: str
    event: str
    unit: str
    hosts: Sequence[str]
    recordings: int
    seconds: F64
    weight: F64
    counted: F64
    samples: I64
    effective: F64

    @property
    def rate(self) -> F64:
        """float64[h]: events a second, by which each host counts, however long it was recorded."""
        return np.asarray(self.weight / self.seconds)


@dataclass(frozen=True, slots=True)
class FleetFunction:
    """What a function is on every host: the base name of its file, its name, and where names repeat its source file."""

    module: str
    name: str
    file: str = ""
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCounts:
    """One event's counts of functions on the hosts of a stratum: a row for each function and host that has it.

    Attributes:
        functions: of the numbers in ``function``.
        function: int64[rows], sorted.
        host: int64[rows], index into the stratum's hosts; sorted within a function.
        self_weight, total_weight: float64[rows].
        self_samples, total_samples: int64[rows].
    """

    functions: Sequence[FleetFunction]
    function: I64
    host: I64
    self_weight: F64
    total_weight: F64
    self_samples: I64
    total_samples: I64


@dataclass(frozen=True, slots=True)
class Estimates:
    """Values of n rows over the hosts of a stratum.

    Attributes:
        value: float64[n].
        low, high: float64[n], the 95 % interval; NaN where it is not known.
        hosts: int64[n], on how many hosts it was seen.
        samples: int64[n].
        design_effect: float64[n], how many times the variance is that of as many samples drawn from all hosts as one;
            NaN where hosts are too few to tell.
        is_between: whether the intervals hold what differs between hosts; else, of too few of them, only the chance of
            sampling those.
    """

    value: F64
    low: F64
    high: F64
    hosts: I64
    samples: I64
    design_effect: F64
    is_between: bool

    @property
    def half_width(self) -> F64:
        """float64[n]: half of the interval."""
        return np.asarray((self.high - self.low) / 2)


@dataclass(frozen=True, slots=True)
class StratumShares:
    """The functions of a stratum, those with the highest self share first.

    Attributes:
        own, total: their shares at the leaf, and anywhere in the stack.
    """

    stratum: Stratum
    functions: Sequence[FleetFunction]
    own: Estimates
    total: Estimates


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """Metrics of the hosts of one kind of core that were recorded for them, a column for each.

    Attributes:
        catalog: by whose formulas.
        metrics, units: of each column.
        hosts: int64[metrics], on how many hosts all of a metric's events were counted.
        program, program_half_width: float64[metrics], of all code together; NaN where it is not known.
        functions: the rows, highest self share of cycles first.
        share: float64[rows], that share.
        value, half_width: float64[rows, metrics], of the functions' own instructions; NaN likewise.
        samples: int64[rows, metrics], of the scarcest event.
    """

    core: str
    catalog: str
    metrics: Sequence[str]
    units: Sequence[str]
    hosts: I64
    program: F64
    program_half_width: F64
    functions: Sequence[FleetFunction]
    share: F64
    value: F64
    half_width: F64
    samples: I64


@dataclass(frozen=True, slots=True)
class FleetLatencies:
    """Quantiles of one latency of the operations that SPE sampled, on all hosts of one kind of core.

    Attributes:
        latency: its name.
        hosts: names of those that recorded it; ``recordings``: how many.
        shares: which quantiles.
        functions: the n rows, those with the most operations first.
        operations: float64[n], share of all operations that have this latency.
        records: int64[n]; ``hosts_seen``: int64[n], on how many hosts.
        value: float64[n, quantiles], cycles, exactly that of all records, each host by its operations a second.
        low, high: float64[n, quantiles], the 95 % interval; NaN where it is not known, infinite where it has no end.
        design_effect: float64[n, quantiles]; NaN where hosts are too few to tell.
        is_between: bool[n], whether intervals hold what differs between hosts.
        saturated_cycles: where the hardware's counters stop: that or more; infinite where none did.
    """

    core: str
    latency: str
    hosts: Sequence[str]
    recordings: int
    shares: Sequence[float]
    functions: Sequence[FleetFunction]
    operations: F64
    records: I64
    hosts_seen: I64
    value: F64
    low: F64
    high: F64
    design_effect: F64
    is_between: NDArray[np.bool_]
    saturated_cycles: float


@dataclass(frozen=True, slots=True)
class SetAside:
    """What a store's answers do not hold, as sentences."""

    notes: Sequence[str]
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class OutlierHosts:
    """Functions whose share on a host is another than on the hosts like it, the surest first.

    Attributes:
        function, host: int64[k], which of the stratum's.
        share, rest: float64[k], on this host, and on the others together.
        p, q: float64[k], of this one test, and adjusted for all (Benjamini and Hochberg).
        tests: how many there were.
    """

    stratum: Stratum
    functions: Sequence[FleetFunction]
    function: I64
    host: I64
    share: F64
    rest: F64
    p: F64
    q: F64
    tests: int


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """What differs from side A to side B on hosts of one kind of core.

    Attributes:
        a, b: shares of n functions, with their intervals.
        change, half_width: float64[n], b - a and half of its 95 % interval.
        p, q: float64[n], of each test, and adjusted for all; NaN where there were too few samples or hosts.
        paired: on how many hosts both were recorded.
    """

    core: str
    event: str
    functions: Sequence[FleetFunction]
    a: Estimates
    b: Estimates
    change: F64
    half_width: F64
    p: F64
    q: F64
    hosts_a: int
    hosts_b: int
    paired: int

    @property
    def is_significant(self) -> NDArray[np.bool_]:
        """bool[n]: in the list of those of which no more than one in twenty is there by chance."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.q <= FALSE_DISCOVERIES)


FALSE_DISCOVERIES = 0.05
