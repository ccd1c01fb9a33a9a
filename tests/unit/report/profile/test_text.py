"""The printed report: golden texts, and what must never reach a terminal."""

import io
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from rich.console import Console

from builders.profiles import Frame, ProfileBuilder, example
from tdprof.model.addresses import Unknown
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.profile import Profile
from tdprof.profile.hotspots import find_hotspots, unknown_samples
from tdprof.report.profile.text import render_text
from tdprof.report.summary import LOSSES, REASONS, format_value


def text_of(profile: Profile, *, width: int = 200, color: bool = False, limit: int = 0, by_line: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=color, color_system="truecolor" if color else None
    )
    hotspots = find_hotspots(profile, by_line=by_line)
    return render_text(profile, hotspots, unknown_samples(profile), console, limit=limit, by_line=by_line, sort_event=0)


def test_report_by_function(check_golden: Callable[[str, str], None]) -> None:
    losses = Losses(samples_map_full=1234, throttled=2, by_reason={"spe: buffer truncated": 3})
    check_golden("report/functions.txt", text_of(replace(example(), losses=losses)))


def test_report_by_line(check_golden: Callable[[str, str], None]) -> None:
    check_golden("report/lines.txt", text_of(example(), by_line=True, limit=4))


def test_narrow_report(check_golden: Callable[[str, str], None]) -> None:
    text = text_of(example(), width=50)
    assert max(map(len, text.splitlines())) <= 50
    check_golden("report/narrow.txt", text)


def test_what_is_said_of_an_event_wraps_before_its_name_is_cut() -> None:
    event = EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999, total=297_800_000)
    made = ProfileBuilder(events=(event,)).add("main", count=296, weight=296_300_000).build()
    text = text_of(made, width=80)
    assert re.search(r"^cpu-clock +999 Hz +296 +296.3 ms +297.8 ms  samples stand", text, re.MULTILINE), text
    assert max(map(len, text.splitlines())) <= 80


def test_report_without_samples_says_so() -> None:
    text = text_of(ProfileBuilder().build())
    assert "No samples" in text
    assert "nan" not in text


def test_colours_only_where_asked_for() -> None:
    assert "\x1b" not in text_of(example())
    assert "\x1b[1m" in text_of(example(), color=True)


def test_names_cannot_drive_the_terminal_or_rich_markup() -> None:
    text = text_of(ProfileBuilder().add(Frame("[red]evil\x1b[2J\n\udcff[/red]")).build())
    assert "[red]evil" in text
    assert "\x1b" not in text
    text.encode()


def test_notes_events_and_losses_are_shown_as_they_are() -> None:
    event = EventInfo("armv8_pmuv3_0/[red]x/", Unit.COUNT, period=1_000_000, total=9, enabled_ns=10, running_ns=5)
    profile = (
        ProfileBuilder((event,))
        .add("f")
        .build(notes=["[red]the recording was interrupted"], losses=Losses(by_reason={"[red]spe: truncated": 2}))
    )
    text = text_of(profile)
    assert "[red]the recording was interrupted\n2 lost: [red]spe: truncated\n" in text
    assert text.count("armv8_pmuv3_0/[red]x/") == 2
    assert "counted 50.0% of the time" in text


def test_every_loss_and_reason_has_words() -> None:
    assert set(LOSSES) == {each.name for each in fields(Losses)} - {"by_reason"}
    assert set(REASONS) == {None, *Unknown} - {Unknown.KNOWN}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, Unit.COUNT, "0"),
        (999_999, Unit.COUNT, "999,999"),
        (1_234_567, Unit.COUNT, "1.235 M"),
        (123_456_789_012, Unit.COUNT, "123.5 G"),
        (5_000_000_000_000_000, Unit.COUNT, "5,000 T"),
        (999, Unit.NANOSECONDS, "999 ns"),
        (61_500_000_000, Unit.NANOSECONDS, "61.50 s"),
        (1536, Unit.BYTES, "1.500 KiB"),
    ],
)
def test_values_keep_four_digits(value: int, unit: Unit, text: str) -> None:
    assert format_value(value, unit) == text


def test_an_unknown_start_is_left_out() -> None:
    text = text_of(replace(example(), start_realtime_ns=0))
    assert "measured" in text
    assert "1970" not in text


def test_one_is_not_many() -> None:
    counters: dict[str, Any] = {each.name: 1 for each in fields(Losses) if each.name != "by_reason"}
    losses = Losses(**counters)
    text = text_of(replace(example(), losses=losses))
    assert "1 sample lost: the table in the kernel was full" in text
    assert not re.search(r"\b1 (samples|stacks|call stacks|records|times|bytes)\b", text)
