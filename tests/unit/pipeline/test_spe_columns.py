"""SPE's metrics in the rows of a capture's functions and lines, and where the PMU says otherwise."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders.captures import write_manifest
from builders.findings import findings_of
from builders.hosts import HOST
from builders.opened import function_operations, joined_with_spe, profile_of
from builders.profiles import ProfileBuilder
from builders.spe_capture import write_spe_capture
from tdprof.capture.manifest import read_manifest
from tdprof.metrics.spe import share_interval
from tdprof.model.findings import Findings, MetricTable
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_columns import catalog_of, disagreements, join_spe
from tdprof.profile.frames import function_names


def values(table: MetricTable, row: int, metric: str) -> tuple[float, float, int, bool]:
    """Value, half width, samples, significance of what SPE measured."""
    column = table.column(metric, "spe")
    assert column is not None
    at = (row, column)
    return float(table.value[at]), float(table.half_width[at]), int(table.samples[at]), bool(table.is_significant[at])


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("spe") / "capture")


@pytest.fixture(scope="module")
def joined(capture: Path) -> Findings:
    findings = joined_with_spe(capture)
    assert findings is not None
    return findings


def test_functions_have_the_shares_of_their_own_operations(capture: Path, joined: Findings) -> None:
    names = function_names(profile_of(capture))
    assert [names[function] for function in joined.function.tolist()] == ["work", "parse"]
    value, half_width, samples, is_significant = values(joined.functions, 0, "l1d_cache_miss_ratio")
    assert (value, samples, is_significant) == (80 / 800, 800, True)
    share = share_interval(np.array([80]), np.array([800]))
    assert half_width == pytest.approx(float(share.high[0]) - 0.1)  # the longer side
    assert values(joined.functions, 0, "branch_misprediction_ratio")[0] == 50 / 200
    assert values(joined.functions, 0, "load_percentage")[0] == 80.0
    assert values(joined.functions, 1, "l1d_cache_miss_ratio")[0] == 0
    assert joined.functions.units[joined.functions.column("load_percentage", "spe") or 0] == "percent of operations"


def test_a_share_of_few_operations_is_not_significant(joined: Findings) -> None:
    value, _, samples, is_significant = values(joined.functions, 1, "branch_misprediction_ratio")
    assert (value, samples, is_significant) == (0, 10, False)


def test_lines_have_their_own(joined: Findings) -> None:
    lines = dict(zip(joined.line.tolist(), range(len(joined.line)), strict=True))
    assert values(joined.lines, lines[10], "l1d_cache_miss_ratio")[0] == 60 / 600
    assert values(joined.lines, lines[11], "l1d_cache_miss_ratio")[0] == 20 / 200
    assert list(lines) == [10, 30, 11]  # 11 only calls


def test_the_program_has_code_that_no_sample_has(joined: Findings) -> None:
    assert values(joined.program, 0, "l1d_cache_miss_ratio")[:1] == (480 / (800 + 90 + 400),)


def test_spe_knows_no_callers(joined: Findings) -> None:
    assert np.isnan(joined.inclusive.value).all()
    assert joined.inclusive.metrics == joined.functions.metrics


def test_the_pmus_columns_come_first_and_disagreements_are_said(capture: Path) -> None:
    profile = profile_of(capture)
    work = {"l1d_cache_miss_ratio": (0.30, 0.02), "branch_misprediction_ratio": (0.26, 0.02)}
    parse = {"l1d_cache_miss_ratio": (0.30, 0.29), "branch_misprediction_ratio": (0.9, 0.02)}
    program = {"l1d_cache_miss_ratio": (0.37, 0.02)}
    pmu = findings_of(profile, program, {"work": work, "parse": parse}, {}, core="neoverse-v1")
    joined = joined_with_spe(capture, pmu)
    assert joined is not None
    assert list(joined.functions.sources)[:3] == ["pmu", "pmu", "spe"]
    assert dict(joined.functions.row(0)[:1])["l1d_cache_miss_ratio"].value == 0.30
    # Of parse SPE has ten branches, and a miss ratio within the PMU's error; the program's is within both errors.
    assert [sentence.split(":")[0] for sentence in joined.disagreements] == [
        "l1d_cache_miss_ratio of work is 0.3 ± 0.02 per cache access by the PMU but 0.1 ± 0.023 by SPE"
    ]


def test_a_metric_that_differs_everywhere_does_not_fill_a_page() -> None:
    builder = ProfileBuilder()
    names = [f"f{number}" for number in range(9)]
    for name in names:
        builder.add(name)
    apart = {"load_percentage": (10.0, 1.0), "spe:load_percentage": (30.0, 1.0)}
    findings = findings_of(builder.build(), apart, dict.fromkeys(names, apart), {})
    sentences = disagreements(findings, names)
    assert [sentence.split(" is ")[0] for sentence in sentences[:4]] == [
        f"load_percentage of {name}" for name in ("the program", "f0", "f1", "f2")
    ]
    assert sentences[4:] == ["load_percentage differs so in 6 more functions"]


def test_without_spe_or_samples_nothing_changes(capture: Path, tmp_path: Path) -> None:
    silent = write_spe_capture(tmp_path / "silent", has_samples=False)
    assert joined_with_spe(silent) is None
    profile = profile_of(capture)
    write_manifest(silent, replace(read_manifest(silent), spe=None))
    with OpenCapture(silent) as opened:
        assert join_spe(None, opened, profile) is None


def test_the_catalog_is_that_of_most_cpus() -> None:
    v1, n1 = "0x410fd400", "0x410fd0c0"
    assert catalog_of(replace(HOST, midr_el1={"0": n1, "1": v1, "2": v1})).name == "neoverse-v1"
    for registers in ({}, {"0": "nonsense"}, {"0": "0xc00fac50"}):
        assert catalog_of(replace(HOST, midr_el1=registers)).name == "armv8-pmuv3"


def test_functions_have_their_latencies_and_sources(capture: Path) -> None:
    profile = profile_of(capture)
    found = function_operations(capture)
    assert found is not None
    names = dict(enumerate(function_names(profile)))
    rows = {names.get(function): row for row, function in enumerate(found.function.tolist())}
    assert set(rows) == {"work", "parse"}  # not that which no sample has
    assert found.report.total_operations == 1500
    work = rows["work"]
    assert found.report.latencies["total_latency"][work].tolist() == [8, 20, 200]
    assert {level: int(count[work]) for level, count in found.report.levels.items() if count[work]} == {
        "l1": 720,
        "l2": 20,
        "dram": 60,
    }
