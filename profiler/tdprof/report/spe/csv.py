"""SPE operations as comma-separated values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from tdprof.model.spe import LATENCIES, SpeReport, mean_latency
from tdprof.report.csv_lines import write_rows
from tdprof.report.spe.json import QUANTILE_NAMES


def render_csv(report: SpeReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each row of the report: exact counts, loads by level, latencies in cycles, ratios and their bounds."""
    columns: dict[str, NDArray[Any]] = {name.lower(): values for name, values in report.counts.items()}
    columns |= {f"loads_from_{level}": values for level, values in report.levels.items()}
    for name in LATENCIES:
        columns[f"{name}_mean"] = mean_latency(report, name)
        columns |= {f"{name}_{label}": report.latencies[name][:, i] for i, label in enumerate(QUANTILE_NAMES)}
    for name, ratio in report.ratios.items():
        columns |= {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    if report.threads is not None:
        columns["threads"] = report.threads
    order = report.order()[: limit or None]
    sharing = [] if report.sharing is None else ["sharing"]

    def rows() -> Iterator[list[Any]]:
        for row in order.tolist():
            cells = [values[row].item() for values in columns.values()]
            yield [
                report.names[row],
                *("" if cell != cell else cell for cell in cells),  # NaN is unknown
                *([] if report.sharing is None else [report.sharing[row]]),
            ]

    return write_rows(["name", *columns, *sharing], rows())
