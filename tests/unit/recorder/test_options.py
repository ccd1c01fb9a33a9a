"""What a recording may be asked for."""

from dataclasses import replace

import pytest

from tdprof.errors import TdprofError
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.recorder.options import TURNS_INTERVAL_NS, USUAL_INTERVAL_NS, RecordOptions, parse_interval
from tdprof.recorder.session import within_rate_limit
from tdprof.recorder.targets import Rate

MS = 1_000_000


@pytest.mark.parametrize(("text", "ms"), [("0.1s", 100), ("100ms", 100), ("2", 2000), ("1m", 60_000), ("60s", 60_000)])
def test_an_interval_is_a_length_of_time(text: str, ms: int) -> None:
    assert parse_interval(text) == ms * MS


@pytest.mark.parametrize("text", ["0.0999s", "60.1s", "0", "-1s", "nan", "", "1s-2s", "9" * 400, "1e-1"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(TdprofError, match="--interval") as caught:
        parse_interval(text)
    assert "0.1s" in caught.value.hint
    assert caught.value.status == 2


def test_groups_that_take_turns_have_short_intervals_whatever_was_asked() -> None:
    groups = [SampledGroup([0], ["a"], []), SampledGroup([1], ["b"], [])]
    assert RecordOptions().interval_ns == USUAL_INTERVAL_NS
    assert RecordOptions(asked_interval_ns=5_000 * MS).interval_ns == 5_000 * MS
    topdown = TopdownInfo("neoverse-n1", groups)
    assert RecordOptions(asked_interval_ns=5_000 * MS, topdown=topdown).interval_ns == TURNS_INTERVAL_NS
    assert RecordOptions(asked_interval_ns=100 * MS, topdown=topdown).interval_ns == 100 * MS


@pytest.mark.parametrize(
    ("wanted", "setting", "plain", "topdown"),
    [(999, 100_000, 999, 999), (999, 1000, 999, 62), (199, 3200, 199, 199), (999, 500, 500, 31), (999, 5, 5, 1),
     (999, None, 999, 999)],
)  # fmt: skip
def test_rates_leave_room_below_the_kernels_limit(wanted: int, setting: int | None, plain: int, topdown: int) -> None:
    """Topdown's fixed periods for events that come more often than was guessed, of whose pauses nothing is told."""
    groups = TopdownInfo("neoverse-n1", [SampledGroup([0], ["a"], [])])
    for asked, rate in ((RecordOptions(), plain), (RecordOptions(topdown=groups), topdown)):
        found = within_rate_limit(replace(asked, rate=Rate(frequency_hz=wanted)), setting)
        assert found.rate.frequency_hz == rate
        assert all(f"sampled {rate} times a second, not {wanted}" in note for note in found.notes)
        assert bool(found.notes) == (rate != wanted)
