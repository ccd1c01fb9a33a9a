"""What differs between two sides of a store, releases for instance, with hosts as the sample."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tdprof.errors import TdprofError
from tdprof.fleet.estimate import FEWEST_HOSTS, FEWEST_SAMPLES, HostSums, estimate_shares, freedom_of
from tdprof.fleet.report import self_sums, total_sums
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import Estimates, FleetChanges, FleetFunction, FunctionCounts, Stratum
from tdprof.profile.compare.conditions import Breach, Condition
from tdprof.profile.compare.significance import FAMILY_ERROR
from tdprof.profile.statistics import benjamini_hochberg, holm, student_95, two_sided_p
from tdprof.text import few
from tdprof.values import dataclass

_CELLS = 1 << 21  # of functions times hosts at once


@dataclass(frozen=True, slots=True)
class SideCounts:
    """One side on one kind of core."""

    stratum: Stratum
    counts: FunctionCounts


def pair_cores(
    a: Sequence[SideCounts], b: Sequence[SideCounts]
) -> tuple[list[tuple[SideCounts, SideCounts]], list[str]]:
    """The sides by kind of core, and notes on those that one side alone has.

    Raises:
        TdprofError: no kind has both: a difference of the sides could be one of the cores.
    """
    by_core = [{each.stratum.core: each for each in side} for side in (a, b)]
    both = sorted(by_core[0].keys() & by_core[1].keys())
    if not both:
        raise TdprofError(
            f"A is only on {few(sorted(by_core[0]))} and B only on {few(sorted(by_core[1]))}: what differs could be "
            "the cores alone",
            hint="record both on hosts of one kind",
            status=2,
        )
    notes = [
        f"{few(sorted(mine.keys() - set(both)))} is left out: only {label} was recorded there"
        for label, mine in zip("AB", by_core, strict=True)
        if mine.keys() - set(both)
    ]
    return [(by_core[0][core], by_core[1][core]) for core in both], notes


def compare_sides(a: SideCounts, b: SideCounts, *, is_self: bool) -> FleetChanges:
    """Shares of every function on both sides of one kind of core, and what differs beyond chance.

    A host that both sides have counts against itself, so that what makes it unlike the others cancels.
    """
    functions = sorted({*a.counts.functions, *b.counts.functions}, key=lambda each: (each.module, each.name, each.file))
    number = {function: row for row, function in enumerate(functions)}
    sums = [_renumbered(side, number, is_self=is_self) for side in (a, b)]
    shares = [estimate_shares(each, side.stratum) for each, side in zip(sums, (a, b), strict=True)]
    change = shares[1].value - shares[0].value
    half, p, paired = _test(sums, (a.stratum, b.stratum), shares, change)
    return FleetChanges(
        core=a.stratum.core,
        event=a.stratum.event,
        functions=functions,
        a=shares[0],
        b=shares[1],
        change=change,
        half_width=half,
        p=p,
        q=np.full(len(p), np.nan),
        hosts_a=len(a.stratum.hosts),
        hosts_b=len(b.stratum.hosts),
        paired=paired,
    )


def _renumbered(side: SideCounts, number: dict[FleetFunction, int], *, is_self: bool) -> HostSums:
    made = (self_sums if is_self else total_sums)(side.counts, side.stratum)
    rows = np.array([number[each] for each in side.counts.functions], np.int64)
    function = rows[made.function] if len(rows) else made.function
    order = np.lexsort((made.host, function))
    return HostSums(function[order], made.host[order], made.value[order], made.samples[order], len(number))


def _test(
    sums: Sequence[HostSums], strata: tuple[Stratum, Stratum], shares: Sequence[Estimates], change: F64
) -> tuple[F64, F64, int]:
    """Half widths and p-values of differences, and on how many hosts both sides are."""
    a, b = strata
    hosts = sorted({*a.hosts, *b.hosts})
    place = {host: i for i, host in enumerate(hosts)}
    columns = [np.array([place[host] for host in stratum.hosts], np.int64) for stratum in strata]
    in_a, in_b = (np.isin(np.arange(len(hosts)), each) for each in columns)
    groups = _collapsed([in_a & in_b, in_a & ~in_b, in_b & ~in_a])
    n, paired = len(change), int((in_a & in_b).sum())
    half, p = np.full(n, np.nan), np.full(n, np.nan)
    if min(len(a.hosts), len(b.hosts)) < FEWEST_HOSTS:
        return half, p, paired
    rate, squared = np.zeros(len(hosts)), np.zeros(len(hosts))
    for stratum, column in zip(strata, columns, strict=True):
        rate[column] += stratum.rate
        squared[column] += (stratum.rate / stratum.rate.sum()) ** 2
    degrees = np.array([freedom_of(rate[group]) for group in groups])
    # Where few hosts happen to differ little, the many of the other side seem to be all that matters. So the degrees of
    # freedom are never more than if hosts differed alike everywhere.
    most = _freedom_of_sum(np.array([squared[group].sum() for group in groups]), degrees)
    step = max(1, _CELLS // len(hosts))
    for first in range(0, n, step):
        rows = slice(first, min(n, first + step))
        z = np.zeros((rows.stop - first, len(hosts)))
        for sign, each, stratum, share, column in zip((-1, 1), sums, strata, shares, columns, strict=True):
            z[:, column] += sign * _influence(each, stratum, share.value, rows)
        parts = np.stack([_variance_of_sum(z[:, group]) for group in groups], axis=1)
        variance = parts.sum(axis=1)
        freedom = np.minimum(_freedom_of_sum(parts, degrees), most)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = change[rows] / np.sqrt(variance)
        enough = (shares[0].samples[rows] + shares[1].samples[rows] >= FEWEST_SAMPLES) & (variance > 0)
        half[rows] = np.where(enough, student_95(np.nan_to_num(freedom, nan=1.0)) * np.sqrt(variance), np.nan)
        tested = np.full(len(t), np.nan)
        tested[enough] = two_sided_p(t[enough], freedom[enough])
        p[rows] = tested
    return half, p, paired


def _collapsed(groups: Sequence[NDArray[np.bool_]]) -> list[NDArray[np.bool_]]:
    """The groups of hosts, bool[hosts] each, of which one alone is put with most others, since it does not say how its
    like differ (collapsed strata: Wolter, Introduction to Variance Estimation, section 2.5).
    """
    largest = max(groups, key=np.count_nonzero)
    alone = [group for group in groups if group is not largest and np.count_nonzero(group) == 1]
    others = [group for group in groups if group is not largest and np.count_nonzero(group) > 1]
    return [np.any([largest, *alone], axis=0), *others]


def _influence(sums: HostSums, stratum: Stratum, share: F64, rows: slice) -> F64:
    """float64[rows, hosts]: by how much each host moves a share, from leaving it out."""
    total = stratum.rate
    chosen = slice(*np.searchsorted(sums.function, [rows.start, rows.stop]).tolist())
    dense = np.zeros((rows.stop - rows.start, len(total)))
    dense[sums.function[chosen] - rows.start, sums.host[chosen]] = sums.value[chosen]
    hosts = len(total)
    return np.asarray((dense - share[rows, None] * total) / (total.sum() - total) * (hosts - 1) / hosts)


def _freedom_of_sum(parts: F64, degrees: F64) -> F64:
    """float64[…]: degrees of freedom of sums of variances, float64[…, n], of which each part has its own
    (Satterthwaite 1946)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(parts.sum(axis=-1) ** 2 / np.sum(parts**2 / degrees, axis=-1))


