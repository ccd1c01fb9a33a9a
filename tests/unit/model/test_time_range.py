"""Ranges of a recording's time: every form, what is refused, and what of a recording each means."""

import pytest

from tdprof.errors import TdprofError
from tdprof.model.time_range import parse_time_ranges

S = 1_000_000_000
NEW_YEAR_NS = 1_767_225_600 * S  # 2026-01-01 00:00:00 UTC
START_NS = NEW_YEAR_NS - 30 * S  # a minute around midnight


def seconds(text: str, *, duration_s: int = 60) -> list[tuple[float, float]]:
    found = [each.within(START_NS, duration_s * S) for each in parse_time_ranges(text)]
    return [(begin / S, end / S) for begin, end in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s-20s", [(10, 20)]),
        ("10-20", [(10, 20)]),
        ("10s-", [(10, 60)]),
        ("-20s", [(0, 20)]),
        ("-5s-", [(55, 60)]),
        ("-10s--5s", [(50, 55)]),
        ("--5s", [(0, 55)]),
        ("500ms-1.5s", [(0.5, 1.5)]),
        ("0m30s-1min", [(30, 60)]),
        ("250us-1ms", [(0.00025, 0.001)]),
        ("23:59:40-00:00:10", [(10, 40)]),
        ("23:59:00-23:59:40.5", [(0, 10.5)]),
        ("11:00:00-23:59:40", [(0, 10)]),
        ("23:59:50-12:30:00", [(20, 60)]),
        ("13:00:00-10:00:00", [(0, 60)]),
        ("00:00:10-", [(40, 60)]),
        ("2025-12-31T23:59:40-2026-01-01T00:00:00", [(10, 30)]),
        ("0%-10%", [(0, 6)]),
        ("10%/2", [(6, 12)]),
        ("10%", [(0, 6)]),
        ("50%-", [(30, 60)]),
        ("10%/1,10%/10", [(0, 6), (54, 60)]),
        ("10s-20s, 50s-70s", [(10, 20), (50, 60)]),
    ],
)
def test_each_form_is_what_it_says(text: str, expected: list[tuple[float, float]]) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "-",
            "10s",
            "1,2",
            "ten-20s",
            "10s-20x",
            "10s..20s",
            "10%/0",
            "10%/11",
            "0%/1",
            "200%/1",
            "0%-110%",
            "25:00:00-",
        ),
        *("10:61:00-", "2026-02-30T10:00:00-", "10s-20s-30s", "1e3-", "9" * 5000 + "-", "٣s-", "\x1b[2J-"),
    ],
)
def test_what_is_no_range_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(TdprofError, match="is no range of time for --time") as caught:
        list(parse_time_ranges(text))
    assert "10s-20s" in caught.value.hint
    assert caught.value.status == 2
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20s-10s", "ends where it begins, or before"),
        ("5s-5s", "ends where it begins, or before"),
        ("60s-", "after the recording's end"),
        ("100s-200s", "after the recording's end"),
        ("00:10:00-", "after the recording's end"),
        ("22:00:00-23:00:00", "before the recording's start"),
        ("-0s", "before the recording's start"),
        ("10:00:00-13:00:00", "after the recording's end"),
        ("23:59:40-23:59:40", "ends where it begins, or before"),
        ("0s-0s", "ends where it begins, or before"),
        ("70s-65s", "ends where it begins, or before"),
        ("0%-0%", "ends where it begins, or before"),
    ],
)
def test_a_range_with_nothing_of_the_recording_is_refused(text: str, message: str) -> None:
    with pytest.raises(TdprofError, match=message):
        seconds(text)


def test_a_clock_that_means_nothing_or_several_moments_is_refused() -> None:
    [at_ten] = parse_time_ranges("10:00:00-")
    with pytest.raises(TdprofError, match="does not tell by the clock"):
        at_ten.within(0, 60 * S)
    with pytest.raises(TdprofError, match="of several days") as caught:
        at_ten.within(NEW_YEAR_NS, 2 * 86_400 * S)
    assert caught.value.hint == "with a date: 2026-01-01T10:00:00"
    [dated] = parse_time_ranges("2026-01-02T10:00:00-")
    assert dated.within(NEW_YEAR_NS, 2 * 86_400 * S) == (34 * 3600 * S, 48 * 3600 * S)


def test_tenths_share_every_moment_out() -> None:
    duration_ns = 7_777_777_777
    parts = [each.within(0, duration_ns) for n in range(1, 11) for each in parse_time_ranges(f"10%/{n}")]
    assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == duration_ns


def test_what_there_is_is_said_as_time_was_asked_for() -> None:
    for text, whole in (
        ("100s-200s", "--time 0s-60.000s is all of it"),
        ("00:10:00-00:20:00", "--time 2025-12-31T23:59:30-2026-01-01T00:00:30 (UTC) is all of it"),
        ("2026-01-02T00:00:00-", "--time 2025-12-31T23:59:30-2026-01-01T00:00:30 (UTC) is all of it"),
    ):
        with pytest.raises(TdprofError) as caught:
            seconds(text)
        assert caught.value.hint == f"it took 60.000 s: {whole}"
