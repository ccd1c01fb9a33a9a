"""What `tdprof stat` counted as comma-separated values."""

from collections.abc import Iterator

from tdprof.model.measurement import Measurement
from tdprof.report.csv_lines import write_rows

COLUMNS = ("time_s", "kind", "name", "value", "units", "standard_deviation", "running_percent", "reason")


def format_csv(measurement: Measurement, *, with_heading: bool = True) -> str:
    """One row for each event and metric; an empty value where there is none."""
    return "".join(write_rows(COLUMNS if with_heading else (), _rows(measurement))).rstrip("\n")


def _rows(measurement: Measurement) -> Iterator[list[object]]:
    time_s = f"{measurement.end_s:.6f}" if measurement.end_s else ""
    for kind, values in (("event", measurement.events), ("metric", measurement.metrics)):
        for name, value in values.items():
            known = value.value if value.is_known else ""
            spread = "" if value.standard_deviation is None else value.standard_deviation
            yield [time_s, kind, name, known, value.units, spread, f"{value.running_percent:.2f}", value.reason]
