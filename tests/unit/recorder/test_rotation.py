"""How long segments are, as typed; that the options say what they need of each other; what a full disk leaves."""

import errno
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import STACKS_FILE, SpoolWriter, limit_of_files
from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.recorder.rotation import Rotation, SegmentLength, Segments, parse_segment_length, parse_size


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30s", SegmentLength(seconds=30)),
        ("5m", SegmentLength(seconds=300)),
        ("1h", SegmentLength(seconds=3600)),
        ("2d", SegmentLength(seconds=172800)),
        ("100M", SegmentLength(bytes=100 << 20)),
        ("64K", SegmentLength(bytes=64 << 10)),
    ],
)
def test_a_length_is_a_time_or_a_size(text: str, length: SegmentLength) -> None:
    assert parse_segment_length(text) == length


@pytest.mark.parametrize("text", ["", "5", "0s", "-5m", "5 m", "5min", "1.5h", "M", "\u0665m"])
def test_what_is_neither_is_told_what_would_be(text: str) -> None:
    with pytest.raises(TdprofError, match="takes a time or a size") as caught:
        parse_segment_length(text)
    assert "--switch-output=5m" in str(caught.value.hint)


def test_a_bound_on_the_disk_is_a_size() -> None:
    assert parse_size("2G", "--max-size") == 2 << 30
    with pytest.raises(TdprofError, match="--max-size takes a size, not '5m'"):
        parse_size("5m", "--max-size")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-size", "1G"], "--max-size bounds segments: give --switch-output, too"),
        (["--switch-max-files", "3"], "--switch-max-files bounds segments"),
        (["--switch-output=5m", "--max-size", "20M"], "--max-size 20M is too little: a few seconds of a busy machine"),
        (["--switch-output=5m", "--spe"], "SPE cannot be cut into segments"),
        (["--switch-output=5m", "--with-symbols"], "--with-symbols cannot be cut into segments"),
        (["--switch-output=never"], "takes a time or a size, not 'never'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, ["record", *options, "-a"])
    assert isinstance(result.exception, TdprofError)
    assert result.exception.status == 2
    assert said in result.exception.message


def test_a_segment_is_the_last_where_the_next_finds_the_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with OutputFolder(tmp_path / "first") as first, OutputFolder(tmp_path / "second") as second:
        sink = Mock(open_next=lambda: second)
        rotation = Rotation(Segments(SegmentLength(seconds=1), sink), 0.1)
        spool = SpoolWriter(first.make())
        first.publish()
        second.make()
        rotation.prepare(spool, Mock(), Mock(), [], [])
        monkeypatch.setattr(SpoolWriter, "copy_tail", full)
        with pytest.raises(OSError, match="full"):
            rotation.switch(spool)
        rotation.hand_over(Mock(), waits=True)
        rotation.close()
        spool.close()
    sink.ended.assert_not_called()
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_what_two_segments_have_finds_its_room_before_it_is_written_twice(tmp_path: Path) -> None:
    with OutputFolder(tmp_path / "first") as first, OutputFolder(tmp_path / "second") as second:
        sink = Mock(open_next=lambda: second, make_room=Mock(side_effect=TdprofError("too little")))
        rotation = Rotation(Segments(SegmentLength(seconds=1), sink, 20), 0.1)
        spool = SpoolWriter(first.make())
        second.make()
        os.write(spool.descriptor(STACKS_FILE), bytes(100))
        rotation.prepare(spool, Mock(), Mock(), [], [])
        os.write(spool.descriptor(STACKS_FILE), bytes(1000))
        with pytest.raises(TdprofError, match="too little"):
            rotation.make_room_to_switch(spool, 30)
        assert limit_of_files(second.folder) == 20
        rotation.close()
        spool.close()
    sink.make_room.assert_called_once_with(1020)
