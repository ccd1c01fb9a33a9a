"""Metrics as pprof labels and comments: whole numbers in named fractions of a unit, and nothing that is noise."""

import gzip
import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from google.protobuf import text_format

from builders.topdown_example import topdown_example
from tdprof import __version__
from tdprof.export import pprof_findings, pprof_pb2
from tdprof.export.pprof import build_pprof, write_pprof
from tdprof.model.findings import Findings


def labels_by_leaf(findings: Findings) -> dict[str, dict[str, object]]:
    """Label values by the name of each sample's innermost function; numbers come as (number, unit)."""
    profile, _ = topdown_example()
    message = build_pprof(profile, findings)
    text = message.string_table
    functions = {each.id: text[each.name] for each in message.function}
    locations = {each.id: functions[each.line[0].function_id] for each in message.location}
    return {
        locations[sample.location_id[0]]: {
            text[label.key]: text[label.str] if label.str else (label.num, text[label.num_unit])
            for label in sample.label
        }
        for sample in message.sample
    }


def test_golden(check_golden: Callable[[str, str], None]) -> None:
    profile, findings = topdown_example()
    out = io.BytesIO()
    write_pprof(profile, out, findings)
    message = pprof_pb2.Profile.FromString(gzip.decompress(out.getvalue()))
    text = text_format.MessageToString(message, as_utf8=True)
    check_golden("export/topdown.pprof.txt", text.replace(f"tdprof {__version__}", "tdprof VERSION"))


def test_a_number_times_its_units_fraction_is_the_metric() -> None:
    work = labels_by_leaf(topdown_example()[1])["work"]
    assert work["l1d_cache_mpki"] == (12345, "1/1000 MPKI")
    assert work["l1d_cache_mpki_half_width"] == (400, "1/1000 MPKI")
    assert work["backend_bound"] == (62400, "1/1000 percent of slots")
    assert work["ipc"] == (813, "1/1000 per cycle")
    assert work["l1d_cache_miss_ratio"] == (34200, "1/1000000 per cache access")
    assert work["spe_l1d_cache_miss_ratio"] == (20100, "1/1000000 per cache access")
    assert (work["bottleneck"], work["topdown_path"]) == ("backend_bound", "backend_bound")


def test_metrics_with_too_few_samples_are_left_out() -> None:
    labels = labels_by_leaf(topdown_example()[1])
    others = {"pid", "tid", "comm", "thread_comm"}
    for name in ("rare", "main", "[no call stack]"):
        assert set(labels[name]) - others == {"bottleneck"}
        assert labels[name]["bottleneck"] == "unknown"


def test_an_error_is_not_rounded_down_to_none() -> None:
    findings = topdown_example()[1]
    table = replace(findings.functions, half_width=np.full_like(findings.functions.half_width, 1e-9))
    work = labels_by_leaf(replace(findings, functions=table))["work"]
    assert work["ipc_half_width"] == (1, "1/1000 per cycle")


def test_the_coldest_functions_lose_their_metrics_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = topdown_example()[1]
    monkeypatch.setattr(pprof_findings, "MOST_LABELS", 16)
    labels = labels_by_leaf(findings)
    assert "ipc" in labels["work"]
    assert "ipc" not in labels["parse"]
    assert labels["parse"]["bottleneck"] == "frontend_bound"
    message = build_pprof(topdown_example()[0], findings)
    assert any("1 function with the least self time without metrics" in text for text in message.string_table)
