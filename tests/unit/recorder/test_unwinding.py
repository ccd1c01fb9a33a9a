"""Tables of what runs: found out by a worker, while nothing that a file does holds the recording up."""

import ctypes
import errno
import gc
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from builders.call_frames import frames
from builders.elf import ElfFile
from builders.waiting import wait_until
from tdprof.linux.user_cache import cache_folder
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder import executable_maps, process_memory, unwinding
from tdprof.recorder.bpf.unwind_arrays import Extent, are_replaced
from tdprof.recorder.code_heaps import CodeHeaps
from tdprof.recorder.host import own_vdso
from tdprof.recorder.replaced_mappings import Place
from tdprof.recorder.table_batch import FirstTables, begin_tables
from tdprof.unwind import tables

PROGRAM = Path(shutil.which("true") or "/bin/true").resolve()


class Arrays:
    """Room for tables without end."""

    has_trampolines = False

    def __init__(self) -> None:
        self.placed: list[bytes] = []
        self.most = sys.maxsize
        self.published: list[int] = []
        self.confirmed: set[int] = set()
        self.answered: list[int] = []
        self.retaken: set[int] = set()
        self.released: list[int] = []

    def has_table(self, file: Path) -> bool:
        """A table of the file, and no other of it."""
        identity = tables.read_identity(file)
        return [tables.identity_of(table) for table in self.placed].count(identity or b"") == 1

    def place(self, table: bytes) -> int | None:
        if len(self.placed) == self.most:
            return None
        self.placed.append(table)
        return len(self.placed)

    def take_questions(self) -> set[int]:
        return set()

    def look(self, pid: int) -> bool:
        return pid in self.retaken

    def publish(self, pid: int, extents: Sequence[Extent]) -> bool:
        self.published.append(pid)
        self.extents = {extent.start: extent for extent in extents}
        self.confirmed.discard(pid)
        return True

    def confirm(self, pid: int) -> None:
        self.confirmed.add(pid)

    def has(self, pid: int) -> bool:
        return pid in self.confirmed and pid not in self.retaken

    def answer(self, pid: int, *, is_waiting: bool) -> None:
        self.answered.append(pid)

    def release(self, pids: Collection[int]) -> None:
        self.released += pids

    def forget_tables(self) -> bool:
        self.placed.clear()
        self.confirmed.clear()
        return True

    def extent(self, table: bytes, place: int, start: int, end: int, file_offset: int) -> Extent:
        return Extent(start, end - start, place, 0)


@pytest.fixture
def arrays() -> Arrays:
    return Arrays()


