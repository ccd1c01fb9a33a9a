"""Control groups and namespaces of a recording, and which files they make doubtful."""

import json
import sys
from pathlib import Path

import pytest

from builders.imported import imported, run_report
from builders.opened import profile_of
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import Sample
from tdprof.attribute.containers import foreign_paths
from tdprof.capture.schema import table_file
from tdprof.capture.tables import has_table, read_table
from tdprof.decode.perf.layout import RecordLayout
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import SampleType
from tdprof.model.choices import GroupKind
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.profile.groups import group_samples

FIELDS = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.PERIOD
OWN, OTHER = 4026531832, 4026532177
PERF, APP, BOXED, ENTERED = 5, 6, 7, 8


def links(mount: int) -> list[tuple[int, int]]:
    return [(4, 100 + kind) for kind in range(5)] + [(4, mount), (4, 106)]


def recording(folder: Path, *, recorder: bytes = b"perf", fields: SampleType = FIELDS | SampleType.CGROUP) -> Path:
    """perf, a process beside it, one in a container, and one that enters the container; as a capture."""
    made = PerfDataWriter([Event(RecordLayout(fields, ids=(1,)))])
    w = made.records

    def trailer(pid: int, time_ns: int = 0) -> bytes:
        return w.sample_id(pid=pid, tid=pid, time_ns=time_ns, id_=1)

    data = b""
    for pid, name, mount in ((PERF, recorder, OWN), (APP, b"app", OWN), (BOXED, b"boxed", OTHER)):
        data += w.comm(pid, pid, name, trailer=trailer(pid)) + w.namespaces(pid, pid, links(mount), trailer(pid))
    data += w.namespaces(ENTERED, ENTERED, links(OWN), trailer(ENTERED, 10))
    data += w.namespaces(ENTERED, ENTERED, links(OTHER), trailer(ENTERED, 20))
    data += w.cgroup(1, b"/", trailer(PERF)) + w.cgroup(2**40, b"/pod", trailer(PERF))
    for pid, path, time_ns in (
        (APP, b"/own", 0),
        (BOXED, b"/boxed", 0),
        (ENTERED, b"/before", 15),
        (ENTERED, b"/after", 25),
        (APP, b"/both", 0),
        (BOXED, b"/both", 0),
    ):
        start = {b"/after": 0x9000, b"/both": 0x20000}.get(path, 0x1000)
        data += w.mmap2(pid, start, 0x1000, 0, b"/nowhere" + path, trailer=trailer(pid, time_ns))
    for number, (pid, cgroup) in enumerate([(APP, 1), (APP, 1), (BOXED, 2**40), (BOXED, 3), (BOXED, 0)]):
        data += w.sample(Sample(ip=0x1010, pid=pid, tid=pid, time_ns=30 + number, id=1, cgroup=cgroup, period=7))
    return imported(folder, made.file(data))


def test_a_group_that_was_removed_and_made_again_is_one(tmp_path: Path) -> None:
    made = PerfDataWriter([Event(RecordLayout(FIELDS | SampleType.CGROUP, ids=(1,)))])
    w = made.records
    groups, none = {5: b"/again", 9: b"/other", 11: b"/again"}, 13
    trailer = w.sample_id(pid=APP, tid=APP, time_ns=0, id_=1)
    data = w.comm(APP, APP, b"app", trailer=trailer)
    data += b"".join(w.cgroup(number, path, trailer) for number, path in groups.items())
    for number in (*groups, none, 0):
        data += w.sample(Sample(ip=0x1010, pid=APP, tid=APP, time_ns=30, id=1, cgroup=number, period=7))
    found = group_samples(profile_of(imported(tmp_path, made.file(data))), GroupKind.CGROUP)
    counts = dict(zip(found.name, found.samples[:, 0].tolist(), strict=True))
    assert counts == {"/again": 2, "/other": 1, "[no path] 13": 1, "[not recorded]": 1}


def test_samples_are_kept_apart_by_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.pipeline.import_perf._MOST_EXACT_BYTES", 0)  # so that they are added up
    capture = recording(tmp_path / "r")
    found = read_table(capture, "samples", ["cgroup"]).to_pylist()
    assert sorted((row["cgroup"] or 0, row["pid"], row["count"], row["weight"]) for row in found) == [
        (0, BOXED, 1, 7),
        (1, APP, 2, 14),
        (3, BOXED, 1, 7),
        (2**40, BOXED, 1, 7),
    ]
    assert {row["cgroup"]: row["path"] for row in read_table(capture, "cgroups").to_pylist()} == {1: "/", 2**40: "/pod"}


def test_captures_without_cgroups_read_as_ones_that_do_not_tell(tmp_path: Path) -> None:
    capture = recording(tmp_path / "r", fields=FIELDS)
    assert "cgroup" not in read_table(capture, "samples").column_names
    assert read_table(capture, "samples", ["cgroup"])["cgroup"].null_count == len(read_table(capture, "samples"))


