"""Segments keep within their bounds, the one that is being recorded stays, and damaged ones do not stop the next."""

from pathlib import Path

import pytest

from builders.captures import write_manifest
from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung
from tdprof.cli import segments as segments_module
from tdprof.cli.segment_health import SegmentHealth
from tdprof.cli.segments import SegmentWriter
from tdprof.errors import TdprofError
from tdprof.model.losses import Losses


def segment(folder: Path, number: int, kilobytes: int, *, spool: bool = False, length_ns: int = 1) -> Path:
    made = folder / f"20260101T00{number:02}00.000Z"
    made.mkdir(parents=True)
    write_manifest(made, Manifest(HOST, [], [], True, [], Rung.BPF_PMU, "", 0, 5, 5 + length_ns, Losses()))
    (made / "samples.parquet").write_bytes(bytes(kilobytes << 10))
    if spool:
        (made / "spool").mkdir()
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "segments").mkdir(mode=0o700)
    return tmp_path / "segments"


def test_the_oldest_go_so_that_all_take_no_more_than_was_said(folder: Path) -> None:
    for number in range(10):
        segment(folder, number, 100)
    with SegmentWriter(folder, 800 << 10, None, quiet=True) as segments:
        segments.tick()
        left = sorted(path.name for path in folder.iterdir())
        # Three quarters of the bound, for what is being written.
        assert left == [f"20260101T00{number:02}00.000Z" for number in range(10 - len(left), 10)]
        assert 4 <= len(left) <= 6


class SlowFinishing:
    """As on a machine that has no time for it."""

    is_done = False
    hurried = abandoned = 0

    def __init__(self, *, is_ahead: bool, hurries: bool = False) -> None:
        type(self).hurried += hurries

    def finish(self, *given: object) -> None:
        pass

    def hurry(self) -> None:
        type(self).hurried += 1

    def result(self) -> None:
        self.is_done = True

    def abandon(self) -> None:
        type(self).abandoned += 1


def test_the_bound_holds_where_tables_are_made_more_slowly_than_segments_and_that_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(segments_module, "FinishingProcess", SlowFinishing)
    for number in range(10):
        segment(folder, number, 100, spool=True)
    with SegmentWriter(folder, 800 << 10, None, quiet=True) as segments:
        for _ in range(3):
            segments.tick()
            left = sorted(path.name[9:13] for path in folder.iterdir())
            # The first is being finished; of the others the oldest went.
            assert left[0] == "0000"
            assert left[1:] == [f"00{number:02}" for number in range(11 - len(left), 10)]
            assert 4 <= len(left) <= 6
    assert len(list(folder.iterdir())) == len(left)
    assert capsys.readouterr().err.count("went before its tables were made, and so may others: this machine") == 1


def test_a_full_disk_is_not_taken_for_a_slow_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(segments_module, "FinishingProcess", SlowFinishing)
    for number in range(3):
        segment(folder, number, 1, spool=True)
    with SegmentWriter(folder, 1 << 30, None, quiet=True) as segments:
        monkeypatch.setattr(segments_module.SegmentFolder, "free_bytes", lambda self: 1 << 20)
        segments.tick()
    assert "so may others: the disk has less than 64 MiB left" in capsys.readouterr().err


def test_what_is_being_written_has_room_before_what_is_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "FinishingProcess", SlowFinishing)
    for number in range(3):
        segment(folder, number, 100, spool=number == 2)
    with SegmentWriter(folder, 1 << 20, None, quiet=True) as segments:
        first = segments.open_next()
        first.make()
        first.publish()
        written = first.path / "written"
        written.write_bytes(bytes(100 << 10))
        segments.tick()
        assert len(list(folder.iterdir())) == 4
        # Due by size where it will be too large by when it is cut: two looks, each with as much.
        assert 300 << 10 <= segments.bytes_at_cut() <= 320 << 10
        # So much as is still to be written has to find its room before it is there.
        segments.make_room(300 << 10)
        assert len(list(folder.iterdir())) == 4
        segments.make_room(440 << 10)
        assert {path.name[11:13] for path in folder.iterdir()} == {"01", "02", first.path.name[11:13]}
        segments.make_room(550 << 10)
        assert {path.name[11:13] for path in folder.iterdir()} == {"02", first.path.name[11:13]}
        assert SlowFinishing.abandoned == 0
        segments.make_room(700 << 10)
        assert SlowFinishing.abandoned == 1
        assert [path.name for path in folder.iterdir()] == [first.path.name]
        written.write_bytes(bytes(600 << 10))
        segments.tick()
        segments.make_room(200 << 10)
        with pytest.raises(TdprofError, match="--max-size of 1 MB is too little") as caught:
            segments.make_room(300 << 10)
    assert caught.value.hint
    assert written.exists()


