"""The kernel side of walking Python's frames: threads load it, whenever the recording ends."""

import ctypes
import errno
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from tdprof.recorder.bpf import exec_places, python_walk
from tdprof.recorder.bpf.exec_places import ExecPlaces
from tdprof.recorder.bpf.maps import BPF_MAP_UPDATE_ELEM
from tdprof.recorder.bpf.python_walk import PythonProgram, PythonRuntime, PythonWalk
from tdprof.recorder.kernel_types import KernelTypes

PATIENCE_S = 300


def test_the_end_waits_for_what_a_thread_loads_and_admits_no_more() -> None:
    is_loading, may_end = threading.Event(), threading.Event()
    loads = []

    def load(rings: Mapping[str, int]) -> None:
        loads.append(rings)
        is_loading.set()
        may_end.wait(PATIENCE_S)

    walk = PythonWalk({}, load, ExecPlaces(0))
    loading = threading.Thread(target=walk.start)
    loading.start()
    assert is_loading.wait(PATIENCE_S)
    closing = threading.Thread(target=walk.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    may_end.set()
    for thread in (closing, loading):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    never_started = PythonWalk({}, load, ExecPlaces(0))
    never_started.close()
    assert not never_started.start()
    assert len(loads) == 1


class Maps:
    """The kernel's map of processes, whose update is told of, and waits, before it takes effect."""

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.is_updating, self.may_update = threading.Event(), threading.Event()

    def __call__(self, command: int, fd: int, key: ctypes.c_uint32, value: PythonRuntime) -> None:
        del fd
        if command == BPF_MAP_UPDATE_ELEM:
            self.is_updating.set()
            self.may_update.wait(PATIENCE_S)
            self.known.add(key.value)
        elif key.value not in self.known:
            raise FileNotFoundError
        else:
            value.told = 2


def test_a_process_found_while_a_segment_begins_is_told_of_in_all_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = Maps()
    monkeypatch.setattr(python_walk, "map_element", maps)
    walk = PythonWalk({"python_runtimes": 0}, lambda _rings: None, ExecPlaces(0))
    spools = [(tmp_path / name).open("wb") for name in ("first", "second")]
    first, second = (SimpleNamespace(descriptor=lambda _name, file=file: file.fileno()) for file in spools)
    finding = threading.Thread(target=walk.add, args=(7, PythonRuntime(), b"7"))
    finding.start()
    assert maps.is_updating.wait(PATIENCE_S)
    beginning = threading.Thread(target=walk.tell_again, args=(first,))
    beginning.start()
    beginning.join(0.1)
    maps.may_update.set()
    for thread in (finding, beginning):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    walk.tell_again(second)  # type: ignore[arg-type]
    for spool in spools:
        spool.close()
    assert (tmp_path / "second").read_bytes() == b"7\n"


def test_what_the_kernel_found_by_itself_is_to_be_looked_at_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_walk, "map_element", lambda *_: None)  # it is there, as a program that was executed
    assert not PythonWalk({"python_runtimes": 0}, lambda _rings: None, ExecPlaces(0)).has(7)


def test_a_kernel_that_does_not_tell_what_is_executed_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def tell(structures: Collection[str], _: object) -> KernelTypes:
        asked.append(structures)
        return KernelTypes({("file", "f_inode"): 8}, {}, {})

    known = []
    monkeypatch.setattr(exec_places, "read_kernel_types", tell)
    monkeypatch.setattr(exec_places, "map_element", lambda _command, fd, *_: known.append(fd))
    monkeypatch.setattr(python_walk, "map_element", lambda _command, fd, *_: known.append(fd))
    walk = PythonWalk({"python_programs": 1}, lambda _rings: None, ExecPlaces(2))
    for line in (b"1", b"2"):
        walk.know(PythonProgram(1, 2, 3), PythonRuntime(), line)
    assert known == [1, 1]
    for name in ("first", "second"):  # each segment is told
        with (tmp_path / name).open("wb") as spool:
            walk.tell_again(SimpleNamespace(descriptor=lambda _name, spool=spool: spool.fileno()))  # type: ignore[arg-type]
        assert (tmp_path / name).read_bytes() == b"1\n2\n"
    assert len(asked) == 1


def test_a_process_without_room_is_not_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.E2BIG, "no room")

    monkeypatch.setattr(python_walk, "map_element", refuse)
    walk = PythonWalk({"python_runtimes": 0}, lambda _rings: None, ExecPlaces(0))
    assert not walk.add(7, PythonRuntime(), b"7")
    with (tmp_path / "spool").open("wb") as spool:
        walk.drain(SimpleNamespace(descriptor=lambda _name: spool.fileno()), {})  # type: ignore[arg-type]
    assert (tmp_path / "spool").read_bytes() == b""
