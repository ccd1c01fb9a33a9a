"""What `tdprof stat` counted for machines: one JSON object."""

import json
from collections.abc import Sequence
from typing import Any

from tdprof.catalog.entries import Catalog
from tdprof.model.findings import Diagnosis
from tdprof.model.measurement import Measured, Measurement
from tdprof.report.findings.json import diagnosis_json


def metrics_json(measurement: Measurement) -> dict[str, Any]:
    """Metric to value and units: all that `--counts --json` prints."""
    return {name: _json_of(value) for name, value in measurement.metrics.items()}


def measurement_json(
    measurement: Measurement, catalog: Catalog | None, diagnosis: Diagnosis, notes: Sequence[str], extra: dict[str, Any]
) -> dict[str, Any]:
    """Everything of a live measurement; ``extra`` is what is known of the run as a whole."""
    return {
        "cpu": catalog.name if catalog else None,
        "time_s": measurement.end_s,
        "seconds": measurement.seconds,
        **extra,
        "events": {name: _json_of(value) for name, value in measurement.events.items()},
        "metrics": metrics_json(measurement),
        **diagnosis_json(diagnosis),
        "notes": list(notes),
    }


def _json_of(value: Measured) -> dict[str, Any]:
    """Value and units always, doubts where there are any. JSON has no NaN."""
    found: dict[str, Any] = {"value": value.value if value.is_known else None, "units": value.units}
    if value.standard_deviation is not None:
        found["standard_deviation"] = value.standard_deviation
    if value.reason:
        found["reason"] = value.reason
    elif value.running_percent < 100:
        found["running_percent"] = value.running_percent
    return found


def format_json(value: dict[str, Any], *, one_line: bool = False) -> str:
    """JSON text."""
    return json.dumps(value, indent=None if one_line else 1, ensure_ascii=False, allow_nan=False)
