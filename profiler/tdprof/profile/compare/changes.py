"""Counts, shares and metrics of two profiles beside each other, with what changed beyond chance."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.catalog.entries import CPU_CYCLES
from tdprof.errors import TdprofError
from tdprof.model.arrays import F64, I64
from tdprof.model.choices import DEFAULT_NOISE_PERCENT, Basis
from tdprof.model.events import Unit
from tdprof.model.findings import Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.profile.compare.matching import MatchedFunctions, match_functions
from tdprof.profile.compare.samples import Side, count_samples
from tdprof.profile.compare.significance import (
    FAMILY_ERROR,
    Counts,
    Noise,
    find_common_change,
    find_dispersion,
    test_counts,
    test_total,
)
from tdprof.profile.frames import frame_stacks
from tdprof.profile.hotspots import check_room
from tdprof.profile.statistics import Z_95, holm, two_sided_p
from tdprof.text import few
from tdprof.values import dataclass

_PERCENT = "percent of samples"
_TABLES = 3  # as large as a report's, of what is compared
_SPARE_METRICS = 1 << 19  # of all functions, besides one for each sample
_TOPDOWN_EVENTS = (CPU_CYCLES, "INST_RETIRED")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of changes.

    Attributes:
        name: an event's or a metric's.
        units: of the values.
        source: "samples", or what measured a metric: "pmu" or "spe".
    """

    name: str
    units: str
    source: str = "samples"


_MOST_DOUBT = 3.0  # of a value: half of the interval of its change


@dataclass(frozen=True, slots=True)
class Changes:
    """Values of n rows in both profiles, a column for each quantity: float64[n, quantities], NaN where unknown.

    Attributes:
        a, b: the values.
        low, high: the 95 % interval of b - a.
        p: the chance of a difference so large where nothing changed, of this one test; NaN where none was made.
        is_significant: bool; together, all tables of a comparison call anything significant that did not change in
            no more than 5 % of comparisons.
    """

    quantities: Sequence[Quantity]
    a: F64
    b: F64
    low: F64
    high: F64
    p: F64
    is_significant: NDArray[np.bool_]

    def column(self, name: str) -> int | None:
        """The first column of that name."""
        return next((i for i, quantity in enumerate(self.quantities) if quantity.name == name), None)

    def is_vague(self, row: int, column: int) -> bool:
        """Whether an amount's A is no base for percentages: as a part of it any change is vast, and its error, too."""
        is_amount = self.quantities[column].units in list(Unit)
        a, half = float(self.a[row, column]), float(self.high[row, column] - self.low[row, column]) / 2
        return bool(is_amount and a and half > _MOST_DOUBT * a)

    def relative(self) -> F64:
        """(b - a) / a; infinite where something was nothing, NaN where a value is unknown or both are 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((self.b - self.a) / np.abs(self.a))


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from profile A to profile B.

    Attributes:
        basis: what of the events is compared; shares are in percent.
        functions: the matched functions; row i of ``self_changes`` and ``inclusive_changes`` is its row i.
        program: one row: each event's amount in the whole run (only for ``Basis.RUN``), and the program's metrics.
        self_changes: each event at the leaf, and the metrics of the function's own instructions.
        inclusive_changes: each event anywhere in the stack.
        share_a, share_b: float64[n, events], self share of all samples, in percent, whatever the basis.
        common_factor: float64[events], by which most functions changed alike, B to A, and which is not put down to
            any of them: another machine speed, or with shares the others' part of one function's change.
        tests: how many were made.
        notes: what a reader should know, a sentence each.
    """

    basis: Basis
    functions: MatchedFunctions
    program: Changes
    self_changes: Changes
    inclusive_changes: Changes
    share_a: F64
    share_b: F64
    common_factor: F64
    tests: int
    notes: Sequence[str]