@pytest.fixture
def recorder(arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[unwinding.Unwinding]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reader, writer = os.pipe()
    cache = tables.TableCache(cache_folder("unwind"))
    gc.collect()  # what other tests left open would be closed meanwhile
    before = set(os.listdir("/proc/self/fd"))
    with unwinding.Unwinding(cast(Any, arrays), reader, cache) as found:
        yield found
    assert set(os.listdir("/proc/self/fd")) == before
    os.close(reader)
    os.close(writer)


def tables_of(paths: Sequence[Path]) -> FirstTables:
    """As for a command that will map these."""
    return begin_tables(paths, tables.TableCache(cache_folder("unwind")))


def test_what_walks_javas_frames_is_ready_before_a_jvm_is_mapped(arrays: Arrays, tmp_path: Path) -> None:
    """Its load takes tenths of a second, on a busy machine seconds."""
    begun: list[str] = []
    heaps = CodeHeaps(-1, lambda: begun.append("walk"), lambda: begun.append("name"))
    with unwinding.Unwinding(cast(Any, arrays), None, tables.TableCache(None), heaps=heaps) as recorder:
        recorder.prepare_files(tables_of([tmp_path / "libc.so.6"]))
        assert begun == []
        recorder.prepare_files(tables_of([tmp_path / "libjvm.so"]))
        recorder.prepare_files(tables_of([tmp_path / "libjvm.so"]))
        assert begun == ["walk", "name"]


def test_a_table_is_placed_once(recorder: unwinding.Unwinding, arrays: Arrays, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(PROGRAM, copy)
    recorder.prepare_files(tables_of([PROGRAM, copy, tmp_path / "missing"]))
    assert arrays.has_table(PROGRAM)


def test_tables_that_the_cache_has_need_no_worker(recorder: unwinding.Unwinding, arrays: Arrays) -> None:
    first = tables_of([PROGRAM])
    assert first.batch
    assert first.kept == {}
    first.batch.take()
    first.close()
    first.close()

    def is_kept() -> bool:
        found = tables_of([PROGRAM])
        found.close()
        return found.batch is None and list(found.kept) == [PROGRAM]

    wait_until(is_kept)
    recorder.prepare_files(tables_of([PROGRAM]))
    assert arrays.has_table(PROGRAM)


def test_damaged_call_frame_information_is_named(recorder: unwinding.Unwinding, tmp_path: Path) -> None:
    for name, program in {"good": b"", "damaged": b"\x3f"}.items():
        # The last instruction is the bad one: no padding follows.
        file = ElfFile(sections={".eh_frame": frames((0x401000, 0x10, b"\0\0" + program))})
        (tmp_path / name).write_bytes(file.to_bytes())
    recorder.prepare_files(tables_of([tmp_path / "good", tmp_path / "damaged"]))
    assert list(recorder.notes()) == list(tables.damage_notes({str(tmp_path / "damaged"): tables.TableDamage.ALL}))


def test_the_vdso_has_its_table_before_anything_runs(
    recorder: unwinding.Unwinding, arrays: Arrays, tmp_path: Path
) -> None:
    """A signal handler's caller is behind it: until the table is there, such stacks can only be copied."""
    vdso = tmp_path / "vdso"
    vdso.write_bytes(own_vdso())
    recorder.prepare_files(FirstTables())
    assert arrays.has_table(vdso)


@pytest.mark.parametrize(
    "refused", [[], [errno.EINVAL], [errno.EACCES, errno.EACCES]], ids=["6.3", "older", "hardened"]
)
def test_the_vdso_has_its_table_whatever_files_in_memory_the_kernel_refuses(
    arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: list[int]
) -> None:
    left, create = list(refused), os.memfd_create

    def create_if_permitted(name: str, flags: int) -> int:
        if left:
            raise OSError(error := left.pop(), os.strerror(error))
        return create(name, os.MFD_CLOEXEC)

    monkeypatch.setattr(os, "memfd_create", create_if_permitted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vdso = tmp_path / "vdso"
    vdso.write_bytes(own_vdso())
    with unwinding.Unwinding(cast(Any, arrays), None, tables.TableCache(cache_folder("unwind"))) as recorder:
        recorder.prepare_files(FirstTables())
        assert arrays.has_table(vdso)
    assert not left


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
    recorder.prepare_files(tables_of([slow, PROGRAM]))
    assert not arrays.has_table(PROGRAM)

    def is_at_the_slow_one() -> bool:
        recorder.answer()
        batch = recorder._batch
        return batch is not None and next(iter(batch.unknown)) == executable_maps.key_of(slow)

    wait_until(is_at_the_slow_one)
    assert recorder._batch
    recorder._batch.stuck_at = 0  # only now: a worker that gets no processor is not held up by a file
    recorder.tick()
    assert recorder._files[executable_maps.key_of(slow)] is StackEnd.NO_UNWIND_INFO

    def has_table() -> bool:
        recorder.tick()
        recorder.answer()
        return arrays.has_table(PROGRAM)

    wait_until(has_table)


def test_a_process_whose_mappings_cannot_be_read_holds_up_nobody(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its memory is a file that never answers: the kernel then tells nobody what it maps."""
    silent, go = 2**22 + 1, threading.Event()
    read_text = executable_maps.read_text
    monkeypatch.setattr(
        executable_maps, "read_text", lambda path: str(go.wait()) if str(silent) in str(path) else read_text(path)
    )
    recorder.add_processes([silent, os.getpid()])
    assert arrays.published == [os.getpid()]
    assert list(recorder.notes()) == ["what 1 process mapped could not be read in time: its stacks end as no-table"]
    go.set()


def test_code_that_is_pythons_trampolines_is_marked_unless_its_memory_does_not_answer(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays.has_trampolines = True
    code = mmap.mmap(-1, 65536, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("4883ec08ffd14883c408c3") * 5000)
    start = ctypes.addressof(pointed := ctypes.c_char.from_buffer(code))
    try:
        recorder.add_processes([os.getpid()])
        assert arrays.extents[start] == Extent(start, 65536, 0, StackEnd.JIT).of_trampolines()
        os.kill(reader := recorder._process_memory._reader, signal.SIGSTOP)
        monkeypatch.setattr(process_memory, "_PATIENCE_S", 0.1)
        recorder.add_processes([os.getpid()])
        assert arrays.extents[start] == Extent(start, 65536, 0, StackEnd.JIT)
        os.kill(reader, signal.SIGKILL)
        os.waitpid(reader, 0)
    finally:
        del pointed
        code.close()


def test_processes_that_have_ended_are_let_go_of(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come and go, what is known of them does not add up."""
    lines = executable_maps.read_executable_lines(os.getpid())
    monkeypatch.setattr(unwinding, "read_executable_lines", lambda pid: lines)
    pids = range(2**22 + 1, 2**22 + 101)
    recorder.add_processes(pids)
    recorder.forget_all_but({pids[0]})
    assert sorted(arrays.released) == list(pids[1:])
    assert recorder._known.keys() | recorder._published | recorder._changing == {pids[0]}


def _of_file(file: Path) -> executable_maps.ExecutableLine:
    key = executable_maps.key_of(file)
    return executable_maps.ExecutableLine(0x10000, 0x20000, 0, key, str(file), is_file=True)


def _copies(folder: Path, count: int) -> list[Path]:
    """Programs with names of their own: each has a table of its own."""
    found = [folder / f"program-{number}" for number in range(count)]
    for number, path in enumerate(found):
        path.write_bytes(PROGRAM.read_bytes())
        path.chmod(0o755)
        os.utime(path, ns=(number, number))
    return found


def _map_alone(
    recorder: unwinding.Unwinding, monkeypatch: pytest.MonkeyPatch, pid: int, file: Path
) -> executable_maps.ExecutableLine:
    """A process that has mapped a file; once the file's table is known, or there is no room for it."""
    line = _of_file(file)
    monkeypatch.setattr(unwinding, "read_executable_lines", lambda _: [line])
    monkeypatch.setattr(unwinding, "reach", lambda _, line: os.open(line.path, os.O_PATH))
    recorder.add_processes([pid])

    def is_known() -> bool:
        recorder.answer()
        return recorder._batch is None

    wait_until(is_known)
    return line


def test_files_that_nobody_has_mapped_any_more_are_let_go_of(
    recorder: unwinding.Unwinding, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A machine that builds runs programs by the million; another file may have the number of one that is gone."""
    recorder.prepare_files(FirstTables())
    files = _copies(tmp_path, 20)
    lines = [_map_alone(recorder, monkeypatch, 2**22 + number, file) for number, file in enumerate(files)]
    assert recorder._files.keys() >= {line.key for line in lines}
    recorder.forget_all_but({2**22 + 3})
    assert recorder._files.keys() == {lines[3].key, executable_maps.VDSO}
    assert recorder._mapped_by == {2**22 + 3: (lines[3].key,)}
    assert not recorder._waiting


def test_where_tables_of_files_that_are_gone_take_the_room_all_begin_anew(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else a recording without end has no stacks of what is started after some day."""
    recorder.prepare_files(FirstTables())
    arrays.most = 4
    names = ("true", "cat", "ls", "sleep", "env")
    files = [Path(shutil.which(name) or "/bin/true").resolve() for name in names]
    for number, file in enumerate(files):
        _map_alone(recorder, monkeypatch, 2**22 + number, file)
    assert recorder.without_room
    recorder.forget_all_but({2**22 + number for number in range(len(files))})
    assert len(arrays.placed) == arrays.most  # all that are there are in use
    newest = 2**22 + len(files) - 1
    recorder.forget_all_but({newest})
    _map_alone(recorder, monkeypatch, newest, files[-1])  # of which the programs ask
    assert arrays.has_table(files[-1])
    assert not arrays.has_table(files[0])


def test_what_was_told_of_a_process_is_forgotten_once_it_has_ended(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a recording without end has no room for those to come; what it did last may not have been read yet."""
    monkeypatch.setattr(unwinding, "_ENDED_S", 0.0)
    recorder._look_for_ended_s = 0.0
    with subprocess.Popen(["sleep", "600"]) as process:
        wait_until(lambda: executable_maps.read_executable_lines(process.pid))
        recorder.add_processes([process.pid, os.getpid()])
        recorder.tick()
        assert sorted(arrays.published) == sorted([process.pid, os.getpid()])
        process.kill()
    recorder.tick()
    assert arrays.released == []
    recorder.tick()
    recorder.tick()
    assert arrays.released == [process.pid]
    assert list(recorder._known) == [os.getpid()]


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


def test_a_process_that_has_executed_something_is_told_of_anew_not_as_it_was(
    recorder: unwinding.Unwinding, arrays: Arrays
) -> None:
    """What it had mapped when it last asked may be another program's addresses by now."""
    pid = os.getpid()
    recorder._unanswered[pid] = 0.0
    recorder.tick()
    assert arrays.published == [pid]
    recorder._unanswered[pid] = 0.0
    recorder.tick()
    assert (arrays.published, arrays.answered) == ([pid], [pid])


def test_an_interval_ends_before_addresses_that_mean_something_else_are_told(
    recorder: unwinding.Unwinding, arrays: Arrays
) -> None:
    pid = os.getpid()
    ended: list[tuple[int, list[int], bool]] = []
    recorder.end_interval = lambda pid, *, is_late: ended.append((pid, sorted(arrays.confirmed), is_late))
    recorder.add_processes([pid])
    recorder.see_replaced({Place(pid, 0, 1 << 64): 1})  # that is known already
    assert (arrays.published, ended) == ([pid], [])
    arrays.retaken.add(pid)
    recorder.add_processes([pid])
    assert (arrays.published, ended, arrays.confirmed) == ([pid, pid], [(pid, [], False)], {pid})


def test_what_changes_while_it_is_published_is_not_used(
    recorder: unwinding.Unwinding, arrays: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library is unmapped and another takes its addresses: nobody was told yet that one was there."""
    pid = os.getpid()
    texts = ["7f0000000000-7f0000001000 r-xp 0 00:00 0 \n", "7f0000000000-7f0000003000 r-xp 0 00:00 0 \n"]
    monkeypatch.setattr(executable_maps, "read_text", lambda _: texts[min(len(arrays.published), 1)])
    recorder.add_processes([pid])
    assert (arrays.published, arrays.confirmed) == ([pid], set())
    recorder.add_processes([pid])
    assert (arrays.published, arrays.confirmed) == ([pid, pid], {pid})
    recorder.add_processes([pid])
    assert arrays.published == [pid, pid]


def ended_intervals(recorder: unwinding.Unwinding) -> list[tuple[int, bool]]:
    """Those that it ends from now on: of which process, and whether late."""
    ended: list[tuple[int, bool]] = []
    recorder.end_interval = lambda pid, *, is_late: ended.append((pid, is_late))
    return ended


def test_a_file_that_is_mapped_over_another_is_told_of_as_late(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By MAP_FIXED: the programs saw nothing and went on by the first one's table."""
    pid = os.getpid()
    places = [1, 2]
    monkeypatch.setattr(
        recorder, "_extents", lambda *_: [Extent(0x1000, 0x1000, places[0], 0), Extent(0x9000, 0x1000, 9, 0)]
    )
    ended = ended_intervals(recorder)
    recorder.add_processes([pid])
    del places[0]
    recorder.add_processes([pid])  # whether its record was read or it asked for something else
    assert ended == [(pid, True), (pid, False)]
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    places[0] = 3
    arrays.retaken.add(pid)  # noticed
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    assert ended == [(pid, True), (pid, False), (pid, False)]


@pytest.mark.parametrize("looks", [[1, 1], [2]], ids=["in two looks", "in one"])
def test_a_file_that_came_and_went_is_told_of_as_late(
    recorder: unwinding.Unwinding, arrays: Arrays, looks: list[int]
) -> None:
    """By MAP_FIXED, and the first one again: nothing is left of it but its records, of which one may be of what was
    published at first."""
    pid = os.getpid()
    ended = ended_intervals(recorder)
    recorder.add_processes([pid])
    for times in looks:
        recorder.see_replaced({Place(pid, 0, 1 << 64): times})
    assert (arrays.published, ended) == ([pid], [(pid, True)])


def test_what_ended_before_its_last_mapping_was_looked_at_is_told_of_as_late(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether mappings can still be read, as the kernel lets them be for a moment after the programs forgot them."""
    pid = os.getpid()
    extents = [Extent(0x1000, 0x1000, 1, 0)]
    monkeypatch.setattr(recorder, "_extents", lambda *_: list(extents))
    ended = ended_intervals(recorder)
    recorder.add_processes([pid])
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    arrays.confirmed.clear()
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    assert ended == [(pid, True), (pid, False)]
    extents.clear()
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    assert ended == [(pid, True), (pid, False), (pid, True)]


def test_each_file_that_was_there_between_two_looks_is_told_of_as_late(
    recorder: unwinding.Unwinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another took a file's place, and while nobody looked a third one came and went."""
    pid = os.getpid()
    place = 1
    monkeypatch.setattr(recorder, "_extents", lambda *_: [Extent(0x1000, 0x1000, place, 0)])
    recorder.add_processes([pid])
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    ended = ended_intervals(recorder)
    place = 2
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    assert ended == [(pid, True), (pid, False)]
    recorder.see_replaced({Place(pid, 0x1000, 0x2000): 1})
    assert ended == [(pid, True), (pid, False), (pid, True)]


def test_a_file_that_came_where_nothing_was_known_is_not_told_of_as_late(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that is loaded and gone before anybody asks: the programs have no rules there, so they copied stacks."""
    pid = os.getpid()
    extents = [Extent(0x1000, 0x1000, 1, 0)]
    monkeypatch.setattr(recorder, "_extents", lambda *_: list(extents))
    ended = ended_intervals(recorder)
    recorder.add_processes([pid])
    beside, there = Place(pid, 0x2000, 0x3000), Place(pid, 0x1800, 0x2800)
    recorder.see_replaced({beside: 2})
    assert ended == [(pid, False)]
    assert recorder.led_through({beside: 2, there: 1}) == {pid: 1}
    extents[0] = Extent(0x8000, 0x1000, 1, 0)
    recorder.add_processes([pid])
    recorder.see_replaced({})
    assert recorder.led_through({there: 1}) == {pid: 1}  # its record may have come meanwhile
    recorder.see_replaced({})
    assert recorder.led_through({there: 1}) == {}


def test_addresses_that_mean_something_else() -> None:
    before = [Extent(0x1000, 0x2000, 10, 0), Extent(0x8000, 0x1000, 0, StackEnd.JIT)]
    assert not are_replaced(before, before)
    assert not are_replaced(before, [])
    assert not are_replaced(before, [Extent(0x2000, 0x1000, 26, 0), Extent(0x8000, 0x1000, 7, 0)])
    assert are_replaced(before, [Extent(0x2000, 0x1000, 27, 0)])
    assert are_replaced(before, [Extent(0x0, 0x100, 1, 0), Extent(0x2F00, 0x1000, 0, StackEnd.JIT)])


@pytest.mark.parametrize("has_v8", [False, True])
def test_code_that_v8_makes_is_marked(
    recorder: unwinding.Unwinding, arrays: Arrays, monkeypatch: pytest.MonkeyPatch, has_v8: bool
) -> None:
    monkeypatch.setattr(unwinding, "has_v8", lambda _table: has_v8)
    recorder.prepare_files(tables_of([PROGRAM]))
    key = executable_maps.key_of(PROGRAM)
    file = f"1000-2000 r-xp 0 {key.device} {key.inode} {PROGRAM}\n"
    monkeypatch.setattr(executable_maps, "read_text", lambda _: f"{file}7f0000000000-7f0000001000 rwxp 0 00:00 0 \n")
    published: list[Extent] = []
    monkeypatch.setattr(arrays, "publish", lambda _pid, extents: published.extend(extents) or True)
    recorder.add_processes([os.getpid()])
    [of_file, made] = published
    assert of_file.otherwise == 0
    assert made == Extent(0x7F0000000000, 0x1000, 0xFFFFFFFF if has_v8 else 0, StackEnd.JIT)


def test_what_looks_for_python_forgets_those_that_ended_before_the_segment_did(
    recorder: unwinding.Unwinding, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[int]] = []
    python = SimpleNamespace(forget_all_but=asked.append, close=lambda: None)
    monkeypatch.setattr(recorder, "_python", python)
    recorder._unanswered[2**22 + 1] = 0.0  # no process has such a number
    recorder.tick()
    assert asked == []  # it has a note, maybe
    recorder.forget_all_but({1})
    assert asked == [{1}]
