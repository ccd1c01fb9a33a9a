"""A store: what goes in is counted once, the same bytes come out, and no capture can lead it elsewhere."""

import ctypes
import errno
import gc
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders.fleet import START_NS, make_host_capture, tdprof
from builders.profiles import Frame, ProfileBuilder
from tdprof.capture.segments import SegmentFolder
from tdprof.errors import TdprofError
from tdprof.fleet import rollup
from tdprof.fleet.add import add_captures
from tdprof.fleet.engine import InProcessEngine
from tdprof.fleet.function_names import fleet_name
from tdprof.fleet.identity import name_of_part, path_part
from tdprof.fleet.recordings import superseded
from tdprof.fleet.sources import find_captures
from tdprof.fleet.storage import FolderFiles
from tdprof.fleet.store import Stem, Store
from tdprof.fleet.work import WorkOptions, roll_up_captures
from tdprof.model.addresses import PYTHON, FileKind, MappedFile
from tdprof.model.profile import Profile
from tdprof.native.library import load_native
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture

HOSTILE = [
    "",
    ".",
    "..",
    "../../../etc",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "host=x",
    "\ud800",
    "%2e%2e",
    "\x1b[2J",
    "é" * 400,
    "a\x01",
    "a\x02",
    "a\ufffd",
    "\ud801",
    "NULL",
    "__HIVE_DEFAULT_PARTITION__",
]


