"""Dumps and maps of run-time code, read as they grow: what replaced what, and when lines of maps were written."""

import os
import select
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from builders.waiting import wait_until
from tdprof.capture.files import PERF_MAP_FOLDER
from tdprof.capture.perf_maps import MapTimes
from tdprof.capture.spool import SpoolWriter
from tdprof.linux import clocks
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder import code_maps, code_watch
from tdprof.recorder.code_maps import MapLog
from tdprof.recorder.code_watch import CodeWatch
from tdprof.recorder.identity import HeldProcess
from tdprof.recorder.shares import Shares

HEADER = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 42, 0, 0)


def load(name: bytes) -> bytes:
    body = struct.pack("<IIQQQQ", 42, 42, 0x1000, 0x1000, 0x20, 1) + name + b"\0" + bytes(0x20)
    return struct.pack("<IIQ", 0, 16 + len(body), 5) + body


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CodeWatch]:
    monkeypatch.setattr(code_watch, "MAPS_FOLDER", str(tmp_path))
    watch = CodeWatch(ends_intervals=True)
    yield watch
    watch.finish()


def is_replaced(watch: CodeWatch) -> bool:
    return bool(select.select([watch.fd], [], [], 60)[0]) and watch.take_replaced()


def test_what_is_appended_to_a_dump_is_noticed(tmp_path: Path, watch: CodeWatch) -> None:
    dump = tmp_path / "jit-42.dump"
    dump.touch()
    watch.start()
    watch.found_dump(os.getpid(), str(tmp_path / "none" / "jit-1.dump"))
    watch.found_dump(os.getpid(), str(dump))
    append(dump, HEADER + load(b"f"))
    append(dump, load(b"g"))
    assert is_replaced(watch)
    # How often it was read in between is not known.
    append(dump, load(b"h"))
    assert select.select([watch.fd], [], [], 60)[0]
    watch.finish()
    watch.take_replaced()
    append(dump, load(b"i"))
    assert not watch.take_replaced()


def saved(watch: CodeWatch, tmp_path: Path) -> tuple[bytes, MapTimes | None]:
    """The map of this process as a capture has it, and its times."""
    capture = tmp_path / "capture"
    capture.mkdir()
    with OwnFolder.open(capture) as folder:
        watch.save_maps(folder, lambda pid: pid == os.getpid())
    maps = capture / PERF_MAP_FOLDER
    text, times = maps / f"perf-{os.getpid()}.map", maps / f"perf-{os.getpid()}.times"
    found = text.read_bytes()
    return found, MapTimes.from_bytes(times.read_bytes(), found) if times.exists() else None


@pytest.mark.parametrize("is_early", [True, False])
def test_lines_of_a_map_get_times(tmp_path: Path, watch: CodeWatch, is_early: bool) -> None:
    path = tmp_path / f"perf-{os.getpid()}.map"
    if is_early:
        append(path, b"1000 20 f\n")
        watch.start()
    else:
        watch.start()
        append(path, b"1000 20 f\n")
    (tmp_path / "perf-0.map").write_bytes(b"1000 20 of no process\n")
    append(path, b"2000 20 g\n")
    # The thread that reads may get no processor for long.
    wait_until(lambda: (log := watch._maps.get(os.getpid())) and log.text == b"1000 20 f\n2000 20 g\n")
    before_ns = time.monotonic_ns()
    time.sleep(0.02)  # the clock of files stands still for up to a hundredth of a second
    append(path, b"1010 8 h\n1010 9 unfin")
    assert is_replaced(watch)
    watch.finish()
    text, times = saved(watch, tmp_path)
    assert text == b"1000 20 f\n2000 20 g\n1010 8 h\n"
    assert times
    assert times.end[-1] == len(text) == times.seen_bytes
    assert times.end[-2] == text.index(b"1010")
    assert times.time_ns[-2] <= before_ns < times.time_ns[-1] <= times.until_ns <= time.monotonic_ns()


