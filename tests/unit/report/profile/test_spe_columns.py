"""What SPE measured stands in the rows of the text report, each row's own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from builders.opened import joined_with_spe, profile_of
from builders.spe_capture import write_spe_capture
from tdprof.cli.report import command
from tdprof.profile.hotspots import find_hotspots
from tdprof.report.profile.text import render_text


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("spe") / "capture")


def table(capture: Path, *, by_line: bool, width: int = 200) -> list[list[str]]:
    """Words of the heading and of the rows."""
    profile = profile_of(capture)
    findings = joined_with_spe(capture)
    hotspots = find_hotspots(profile, by_line=by_line)
    console = Console(width=width, no_color=True)
    text = render_text(profile, hotspots, [], console, limit=0, by_line=by_line, sort_event=0, findings=findings)
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "function" in line)
    assert ("~ too few samples" in lines[-1]) == (width > 80)
    return [line.split("  ") for line in lines[start:] if line and not line.startswith("SPE: ±")]


def cells(row: list[str]) -> list[str]:
    return [cell.strip() for cell in row if cell.strip()]


def test_each_function_has_its_own(capture: Path) -> None:
    heading, work, parse = map(cells, table(capture, by_line=False))
    assert heading[5:8] == ["SPE mispredict %", "SPE L1D miss %", "SPE DTLB walk %"]
    assert work[5:] == ["25.0 ± 6.4", "10.0 ± 2.3", "0.00 (0.00-0.48)", "app", "work"]
    assert parse[5:] == ["~0 (0-28)", "0.0 (0.0-4.1)", "0.0 (0.0-4.1)", "app", "parse"]


def test_each_line_has_its_own(capture: Path) -> None:
    rows = {row[-2]: row for row in map(cells, table(capture, by_line=True)[1:])}
    assert rows["app.c:10"][5:7] == ["10.0 ± 2.7", "0.00 (0.00-0.64)"]  # no branches
    assert rows["app.c:11"][5:8] == ["25.0 ± 6.4", "10.0 ± 4.9", "0.0 (0.0-1.9)"]


def test_what_spe_says_otherwise_stands_above_the_table(capture: Path) -> None:
    """As of kernel code that masks interrupts: samples have it elsewhere."""
    profile, findings = profile_of(capture), joined_with_spe(capture)
    assert findings
    sentence = "SPE does not wait for interrupts: of the kernel's operations it has update 70% (samples: 0%)"
    said = replace(findings, disagreements=[sentence])
    console = Console(width=200, no_color=True)
    hotspots = find_hotspots(profile)
    text = render_text(profile, hotspots, [], console, limit=0, by_line=False, sort_event=0, findings=said)
    assert text.index(sentence) < text.index("SPE L1D miss %")


def report(capture: Path, *arguments: str) -> str:
    result = CliRunner().invoke(command, [str(capture), *arguments], catch_exceptions=False, env={"COLUMNS": "160"})
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_the_command_shows_both_sources_by_name(tmp_path: Path, capture: Path) -> None:
    assert "SPE L1D miss %" in report(capture)
    topdown = write_spe_capture(tmp_path / "topdown", is_topdown=True)
    text = " ".join(report(topdown).split())
    assert "l1d_cache_miss_ratio 0.300 ± 0.013 (program 0.203, SPE 0.100 ± 0.023)" in text
    assert "dtlb_walk_ratio SPE 0.0000 ± 0.0048" in text
    assert "by the PMU but 0.1 ± 0.023 by SPE" in text
    one = [line.split() for line in report(topdown, "--function", "work").splitlines()]
    assert ["dtlb_walk_ratio", "0.0000", "±", "0.0048", "per", "TLB", "access"] in one
    metrics = json.loads(report(topdown, "--json"))["functions"][0]["metrics"]
    assert metrics["l1d_cache_miss_ratio"]["source"] == "pmu"
    assert metrics["l1d_cache_miss_ratio"]["spe"]["value"] == 0.1
    assert metrics["dtlb_walk_ratio"]["source"] == "spe"


def test_spe_alone_has_no_methodology_to_follow(capture: Path) -> None:
    assert "calls" in report(capture, "--tree").split()  # of the program, not of the methodology
    (work, _) = json.loads(report(capture, "--json"))["functions"]
    assert (work["bottleneck"], work["metrics"]["l1d_cache_miss_ratio"]["value"]) == (None, 0.1)


def test_a_narrow_table_keeps_shares_and_names(capture: Path) -> None:
    assert not any("SPE" in cell for row in table(capture, by_line=False, width=60) for cell in row)
