"""The folder of a recording's segments: one recorder's, in order, the oldest going first, nothing else touched."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from tdprof.capture import segments as module
from tdprof.capture.segments import SegmentFolder
from tdprof.errors import TdprofError

NAMES = ("20260101T000000.000Z", "20260101T000500.000Z", "20260101T001000.000Z")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With three segments, the last of which was never finished, and what only looks like one."""
    made = tmp_path / "segments"
    made.mkdir(mode=0o700)
    for name in NAMES:
        (made / name).mkdir(mode=0o700)
        (made / name / "capture.json").write_text("{}")
        (made / name / "samples.parquet").write_bytes(bytes(100_000))
    (made / NAMES[2] / "spool").mkdir()
    return made


def test_new_segments_are_named_by_the_moment_and_never_twice(tmp_path: Path) -> None:
    with SegmentFolder(tmp_path / "new") as segments:
        names = [segments.new().path.name for _ in range(3)]
        assert len(set(names)) == 3
        assert segments.names == names
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_clock_that_was_set_back_makes_no_segment_older_than_those_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ten = datetime(2026, 1, 1, 10, 0, 0, 999_000)
    moments = [ten, ten - timedelta(hours=1), ten - timedelta(minutes=59), ten + timedelta(seconds=1)]
    clock = SimpleNamespace(now=lambda tz: moments.pop(0).replace(tzinfo=tz), strptime=datetime.strptime)
    monkeypatch.setattr(module, "datetime", clock)
    with SegmentFolder(tmp_path / "new") as segments:
        names = [segments.new().path.name for _ in range(4)]
    stamps = ["100000.999", "100001.000", "100001.001", "100001.999"]
    assert names == [f"20260101T{stamp}Z" for stamp in stamps]
    # Behind a name of no moment, or of the last one, there is none.
    for strange in ("20261399T000000.000Z", "99991231T235959.999Z"):
        moments.append(ten)
        (tmp_path / strange).mkdir(mode=0o700)
        (tmp_path / strange / strange).mkdir(mode=0o700)
        with SegmentFolder(tmp_path / strange) as segments:
            assert segments.new().path.name == f"20260101T{stamps[0]}Z"


def test_it_belongs_to_one_recorder_at_a_time(folder: Path) -> None:
    with SegmentFolder(folder), pytest.raises(TdprofError, match="another recorder writes into"):
        SegmentFolder(folder)
    with SegmentFolder(folder) as again:
        assert again.names == list(NAMES)


def test_a_folder_that_was_made_for_nothing_goes_again(folder: Path, tmp_path: Path) -> None:
    with SegmentFolder(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir(mode=0o700)
    for there in (tmp_path / "empty", folder):
        with SegmentFolder(there):
            pass
        assert there.exists()


def test_what_was_never_finished_is_known(folder: Path) -> None:
    with SegmentFolder(folder) as segments:
        assert segments.unfinished() == [NAMES[2]]
        assert segments.bytes_of(NAMES[0]) >= 100_000
        assert segments.bytes_of("20260101T002000.000Z") == 0


def test_the_oldest_goes_first_and_what_is_kept_stays(folder: Path) -> None:
    with SegmentFolder(folder) as segments:
        assert segments.remove_oldest({NAMES[0]}) == NAMES[1]
        assert segments.remove_oldest(set()) == NAMES[0]
        assert segments.remove_oldest({NAMES[2]}) is None
    assert sorted(path.name for path in folder.iterdir()) == [NAMES[2]]


def test_what_is_no_segment_is_never_removed(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "capture.json").write_text("{}")
    os.symlink(other, folder / "20250101T000000.000Z")
    (folder / "20250101T000001.000Z").mkdir()
    (folder / "20250101T000001.000Z" / "thesis.tex").write_text("mine")
    (folder / "notes").mkdir()
    with SegmentFolder(folder) as segments:
        assert segments.remove_oldest(NAMES) is None
    assert (other / "capture.json").exists()
    assert (folder / "20250101T000001.000Z" / "thesis.tex").exists()
    assert (folder / "notes").exists()


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_into_which_others_may_write_is_refused(mode: int, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(TdprofError, match="others may write into it"):
        SegmentFolder(shared)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(TdprofError, match="cannot record into"):
        SegmentFolder(tmp_path / "link")