def add(place: Path, *captures: Path) -> None:
    options = WorkOptions(str(place))
    add_captures(
        Store.create(str(place)), find_captures([str(each) for each in captures]), options, lambda _: InProcessEngine()
    )


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def captures(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "captures"
    return [
        make_host_capture(folder / f"{host}.capture", host, {"work": 60 + number, "rest": 40})
        for number, host in enumerate(("a", "b", "c"))
    ]


def test_the_same_bytes_in_any_order_and_however_often(tmp_path: Path, captures: list[Path]) -> None:
    add(tmp_path / "one", *captures)
    expected = contents(tmp_path / "one")
    assert len(expected) == 1 + 3 * len(captures)
    others = [*captures, *captures]
    random.Random(5).shuffle(others)
    for capture in others:
        add(tmp_path / "two", capture)
    assert contents(tmp_path / "two") == expected
    assert tdprof("fleet", "add", "--again", tmp_path / "two", *captures).status == 0
    assert contents(tmp_path / "two") == expected


def test_nothing_of_a_capture_stays_in_memory(tmp_path: Path, captures: list[Path]) -> None:
    """Commands collect garbage in cycles seldom; of 10,000 captures it would be all memory."""
    Store.create(str(tmp_path / "store"))
    gc.disable()
    try:
        kept_by_others = _held()
        roll_up_captures([str(each) for each in captures], WorkOptions(str(tmp_path / "store")).to_json())
        left = [each for each in _held() if not any(each is other for other in kept_by_others)]
    finally:
        gc.enable()
    assert not left


def _held() -> list[OpenCapture | Profile]:
    return [each for each in gc.get_objects() if isinstance(each, OpenCapture | Profile)]


def test_functions_of_python_that_share_their_name_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which lines a recording has in its names is chance, and each version has others."""

    def as_python(capture: OpenCapture) -> Profile:
        profile = load_profile(capture)
        files = [replace(file, path=PYTHON, kind=FileKind.INTERPRETED) for file in profile.mapped_files]
        return replace(profile, mapped_files=files)

    capture = make_host_capture(tmp_path / "a.capture", "a", {"value:29": 60, "value:34": 30, "other": 10})
    monkeypatch.setattr(rollup, "load_profile", as_python)
    with OpenCapture(capture) as opened:
        rows = rollup.roll_up(opened).tables["functions"].to_pylist()
    assert {row["function"]: row["self_samples"] for row in rows} == {"main": 0, "value": 90, "other": 10}
    assert {row["linkage_name"] for row in rows} == {"main", "value", "other"}


def test_places_without_names_are_put_together_of_one_build_alone(tmp_path: Path) -> None:
    """At one address of two builds there are two functions."""
    for host, build_id in (("a", "ab" * 20), ("b", "ab" * 20), ("c", "cd" * 20), ("d", "")):
        capture = tmp_path / f"{host}.capture"
        make_host_capture(capture, host, {"work": 60, "rest": 40}, build_id=build_id, has_names=False)
        assert tdprof("fleet", "add", tmp_path / "store", capture).status == 0
    (stratum,) = json.loads(tdprof("fleet", "report", tmp_path / "store", "--json").stdout)["strata"]
    own = {row["name"]: row["self"]["samples"] for row in stratum["functions"] if row["self"]["samples"]}
    assert own == {
        "[no file] app+0x2000 of build abababababab": 120,
        "[no file] app+0x3000 of build abababababab": 80,
        "[no file] app+0x2000 of build cdcdcdcdcdcd": 60,
        "[no file] app+0x3000 of build cdcdcdcdcdcd": 40,
        "[no file] app": 100,
    }
    folded = tdprof("export", tmp_path / "store", "--to", "folded").stdout
    assert sum(" of build cdcdcdcdcdcd " in line for line in folded.splitlines()) == 2


HEAP = MappedFile("[anon]", "", FileKind.ANONYMOUS, 17)
MODULE = MappedFile("ext4", "ab" * 20, FileKind.KERNEL_MODULE)


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("[run-time code] [anon] of process 17", HEAP, "[run-time code] [anon]"),
        ("[hidden kernel] [kernel]+0x1f0", MappedFile("[kernel]", "ab", FileKind.KERNEL), "[hidden kernel] [kernel]"),
        ("[no symbol] ext4+0x10-0x90", MODULE, "[no symbol] ext4+0x10-0x90 of build abababababab"),
        ("[stripped] app", MappedFile("/bin/app", "ab" * 20), "[stripped] app"),
        ("operator+0x1", MappedFile("/bin/app", "ab" * 20), "operator+0x1"),
        ("work of process 17", MappedFile("/bin/app"), "work of process 17"),
        ("[no call stack]", None, "[no call stack]"),
    ],
)
def test_what_a_place_is_called_on_all_hosts(name: str, file: MappedFile | None, expected: str) -> None:
    assert fleet_name(name, file) == expected


def test_a_stack_counts_once_for_functions_that_are_one_to_a_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each package has an ``__init__.py``, and those that import each other are in one stack."""

    def imports(_: OpenCapture) -> Profile:
        package, inner = (Frame("<module>", file=f"/lib/{name}/__init__.py") for name in ("package", "inner"))
        made = ProfileBuilder().add(package, inner, count=60).add(package, "load", count=30)
        return made.add("load", count=10).build()

    capture = make_host_capture(tmp_path / "a.capture", "a", {"work": 1})
    monkeypatch.setattr(rollup, "load_profile", imports)
    assert tdprof("fleet", "add", tmp_path / "store", capture).status == 0
    (stratum,) = json.loads(tdprof("fleet", "report", tmp_path / "store", "--json").stdout)["strata"]
    found = {row["name"]: (row["self"]["samples"], row["total"]["samples"]) for row in stratum["functions"]}
    assert found == {"<module>": (60, 90), "load": (40, 40)}


def test_a_copy_of_a_recording_counts_once(tmp_path: Path, captures: list[Path]) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(captures[0], copy)
    add(tmp_path / "store", captures[0], copy)
    add(tmp_path / "store", copy)
    report = json.loads(tdprof("fleet", "report", tmp_path / "store", "--json").stdout)
    assert report["strata"][0]["recordings"] == 1
    assert report["strata"][0]["samples"] == 100


def test_of_two_copies_the_one_with_more_counts_whatever_came_first(tmp_path: Path) -> None:
    """As of a recording that was copied while it was being written."""
    half = make_host_capture(tmp_path / "half", "a", {"work": 30})
    whole = make_host_capture(tmp_path / "whole", "a", {"work": 60, "rest": 40})
    add(tmp_path / "one", half, whole)
    options = WorkOptions(str(tmp_path / "two"))
    for capture in (whole, half):
        add_captures(Store.create(options.store), [str(capture)], options, lambda _: InProcessEngine(), again=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [
        row["samples"] for row in json.loads(tdprof("fleet", "report", tmp_path / "one", "--json").stdout)["strata"]
    ] == [100]


def test_nothing_is_read_of_recordings_that_have_nothing_to_do_with_what_is_added(
    tmp_path: Path, captures: list[Path]
) -> None:
    """All of a large store would take minutes, and one damaged file would fail all that follow."""
    place = tmp_path / "store"
    add(place, *captures[:2])
    next(path for path in place.rglob("*.parquet") if "recordings" in path.parts).write_bytes(b"PAR1 no more")
    assert tdprof("fleet", "add", place, captures[2]).error is None
    assert tdprof("fleet", "add", place, captures[2]).stdout.startswith("0 captures added")


def test_two_that_add_at_once_do_not_fail_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one saw to be the worse of two is gone when the other comes to look."""
    place = tmp_path / "store"
    half = make_host_capture(tmp_path / "half", "a", {"work": 30})
    whole = make_host_capture(tmp_path / "whole", "a", {"work": 60, "rest": 40})
    add(tmp_path / "expected", whole)
    add(place, half)
    read = Store.read

    def read_late(store: Store, kind: str, stem: Stem, *what: Any) -> Any:
        monkeypatch.setattr(Store, "read", read)
        for worse in superseded(Store(str(place)), list(Store(str(place)).stems())):
            store.remove(worse)
        return read(store, kind, stem, *what)

    monkeypatch.setattr(Store, "read", read_late)
    assert tdprof("fleet", "add", "--again", place, whole).error is None
    assert contents(place) == contents(tmp_path / "expected")


def test_a_damaged_capture_is_named_and_the_others_go_on(tmp_path: Path, captures: list[Path]) -> None:
    (captures[1] / "samples.parquet").write_bytes(b"PAR1 no more")
    result = tdprof("fleet", "add", tmp_path / "store", tmp_path / "captures", "--json")
    assert result.status == 0
    told = json.loads(result.stdout)
    assert (told["added"], [each["source"] for each in told["rejected"]]) == (2, [str(captures[1])])
    report = json.loads(tdprof("fleet", "report", tmp_path / "store", "--json").stdout)
    assert report["rejected"] == 1
    assert "b.capture" in report["notes"][0]
    checked = tdprof("fleet", "check", tmp_path / "store")
    assert checked.status == 1
    assert str(captures[1]) in checked.stdout
    shutil.rmtree(captures[1])
    make_host_capture(captures[1], "b", {"work": 61, "rest": 40})
    assert tdprof("fleet", "add", tmp_path / "store", captures[1]).status == 0
    assert tdprof("fleet", "check", tmp_path / "store").status == 0


def test_a_library_of_another_version_is_no_captures_fault(
    tmp_path: Path, captures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def declare(library: ctypes.CDLL) -> None:
        library.tdprof_function_of_tomorrow.restype = None

    place = tmp_path / "store"
    load_native.cache_clear()
    try:
        if load_native() is None:
            pytest.skip("the library is not built")
        load_native.cache_clear()
        monkeypatch.setattr("tdprof.native.library._HEADERS", (SimpleNamespace(declare=declare),))
        with pytest.raises(TdprofError, match="of another version of tdprof") as caught:
            add(place, *captures)
    finally:
        load_native.cache_clear()
    assert caught.value.hint.startswith("pip install")
    assert not Store(str(place)).rejections()


@pytest.mark.parametrize("table", ["symbols", "stacks", "processes"])
def test_what_is_added_of_a_damaged_capture_is_said(tmp_path: Path, captures: list[Path], table: str) -> None:
    path = captures[0] / f"{table}.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    store = tmp_path / "store"
    added = tdprof("fleet", "add", store, *captures)
    assert f"1 of {len(captures)} captures damaged, and added without what cannot be read:" in added.stdout
    assert f"  {captures[0]}: cannot read {path}: it is damaged" in added.stdout
    again = json.loads(tdprof("fleet", "add", "--again", store, *captures, "--json").stdout)
    assert [each["source"] for each in again["damaged"]] == [str(captures[0])]
    lines = tdprof("fleet", "add", "--again", store, *captures, "--csv").stdout.splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [[str(captures[0]), "damaged part"]]


def test_who_only_reads_the_report_knows_of_a_damaged_capture(tmp_path: Path, captures: list[Path]) -> None:
    path = captures[0] / "symbols.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    store = tmp_path / "store"
    tdprof("fleet", "add", store, *captures)
    told = f"of 1 capture not all could be read, or believed: {captures[0].name}; tdprof fleet check {store} says what"
    for _ in range(2):
        assert told in json.loads(tdprof("fleet", "report", store, "--json").stdout)["notes"]
        checked = tdprof("fleet", "check", store)
        assert checked.status == 1
        assert f"without what cannot be read: {captures[0]}: cannot read {path}" in checked.stdout
        tdprof("fleet", "compact", store)
    path.write_bytes(whole)
    tdprof("fleet", "add", "--again", store, *captures)
    assert json.loads(tdprof("fleet", "report", store, "--json").stdout)["notes"] == []
    assert tdprof("fleet", "check", store).status == 0


def test_what_could_not_be_read_of_old_recordings_goes_with_them(tmp_path: Path, captures: list[Path]) -> None:
    path = captures[0] / "symbols.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    store = tmp_path / "store"
    tdprof("fleet", "add", store, *captures)
    assert tdprof("fleet", "check", store, "--keep", "2999-01-01").status == 0


def test_a_segment_that_is_being_recorded_waits_for_its_end(tmp_path: Path, captures: list[Path]) -> None:
    folder = captures[0].parent
    (captures[2] / "spool").mkdir()
    with SegmentFolder(folder):
        assert find_captures([str(folder)]) == [str(captures[0]), str(captures[1])]
    # Its recorder was killed: what it left is all there is.
    assert find_captures([str(folder)]) == [str(each) for each in captures]


def test_a_recorder_that_has_no_segment_yet_is_no_damaged_capture(tmp_path: Path) -> None:
    (tmp_path / "segments").mkdir()
    with SegmentFolder(tmp_path / "segments"):
        assert find_captures([str(tmp_path / "segments")]) == []


def test_a_folder_without_captures_is_no_damaged_capture(tmp_path: Path, captures: list[Path]) -> None:
    """It would be named in every report from then on. Among captures it is one without its capture.json."""
    (tmp_path / "nothing").mkdir()
    result = tdprof("fleet", "add", tmp_path / "store", tmp_path / "nothing")
    assert result.status == 1
    assert f"no capture is at {tmp_path / 'nothing'}, so nothing was added" in str(result.error)
    assert not (tmp_path / "store").exists()
    result = tdprof("fleet", "add", tmp_path / "store", tmp_path / "nothing", captures[0])
    assert (result.status, "is not a capture" in result.stdout) == (0, True)


def test_nothing_of_what_was_given_in_the_store_is_a_failure(tmp_path: Path, captures: list[Path]) -> None:
    (captures[0] / "capture.json").write_bytes(b"{")
    result = tdprof("fleet", "add", tmp_path / "store", captures[0])
    assert result.status == 1
    assert "cannot read" in result.stdout


def test_a_path_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path, captures: list[Path]) -> None:
    result = tdprof("fleet", "add", tmp_path / "store", captures[0], tmp_path / "typo")
    assert result.status == 1
    assert f"nothing is at {tmp_path / 'typo'}" in str(result.error)
    assert not (tmp_path / "store").exists()


def test_a_store_whose_name_is_typed_wrong_has_the_right_one_as_hint(tmp_path: Path, captures: list[Path]) -> None:
    add(tmp_path / "prod", captures[0])
    result = tdprof("fleet", "report", tmp_path / "prdo")
    assert isinstance(result.error, TdprofError)
    assert result.error.hint == f"{tmp_path / 'prod'}, which is one"


@pytest.mark.parametrize(("typed", "meant"), [("capture", "captures"), ("captures/aa.capture", "captures/a.capture")])
def test_captures_whose_name_is_typed_wrong_have_the_right_one_as_hint(
    tmp_path: Path, captures: list[Path], typed: str, meant: str
) -> None:
    result = tdprof("fleet", "add", tmp_path / "store", captures[0], tmp_path / typed)
    assert isinstance(result.error, TdprofError)
    assert result.error.hint == f"did you mean {tmp_path / meant}?"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_hosts_are_parts_of_paths_and_no_more(tmp_path: Path, name: str) -> None:
    part = path_part(name)
    assert part
    assert "/" not in part
    assert part.isascii()
    assert len(part) <= 120
    (tmp_path / f"host={part}").mkdir()
    assert name_of_part(part).isprintable()


def test_hosts_with_like_names_stay_apart() -> None:
    assert len({path_part(name) for name in [*HOSTILE, "x" * 300, "x" * 301, "unknown%"]}) == len(HOSTILE) + 3


@pytest.mark.parametrize("name", ["../../../../outside", "a/../../b", "\x1b]0;x\x07\n"])
def test_a_capture_whose_names_lie_writes_nowhere_else(tmp_path: Path, name: str) -> None:
    inside = tmp_path / "deep" / "er"
    make_host_capture(inside / "cap", name, {name: 50}, module=name, build_id=name, file=name)
    before = {path for path in tmp_path.rglob("*") if "store" not in path.parts}
    result = tdprof("fleet", "add", inside / "store", inside / "cap")
    assert result.status == 0
    assert {path for path in tmp_path.rglob("*") if "store" not in path.parts} == before
    report = tdprof("fleet", "report", inside / "store")
    assert report.status == 0
    assert "\x1b" not in report.stdout


def test_no_file_is_opened_that_a_capture_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by path nor through links; a FIFO in the way of any of them would never end."""
    fifo = tmp_path / "program"
    os.mkfifo(fifo)
    names = [str(fifo), f"/../../../../../../..{fifo}", f"//{fifo}"]
    captures = []
    for number, name in enumerate(names):
        capture = make_host_capture(
            tmp_path / f"{number}.capture", f"host{number}", {"work": 50}, module=name, build_id=""
        )
        (capture / "symbols.parquet").unlink()
        captures.append(capture)
    opened = []
    original = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(str(path)) or original(path, *rest, **more)
    )
    add(tmp_path / "store", *captures)
    assert not [path for path in opened if path.endswith("/program") and not path.startswith("/dev/null/")]
    table = json.loads(tdprof("fleet", "report", tmp_path / "store", "--json").stdout)["strata"][0]["functions"]
    assert all(row["name"].startswith("[") for row in table)


def test_a_clock_that_lies_is_refused(tmp_path: Path) -> None:
    make_host_capture(tmp_path / "cap", "a", {"work": 50}, start_ns=-5)
    result = tdprof("fleet", "add", tmp_path / "store", tmp_path / "cap")
    assert result.status == 1
    assert "time of recording" in result.stdout


def test_a_recording_without_length_is_refused(tmp_path: Path) -> None:
    make_host_capture(tmp_path / "cap", "a", {"work": 50}, seconds=0)
    assert "start and end" in tdprof("fleet", "add", tmp_path / "store", tmp_path / "cap").stdout


def test_what_killed_writers_left_is_not_counted_and_can_go(tmp_path: Path, captures: list[Path]) -> None:
    place = tmp_path / "store"
    add(place, *captures)
    expected = contents(place)
    add(place, make_host_capture(tmp_path / "d.capture", "d", {"work": 10}))
    whole = next(path for path in place.rglob("*.parquet") if "recordings" in path.parts and "host=d" in path.parts)
    whole.unlink()  # it is written last
    (whole.parent / ".unfinished-123-x").write_bytes(b"PAR1")
    assert json.loads(tdprof("fleet", "report", place, "--json").stdout)["strata"][0]["hosts"] == 3
    told = json.loads(tdprof("fleet", "check", place, "--json").stdout)
    assert len(told["left_over"]) == 3
    assert tdprof("fleet", "check", place, "--prune").status == 0
    assert contents(place) == expected


def test_a_changed_rollup_is_found(tmp_path: Path, captures: list[Path]) -> None:
    place = tmp_path / "store"
    add(place, *captures)
    files = {path.parts[-2]: path for path in place.rglob("*.parquet") if "functions" in path.parts}
    files["host=a"].write_bytes(files["host=b"].read_bytes())
    checked = tdprof("fleet", "check", place)
    assert checked.status == 1
    assert "not those that were written" in checked.stdout
    files["host=a"].unlink()
    assert "are missing" in tdprof("fleet", "check", place).stdout
    assert "fleet check" in tdprof("fleet", "report", place).error.hint


def test_old_recordings_go_when_asked(tmp_path: Path, captures: list[Path]) -> None:
    place = tmp_path / "store"
    old = make_host_capture(tmp_path / "old", "a", {"work": 5}, start_ns=START_NS - 10**15)
    add(place, *captures, old)
    assert json.loads(tdprof("fleet", "check", place, "--keep", "2026-11-22", "--json").stdout)["removed"] == 1
    assert json.loads(tdprof("fleet", "report", place, "--json").stdout)["strata"][0]["recordings"] == 3


def test_commands_to_try_have_the_stores_name_as_a_shell_takes_it(tmp_path: Path) -> None:
    """Who names an object store names it with ``?`` and ``&``."""
    make_host_capture(tmp_path / "a.capture", "a", {"work": 60}, has_names=False)
    store = tmp_path / "a&b"
    assert f"--again '{store}' CAPTURE" in tdprof("fleet", "add", store, tmp_path / "a.capture").stdout
    error = tdprof("fleet", "report", tmp_path / "no&where").error
    assert error is not None
    assert f"'{tmp_path}/no&where' CAPTURE" in str(error.hint)


def test_a_store_where_none_can_be_made_is_refused() -> None:
    with pytest.raises(TdprofError, match=r"cannot use the store /proc/none: No such file or directory"):
        Store.create("/proc/none")


@pytest.mark.parametrize(("code", "cure"), [(errno.ENOSPC, "free some space"), (errno.EACCES, "may it be used")])
def test_what_cannot_be_written_names_the_cure(
    code: int, cure: str, tmp_path: Path, captures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    Store.create(str(tmp_path / "store"))
    monkeypatch.setattr(FolderFiles, "write", refuse)
    with pytest.raises(TdprofError, match=os.strerror(code)) as refused:
        add(tmp_path / "store", *captures)
    assert cure in refused.value.hint


def test_a_capture_in_place_of_a_store_is_told(tmp_path: Path) -> None:
    capture = make_host_capture(tmp_path / "a", "a", {"work": 5})
    for words in (("report", capture), ("add", capture, capture)):
        error = tdprof("fleet", *words).error
        assert error is not None
        assert error.hint == f"it is a capture, which tdprof fleet add STORE {capture} puts into one"


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("of somebody")
    with pytest.raises(TdprofError, match="is no store") as caught:
        Store.create(str(tmp_path))
    assert "a folder that is empty or not there yet" in (caught.value.hint or "")
    assert [path.name for path in tmp_path.iterdir()] == ["something"]
    with pytest.raises(TdprofError, match="is no store"):
        Store(str(tmp_path / "nowhere"))
    (tmp_path / "tdprof-store.json").write_text('{"store_version": 99}')
    with pytest.raises(TdprofError, match="store version 99"):
        Store(str(tmp_path))
    (tmp_path / "tdprof-store.json").write_text("[" * 100_000)
    with pytest.raises(TdprofError, match="damaged"):
        Store(str(tmp_path))
    with pytest.raises(TdprofError, match="no store can be at"):
        Store("ftp-nonsense://x")


def test_labels_and_times_choose(tmp_path: Path) -> None:
    place = tmp_path / "store"
    for number, version in enumerate(("1", "2")):
        capture = make_host_capture(tmp_path / version, f"h{number}", {"work": 50}, start_ns=START_NS + number * 10**9)
        assert tdprof("fleet", "add", place, capture, "--label", f"version={version}").status == 0

    def hosts(*options: str) -> int:
        result = tdprof("fleet", "report", place, "--json", *options)
        return sum(each["hosts"] for each in json.loads(result.stdout)["strata"]) if not result.status else 0

    assert hosts() == 2
    assert hosts("--where", "version=1") == 1
    assert hosts("--where", "version=1", "--where", "version=2") == 2
    assert hosts("--where", "version=1", "--where", "host=h1") == 0
    assert hosts("--since", "2026-11-22T00:00:01") == 1
    assert hosts("--until", "2026-11-22T00:00:01") == 1
    assert hosts("--since", "2026-11-23") == 0
    assert tdprof("fleet", "report", place, "--since", "soon").status == 2
    assert tdprof("fleet", "add", place, tmp_path / "1", "--label", "host=x").status == 2
