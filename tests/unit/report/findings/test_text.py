"""The report of a Topdown recording: golden texts at two widths, and what must be told or never shown."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from builders.topdown import topdown_profile
from tdprof.catalog.entries import CPU_CYCLES
from tdprof.catalog.tree import tree_lines
from tdprof.model.findings import Findings, MetricValue
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.choice import choose_function
from tdprof.profile.hotspots import Hotspots, find_hotspots, unknown_samples
from tdprof.report.findings.lines import render_topdown_lines
from tdprof.report.findings.text import render_topdown
from tdprof.report.findings.tree import render_function, render_tree
from tdprof.report.metric_text import format_metric, level_1_bar, marked_metric, metrics_of


@cache
def example() -> tuple[Profile, Findings, int]:
    """Calibrated profile, its findings, the event that leads."""
    profile = topdown_profile(seconds=8)
    findings = find_findings(profile)
    assert findings is not None
    shown = calibrated(profile)
    return shown, findings, [event.name for event in shown.events].index(CPU_CYCLES)


def console_of(width: int, *, color: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=color, color_system="truecolor" if color else None)


def hotspots_of(*, by_line: bool = False) -> Hotspots:
    profile, _, event = example()
    return find_hotspots(profile, by_line=by_line, sort_event=event)


def text_of(width: int, *, color: bool = False, limit: int = 0, findings: Findings | None = None) -> str:
    profile, found, event = example()
    console = console_of(width, color=color)
    return render_topdown(
        profile,
        findings or found,
        hotspots_of(),
        unknown_samples(profile),
        console,
        limit=limit,
        sort_event=event,
    )


@pytest.mark.parametrize("width", [80, 160])
def test_hotspots(width: int, check_golden: Callable[[str, str], None]) -> None:
    text = text_of(width)
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"report/topdown_{width}.txt", text)


@pytest.mark.parametrize("width", [80, 160])
def test_everything_about_one_function(width: int, check_golden: Callable[[str, str], None]) -> None:
    profile, findings, event = example()
    chosen = choose_function(profile, "chase", event)
    text = render_function(profile, findings, chosen, hotspots_of(), console_of(width), sort_event=event)
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"report/function_{width}.txt", text)


def test_the_tree_has_every_metric_once(check_golden: Callable[[str, str], None]) -> None:
    profile, findings, _ = example()
    text = render_tree(profile, findings, unknown_samples(profile), console_of(120))
    check_golden("report/tree_120.txt", text)
    told = [line.name for line in tree_lines(findings.catalog) if not line.is_group]
    assert sorted(set(told)) == sorted(findings.catalog.metrics)


@pytest.mark.parametrize("width", [80, 160])
def test_source_lines(width: int, check_golden: Callable[[str, str], None]) -> None:
    profile, findings, event = example()
    text = render_topdown_lines(
        profile,
        findings,
        hotspots_of(by_line=True),
        unknown_samples(profile),
        console_of(width),
        limit=5,
        sort_event=event,
    )
    assert max(map(len, text.splitlines())) <= width
    check_golden(f"report/topdown_lines_{width}.txt", text)


def test_few_samples_are_marked_and_never_explained() -> None:
    block = text_of(160).split("  tidy_up  ")[1].split("\n\n")[0]
    assert "too few to say why" in block
    assert "->" not in block
    block = text_of(160).split("  solve  ")[1].split("\n\n")[0]
    assert "?" in block


def test_colours_only_where_asked_for() -> None:
    assert "\x1b" not in text_of(100)
    assert "\x1b[" in text_of(100, color=True)


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", text_of(100, color=True))
    monkeypatch.delenv("NO_COLOR")
    assert re.search(r"\x1b\[[\d;]*3\d", text_of(100, color=True))


def test_what_is_left_out_is_said() -> None:
    text = text_of(100, limit=2)
    assert "and 5 more functions (--limit 0 shows all" in text
    assert "mix" not in text


def test_disagreements_and_groups_that_never_ran_are_said() -> None:
    _, findings, _ = example()
    program = findings.program
    kept = [column for column, name in enumerate(program.metrics) if name != "ipc"]
    without = replace(
        program,
        metrics=[program.metrics[column] for column in kept],
        units=[program.units[column] for column in kept],
        sources=[program.sources[column] for column in kept],
        value=program.value[:, kept],
        half_width=program.half_width[:, kept],
        samples=program.samples[:, kept],
        is_significant=program.is_significant[:, kept],
    )
    text = text_of(100, findings=replace(findings, program=without, disagreements=["chase: PMU and SPE differ"]))
    assert "not measured, for their counters never ran: ipc" in text
    assert "chase: PMU and SPE differ" in text


@pytest.mark.parametrize(
    ("value", "half_width", "samples", "shown"),
    [
        (82.61, 3.29, 100, "82.6 ± 3.3"),
        (0.03416, 0.00113, 100, "0.0342 ± 0.0011"),
        (1234.5, 41.2, 100, "1,234 ± 41"),
        (17.12, 0.0, 100, "17.1"),
        (0.1, 0.0, 100, "0.100"),
        (0.09996, 0.0, 100, "0.100"),
        (12345.6, 0.0, 100, "12,346"),
        (0.0, 0.0, 100, "0"),
        (0.0, 0.31, 0, "< 0.31"),
        (-0.02, 28.0, 100, "0 ± 28"),
        (101.0, 28.0, 100, "101 ± 28"),
        (0.5, 0.0999, 100, "0.50 ± 0.10"),
        (5.0, float("nan"), 100, "5.00 ± unknown"),
    ],
)
def test_metrics_have_the_digits_that_their_doubt_leaves(
    value: float, half_width: float, samples: int, shown: str
) -> None:
    assert format_metric(MetricValue(value, half_width, "MPKI", "pmu", samples, True)) == shown


@pytest.mark.parametrize(
    ("value", "half_width", "shown"),
    [
        (82.61, 3.29, "82.6 ± 3.3"),
        (68.0, 33.0, "68 (35-100)"),
        (5.0, 28.0, "5 (0-33)"),
        (50.0, 60.0, "50 (0-100)"),
        (97.0, 3.0, "97.0 ± 3.0"),
        (-0.2, 2.2, "0.0 (0.0-2.0)"),
        (103.0, 4.0, "100.0 (99.0-100.0)"),
        (0.0, 0.31, "0.00 (0.00-0.31)"),
        # Counts that contradict each other show as what they are.
        (-9.0, 2.0, "-9.0 ± 2.0"),
        (120.0, 5.0, "120.0 ± 5.0"),
    ],
)
def test_the_interval_of_a_percentage_ends_where_the_whole_does(value: float, half_width: float, shown: str) -> None:
    assert format_metric(MetricValue(value, half_width, "percent of slots", "pmu", 100, True)) == shown


def test_the_mark_of_too_few_samples_stands_in_front_and_is_explained_once() -> None:
    assert marked_metric(MetricValue(5.3, 4.7, "percent of slots", "pmu", 9, False)) == "~5.3 ± 4.7"
    assert marked_metric(MetricValue(0.0, 0.3, "MPKI", "pmu", 0, False)) == "< 0.30"
    profile, findings, event = example()
    by_line, chosen = hotspots_of(by_line=True), choose_function(profile, "chase")
    views = [
        text_of(100),
        render_topdown_lines(profile, findings, by_line, [], console_of(160), limit=9, sort_event=event),
        render_tree(profile, findings, [], console_of(120)),
        render_function(profile, findings, chosen, hotspots_of(), console_of(120), sort_event=event),
    ]
    for text in views:
        assert " ".join(text.split()).count("~ too few samples to act on") == 1


def test_the_bar_is_as_wide_as_asked_whatever_the_values() -> None:
    _, findings, _ = example()
    for row in range(len(findings.function)):
        for width in (1, 20, 33):
            assert level_1_bar(findings.catalog, metrics_of(findings.functions, row).values, width).cell_len == width
    strange = replace(findings.functions, value=np.full_like(findings.functions.value, 4e5))
    assert level_1_bar(findings.catalog, metrics_of(strange, 0).values, 20).cell_len == 20