def test_namespaces_say_which_are_perfs(tmp_path: Path) -> None:
    rows = read_table(recording(tmp_path / "r"), "namespaces").to_pylist()
    mounts = [(row["pid"], row["inode"], row["is_recorders"]) for row in rows if row["namespace"] == "mnt"]
    own, other = (OWN, True), (OTHER, False)
    assert mounts == [(PERF, *own), (APP, *own), (BOXED, *other), (ENTERED, *own), (ENTERED, *other)]
    assert {row["namespace"] for row in rows} == {"net", "uts", "ipc", "pid", "user", "mnt", "cgroup"}
    unknown = read_table(recording(tmp_path / "s", recorder=b"other"), "namespaces")
    assert unknown["is_recorders"].null_count == len(unknown)


def test_files_of_containers_are_told_apart_by_time(tmp_path: Path) -> None:
    capture = recording(tmp_path / "r")
    mappings, namespaces = read_table(capture, "mappings"), read_table(capture, "namespaces")
    paths = [f"/nowhere/{name}" for name in ("own", "boxed", "before", "after", "both")]
    assert foreign_paths(paths, mappings, namespaces) == ["/nowhere/boxed", "/nowhere/after"]


def test_missing_files_of_containers_are_said(tmp_path: Path) -> None:
    [note] = [note for note in profile_of(recording(tmp_path / "r")).notes if "namespace" in note]
    assert note.startswith("not found here, and only processes in another mount namespace than perf's")
    assert "/nowhere/boxed" in note
    capture = recording(tmp_path / "s", recorder=b"other")
    assert not any("namespace" in note for note in profile_of(capture).notes)
    (capture / table_file("namespaces")).unlink()  # as captures of older versions are
    assert not has_table(capture, "namespaces")
    assert profile_of(capture).samples.count.sum() == 5


def test_files_of_containers_that_may_be_others_are_said(tmp_path: Path) -> None:
    made = PerfDataWriter([Event(RecordLayout(FIELDS, ids=(1,)))])
    w = made.records
    trailer = w.sample_id(pid=BOXED, tid=BOXED, time_ns=0, id_=1)
    here = Path(sys.executable).resolve()
    data = w.comm(PERF, PERF, b"perf", trailer=trailer) + w.namespaces(PERF, PERF, links(OWN), trailer)
    data += w.namespaces(BOXED, BOXED, links(OTHER), trailer)
    notes = []
    for build_id in (None, b"b" * 20):
        mapped = w.mmap2(BOXED, 0x1000, 0x10000, 0, str(here).encode(), build_id=build_id, trailer=trailer)
        sample = w.sample(Sample(ip=0x2000, pid=BOXED, tid=BOXED, time_ns=5, id=1))
        (tmp_path / "perf.data").write_bytes(made.file(data + mapped + sample))
        folder = tmp_path / f"{build_id is None}.capture"
        import_perf_data(str(tmp_path / "perf.data"), folder)
        notes.append([note for note in profile_of(folder).notes if "namespace" in note])
    assert len(notes[0]) == 1
    assert notes[0][0].startswith("without a build-id")
    assert str(here) in notes[0][0]
    assert notes[1] == []  # a build-id says which file it was


def test_report_by_cgroup_in_every_form(tmp_path: Path) -> None:
    capture = str(recording(tmp_path / "r"))
    rows = json.loads(run_report(capture, "--by", "cgroup", "--json").stdout)["rows"]
    assert [(row["cgroup"], row["path"], row["samples"], row["weight"]["cycles"], row["share"]) for row in rows] == [
        (1, "/", 2, 14, 0.4),
        (None, None, 1, 7, 0.2),
        (3, None, 1, 7, 0.2),
        (2**40, "/pod", 1, 7, 0.2),
    ]
    assert all(0 < row["half_width"] < 0.5 for row in rows)
    assert run_report(capture, "--by", "cgroup", "--csv").stdout.splitlines()[1].startswith("1,/,,,,0.4,")
    text = run_report(capture, "--by", "cgroup").stdout
    assert all(name in text for name in ("/pod", "[not recorded]", "[no path] 3"))
    assert "and 3 more" in run_report(capture, "--by", "cgroup", "--limit", "1").stdout
    assert run_report(str(tmp_path / "r" / "perf.data"), "--by", "cgroup").stdout == text
    chosen = json.loads(run_report(capture, "--where", "cgroup=/pod", "--by", "cgroup", "--json").stdout)["rows"]
    assert [(row["cgroup"], row["share"]) for row in chosen] == [(2**40, 1.0)]


def test_report_by_cgroup_without_any_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    made = PerfDataWriter([Event(RecordLayout(FIELDS, ids=(1,)))])
    (folder / "perf.data").write_bytes(made.file(made.records.sample(Sample(ip=1, pid=7, tid=7, time_ns=5, id=1))))
    with pytest.raises(TdprofError, match="tell no control group") as caught:
        run_report(str(folder / "perf.data"), "--by", "cgroup")
    assert "--all-cgroups" in (caught.value.hint or "")
