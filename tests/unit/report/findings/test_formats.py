"""Metrics in the JSON and CSV reports."""

import csv
import io
import json
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import numpy as np

from builders.topdown import EXAMPLE, topdown_profile, true_metrics
from builders.topdown_example import topdown_example
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.hotspots import find_hotspots, unknown_samples
from tdprof.report.findings.csv import metric_csv, tree_csv
from tdprof.report.findings.json import metrics_json, tree_json
from tdprof.report.profile.csv import hotspot_csv
from tdprof.report.profile.json import render_json

NUMBER_OR_NULL = {"type": ["number", "null"]}
VALUE = {
    "type": "object",
    "properties": {
        "value": NUMBER_OR_NULL,
        "half_width": NUMBER_OR_NULL,
        "at_most": {"type": "number", "exclusiveMinimum": 0},
        "units": {"type": "string"},
        "source": {"enum": ["pmu", "spe"]},
        "samples": {"type": "integer", "minimum": 0},
        "significant": {"type": "boolean"},
        "spe": {"type": "object", "required": ["value", "half_width", "samples", "significant"]},
    },
    "required": ["value", "half_width", "units", "source", "samples", "significant"],
    "additionalProperties": False,
}
DIAGNOSED = {
    "metrics": {"type": "object", "additionalProperties": VALUE},
    "bottleneck": {"type": ["string", "null"]},
    "path": {"type": "array", "items": {"type": "string"}},
    "groups": {"type": "array", "items": {"type": "string"}},
    "advice": {"type": ["string", "null"]},
}
REPORT = {
    "type": "object",
    "properties": {
        "core": {"type": "string"},
        "program": {"type": "object", "properties": DIAGNOSED, "required": list(DIAGNOSED)},
        "disagreements": {"type": "array", "items": {"type": "string"}},
        "functions": {
            "type": "array",
            "items": {"type": "object", "properties": DIAGNOSED, "required": list(DIAGNOSED)},
        },
    },
    "required": ["core", "program", "disagreements", "functions", "events", "losses", "notes"],
}


@cache
def example() -> tuple[Profile, Findings]:
    profile = topdown_profile(seconds=8)
    findings = find_findings(profile)
    assert findings is not None
    return calibrated(profile), findings


def report_of(*, by_line: bool = False, is_whole: bool = False) -> Any:
    profile, findings = example()
    hotspots = find_hotspots(profile, by_line=by_line)
    pieces = render_json(profile, hotspots, unknown_samples(profile), findings, by_line=by_line, is_whole=is_whole)
    return json.loads("".join(pieces), parse_constant=lambda name: 1 / 0)  # no NaN, which is no JSON


def test_the_report_has_the_documented_form() -> None:
    report = report_of()
    jsonschema.validate(report, REPORT)
    assert report["core"] == "neoverse-n3"
    assert report["program"]["bottleneck"] == "backend_bound"
    by_name = {each["name"]: each for each in report["functions"]}
    truth = true_metrics([EXAMPLE[0]])
    for name in ("backend_bound", "l2_cache_mpki"):
        value = by_name["chase"]["metrics"][name]
        assert value["significant"]
        assert abs(value["value"] - truth[name]) < 1.5 * value["half_width"]
    assert by_name["chase"]["path"][-1] == "backend_cache_l2d_bound"
    assert by_name["main"]["metrics"] == {}
    assert by_name["main"]["bottleneck"] is None


def test_nothing_seen_is_null_with_a_bound() -> None:
    values = [value for each in report_of()["functions"] for value in each["metrics"].values()]
    unseen = [value for value in values if "at_most" in value]
    assert unseen
    assert all(value["value"] is None and not value["significant"] for value in unseen)
    assert any(value["value"] is None and "at_most" not in value for value in values)


def test_lines_have_metrics() -> None:
    line = next(each for each in report_of(by_line=True)["functions"] if each["name"] == "chase")
    assert line["line"] == 1
    assert line["metrics"]["backend_bound"]["significant"]


def test_one_function_has_all() -> None:
    chase = next(each for each in report_of(is_whole=True)["functions"] if each["name"] == "chase")
    assert [each["line"] for each in chase["lines"]] == [1]
    [path] = chase["call_paths"]
    assert path["functions"] == ["chase", "solve", "main"]
    assert path["metrics"]["backend_bound"] == chase["metrics"]["backend_bound"]
    solve = next(each for each in report_of(is_whole=True)["functions"] if each["name"] == "solve")
    assert solve["inclusive_metrics"]["backend_bound"]["samples"] > solve["metrics"]["backend_bound"]["samples"]


def test_what_both_measured_is_the_pmus_with_spe_beside() -> None:
    _, findings = topdown_example()
    row = next(row for row, each in enumerate(findings.diagnoses) if each.bottleneck == "backend_bound")
    value = metrics_json(findings.functions, row)["l1d_cache_miss_ratio"]
    assert (value["source"], value["value"]) == ("pmu", 0.0342)
    assert value["spe"] == {"value": 0.0201, "half_width": 0.0012, "samples": 1000, "significant": True}


def test_the_tree_names_each_node() -> None:
    rows = tree_json(example()[1])
    assert [row["name"] for row in rows if row["depth"] == 0][:4] == [
        "frontend_bound",
        "backend_bound",
        "retiring",
        "bad_speculation",
    ]
    assert all("value" in row for row in rows if row["kind"] == "metric")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_a_row_for_each_function() -> None:
    profile, findings = example()
    text = "".join(hotspot_csv(profile, find_hotspots(profile), findings, by_line=False, sort_event=0))
    rows = {row["function"]: row for row in rows_of(text)}
    assert rows["chase"]["bottleneck"] == "backend_bound"
    assert 75 < float(rows["chase"]["backend_bound"]) < 90
    assert rows["chase"]["backend_bound_significant"] == "true"
    assert rows["main"]["backend_bound"] == rows["main"]["backend_bound_half_width"] == ""
    assert sum(float(row["self_share"]) for row in rows.values()) - 1 < 1e-9


def test_csv_of_lines_tree_and_one_function() -> None:
    profile, findings = example()
    lines = rows_of(
        "".join(hotspot_csv(profile, find_hotspots(profile, by_line=True), findings, by_line=True, sort_event=0))
    )
    assert {row["line"] for row in lines} == {"1", "10"}
    assert all(row["backend_bound"] == "" for row in lines if row["line"] == "10")
    tree = rows_of("".join(tree_csv(findings)))
    assert {row["kind"] for row in tree} == {"metric", "group"}
    one = rows_of("".join(metric_csv(findings, 0)))
    assert {row["scope"] for row in one} == {"itself", "with callees", "program"}


def test_csv_without_metrics_has_shares() -> None:
    profile = replace(example()[0], topdown=None)
    rows = rows_of("".join(hotspot_csv(profile, find_hotspots(profile), None, by_line=False, sort_event=0)))
    assert "bottleneck" not in rows[0]
    assert float(rows[0]["self_share_half_width"]) > 0


def test_values_that_are_not_known_are_empty_in_csv() -> None:
    profile, findings = example()
    none = replace(
        findings, functions=replace(findings.functions, value=np.full_like(findings.functions.value, np.nan))
    )
    rows = rows_of("".join(hotspot_csv(profile, find_hotspots(profile), none, by_line=False, sort_event=0)))
    assert {row["backend_bound"] for row in rows} == {""}
