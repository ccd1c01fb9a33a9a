"""Tables of what runs: found out by a worker, while nothing that a file does holds the recording up."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tdprof.linux.user_cache import cache_folder
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder import unwinding
from tdprof.unwind import tables

PROGRAM = Path(shutil.which("true") or "/bin/true").resolve()


class Arrays:
    """Room for tables without end."""

    def __init__(self) -> None:
        self.placed: list[bytes] = []

    def place(self, table: bytes) -> int:
        self.placed.append(table)
        return len(self.placed)

    def take_questions(self) -> set[int]:
        return set()


@pytest.fixture
def arrays() -> Arrays:
    return Arrays()


@pytest.fixture
def recorder(arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[unwinding.Unwinding]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reader, writer = os.pipe()
    cache = tables.TableCache(cache_folder("unwind"))
    before = set(os.listdir("/proc/self/fd"))
    with unwinding.Unwinding(cast(Any, arrays), reader, cache) as found:
        yield found
    assert set(os.listdir("/proc/self/fd")) == before
    os.close(reader)
    os.close(writer)


def test_a_table_is_placed_once(recorder: unwinding.Unwinding, arrays: Arrays, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(PROGRAM, copy)
    recorder.prepare_files([PROGRAM, copy, tmp_path / "missing"])
    assert len(arrays.placed) == 1


def test_a_file_that_holds_its_reader_up_holds_up_nothing_else(
    recorder: unwinding.Unwinding, arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_bytes(b"")
    read_identity = tables.read_identity

    def wait_for_ever(path: Path) -> bytes | None:
        if path.samefile(slow):
            time.sleep(600)
        return read_identity(path)

    monkeypatch.setattr(tables, "read_identity", wait_for_ever)
    monkeypatch.setattr(unwinding, "_PREPARATION_S", 0.2)
    monkeypatch.setattr(unwinding, "_PATIENCE_S", 0.3)
    recorder.prepare_files([slow, PROGRAM])
    assert not arrays.placed
    deadline = time.monotonic() + 30
    while not arrays.placed and time.monotonic() < deadline:
        recorder.tick()
        recorder.answer()
    assert len(arrays.placed) == 1
    assert recorder._files[unwinding._key_of(slow)] is StackEnd.NO_UNWIND_INFO


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives a file to another user")
def test_a_file_of_another_user_is_not_known_by_the_build_id_that_it_claims(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(PROGRAM, copy)
    real = tables.read_identity(PROGRAM)
    assert tables.read_identity(copy) == real
    os.chown(copy, 65534, 65534)
    assert tables.read_identity(copy) != real
    os.chown(copy, 0, 0)
    copy.chmod(0o777)
    assert tables.read_identity(copy) != real
