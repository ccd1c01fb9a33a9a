"""The BPF programs come from the cache after the first time, and from the compiler whenever the cache will not do."""

import json
import os
import shutil
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from builders.verified import MOST_INSTRUCTIONS, MOST_KERNEL_BYTES, kernel_bytes, verified_instructions
from tdprof.capture.spool import COPIES_FILE, SpoolWriter
from tdprof.linux.own_folder import OwnFolder
from tdprof.native.unwind_api import read_header
from tdprof.recorder.bpf import array_sizes, compiler_process, step_programs
from tdprof.recorder.bpf import sampler as sampler_module
from tdprof.recorder.bpf.load import BpfLoad
from tdprof.recorder.bpf.object_file import BPF_PROG_TYPE_TRACING, LoadError, load_one, load_program
from tdprof.recorder.bpf.off_cpu import OffCpuPlan
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.bpf.table_sizes import TableSizes
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.host import read_text
from tdprof.recorder.ring import BpfRing
from tdprof.unwind.tables import build_file_table

pytestmark = [pytest.mark.needs_bpf, pytest.mark.beside_others]
SIZES = TableSizes.for_rate(1000)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which a first load has left what it compiled, which takes seconds."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        with load() as sampler:
            assert sampler.counters()["samples"] == 0
    [path] = (folder / "tdprof" / "bpf").iterdir()
    return path


