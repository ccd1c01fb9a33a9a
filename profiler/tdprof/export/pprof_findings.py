"""What a Topdown capture adds to a pprof file: metrics as labels of each function's samples, and the run's summary.

pprof's numbers are whole, so a metric is written in thousandths or millionths; docs/pprof.md is the convention.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I64
from tdprof.model.findings import Findings, MetricTable
from tdprof.text import plural

BOTTLENECK = "bottleneck"
PATH = "topdown_path"
UNKNOWN = "unknown"
HALF_WIDTH = "_half_width"
# `go tool pprof` needs about a kilobyte for each label of each sample.
MOST_LABELS = 1_000_000

THOUSANDTHS = 1_000
MILLIONTHS = 1_000_000

Label = tuple[str, int | str, str]  # key; number, or text without a unit; unit


def _fraction_of(units: str) -> int:
    """Into how many parts a metric's unit is divided to make whole numbers: a ratio, at most 1, needs the smaller."""
    is_ratio = units.startswith("per ") and units != "per cycle"
    return MILLIONTHS if is_ratio else THOUSANDTHS


def _unit_of(units: str) -> str:
    """The unit of the label's number, such as "1/1000 MPKI"."""
    return f"1/{_fraction_of(units)} {units}"


def _key(metric: str, source: str) -> str:
    """The catalog's name, behind ``spe_`` where SPE measured it."""
    return f"spe_{metric}" if source == "spe" else metric


def function_labels(findings: Findings, samples: I64) -> tuple[Iterator[Sequence[Label]], int]:
    """Labels of each row of ``findings.function``, and last of code without a row: metrics, half widths, bottleneck.

    Args:
        findings: of the profile.
        samples: int64[functions], pprof samples that each row's labels are written on.

    Returns:
        The labels, and how many rows are left without their metrics because there are too many labels.
    """
    table = findings.functions
    shown = table.is_significant & np.isfinite(table.value) & np.isfinite(table.half_width)
    is_left_out = np.cumsum(2 * shown.sum(axis=1) * samples) > MOST_LABELS
    left_out = int((is_left_out & shown.any(axis=1)).sum())
    shown[is_left_out] = False
    return _labels_of_rows(findings, shown), left_out


def _labels_of_rows(findings: Findings, shown: NDArray[np.bool_]) -> Iterator[Sequence[Label]]:
    table = findings.functions
    keys = [_key(metric, source) for metric, source in zip(table.metrics, table.sources, strict=True)]
    keys_of_half_widths = [key + HALF_WIDTH for key in keys]
    units = [_unit_of(each) for each in table.units]
    parts = np.array([_fraction_of(each) for each in table.units], np.float64)
    unknown: list[Label] = [(BOTTLENECK, UNKNOWN, "")] if findings.has_topdown else []
    for row, diagnosis in enumerate(findings.diagnoses):
        mine = list(unknown)
        if diagnosis.path:
            mine = [(BOTTLENECK, diagnosis.path[0], "")]
            mine.append((PATH, "/".join(diagnosis.path), ""))
        columns = np.flatnonzero(shown[row])
        numbers = np.rint(table.value[row, columns] * parts[columns]).astype(np.int64)
        # An error must not round down to none.
        half_widths = np.ceil(table.half_width[row, columns] * parts[columns]).astype(np.int64)
        for column, number, half_width in zip(columns.tolist(), numbers.tolist(), half_widths.tolist(), strict=True):
            mine.append((keys[column], number, units[column]))
            mine.append((keys_of_half_widths[column], half_width, units[column]))
        yield mine
    yield unknown


def summary(findings: Findings, left_out: int) -> Iterator[str]:
    """Comment lines: the program's metrics group by group, what slows it, how to read the labels.

    Few and long, since pprof prints them above every report.
    """
    catalog, diagnosis = findings.catalog, findings.program_diagnosis
    yield f"core: {catalog.name}"
    texts = _texts(findings.program)
    for group in catalog.groups.values():
        shown = [texts.pop(metric) for metric in group.metrics if metric in texts]  # in the first of its groups alone
        if shown:
            yield f"stage {group.stage} {group.name}: {'; '.join(shown)}"
    if findings.has_topdown:
        yield f"bottleneck: {' > '.join(diagnosis.path) or UNKNOWN}{'. ' * bool(diagnosis.advice)}{diagnosis.advice}"
    if diagnosis.groups:
        yield f"look at: {', '.join(diagnosis.groups)}"
    for sentence in findings.disagreements:
        yield f"disagreement: {sentence}"
    yield "labels: 1/1000 of a metric's unit, of ratios 1/1000000; of the innermost function, where samples suffice"
    if left_out:
        least = f"{plural(left_out, 'function', 's')} with the least self time"
        yield f"labels: {least} without metrics: the file would be too large"


def _texts(table: MetricTable) -> dict[str, str]:
    """The first row's known values by metric, such as "ipc 0.81 ± 0.02 per cycle", those of SPE beside the PMU's."""
    texts: dict[str, list[str]] = {}
    for name, each in table.row(0):
        doubt = "" if each.is_significant else " (too few samples)"
        half_width = each.half_width if each.half_width > abs(each.value) * 1e-6 else 0.0  # what is left of rounding
        text = f"{_key(name, each.source)} {each.value:.4g} ± {half_width:.2g} {each.units}{doubt}"
        texts.setdefault(name, []).append(text)
    return {name: ", ".join(mine) for name, mine in texts.items()}
