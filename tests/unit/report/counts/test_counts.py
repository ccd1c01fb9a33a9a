"""What `tdprof stat --json` tells of a measurement."""

from tdprof.catalog.choose import load_packaged
from tdprof.metrics.diagnosis import diagnose_counts
from tdprof.model.findings import NO_DIAGNOSIS
from tdprof.model.measurement import Measured, Measurement
from tdprof.report.counts.json import measurement_json
from tdprof.report.findings.json import diagnosis_json

V1 = load_packaged("neoverse-v1")
LEVEL_1 = {"frontend_bound": 10.0, "backend_bound": 60.0, "retiring": 25.0, "bad_speculation": 5.0}
MEASUREMENT = Measurement(1.0, 1.0, {}, {name: Measured(value, "percent of slots") for name, value in LEVEL_1.items()})


def test_a_diagnosis_has_the_shape_that_the_report_gives_it() -> None:
    diagnosis = diagnose_counts(V1, MEASUREMENT.values())
    found = measurement_json(MEASUREMENT, V1, diagnosis, ("a note",), {"exit_status": 0})
    assert {key: found[key] for key in diagnosis_json(diagnosis)} == diagnosis_json(diagnosis)
    assert found["bottleneck"] == "backend_bound"
    assert found["path"] == ["backend_bound"]
    assert found["groups"] == list(V1.tree["backend_bound"])
    assert found["advice"].startswith("Backend Bound: ")
    assert (found["notes"], found["exit_status"]) == (["a note"], 0)


def test_without_a_catalog_there_is_no_bottleneck() -> None:
    found = measurement_json(MEASUREMENT, None, NO_DIAGNOSIS, (), {})
    assert (found["bottleneck"], found["path"], found["groups"], found["advice"]) == (None, [], [], None)
