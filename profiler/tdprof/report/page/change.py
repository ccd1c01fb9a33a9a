"""What changed since another capture, as the HTML page colours by it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.choices import Basis
from tdprof.profile.compare import Changes, Comparison, Match

MOST_GONE = 200


def change_columns(
    comparison: Comparison, function: NDArray[np.int32]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and columns of the events' changes, event by event, in points: percent of all that the older capture had.

    Args:
        comparison: of the older capture, A, with the page's, B.
        function: int32[n], function ids of B as in ``FrameStacks``, in the page's order.
    """
    row = comparison.functions.row_of_b[function]
    columns: dict[str, NDArray[Any]] = {}
    for name, changes in (("changeSelf", comparison.self_changes), ("changeTotal", comparison.inclusive_changes)):
        events = _events(changes)
        points = _points(comparison, changes)
        for label, values in (("A", changes.a), ("B", changes.b), ("Low", changes.low), ("High", changes.high)):
            columns[f"{name}{label}"] = (values[row][:, events] * points).T.reshape(-1).astype(np.float32)
        is_significant = changes.is_significant[row][:, events]
        columns[f"{name}IsSignificant"] = is_significant.T.reshape(-1).astype(np.uint8)
    return {"basis": comparison.basis.value, "events": _names(comparison), "gone": _gone(comparison)}, columns


def _events(changes: Changes) -> list[int]:
    return [i for i, quantity in enumerate(changes.quantities) if quantity.source == "samples"]


def _names(comparison: Comparison) -> list[str]:
    changes = comparison.self_changes
    return [changes.quantities[i].name for i in _events(changes)]


def _points(comparison: Comparison, changes: Changes) -> NDArray[np.float64]:
    """What one unit of each event's values is in points; NaN where the older capture has nothing of the event."""
    names = [changes.quantities[i].name for i in _events(changes)]
    if comparison.basis is Basis.SHARE:
        return np.ones(len(names))
    totals = [comparison.program.column(name) for name in names]
    whole = np.array([np.nan if i is None else comparison.program.a[0, i] for i in totals], np.float64)
    with np.errstate(divide="ignore"):
        points = 100 / whole
    return np.where(np.isfinite(points), points, np.nan)


def _gone(comparison: Comparison) -> list[dict[str, Any]]:
    """Functions that only the older capture has, by their shares of its events' samples, most of the first first."""
    functions = comparison.functions
    rows = [row for row, match in enumerate(functions.match) if match is Match.ONLY_A]
    rows.sort(key=lambda row: -comparison.share_a[row, 0])
    return [{"name": functions.names[row], "shares": comparison.share_a[row].tolist()} for row in rows[:MOST_GONE]]