@pytest.fixture
def cached(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its copy in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(compiled.parents[2], tmp_path / "cache")
    return tmp_path / "cache" / "tdprof" / "bpf" / compiled.name


class CompiledAnywayError(Exception):
    """The compiler was started."""


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(_process: object) -> None:
        raise CompiledAnywayError

    with monkeypatch.context() as patch:
        patch.setattr(compiler_process.CompilerProcess, "__init__", refuse)
        yield


def load(sizes: TableSizes = SIZES) -> BpfSampler:
    attempt = BpfLoad([True, False], sizes)
    sampler = attempt.finish()
    attempt.close()
    return sampler


def rewrite(path: Path, code: bytes) -> None:
    """Put other instructions into the file, with the checksum that goes with them."""
    content = json.loads(path.read_bytes().partition(b"\n")[2])
    for program in content["object"]["programs"]:
        if program["name"] == "sample":
            program["code"] = code.hex()
    body = json.dumps(content).encode()
    path.write_bytes(f"{zlib.crc32(body):08x}\n".encode() + body)


@pytest.mark.thorough
def test_the_second_load_needs_no_compiler(cached: Path, no_compiler: None) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with load() as sampler:
        assert len(sampler.programs) == 2
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_one_object_serves_tables_of_any_size(cached: Path, no_compiler: None) -> None:
    with load(TableSizes.for_rate(50_000)) as sampler:
        assert len(sampler.programs) == 2


def test_room_for_tables_is_made_up_to_a_bound(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = build_file_table(Path("/proc/self/exe"))
    assert table
    header = read_header(table)
    monkeypatch.setattr(array_sizes, "MOST_TABLE_BYTES", 8 * 4 * (header.rows + header.buckets))
    monkeypatch.setattr(array_sizes, "_GROWN_ROW_PAGES", 1)
    monkeypatch.setattr(array_sizes, "_GROWN_BUCKET_PAGES", 1)
    small = replace(SIZES, arrays=array_sizes.ArraySizes(row_pages=1, bucket_pages=1, rule_pages=1))
    descriptors = len(os.listdir("/proc/self/fd"))
    with load(small) as sampler:
        assert sampler.arrays
        sampler.await_walk()
        opened = len(os.listdir("/proc/self/fd"))
        firsts = [sampler.arrays.place(table) for _ in range(9)]
        assert firsts[:3] == sorted({first for first in firsts[:3] if first is not None})
        assert firsts[-1] is None
        assert len(os.listdir("/proc/self/fd")) == opened
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_jvm_has_one_walk_loaded_for_its_code_and_its_table(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes the verifier tenths of a second, in which stacks are lost."""
    loaded = []

    def note(found: Any, maps: Any, name: str, *rest: Any) -> int:
        loaded.append(name)
        return load_one(found, maps, name, *rest)

    monkeypatch.setattr(step_programs, "load_one", note)
    descriptors = len(os.listdir("/proc/self/fd"))
    with load() as sampler:
        sampler.await_walk()
        for _ in range(2):
            sampler.walk_java()
        sampler.name_java()
        assert sampler.arrays
        assert sampler.arrays.make_room(157_000, 68_000)  # of the largest libjvm.so that was seen
        assert not sampler.notes
        assert loaded == ["walk", "walk_java", "java"]
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_where_the_kernel_refuses_java_there_is_room_all_the_same(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(found: Any, maps: Any, name: str, *rest: Any) -> int:
        if name == "walk_java":
            raise LoadError("walk_java: too many instructions")
        return load_one(found, maps, name, *rest)

    monkeypatch.setattr(step_programs, "load_one", refuse)
    with load() as sampler:
        sampler.await_walk()
        sampler.walk_java()
        sampler.name_java()
        assert sampler.notes == ["Java frames are walked along frame pointers only: walk_java: too many instructions"]
        assert sampler.arrays
        assert sampler.arrays.make_room(157_000, 68_000)


@pytest.mark.parametrize("has_wakers", [False, True])
def test_time_off_a_cpu_is_of_the_same_object_and_leaves_nothing_open(
    cached: Path, no_compiler: None, has_wakers: bool
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    attempt = BpfLoad([True], SIZES, off_cpu=OffCpuPlan.make(1, 10_000_000, has_wakers=has_wakers))
    with attempt.finish() as sampler:
        assert sampler.off_cpu
        sampler.await_walk()
        assert not sampler.notes
        assert len(sampler.off_cpu.steps) == 1 + has_wakers
        assert all({"walk", "copy", "store", "by_kernel"} == set(steps.programs) for steps in sampler.off_cpu.steps)
        assert sampler.python
        assert sampler.python.start()
        assert all("python" in steps.programs for steps in sampler.off_cpu.steps)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("is_known", [True, False])
def test_the_program_at_switches_is_of_their_own_type_where_the_kernel_loads_it(
    cached: Path, no_compiler: None, is_known: bool
) -> None:
    plan = OffCpuPlan.make(1, 10_000_000)
    attempt = BpfLoad([True], SIZES, off_cpu=plan if is_known else replace(plan, switch_type=1))  # that of a number
    with attempt.finish() as sampler:
        assert sampler.off_cpu
        told = [line for path in Path("/proc/self/fdinfo").iterdir() for line in read_text(path).splitlines()]
        assert told.count(f"prog_type:\t{BPF_PROG_TYPE_TRACING}") == is_known


def test_one_object_serves_any_events_and_call_graphs(cached: Path, no_compiler: None) -> None:
    for call_graph in CallGraph:
        attempt = BpfLoad([False] * 5, SIZES, call_graph)
        with attempt.finish() as sampler:
            assert len(sampler.programs) == 5


def test_what_the_kernel_refuses_is_compiled_anew(cached: Path, no_compiler: None) -> None:
    good = cached.read_bytes()
    rewrite(cached, struct.pack("<BBhi", 0x95, 0, 0, 0))  # exit without a result
    attempt = BpfLoad([True, False], SIZES)
    with pytest.raises(CompiledAnywayError):
        attempt.finish()
    assert cached.read_bytes() != good


@pytest.mark.thorough
def test_what_was_compiled_anew_is_kept(cached: Path) -> None:
    good = cached.read_bytes()
    rewrite(cached, struct.pack("<BBhi", 0x95, 0, 0, 0))
    with load() as sampler:
        assert len(sampler.programs) == 2
    assert cached.read_bytes() == good


def test_a_refusal_says_what_the_verifier_said() -> None:
    with pytest.raises(LoadError, match=r"^broken: R0 !read_ok$"):
        load_program("broken", struct.pack("<BBhi", 0x95, 0, 0, 0))


def test_the_verifier_has_not_much_to_do() -> None:
    verified = verified_instructions()
    assert verified.keys() == MOST_INSTRUCTIONS.keys()
    assert {name for name, count in verified.items() if not 0 < count <= MOST_INSTRUCTIONS[name]} == set(), verified


def test_the_maps_take_little_of_the_kernels_memory() -> None:
    taken = kernel_bytes()
    assert 0 < sum(taken.values()) <= MOST_KERNEL_BYTES, taken


def test_a_recording_begins_while_the_walk_is_verified(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_allowed = threading.Event()
    load_one = step_programs.load_one

    def load_late(found: Any, maps: Any, name: str, *rest: Any) -> int:
        if name == "walk":
            is_allowed.wait()
        return load_one(found, maps, name, *rest)

    monkeypatch.setattr(step_programs, "load_one", load_late)
    with load() as sampler:
        sampler.await_first_walk()
        assert sampler.arrays
        assert not sampler.arrays.is_walk_whole
        is_allowed.set()
        sampler.await_walk()
        assert sampler.arrays.is_walk_whole
        assert list(sampler.late_notes([])) == []


def test_a_walk_that_the_kernel_refuses_is_said(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise LoadError("walk: too many instructions")

    descriptors = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(step_programs, "load_one", refuse)
    with load() as sampler:
        sampler.await_walk()
        assert sampler.arrays is None
        note = "stacks: frame pointers only, so callers may be missing (walk: too many instructions)"
        assert list(sampler.late_notes([])) == [note]
        assert list(sampler.late_notes([note])) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


class GrowingRing:
    """A ring into which more is written whenever it is looked at."""

    data_bytes = 1024

    def __init__(self) -> None:
        self.consumed = 0
        self._produced = 0

    @property
    def produced(self) -> int:
        self._produced += self.data_bytes // 2
        return self._produced

    @property
    def pending(self) -> int:
        return self.produced - self.consumed

    def take(self) -> bytes:
        data = bytes(self.produced - self.consumed)
        self.consumed += len(data)
        return data

    def drain(self, out_fd: int, up_to: int) -> None:
        assert up_to >= self.consumed
        os.write(out_fd, bytes(up_to - self.consumed))
        self.consumed = up_to


def test_events_that_are_stopped_are_waited_for_once(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time takes the kernel 15 ms, in which a command's end is waited for."""
    waits: list[None] = []
    monkeypatch.setattr(sampler_module, "wait_for_running_programs", lambda: waits.append(None))
    with load() as sampler, SpoolWriter(OwnFolder.open(tmp_path)) as spool:
        for stopped_ns, all_waits in ((None, 1), (None, 2), (5, 3), (5, 3), (9, 4), (None, 5), (9, 6)):
            sampler.drain(spool, stopped_ns)
            assert len(waits) == all_waits


def test_each_copy_is_written_once_however_fast_they_come(cached: Path, tmp_path: Path) -> None:
    with load() as sampler, SpoolWriter(OwnFolder.open(tmp_path)) as spool:
        ring = GrowingRing()
        sampler._copies = cast(BpfRing, ring)
        for _ in range(3):
            sampler.save_copies(spool)
            sampler.drain(spool)
        assert sum(path.stat().st_size for path in tmp_path.rglob(COPIES_FILE)) == ring.consumed
