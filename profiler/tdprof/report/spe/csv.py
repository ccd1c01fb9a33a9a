"""SPE operations as comma-separated values."""

from __future__ import annotations

from collections.abc import Iterator

from tdprof.model.spe import LATENCIES, SpeReport, mean_latency
from tdprof.report.csv_columns import Column, write_columns
from tdprof.report.spe.json import QUANTILE_NAMES


def render_csv(report: SpeReport, *, limit: int = 0) -> Iterator[str]:
    """A row for each row of the report: exact counts, loads by level, latencies in cycles, ratios and their bounds."""
    return write_columns(
        [*_columns(report)], ((list(_columns(part).values()), rows) for part, rows in report.parts(limit))
    )


def _columns(report: SpeReport) -> dict[str, Column]:
    columns: dict[str, Column] = {"name": report.names}
    columns |= {name.lower(): values for name, values in report.counts.items()}
    columns |= {f"loads_from_{level}": values for level, values in report.levels.items()}
    for name in LATENCIES:
        columns[f"{name}_mean"] = mean_latency(report, name)
        columns |= {f"{name}_{label}": report.latencies[name][:, i] for i, label in enumerate(QUANTILE_NAMES)}
    for name, ratio in report.ratios.items():
        columns |= {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    if report.threads is not None:
        columns["threads"] = report.threads
    if report.sharing is not None:
        columns["sharing"] = [found.how if found else "" for found in report.sharing]
    if report.users is not None:
        columns["processes"] = ["; ".join(f"{user} 0x{user.address:x}" for user in users) for users in report.users]
    return columns
