"""The cache of unwind tables, and the worker that fills it."""

import contextlib
import os
import struct
import time
import tracemalloc
from pathlib import Path

import pytest

from builders.call_frames import frames
from builders.elf import ElfFile
from builders.unwind_table import read_table
from builders.waiting import PATIENCE_S, wait_until
from tdprof.linux.user_cache import CacheFolder
from tdprof.native import unwind_api as binding
from tdprof.unwind import tables

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")

TEXT = 0x401000


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return tables.TableCache(CacheFolder(folder / "unwind"))


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program"
    path.write_bytes(ElfFile(build_id=b"\x12" * 20, sections={".eh_frame": frames((TEXT, 0x10, b""))}).to_bytes())
    return path


def test_the_worker_builds_and_keeps(cache, program, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF and no more")
    with tables.TableWorker([program, broken, tmp_path / "missing"], cache) as worker:
        found = dict(worker.results())
    assert found[1] is None
    assert found[2] is None
    assert read_table(found[0]).text_at(TEXT) == "sp+8 ra=cfa-8"
    identity = tables.read_identity(program)
    assert identity
    assert identity[:20] == b"\x12" * 20
    assert cache.load(identity) == found[0]
    assert cache.load(b"\x13" + identity[1:]) is None


def test_a_large_table_takes_its_size_of_memory_once(cache, program, monkeypatch):
    """In the recorder, which stays small: a large program's has megabytes."""
    large = tables.build_file_table(program) + bytes(range(256)) * (4 << 12)
    monkeypatch.setattr(tables, "build_file_table", lambda path: large)
    with tables.TableWorker([program], cache) as worker:
        tracemalloc.start()
        taken = worker.take()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert taken == (0, large)
    assert most < 1.1 * len(large)


@pytest.mark.parametrize("field", [8, 32], ids=["offset", "size"])
def test_a_file_whose_code_lies_elsewhere_or_is_another_is_another(tmp_path, field):
    """A stripped one, or one that was built anew with a build-id that it was given."""
    files = []
    for value in (0x1000, 0x2000):
        data = bytearray(ElfFile(build_id=b"\x12" * 20).to_bytes())
        (headers,) = struct.unpack_from("<Q", data, 32)
        struct.pack_into("<Q", data, headers + field, value)
        files.append(tmp_path / f"{value}")
        files[-1].write_bytes(data + bytes(0x2000))
    assert len({tables.read_identity(file) for file in files}) == 2


def test_a_file_that_is_gone_is_found_by_its_build_id_unless_that_has_two_tables(cache, program, tmp_path):
    with tables.TableWorker([program], cache) as worker:
        ((_, table),) = worker.results()
    build_id = ("12" * 20, "12" * 16, "13" * 20, "", "12" * 19 + "1g")
    assert [cache.load_by_build_id(each) for each in build_id] == [table, None, None, None, None]
    stripped = bytearray(program.read_bytes())
    (headers,) = struct.unpack_from("<Q", stripped, 32)
    struct.pack_into("<Q", stripped, headers + 8, 0x2000)
    program.write_bytes(stripped + bytes(0x3000))
    identity = tables.read_identity(program)
    assert identity
    cache.store(identity, table)
    assert cache.load_by_build_id(build_id[0]) is None


def test_a_worker_that_dies_leaves_files_without_tables(cache, program):
    with tables.TableWorker([program] * 2000, cache) as worker:
        results = worker.results()
        assert next(results)[1] is not None
        os.kill(worker._pid, 9)
        assert len(list(results)) < 1999


def test_numpy_would_start_no_threads_in_a_worker(cache, program, tmp_path, monkeypatch):
    def say(path):
        (tmp_path / "said").write_text(os.environ["OPENBLAS_NUM_THREADS"])

    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.setattr(tables, "build_file_table", say)
    with tables.TableWorker([program], cache) as worker:
        assert list(worker.results()) == [(0, None)]
    assert (tmp_path / "said").read_text() == "1"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"


def test_a_worker_that_is_stuck_holds_nothing_but_its_files(cache, program, monkeypatch):
    monkeypatch.setattr(tables, "read_identity", lambda path: time.sleep(2 * PATIENCE_S))
    file, (pipe_end, other_end) = os.open(program, os.O_PATH), os.pipe()
    try:
        with tables.TableWorker([Path(f"/proc/self/fd/{file}")], cache) as worker:
            mine = f"/proc/self/fd/{file}", f"/proc/self/fd/{worker.fileno()}"
            wanted = sorted([*[os.devnull] * 3, *map(os.readlink, mine)])
            wait_until(lambda: descriptors(worker._pid) == wanted)
            # Whoever waits for the end of what we write is not kept waiting.
            os.close(other_end)
            assert os.read(pipe_end, 1) == b""
    finally:
        os.close(file)
        os.close(pipe_end)


def descriptors(pid):
    """What a process has open; nothing where that changes at this moment."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
        return sorted(os.readlink(each.path) for each in found)
    return []


def test_the_cache_believes_no_other_file(cache, program, tmp_path):
    with tables.TableWorker([program], cache) as worker:
        list(worker.results())
    identity = tables.read_identity(program)
    other = b"\x13" + identity[1:]
    kept = tmp_path / "cache/unwind" / identity.hex()
    kept.rename(kept.with_name(other.hex()))
    assert cache.load(other) is None
    kept.write_bytes(b"not a table")
    assert cache.load(identity) is None


def test_a_file_without_build_id_is_known_by_its_place(tmp_path):
    path = tmp_path / "plain"
    path.write_bytes(ElfFile().to_bytes())
    before = tables.read_identity(path)
    assert len(before) == 36
    os.utime(path, ns=(1, 1))
    assert tables.read_identity(path) != before
    assert tables.read_identity(tmp_path) is None
