"""What a recording may be asked for."""

import pytest

from tdprof.errors import TdprofError
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.recorder.options import TURNS_INTERVAL_NS, USUAL_INTERVAL_NS, RecordOptions, parse_interval

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