def _variance_of_sum(z: F64) -> F64:
    return np.asarray(z.shape[1] * np.var(z, axis=1, ddof=1))


def with_discoveries(tables: Sequence[FleetChanges]) -> list[FleetChanges]:
    """The tables with q-values: all their tests are one family."""
    q = benjamini_hochberg(np.concatenate([table.p for table in tables]))
    parts = np.split(q, np.cumsum([len(table.p) for table in tables])[:-1])
    return [replace(table, q=part) for table, part in zip(tables, parts, strict=True)]


def find_fleet_breaches(
    own: Sequence[FleetChanges], total: Sequence[FleetChanges], conditions: Sequence[Condition]
) -> list[Breach]:
    """The conditions that are broken on any kind of core, by changes beyond chance: their tests are one family (Holm).

    Raises:
        TdprofError: a condition asks for what there is not.
    """
    asked: list[tuple[Condition, FleetChanges, int, str]] = []
    for condition in conditions:
        function, _, quantity = condition.what.rpartition(":")
        if quantity not in ("self", "total") or not function:
            raise TdprofError(
                f"--fail-on: '{condition.text}' is not about a function's share",
                hint="such as 'parse:self>10%' or '*:total>0.5'",
                status=2,
            )
        found = [
            (condition, table, row, quantity)
            for table in (own if quantity == "self" else total)
            for row, each in enumerate(table.functions)
            if function == "*" or each.name == function
        ]
        if not found:
            raise TdprofError(f"--fail-on: no function is called '{function}'", hint="tdprof fleet report", status=2)
        if not any(np.isfinite(table.p[row]) for _, table, row, _ in found):
            raise TdprofError(
                f"--fail-on: too few hosts or samples to judge '{condition.text}'",
                hint=f"{FEWEST_HOSTS} hosts of one kind of core on each side, {FEWEST_SAMPLES} samples",
                status=2,
            )
        asked += found
    adjusted = holm(np.array([table.p[row] for _, table, row, _ in asked]))
    return [
        Breach(
            condition.text,
            f"{table.functions[row].name}:{quantity} on {table.core}",
            "percent of samples",
            100 * float(table.a.value[row]),
            100 * float(table.b.value[row]),
            p,
        )
        for (condition, table, row, quantity), p in zip(asked, adjusted.tolist(), strict=True)
        if p <= FAMILY_ERROR and _is_beyond(condition, table, row)
    ]


def _is_beyond(condition: Condition, table: FleetChanges, row: int) -> bool:
    a, change = float(table.a.value[row]), 100 * float(table.change[row])
    if condition.is_percent:
        change = change / a if a else float(np.sign(change) * np.inf)
    return change > condition.limit if condition.is_rise else change < condition.limit


def order_changes(table: FleetChanges) -> I64:
    """Rows, the surest change first, then those with the larger share."""
    share = np.maximum(table.a.value, table.b.value)
    return np.lexsort((-share, np.nan_to_num(table.p, nan=2.0))).astype(np.int64)
