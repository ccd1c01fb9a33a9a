"""Samples by process, thread, command, module, control group, language, second, phase or state, as CSV."""

from collections.abc import Iterator
from typing import Any

from tdprof.model.profile import Profile
from tdprof.profile.groups import Groups
from tdprof.report.csv_lines import write_rows
from tdprof.report.groups.json import rows_json


def render_csv(profile: Profile, groups: Groups, *, limit: int = 0) -> Iterator[str]:
    """A row for each group, at most ``limit`` (0: all), weights of every event; what is not known is empty."""
    rows = [_flat(row) for row in rows_json(profile, groups, limit)]
    return write_rows([*rows[0]] if rows else [], ([*row.values()] for row in rows))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for key, value in row.items():
        if key == "changes":
            continue  # a list for each row
        if isinstance(value, dict):
            cells |= {f"{key}_{name}": number for name, number in value.items()}
        else:
            cells[key] = "" if value is None else value
    return cells
