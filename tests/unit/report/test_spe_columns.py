"""What SPE measured stands in the rows of the text report, each row's own."""

from pathlib import Path

import pytest
from rich.console import Console

from builders.spe_capture import write_spe_capture
from tdprof.pipeline import load_profile
from tdprof.report.hotspots import find_hotspots
from tdprof.report.text import render_text
from tdprof.spe_join import join_spe


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("spe") / "capture")


def table(capture: Path, *, by_line: bool, width: int = 200) -> list[list[str]]:
    """Words of the heading and of the rows."""
    profile = load_profile(capture)
    findings = join_spe(None, capture, profile)
    hotspots = find_hotspots(profile, by_line=by_line)
    console = Console(width=width, no_color=True)
    text = render_text(profile, hotspots, [], console, limit=0, by_line=by_line, sort_event=0, findings=findings)
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if "function" in line)
    return [line.split("  ") for line in lines[start:] if line]


def cells(row: list[str]) -> list[str]:
    return [cell.strip() for cell in row if cell.strip()]


def test_each_function_has_its_own(capture: Path) -> None:
    heading, work, parse = map(cells, table(capture, by_line=False))
    assert heading[5:8] == ["SPE mispredict %", "SPE L1D miss %", "SPE DTLB walk %"]
    assert work[5:] == ["25.0 ±6.4", "10.0 ±2.3", "0.0 ±0.5", "app", "work"]
    assert parse[5:] == ["0.0 ±27.8", "0.0 ±4.1", "0.0 ±4.1", "app", "parse"]


def test_each_line_has_its_own(capture: Path) -> None:
    rows = {row[-2]: row for row in map(cells, table(capture, by_line=True)[1:])}
    assert rows["app.c:10"][5:7] == ["10.0 ±2.7", "0.0 ±0.6"]  # no branches
    assert rows["app.c:11"][5:8] == ["25.0 ±6.4", "10.0 ±4.9", "0.0 ±1.9"]


def test_a_narrow_table_keeps_shares_and_names(capture: Path) -> None:
    assert not any("SPE" in cell for row in table(capture, by_line=False, width=60) for cell in row)