def compare(
    a: Profile,
    b: Profile,
    findings_a: Findings | None = None,
    findings_b: Findings | None = None,
    *,
    basis: Basis | None = None,
    noise_percent: float = DEFAULT_NOISE_PERCENT,
) -> Comparison:
    """Compare two profiles, which are ``calibrated`` where they are Topdown's.

    Args:
        findings_a, findings_b: metrics, compared where both are there.
        basis: None: whole runs where both profiles are of commands that ran to their end, else shares.
        noise_percent: by how much two runs of one program may differ as a whole where nothing changed.

    Raises:
        TdprofError: they have no event in common.
    """
    events = _common_events(a, b)
    basis = basis or (Basis.RUN if a.is_whole_run and b.is_whole_run else Basis.SHARE)
    noise = Noise.of_percent(noise_percent)
    stacks_a, stacks_b = frame_stacks(a), frame_stacks(b)
    functions = match_functions(a, b, stacks_a, stacks_b)
    check_room(a, len(functions), "functions", len(events), tables=_TABLES)
    sides = Side(a, stacks_a, functions.row_of_a), Side(b, stacks_b, functions.row_of_b)
    compared = [_compare_event(sides, event, functions, basis, noise) for event in events]
    self_columns = [each.own for each in compared]
    program_columns = [each.total for each in compared if basis is Basis.RUN]
    notes = [*_event_notes(a, b, events), *_metric_notes(findings_a, findings_b)]
    if findings_a and findings_b:
        rows = _Rows(findings_a, findings_b, functions)
        samples = len(a.samples.stack) + len(b.samples.stack)
        if len(functions) * len(findings_a.functions.metrics) <= _SPARE_METRICS + samples:
            self_columns += rows.functions(noise)
        else:
            notes.append(f"metrics of {len(functions):,} functions are too many to compare: the program's alone are")
        program_columns += rows.program(noise)
    (program, self_changes, inclusive_changes), tests = _judge(
        _table(program_columns, 1),
        _table(self_columns, len(functions)),
        _table([each.inclusive for each in compared], len(functions)),
        len(events),
    )
    return Comparison(
        basis=basis,
        functions=functions,
        program=program,
        self_changes=self_changes,
        inclusive_changes=inclusive_changes,
        share_a=np.stack([each.share_a for each in compared], axis=1),
        share_b=np.stack([each.share_b for each in compared], axis=1),
        common_factor=np.array([each.common_factor for each in compared]),
        tests=tests,
        notes=notes,
    )


def _common_events(a: Profile, b: Profile) -> list[tuple[int, int]]:
    """The events that both have, as their indices."""
    index_b = {event.name: i for i, event in reversed(list(enumerate(b.events)))}
    pairs = [
        (i, index_b[event.name])
        for i, event in enumerate(a.events)
        if event.name in index_b and event.unit == b.events[index_b[event.name]].unit
    ]
    if a.topdown or b.topdown:
        # The dozens of others are there for the metrics, which are compared: as tests of their own they would cost
        # power and say the same again.
        pairs = [(i, j) for i, j in pairs if a.events[i].name in _TOPDOWN_EVENTS] or pairs
    if not pairs:
        names = [", ".join(event.name for event in profile.events) or "none" for profile in (a, b)]
        raise TdprofError(
            f"the captures have no event in common: A has {names[0]}, B has {names[1]}",
            hint="record both with the same -e",
            status=2,
        )
    return pairs


@dataclass(frozen=True, slots=True)
class _Column:
    quantity: Quantity
    a: F64
    b: F64
    low: F64
    high: F64
    p: F64


def _column(quantity: Quantity, counts: Counts, tested: tuple[F64, F64, F64]) -> _Column:
    p, low, high = tested
    return _Column(quantity, counts.a * counts.unit_a, counts.b * counts.unit_b, low, high, p)


@dataclass(frozen=True, slots=True)
class _ComparedEvent:
    own: _Column
    inclusive: _Column
    total: _Column
    share_a: F64
    share_b: F64
    common_factor: float


def _compare_event(
    sides: tuple[Side, Side], events: tuple[int, int], functions: MatchedFunctions, basis: Basis, noise: Noise
) -> _ComparedEvent:
    is_share = basis is Basis.SHARE
    info = sides[0].profile.events[events[0]]
    quantity = Quantity(info.name, _PERCENT if is_share else str(info.unit))
    own = count_samples(sides, events, functions, is_share=is_share, is_self=True)
    dispersion = find_dispersion(own)
    common = find_common_change(own, dispersion, noise)
    anywhere = count_samples(sides, events, functions, is_share=is_share, is_self=False)
    total = replace(own, a=np.array([own.all_a]), b=np.array([own.all_b]))
    return _ComparedEvent(
        own=_column(quantity, own, test_counts(own, dispersion, common, noise)),
        inclusive=_column(quantity, anywhere, test_counts(anywhere, find_dispersion(anywhere), common, noise)),
        total=_column(quantity, total, test_total(own, dispersion, common, noise)),
        share_a=100 * own.a / max(own.all_a, 1),
        share_b=100 * own.b / max(own.all_b, 1),
        common_factor=float(np.exp(common[0])),
    )


