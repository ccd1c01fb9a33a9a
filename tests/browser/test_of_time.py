"""Metrics of the time that is chosen on the page's strip, in headless Chromium: the report's, digit for digit."""

import re
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import NEEDS, drive
from builders.topdown import EXAMPLE, MEMORY_BOUND, RETIRING, Code, topdown_profile
from tdprof.model.choices import Selection
from tdprof.model.findings import Findings, MetricValue
from tdprof.model.profile import Profile
from tdprof.model.time_range import parse_time_ranges
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.frames import function_names
from tdprof.profile.selection import select
from tdprof.report.page.data import Page
from tdprof.report.page.html import write_html

pytestmark = [*NEEDS, pytest.mark.slow]

# Eight seconds of each; the functions do other things in the second phase.
FIRST = EXAMPLE
SECOND = (
    Code("chase", 30, RETIRING.events, MEMORY_BOUND.callers),
    Code("sort", 45, MEMORY_BOUND.events, ("main", "solve")),
    Code("mix", 25),
)
NAMES = ("chase", "interpret", "sort", "mix", "solve")
TIMES = {"first": "0s-8s", "second": "8s-16s", "short": "8s-10s"}


def both() -> Profile:
    return topdown_profile(FIRST, then=SECOND, seconds=8, samples=2000)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("page") / "of-time.html"
    profile = both()
    with file.open("wb") as out:
        write_html(Page(calibrated(profile), find_findings(profile, by_time=True)), out)
    return drive("of_time.mjs", Path(file), *NAMES)


def reported(time: str) -> tuple[list[str], Findings]:
    """What `report --time` has of it."""
    profile = both()
    part = select(profile, Selection(times=tuple(parse_time_ranges(time))))
    found = find_findings(profile, part=part)
    assert found is not None
    return [function_names(part)[function] for function in found.function], found


def assert_shown(text: str, value: MetricValue, what: str) -> None:
    """A metric as the page writes it, of which it shows fewer digits than the report where there are many."""
    text, is_doubtful = text.removesuffix(", too few samples"), text.endswith(", too few samples")
    assert is_doubtful == (not value.is_significant), what
    number, half = value.value, value.half_width
    if value.is_unseen:
        wanted = [half]
    elif "(" in text:
        wanted = [min(max(each, 0.0), 100.0) for each in (number, number - half, number + half)]
    else:
        wanted = [number, half]
    digits = re.findall(
        r"(<?)(-?[\d.]+)", text.replace("< ", "").replace("-", " ") if "(" in text else text.replace("< ", "")
    )
    assert len(digits) == len(wanted), (what, text)
    for (below, got), want in zip(digits, wanted, strict=True):
        decimals = len(got.partition(".")[2])
        if below:
            assert want < float(got) / 2, (what, text, value)
        else:
            assert got == f"{want:.{decimals}f}".replace("-0.000", "0.000"), (what, text, value)


def assert_same(told: list[list[str]], found: Findings, row: list[tuple[str, MetricValue]], what: str) -> None:
    values = {found.catalog.metrics[name].title: value for name, value in row}
    for title, source, text, _ in told:
        assert source == "PMU"
        if text.startswith("unknown"):
            assert title not in values, (what, title)
        else:
            assert_shown(text, values[title], f"{what}: {title}")


@pytest.mark.parametrize("which", TIMES)
def test_every_metric_of_the_time_is_the_reports(seen: Any, which: str) -> None:
    names, found = reported(TIMES[which])
    page = seen[which]
    assert len(page["program"]) > 40
    assert_same(page["program"], found, found.program.row(0), "program")
    for name, told in page["functions"].items():
        row = names.index(name)
        table = found.inclusive if "with calls" in told["metrics"][0][3] else found.functions
        assert len(told["metrics"]) > 4, name
        assert_same(told["metrics"], found, table.row(row), name)
        advice = found.diagnoses[row].advice.rpartition(": ")[2]
        assert advice in told["advice"] if advice else "Nothing in its own instructions" in told["advice"]
    assert set(page["functions"]) == set(NAMES) & set(names)
    assert seen["errors"] == []


def test_the_table_the_graph_and_the_advice_follow(seen: Any) -> None:
    first, second, whole = seen["first"], seen["second"], seen["whole"]
    assert first["chosen"].startswith("0.000 s to 8.000 s")
    assert second["chosen"].startswith("8.000 s to 16.00 s")
    for page, name, bound in ((first, "chase", 80), (second, "sort", 80)):
        value = float(page["stageOne"][name].partition("Backend Bound ")[2].split(" ")[0])
        assert value > bound, page["stageOne"]
    assert "Backend Bound" not in first["functions"]["sort"]["advice"]
    assert first["overview"] != second["overview"] != whole["overview"]
    names, found = reported(TIMES["first"])
    program = dict(found.program.row(0))["backend_bound"]
    assert f"program: {program.value:.2f}" in first["legend"]
    name, _, rest = seen["tooltip"].partition("\n")
    text = rest.partition("Backend Bound: ")[2].replace("\n", "").removesuffix(" (too few samples)")
    assert_shown(text, dict(found.functions.row(names.index(name)))["backend_bound"], name)
    assert first["note"].startswith("Metrics are of this time")


def test_all_of_the_time_has_the_recordings_metrics_again(seen: Any) -> None:
    assert seen["back"] == seen["whole"]