def test_where_nothing_is_recorded_any_more_no_room_is_kept_for_it(folder: Path) -> None:
    segment(folder, 0, 100)
    with SegmentWriter(folder, 1 << 20, None, quiet=True) as segments:
        output = segments.open_next()
        output.make()
        output.publish()
        (output.path / "written").write_bytes(bytes(300 << 10))
        segments.tick()
        (output.path / "written").write_bytes(bytes(450 << 10))
    assert len(list(folder.iterdir())) == 2


def test_tables_are_made_behind_all_others_unless_another_segment_or_the_end_waits_for_that(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(segments_module, "FinishingProcess", SlowFinishing)
    monkeypatch.setattr(SlowFinishing, "hurried", 0)
    segment(folder, 0, 1, spool=True)
    with SegmentWriter(folder, None, None, quiet=True) as segments:
        segments.tick()
        assert SlowFinishing.hurried == 0
    assert SlowFinishing.hurried == 1  # nothing is recorded any more, and somebody waits
    monkeypatch.setattr(SlowFinishing, "hurried", 0)
    for number in range(1, 4):
        segment(folder, number, 1, spool=True)
    health = tmp_path / "health.prom"
    with SegmentWriter(folder, None, None, health=SegmentHealth(health), quiet=True) as segments:
        segments.tick()
        segments.tick()
        assert SlowFinishing.hurried == 1
        assert "tdprof_recorder_segments_waiting 4\n" in health.read_text()


def test_only_the_newest_stay_and_the_one_being_recorded_is_one(folder: Path) -> None:
    for number in range(4):
        segment(folder, number, 1)
    with SegmentWriter(folder, None, 2, quiet=True) as segments:
        first = segments.open_next()
        first.make()
        first.publish()
        segments.tick()
        assert sorted(path.name for path in folder.iterdir()) == ["20260101T000300.000Z", first.path.name]


def test_recordings_that_end_at_once_keep_the_bound_too(folder: Path) -> None:
    for _ in range(5):
        with SegmentWriter(folder, None, 2, quiet=True) as segments:
            output = segments.open_next()
            output.make()
            (output.path / "capture.json").write_text("{}")
            output.publish()
            segments.open_next()  # prepared, and never begun: none goes for it
        assert output.path.exists()
    assert len(list(folder.iterdir())) == 2


def test_a_recording_that_fails_at_once_takes_no_segment_away(folder: Path) -> None:
    for number in range(2):
        segment(folder, number, 1)
    with SegmentWriter(folder, None, 2, quiet=True) as segments:
        segments.open_next().make()
    assert len(list(folder.iterdir())) == 2


def test_a_prepared_segment_that_never_began_leaves_nothing(folder: Path) -> None:
    with SegmentWriter(folder, None, None, quiet=True) as segments:
        first = segments.open_next()
        first.make()
        first.publish()
        prepared = segments.open_next()
        assert prepared.path.exists()
        assert segments.recorded is first
    assert [path.name for path in folder.iterdir()] == [first.path.name]


def test_what_a_killed_recorder_had_only_prepared_goes_and_nothing_else_does(folder: Path) -> None:
    for number, files in enumerate([["spool/ring.0.perf"], [], ["spool/ring.0.perf", "notes.txt"], ["spool"]]):
        made = folder / f"20260101T00{number:02}00.000Z"
        made.mkdir()
        for file in files:
            (made / file).parent.mkdir(exist_ok=True)
            (made / file).write_text("something")
    with SegmentWriter(folder, None, None, quiet=True):
        left = sorted(path.name[11:13] for path in folder.iterdir())
    assert left == ["02"]


@pytest.mark.parametrize(("length_ns", "is_left"), [(0, False), (1, True)])
def test_a_leftover_of_which_nothing_had_come_goes_and_no_other_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, length_ns: int, is_left: bool
) -> None:
    monkeypatch.setattr(segments_module, "FinishingProcess", SlowFinishing)
    left = segment(folder, 0, 1, spool=True, length_ns=length_ns)
    with SegmentWriter(folder, None, None, quiet=True) as segments:
        segments.finish()
    assert left.exists() == is_left


def test_a_damaged_leftover_is_told_and_stays(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = segment(folder, 0, 1, spool=True)
    (left / "capture.json").write_text("{}")
    with SegmentWriter(folder, None, None, quiet=True) as segments:
        segments.finish()
    said = capsys.readouterr().err
    assert "20260101T000000.000Z has no tables yet:" in said
    assert "Traceback" not in said
    assert left.exists()