class _Rows:
    """Metrics of both findings, brought to the comparison's rows."""

    def __init__(self, a: Findings, b: Findings, functions: MatchedFunctions) -> None:
        self._findings = (a, b)
        self._rows = (functions.row_of_a[a.function], functions.row_of_b[b.function])
        self._count = len(functions)

    def functions(self, noise: Noise) -> Iterator[_Column]:
        """Metrics of functions' own instructions. Of several functions in one row, the one with most samples counts."""
        tables = [findings.functions for findings in self._findings]
        rows = []
        for row in self._rows:
            first = np.full(self._count, -1, np.int64)
            known = np.flatnonzero(row >= 0)[::-1]  # findings stand in the order of their share: the first one stays
            first[row[known]] = known
            rows.append(first)
        return self._columns(tables, rows, noise)

    def program(self, noise: Noise) -> Iterator[_Column]:
        one = np.zeros(1, np.int64)
        tables = [findings.program for findings in self._findings]
        return self._columns(tables, [one, one], noise)

    def _columns(self, tables: Sequence[MetricTable], rows: Sequence[I64], noise: Noise) -> Iterator[_Column]:
        places = [
            {key: column for column, key in enumerate(zip(table.metrics, table.sources, strict=True))}
            for table in tables
        ]
        for key, column_a in places[0].items():
            if key not in places[1]:
                continue
            values, halves, trusted = [], [], []
            for table, row, column in zip(tables, rows, (column_a, places[1][key]), strict=True):
                values.append(_at(table.value, row, column))
                halves.append(_at(table.half_width, row, column))
                trusted.append(_at(table.is_significant, row, column) == 1)
            a, b = values
            # The half widths have the scatter between intervals, and Student's quantile for it, in them already.
            variance = (halves[0] ** 2 + halves[1] ** 2) / Z_95**2
            error = np.sqrt(variance + 2 * (noise.function * (np.abs(a) + np.abs(b)) / 2) ** 2)
            with np.errstate(divide="ignore", invalid="ignore"):
                z = (b - a) / error
            p = np.full(len(z), np.nan)
            tested = np.isfinite(z) & (trusted[0] | trusted[1])
            p[tested] = two_sided_p(z[tested], np.full(tested.sum(), np.inf))
            half = Z_95 * error
            yield _Column(Quantity(key[0], tables[0].units[column_a], key[1]), a, b, b - a - half, b - a + half, p)


def _at(values: NDArray[Any], rows: I64, column: int) -> F64:
    result = np.full(len(rows), np.nan)
    result[rows >= 0] = values[rows[rows >= 0], column]
    return result


def _table(columns: Sequence[_Column], rows: int) -> Changes:
    def stacked(name: str) -> F64:
        return np.stack([getattr(column, name) for column in columns], axis=1) if columns else np.zeros((rows, 0))

    return Changes(
        quantities=[column.quantity for column in columns],
        a=stacked("a"),
        b=stacked("b"),
        low=stacked("low"),
        high=stacked("high"),
        p=stacked("p"),
        is_significant=np.zeros((rows, len(columns)), bool),
    )


def _judge(
    program: Changes, self_changes: Changes, inclusive_changes: Changes, events: int
) -> tuple[tuple[Changes, Changes, Changes], int]:
    """Fill in what is significant, all tests of all tables being one family; and how many there are.

    A function that calls nothing has one test, not one for self and one for inclusive.
    """
    own = self_changes.p[:, :events]
    is_same = (self_changes.a[:, :events] == inclusive_changes.a) & (self_changes.b[:, :events] == inclusive_changes.b)
    family = [program.p, self_changes.p, np.where(is_same, np.nan, inclusive_changes.p)]
    adjusted = holm(np.concatenate([p.ravel() for p in family]))
    parts = np.split(adjusted, np.cumsum([p.size for p in family])[:-1])
    judged = []
    for table, part in zip((program, self_changes, inclusive_changes), parts, strict=True):
        with np.errstate(invalid="ignore"):
            judged.append(replace(table, is_significant=(part <= FAMILY_ERROR).reshape(table.p.shape)))
    judged[2].is_significant[is_same] = judged[1].is_significant[:, :events][is_same]
    judged[2].p[is_same] = own[is_same]
    return (judged[0], judged[1], judged[2]), int((~np.isnan(adjusted)).sum())


def _event_notes(a: Profile, b: Profile, events: Sequence[tuple[int, int]]) -> list[str]:
    notes = []
    names = [{event.name for event in profile.events} for profile in (a, b)]
    for label, profile, others in (("A", a, names[1]), ("B", b, names[0])):
        left = [event.name for event in profile.events if event.name not in others]
        if left:
            notes.append(f"only {label} has {few([*dict.fromkeys(left)])}")
    pairs = [(a.events[i], b.events[j]) for i, j in events]
    other = [one.name for one, two in pairs if (one.frequency_hz or one.period) != (two.frequency_hz or two.period)]
    if other:
        which = other[0] if len(other) == 1 else f"{len(other)} of {len(pairs)} events ({few(other)})"
        was = "was" if len(other) == 1 else "were"
        notes.append(f"{which} {was} sampled at other rates, which the intervals take into account")
    return notes


def _metric_notes(a: Findings | None, b: Findings | None) -> list[str]:
    if (a is None) == (b is None):
        return []
    return [f"only {'A' if a else 'B'} has metrics (record --topdown): none can be compared"]