def test_a_map_that_is_written_anew_has_no_times_but_all_lines(tmp_path: Path, watch: CodeWatch) -> None:
    path = tmp_path / f"perf-{os.getpid()}.map"
    append(path, b"1000 20 f\n")
    watch.start()
    append(path, b"1000 20 g\n")
    assert is_replaced(watch)
    new = tmp_path / "new"
    append(new, b"1000 20 h\n")
    new.rename(path)
    assert is_replaced(watch)
    assert saved(watch, tmp_path) == (b"1000 20 f\n1000 20 g\n1000 20 h\n", None)


def test_a_map_whose_last_lines_and_successor_come_at_once_is_read_once(tmp_path: Path, watch: CodeWatch) -> None:
    path, new = tmp_path / f"perf-{os.getpid()}.map", tmp_path / "new"
    append(path, b"1000 20 f\n")
    append(new, b"1000 20 h\n")
    watch.start()
    wait_until(lambda: watch.maps_bytes)
    is_held, is_done = threading.Event(), threading.Event()

    def hold(_: object) -> set[int]:
        is_held.set()
        is_done.wait()
        return set()

    watch._tell(hold)
    is_held.wait()
    append(path, b"2000 20 g\n")
    new.rename(path)
    is_done.set()
    assert is_replaced(watch)
    watch.finish()
    assert saved(watch, tmp_path) == (b"1000 20 f\n2000 20 g\n1000 20 h\n", None)


