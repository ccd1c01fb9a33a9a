"""capture.json: round trip, and what is said of a bad one."""

import contextlib
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.captures import write_manifest
from builders.hosts import HOST
from tdprof.capture import manifest
from tdprof.capture.manifest import Manifest, Rung, read_manifest
from tdprof.errors import TdprofError
from tdprof.model.events import EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.losses import Losses

MANIFEST = Manifest(
    host=HOST,
    command=["./app", "ä b"],
    pids=[],
    is_system_wide=False,
    events=[EventInfo("cycles:u", Unit.COUNT, 0, 999, 12, 34, 30)],
    rung=Rung.BPF_PMU,
    rung_reason="both work",
    start_realtime_ns=1,
    start_monotonic_ns=2,
    end_monotonic_ns=5,
    losses=Losses(throttled=3, by_reason={"x": 1}),
    record_ids=[[1, 2]],
)


def test_round_trip(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["capture.json"]
    assert MANIFEST.duration_ns == 3


def test_unknown_keys_of_a_later_tdprof_are_ignored(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    data = json.loads((tmp_path / "capture.json").read_text())
    data["colour"] = data["events"][0]["smell"] = 1
    (tmp_path / "capture.json").write_text(json.dumps(data))
    assert replace(read_manifest(tmp_path), was_altered=False) == MANIFEST


def test_a_newer_schema_is_refused_by_name(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    data = json.loads((tmp_path / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(data | {"schema_version": 99, "tdprof_version": "9.9"}))
    with pytest.raises(TdprofError, match=r"capture schema 99, made by tdprof 9\.9") as caught:
        read_manifest(tmp_path)
    assert "upgrade" in caught.value.hint


def test_a_capture_of_somebody_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(manifest, "open_own", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(TdprofError, match="Permission denied") as caught:
        read_manifest(tmp_path)
    assert caught.value.hint.startswith(f"sudo tdprof …: {tmp_path} belongs to ")


def test_no_capture_and_not_a_capture(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="no capture at"):
        read_manifest(tmp_path / "none")
    with pytest.raises(TdprofError, match="is not a capture"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("events", 3), ("events", [1]), ("host", []), ("start_realtime_ns", "1"), ("rung", "ladder"), ("pids", [True])],
)
def test_wrong_types_name_the_key(tmp_path: Path, key: str, value: object) -> None:
    write_manifest(tmp_path, MANIFEST)
    data = json.loads((tmp_path / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(data | {key: value}))
    with pytest.raises(TdprofError, match=f"damaged: {key}"):
        read_manifest(tmp_path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(data=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_no_other_error_on_any_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("capture")
    (folder / "capture.json").write_bytes(data)
    with pytest.raises(TdprofError):
        read_manifest(folder)


@given(key=st.sampled_from([*MANIFEST.__dataclass_fields__]), value=json_values)
def test_no_other_error_on_any_value(tmp_path_factory: pytest.TempPathFactory, key: str, value: object) -> None:
    folder = tmp_path_factory.mktemp("capture")
    write_manifest(folder, MANIFEST)
    data = json.loads((folder / "capture.json").read_text())
    (folder / "capture.json").write_text(json.dumps(data | {key: value}))
    with contextlib.suppress(TdprofError):
        assert isinstance(read_manifest(folder), Manifest)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, 10**400])
def test_numbers_that_no_counter_holds_are_refused(tmp_path: Path, value: int) -> None:
    write_manifest(tmp_path, MANIFEST)
    data = json.loads((tmp_path / "capture.json").read_text())
    data["events"][0]["total"] = value
    (tmp_path / "capture.json").write_text(json.dumps(data))
    with pytest.raises(TdprofError, match=r"is damaged: events: total: more than any counter holds"):
        read_manifest(tmp_path)


def test_a_manifest_that_no_recording_wrote_is_not_read(tmp_path: Path) -> None:
    many, large = tmp_path / "many", tmp_path / "large"
    for folder, events in ((many, 2000), (large, 1)):
        folder.mkdir()
        write_manifest(folder, replace(MANIFEST, events=MANIFEST.events[:1] * events))
    with (large / "capture.json").open("ab") as file:
        file.truncate(20 << 20)
    with pytest.raises(TdprofError, match="lists 2,000 events"):
        read_manifest(many)
    with pytest.raises(TdprofError, match="larger than 16 MiB"):
        read_manifest(large)


@pytest.mark.parametrize(
    ("rows", "names"), [([1], ["A"]), ([-1], ["A"]), ([1 << 63], ["A"]), ([0], []), ([0, 0], ["A"])]
)
def test_groups_of_events_that_are_not_there_are_refused(tmp_path: Path, rows: list[int], names: list[str]) -> None:
    topdown = TopdownInfo("neoverse-v1", [SampledGroup(rows, names, ["retiring"])])
    write_manifest(tmp_path, replace(MANIFEST, topdown=topdown))
    with pytest.raises(TdprofError, match="is damaged: topdown: a group has events that were not recorded"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(("start_ns", "end_ns"), [(-(2**63), 2**64 - 1), (2**64 - 1, 0), (0, 2**63)])
def test_a_duration_that_cannot_be_is_one_that_can_be_added_up(start_ns: int, end_ns: int) -> None:
    assert 0 <= replace(MANIFEST, start_monotonic_ns=start_ns, end_monotonic_ns=end_ns).duration_ns < 2**63
