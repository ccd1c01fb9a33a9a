"""Compiled methods that samples named, in a capture's maps."""

from pathlib import Path

import numpy as np

from tdprof.capture.java_code import JavaMethod, code_name, read_header, read_records
from tdprof.capture.named_code import MethodCode, add_named_code
from tdprof.capture.perf_maps import MapTimes
from tdprof.linux.own_folder import OwnFolder
from tdprof.symbolize.perf_map import read_perf_map

PID, END_NS = 7, 100
ONE, TWO = (JavaMethod(b"app/A", name, b"()V", b"A.java", b"") for name in (b"one", b"two"))


def added(capture: Path, *codes: MethodCode) -> Path:
    with OwnFolder.open(capture) as folder:
        assert add_named_code(folder, PID, codes, END_NS) is None
    return capture / "perf-maps"


def with_map(capture: Path, text: bytes) -> Path:
    (capture / "perf-maps").mkdir(mode=0o700)
    (capture / "perf-maps" / f"perf-{PID}.map").write_bytes(text)
    return capture


def name_at(maps: Path, address: int, time_ns: int) -> str | None:
    code = read_perf_map(maps, PID)
    assert code
    at = np.array([address], np.uint64)
    when = np.array([time_ns], np.uint64)
    place = code.versions.places_of(at, when, when) if code.versions else at
    row = int(code.table.lookup(place)[0])
    return code.table.names([row])[0] if row >= 0 else None


def test_code_that_no_map_was_asked_for_has_names(tmp_path: Path) -> None:
    maps = added(tmp_path, MethodCode(0x1000, 0x1100, 5, ONE, 1))
    assert name_at(maps, 0x10FF, 5) == "void app.A.one()"
    assert name_at(maps, 0x1100, 5) is None
    data = (maps / code_name(PID)).read_bytes()
    header = read_header(data)
    assert header
    assert (header.lowest_byte, header.is_everywhere) == (1, False)
    assert list(read_records(data)) == [ONE]


def test_of_one_memory_each_sample_is_of_what_was_there_then(tmp_path: Path) -> None:
    # Its map has what was there before any sample, what is there in the end, and something else.
    with_map(tmp_path, b"0x1000 0x100 before\n0x0001000 0x100 void app.A.two()\n2000 10 else\n")
    codes = [MethodCode(0x1000, 0x1100, time_ns, method, 0) for time_ns, method in ((30, TWO), (20, ONE))]
    maps = added(tmp_path, *codes)
    assert [name_at(maps, 0x1050, at) for at in (10, 20, 29, 30, END_NS)] == [
        "before",
        "void app.A.one()",
        "void app.A.one()",
        "void app.A.two()",
        "void app.A.two()",
    ]
    assert name_at(maps, 0x2000, 10) == "else"


def test_what_is_known_of_inlined_methods_stays(tmp_path: Path) -> None:
    maps = with_map(tmp_path, b"2000 10 else\n") / "perf-maps"
    (maps / code_name(PID)).write_bytes(b"TDJAVA\0\1\0\1" + bytes(6) + TWO.to_bytes())
    added(tmp_path, MethodCode(0x1000, 0x1100, 5, ONE, 0))
    data = (maps / code_name(PID)).read_bytes()
    header = read_header(data)
    assert header
    assert header.is_everywhere
    assert list(read_records(data)) == [TWO, ONE]


def test_a_map_of_which_is_known_when_its_lines_came_stays(tmp_path: Path) -> None:
    text = b"1000 100 own\n"
    maps = with_map(tmp_path, text) / "perf-maps"
    (maps / f"perf-{PID}.times").write_bytes(MapTimes.of(text, [(len(text), 3)], 4).to_bytes())
    added(tmp_path, MethodCode(0x1000, 0x1100, 5, ONE, 0))
    assert (maps / f"perf-{PID}.map").read_bytes() == text


def test_what_has_no_room_is_said(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir(mode=0o700)
    (tmp_path / "spool" / "limit").write_bytes(b"10")
    with OwnFolder.open(tmp_path) as folder:
        note = add_named_code(folder, PID, [MethodCode(0x1000, 0x1100, 5, ONE, 0)], END_NS)
    assert note == f"names of compiled Java methods that samples have of process {PID} are not kept: there is no room"
    assert not (tmp_path / "perf-maps" / f"perf-{PID}.map").exists()