def test_a_process_that_has_ended_is_followed_through_the_segment_and_no_longer(
    tmp_path: Path, watch: CodeWatch
) -> None:
    """Else the maps and descriptors of all processes that ever wrote one would add up, up to where no more are read."""
    watch.start()
    room_bytes = watch._room.left_for(0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        path = tmp_path / f"perf-{process.pid}.map"
        append(path, b"1000 20 f\n")
        wait_until(lambda: (log := watch._maps.get(process.pid)) and log.text)
        watch.found_dump(process.pid, str(path))
        watch.forget_all_but({process.pid})
    assert room_bytes - watch._room.left_for(0) == path.stat().st_size
    watch.forget_all_but(set())
    watch.forget_all_but({process.pid})
    watch.forget_all_but(set())
    assert process.pid in watch._maps
    watch.forget_all_but(set())
    wait_until(lambda: process.pid not in watch._maps)
    wait_until(lambda: watch._room.left_for(0) == room_bytes)
    wait_until(lambda: not any(path.samefile(fd) for fd in Path("/proc/self/fd").iterdir() if fd.exists()))
    assert not watch._dumps


def read_steps(path: Path, *pieces: bytes, pause_s: float = 0.0) -> MapLog:
    """What a log has after it was read on behind each piece."""
    log = MapLog(Shares(1 << 20))
    with path.open("wb", buffering=0) as file, path.open("rb") as reader:
        for piece in pieces:
            file.write(piece)
            log.read_on(reader.fileno())
            time.sleep(pause_s)
    return log


def test_a_line_that_is_long_in_coming_was_held_in_a_buffer(tmp_path: Path) -> None:
    assert not read_steps(tmp_path / "map", b"1000 20 f\n10", b"00 20 g\n", pause_s=0.15).is_timed
    assert read_steps(tmp_path / "map", b"1000 20 f\n", b"1000 20 g\n", pause_s=0.15).is_timed


def test_who_is_kept_from_the_cpu_between_two_clocks_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, real_ns, kept = [100], 1 << 60, list[int]()

    def clock_gettime_ns(clock: int) -> int:
        assert clock == time.CLOCK_REALTIME
        if not kept:
            kept.append(1)
            now_ns[0] += 1_000_000_000
        return real_ns + now_ns[0]

    path = tmp_path / "map"
    path.write_bytes(b"1000 20 f\n")
    os.utime(path, ns=(0, real_ns + 7))
    log = MapLog(Shares(1 << 20))
    clock = SimpleNamespace(
        monotonic_ns=lambda: now_ns[0], clock_gettime_ns=clock_gettime_ns, CLOCK_REALTIME=time.CLOCK_REALTIME
    )
    monkeypatch.setattr(clocks, "time", clock)
    with path.open("rb") as file:
        log.read_on(file.fileno())
    assert log.steps == [(10, 7)]


def test_a_map_that_gets_shorter_is_read_anew(tmp_path: Path) -> None:
    log, path = MapLog(Shares(1 << 20)), tmp_path / "map"
    for text in (b"1000 20 a long name\n", b"1000 20 g\n"):
        path.write_bytes(text)
        with path.open("rb") as file:
            log.read_on(file.fileno())
    assert (bytes(log.text), log.is_timed) == (b"1000 20 a long name\n1000 20 g\n", False)


@pytest.mark.parametrize("limit", ["_LONGEST_LINE", "room", "MOST_STEPS"])
def test_a_map_that_grows_on_and_on_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    room = Shares(20 if limit == "room" else 1 << 20)
    if limit != "room":
        monkeypatch.setattr(code_maps, limit, 1)
    log, path = MapLog(room), tmp_path / "map"
    for _ in range(3):
        append(path, b"1000 20 f\nlonger than allowed")
        with path.open("rb") as file:
            log.read_on(file.fileno())
    assert (log.position, log.text, log.steps, log.is_timed) == (-1, b"", [], False)
    # What was read is not given back: a program could have it read again and again under other numbers.
    assert room.left in (20, (1 << 20) - len(b"1000 20 f\n"))


def test_a_long_map_is_taken_apart_in_pieces_with_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one go it would keep the interpreter from the thread that drains the buffers, for seconds."""
    text = b"".join(b"%x 10 function%d\n" % (16 * number, number) for number in range(1, 500))
    pieces: list[int] = []
    pauses: list[float] = []
    monkeypatch.setattr(code_maps, "_PIECE_BYTES", 100)
    monkeypatch.setattr(code_maps, "_LONGEST_LINE", 50)
    monkeypatch.setattr(time, "sleep", pauses.append)
    (tmp_path / "map").write_bytes(text + b"ff10 10 half")
    log = MapLog(Shares(1 << 20))
    log_take = MapLog._take

    def take(self: MapLog, more: bytes, written_ns: int, *, is_last: bool) -> bool:
        pieces.append(len(more))
        return log_take(self, more, written_ns, is_last=is_last)

    monkeypatch.setattr(MapLog, "_take", take)
    with (tmp_path / "map").open("rb") as file:
        assert not log.read_on(file.fileno())
        assert max(pieces) == 100
        assert len(pauses) == len(pieces) - 1
        append(tmp_path / "map", b"\n10 10 another\n")
        assert log.read_on(file.fileno())
    assert (bytes(log.text), log.position) == (text + b"ff10 10 half\n10 10 another\n", len(log.text))
    assert log.steps[-1][0] == len(log.text)


def test_times_of_another_map_or_damaged_ones_are_none() -> None:
    text = b"1000 20 f\n1000 20 g\n"
    data = MapTimes.of(text, [(10, 5), (20, 7)], 9).to_bytes()
    times = MapTimes.from_bytes(data, text + b"1000 20 h\n")
    assert times
    assert (list(times.end), list(times.time_ns), times.until_ns) == ([10, 20], [5, 7], 9)
    assert MapTimes.from_bytes(data, text.replace(b"g", b"h")) is None
    assert MapTimes.from_bytes(data, text[:-1]) is None
    for end in range(len(data)):
        assert MapTimes.from_bytes(data[:end], text) is None
    for steps, until_ns in (([(20, 5), (10, 7)], 9), ([(10, 7), (20, 5)], 9), ([(10, 5), (20, 7)], 6), ([(10, 0)], 9)):
        assert MapTimes.from_bytes(MapTimes.of(text[: steps[-1][0]], steps, until_ns).to_bytes(), text) is None


class LaterProcess(HeldProcess):
    """One that has the number of another, which has ended."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.started_ticks += 1


@pytest.mark.parametrize("is_seen_again", [True, False])
def test_lines_of_a_process_that_ended_are_not_those_of_the_next_of_its_number(
    tmp_path: Path, watch: CodeWatch, monkeypatch: pytest.MonkeyPatch, is_seen_again: bool
) -> None:
    path, capture = tmp_path / f"perf-{os.getpid()}.map", tmp_path / "capture"
    append(path, b"1000 20 f\n1000 20 g\n")
    watch.start()
    assert is_replaced(watch)
    monkeypatch.setattr(code_watch, "HeldProcess", LaterProcess)
    if is_seen_again:
        append(tmp_path / "new", b"2000 20 h\n2000 20 i\n")
        (tmp_path / "new").rename(path)
        assert is_replaced(watch)
    watch.finish()
    capture.mkdir()
    with OwnFolder.open(capture) as folder:
        watch.save_maps(folder, lambda pid: True)
    kept = {each.read_bytes() for each in capture.rglob("*.map")}
    assert kept == ({b"2000 20 h\n2000 20 i\n"} if is_seen_again else set())


@pytest.mark.parametrize(("most_bytes", "is_kept"), [(None, True), (20, True), (19, False)])
def test_a_map_for_which_a_segment_has_no_room_is_told(
    tmp_path: Path, watch: CodeWatch, most_bytes: int | None, is_kept: bool
) -> None:
    append(tmp_path / f"perf-{os.getpid()}.map", b"1000 20 f\n1000 20 g\n")
    watch.start()
    watch.finish()
    (tmp_path / "capture").mkdir()
    assert watch.maps_bytes == 20
    with OwnFolder.open(tmp_path / "capture") as folder, SpoolWriter(folder, most_bytes):
        left_out = watch.save_maps(folder, lambda pid: True)
    assert bool(list((tmp_path / "capture").rglob("*.map"))) == is_kept
    assert left_out == [f"/tmp/perf-{os.getpid()}.map is not kept: too large for --max-size"] * (not is_kept)


def test_what_is_no_map_is_not_kept(tmp_path: Path, watch: CodeWatch) -> None:
    append(tmp_path / f"perf-{os.getpid()}.map", b"root:x:0:0\n1000 20 f\n")
    watch.start()
    watch.finish()
    (tmp_path / "capture").mkdir()
    with OwnFolder.open(tmp_path / "capture") as folder:
        watch.save_maps(folder, lambda pid: True)
    assert not list((tmp_path / "capture").rglob("*.map"))


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_is_older_than_a_process_is_of_another_of_its_number(
    tmp_path: Path, watch: CodeWatch, goes_on: bool
) -> None:
    path = tmp_path / f"perf-{os.getpid()}.map"
    append(path, b"1000 20 f\n1000 20 g\n")
    os.utime(path, (1, 1))
    watch.start()
    wait_until(lambda: os.getpid() in watch._maps)
    if goes_on:
        append(path, b"2000 20 h\n2000 20 i\n")
        assert is_replaced(watch)
    watch.finish()
    assert not watch.take_replaced()
    (tmp_path / "capture").mkdir()
    with OwnFolder.open(tmp_path / "capture") as folder:
        watch.save_maps(folder, lambda pid: True)
    kept = [each.read_bytes() for each in (tmp_path / "capture").rglob("*.map")]
    assert kept == [b"2000 20 h\n2000 20 i\n"] * goes_on


def test_names_that_no_process_can_have_do_not_end_the_watch(tmp_path: Path, watch: CodeWatch) -> None:
    """Anybody may make files of such names."""
    for number in ("9999999999", "4294967296", "2147483648", "999999999", "0", f"0{os.getpid()}"):
        append(tmp_path / f"perf-{number}.map", b"1000 20 f\n1000 20 g\n")
    watch.start()
    append(tmp_path / f"perf-{os.getpid()}.map", b"1000 20 f\n1000 20 g\n")
    assert is_replaced(watch)
    assert set(watch._maps) == {os.getpid()}
