"""What a store tells of functions: shares by kind of core, with intervals over hosts."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tdprof.catalog.entries import CPU_CYCLES
from tdprof.errors import TdprofError
from tdprof.fleet.estimate import HostSums, estimate_shares
from tdprof.fleet.nothing_found import nothing_found
from tdprof.fleet.read import Parts, count_functions, rates, read_parts, strata_of, what_is_missing
from tdprof.fleet.selection import Chosen
from tdprof.fleet.store import Store
from tdprof.model.arrays import F64, I64
from tdprof.model.fleet import Estimates, FunctionCounts, SetAside, Stratum, StratumShares
from tdprof.text import few, plural
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """The recordings that a question is about, and one event of theirs.

    Attributes:
        strata: the event on each kind of core that measured it.
    """

    parts: Parts
    strata: Sequence[Stratum]
    event: str
    set_aside: SetAside


def find_recordings(store: Store, chosen: Chosen, event: str | None, *, each_recording: bool = False) -> Found:
    """Look up what a question is about.

    Args:
        each_recording: one by one, also where the store has sums.
        event: its name; None: cycles, where they were measured, else what most recordings have first.

    Raises:
        TdprofError: there are no such recordings, or none that measured the event.
    """
    parts = read_parts(store, chosen, each_recording=each_recording)
    counts = list(parts.counts())
    if not counts:
        raise nothing_found(store, chosen)
    strata = strata_of(counts)
    names = sorted({stratum.event for stratum in strata})
    if event is None:
        first: Counter[str] = Counter()
        for each in counts:
            first[each.event] += each.first
        event = CPU_CYCLES if CPU_CYCLES in names else min(first, key=lambda name: (-first[name], name))
    if event not in names:
        raise TdprofError(f"no recording has an event '{event}'", hint=f"one of: {few(names, 12)}", status=2)
    mine = [stratum for stratum in strata if stratum.event == event]
    left_out = _hosts_without(strata, mine)
    if dark := [each for each in mine if not each.weight.sum()]:
        mine = [each for each in mine if each.weight.sum()]
        if not mine:
            others = [name for name in names if name != event]
            hint = (
                f"--event {' or '.join(others)}"
                if others
                else f"tdprof fleet add {shlex.quote(store.place)} CAPTURE…, of others"
            )
            raise TdprofError(f"{event} has no samples on {few([each.core for each in dark])}", hint=hint)
    missing = what_is_missing(store, parts)
    if left_out:
        note = f"{event} was not counted on {plural(len(left_out), 'host', 's')}, which this leaves out"
        missing = replace(missing, notes=[*missing.notes, note])
    return Found(parts, mine, event, missing)


def _hosts_without(strata: Sequence[Stratum], mine: Sequence[Stratum]) -> set[tuple[str, str]]:
    """Core and name of hosts that are in none of some strata."""
    hosts, measured = ({(each.core, host) for each in some for host in each.hosts} for some in (strata, mine))
    return hosts - measured


def share_functions(store: Store, found: Found) -> list[StratumShares]:
    """The shares of all functions, by kind of core, highest self share first."""
    counts = count_functions(store, found.parts, found.strata)
    return [shares_in(stratum, each) for stratum, each in zip(found.strata, counts, strict=True)]


def shares_in(stratum: Stratum, counts: FunctionCounts) -> StratumShares:
    """The shares of one stratum's functions."""
    own = estimate_shares(self_sums(counts, stratum), stratum)
    total = estimate_shares(total_sums(counts, stratum), stratum)
    order = np.lexsort((np.arange(len(own.value)), -total.value, -own.value))
    return StratumShares(
        stratum, [counts.functions[row] for row in order.tolist()], _rows(own, order), _rows(total, order)
    )


def self_sums(counts: FunctionCounts, stratum: Stratum) -> HostSums:
    """What functions have at the leaf, in events a second."""
    return _sums(counts, stratum, counts.self_weight, counts.self_samples)


def total_sums(counts: FunctionCounts, stratum: Stratum) -> HostSums:
    """What functions have anywhere in the stack, in events a second."""
    return _sums(counts, stratum, counts.total_weight, counts.total_samples)


def _sums(counts: FunctionCounts, stratum: Stratum, weight: F64, samples: I64) -> HostSums:
    value = rates(weight, counts.host, stratum)
    return HostSums(counts.function, counts.host, value, samples, len(counts.functions))


def _rows(estimates: Estimates, order: I64) -> Estimates:
    return replace(
        estimates,
        value=estimates.value[order],
        low=estimates.low[order],
        high=estimates.high[order],
        hosts=estimates.hosts[order],
        samples=estimates.samples[order],
        design_effect=estimates.design_effect[order],
    )
