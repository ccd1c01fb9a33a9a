"""What `tdprof record` takes from its command line."""

import click
import pytest

from tdprof.cli.record import command
from tdprof.errors import TdprofError
from tdprof.recorder.host import MAX_SAMPLE_RATE, read_setting


@pytest.mark.parametrize("between", [[], ["--"]])
def test_what_follows_the_command_is_the_command_s(between: list[str]) -> None:
    context = command.make_context("record", ["-F", "99", *between, "ls", "-la", "--freq", "1"])
    assert (context.params["frequency_hz"], context.params["words"]) == (99, ("ls", "-la", "--freq", "1"))


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_a_duration_that_no_clock_tells_is_refused(seconds: str) -> None:
    with pytest.raises(TdprofError, match="--duration takes a number of seconds"):
        command.main(["--duration", seconds, "true"], standalone_mode=False)


def test_the_greatest_frequency_is_the_kernel_s() -> None:
    context = command.make_context("record", ["-F", "max", "true"])
    limit = read_setting(MAX_SAMPLE_RATE)
    if limit is None:
        pytest.skip(f"{MAX_SAMPLE_RATE} is not visible here")
    assert context.params["frequency_hz"] == limit


def test_without_a_limit_to_be_seen_there_is_no_greatest_frequency(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.recorder.host.read_setting", lambda _path: None)
    with pytest.raises(click.BadParameter, match="is not visible here"):
        command.make_context("record", ["-F", "max", "true"])
