"""What all forms of a comparison show: functions in their order, values with what changed in them."""

from typing import Any

import numpy as np

from tdprof.profile.compare import Changes, Comparison


def order_functions(comparison: Comparison, event: int) -> list[int]:
    """Rows: significant ones first, then the largest difference; then what takes most, and names."""
    changes = comparison.self_changes
    tables = (changes.is_significant, comparison.inclusive_changes.is_significant)
    is_marked: list[bool] = [any(row) for row in np.concatenate(tables, axis=1).tolist()]
    difference = np.abs(changes.b[:, event] - changes.a[:, event])
    size = changes.b[:, event]
    names = comparison.functions.names
    return sorted(range(len(names)), key=lambda row: (not is_marked[row], -difference[row], -size[row], names[row]))


def changed_values(changes: Changes, row: int) -> list[dict[str, Any]]:
    """The values of a row; those that neither capture has are left out."""
    known = ~(np.isnan(changes.a[row]) & np.isnan(changes.b[row]))
    return [
        {
            "quantity": quantity.name,
            "source": quantity.source,
            "units": quantity.units,
            **{name: _number(getattr(changes, name)[row, column]) for name in ("a", "b", "low", "high", "p")},
            "is_significant": bool(changes.is_significant[row, column]),
        }
        for column, quantity in enumerate(changes.quantities)
        if known[column]
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
