"""Files whose names others choose: only plain files are opened, no link is followed, no copy is left half done."""

import contextlib
import errno
import gc
import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from builders.elf import ElfFile
from tdprof.linux.elf import ElfError, open_elf, read_build_id
from tdprof.linux.file_bytes import FileBytes
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder import artefacts, held_programs
from tdprof.recorder.artefacts import MappedProgram, save_files
from tdprof.recorder.foreign_files import CopyBudget, copy_file, open_below
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.identity import HeldProcess


def open_file(root: Path, path: str) -> FileBytes:
    fd = os.open(root, os.O_PATH)
    try:
        return FileBytes(open_below(fd, path))
    finally:
        os.close(fd)


def save(folder: Path, mapped: list[MappedProgram]) -> list[str]:
    with OwnFolder.open(folder) as own:
        return save_files(own, mapped)


def test_a_plain_file_is_opened_and_copied(tmp_path: Path) -> None:
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/usr/lib/library").write_bytes(b"x" * 3_000_000)
    with (tmp_path / "copy").open("wb") as target:
        copy_file(open_file(tmp_path / "root", "/usr/lib/library"), target)
    assert (tmp_path / "copy").read_bytes() == b"x" * 3_000_000


def link_to_file(root: Path) -> str:
    (root / "there").write_text("secret")
    (root / "link").symlink_to(root / "there")
    return "link"


def link_to_folder(root: Path) -> str:
    (root / "folder").mkdir()
    (root / "folder/file").write_text("secret")
    (root / "link").symlink_to(root / "folder")
    return "link/file"


def pipe(root: Path) -> str:
    os.mkfifo(root / "pipe")
    return "pipe"


def unix_socket(root: Path) -> str:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(root / "s"))
    return "s"


def above(root: Path) -> str:
    (root.parent / "outside").write_text("secret")
    return "../outside"


def magic_link(_: Path) -> str:
    return f"../proc/{os.getpid()}/root"


@pytest.mark.parametrize("make", [link_to_file, link_to_folder, pipe, unix_socket, above, magic_link])
def test_nothing_else_is_opened(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path_factory.mktemp("r") / "root"
    root.mkdir()
    monkeypatch.chdir(root)  # a socket's name is short
    path = make(root)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"no plain path|regular file|Not a directory"):
        open_file(root, path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_opened_is_read_whatever_its_name_means_now(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("first")
    opened = open_file(tmp_path, "file")
    (tmp_path / "file").unlink()
    (tmp_path / "file").symlink_to("/etc/passwd")
    assert bytes(opened.read(0, 100)) == b"first"


def test_holes_are_not_copied_and_count_for_nothing(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(50 << 20)
        file.write(b"end")
    source = open_file(tmp_path, "sparse")
    budget = CopyBudget(1 << 20, 100 << 20)
    budget.take(source, 0, "file")
    with (tmp_path / "copy").open("wb") as target:
        copy_file(source, target)
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "sparse").read_bytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize("budget", [CopyBudget(1 << 20, 9), CopyBudget(9, 1 << 20)])
def test_a_file_too_large_is_not_copied(tmp_path: Path, budget: CopyBudget) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    with pytest.raises(OSError, match="too large") as caught:
        budget.take(open_file(tmp_path, "file"), 0, "file")
    assert caught.value.errno == errno.EFBIG


def test_one_users_files_leave_room_for_those_of_others(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    source = open_file(tmp_path, "file")
    weight = sum(end - start for start, end in source.stretches(0, source.size))
    budget = CopyBudget(16 * weight, 100)
    taken = dict.fromkeys((54321, 54322), 0)
    for uid in taken:
        with contextlib.suppress(OSError):
            while True:
                budget.take(source, uid, f"{uid}.{taken[uid]}")
                taken[uid] += 1
    assert taken == {54321: 8, 54322: 4}
    for number in range(4):
        budget.take(source, 0, f"{number}")
    assert budget.left_for(0) == 0


def test_a_copy_that_replaces_another_takes_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    source = open_file(tmp_path, "file")
    weight = sum(end - start for start, end in source.stretches(0, source.size))
    budget = CopyBudget(weight, 100)
    for _ in range(3):
        budget.take(source, 0, "file")
    with pytest.raises(OSError, match="too large"):
        budget.take(source, 0, "another")


def test_elf_files_are_looked_at_before_they_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def look(path: str, flags: int, **options: Any) -> int:
        assert flags & os.O_PATH, "a device was opened"
        return really_open(path, flags, **options)

    monkeypatch.setattr("tdprof.linux.file_bytes.os.open", look)
    with pytest.raises(ElfError, match="not a regular file"):
        open_elf("/dev/null")


@pytest.fixture
def deleted(tmp_path: Path) -> Iterator[list[MappedProgram]]:
    """Two programs that this process maps and that are gone from the file system."""
    with contextlib.ExitStack() as stack:
        programs = []
        for number in (1, 2):
            build_id = bytes([number] * 4)
            path = tmp_path / f"program{number}"
            path.write_bytes(ElfFile(build_id=build_id).to_bytes())
            with path.open("rb") as file:
                stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC))
            (line,) = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(str(path))]
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            path.unlink()
            programs.append(MappedProgram(os.getpid(), str(path), build_id.hex(), start, end - start))
        try:
            os.stat(f"/proc/self/map_files/{start:x}-{end:x}")
        except OSError as error:
            pytest.skip(f"/proc/self/map_files cannot be read: {error.strerror}")
        (tmp_path / "capture").mkdir()
        yield programs


def test_what_was_deleted_and_still_runs_is_kept(tmp_path: Path, deleted: list[MappedProgram]) -> None:
    assert save(tmp_path / "capture", deleted) == []
    kept = {path.name: read_build_id(path) for path in (tmp_path / "capture/files").iterdir()}
    assert kept == {program.build_id: program.build_id for program in deleted}


def test_all_files_together_have_a_limit(
    tmp_path: Path, deleted: list[MappedProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "_MOST_BYTES_OF_FILES", len(ElfFile(build_id=bytes(4)).to_bytes()))
    assert save(tmp_path / "capture", deleted) == [
        f"{deleted[1].path} is not kept for when its container has ended: too large to be kept"
    ]
    assert os.listdir(tmp_path / "capture/files") == [deleted[0].build_id]


def test_what_has_another_build_id_is_not_kept(tmp_path: Path, deleted: list[MappedProgram]) -> None:
    assert save(tmp_path / "capture", [deleted[0]._replace(build_id="abcdef")]) == []
    assert not (tmp_path / "capture/files").exists()


def mmap2(program: MappedProgram, protection: int = mmap.PROT_READ | mmap.PROT_EXEC) -> bytes:
    """A perf record of the mapping, as the kernel writes it with a build-id (linux/perf_event.h)."""
    identity = bytes.fromhex(program.build_id or "")
    path = program.path.encode() + b"\0"
    body = struct.pack("<IIQQQ", program.pid, program.pid, program.address, program.length, 0)
    body += struct.pack("<B3x20sII", len(identity), identity, protection, mmap.MAP_PRIVATE) + path
    return struct.pack("<IHH", 10, 2 | 1 << 14, 8 + len(body)) + body


def test_what_is_held_is_kept_when_its_process_is_gone(tmp_path: Path, deleted: list[MappedProgram]) -> None:
    with HeldPrograms() as held, OwnFolder.open(tmp_path / "capture") as folder:
        held.look([b"\x0a\0\0\0\x02\x40" * 3 + bytes(5) + mmap2(deleted[0]), mmap2(deleted[1], mmap.PROT_READ)])
        gone = [program._replace(pid=2**22 + 1) for program in deleted]
        assert save_files(folder, gone, held) == []
        assert held.notes() == []
    assert os.listdir(tmp_path / "capture/files") == [deleted[0].build_id]


def fork(pid: int, parent: int, time_ns: int) -> bytes:
    """A perf record of a process that was started, with what tells its event behind it (linux/perf_event.h)."""
    body = struct.pack("<IIIIQQ", pid, parent, pid, parent, time_ns, 0)
    return struct.pack("<IHH", 7, 0, 8 + len(body)) + body


def test_those_that_followed_processes_start_are_followed() -> None:
    """In whatever order rings are looked at, which others write meanwhile."""
    with HeldPrograms([10]) as held:
        held.look([fork(12, 11, 2), fork(21, 20, 3)])
        held.look([fork(11, 10, 1), fork(13, 12, 4)])
        assert [pid for pid in range(30) if held.follows(pid)] == [10, 11, 12, 13]
        held.look([fork(31, 30, 5)])
        held.look([])
        held.look([fork(30, 10, 6)])  # another process, which has the number now
        assert not held.follows(31)
        held.follow(40)  # the command once more
        assert held.follows(40)
    with HeldPrograms() as held:
        held.follow(40)
        assert held.follows(50)


def test_a_later_process_holds_what_an_earlier_one_took_along(deleted: list[MappedProgram]) -> None:
    with HeldPrograms() as held:
        held.look([mmap2(deleted[0]._replace(pid=2**22 + 1))])
        assert deleted[0].build_id not in held
        held.look([mmap2(deleted[0])])
        assert deleted[0].build_id in held


def test_no_more_programs_are_held_than_there_are_descriptors_for(
    deleted: list[MappedProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_programs, "_MOST_HELD", 1)
    gc.collect()  # files of earlier tests, which a traceback keeps
    before = len(os.listdir("/proc/self/fd"))
    with HeldPrograms() as held:
        for _ in range(3):
            held.look([mmap2(deleted[0]) + mmap2(deleted[1])])
        assert len(os.listdir("/proc/self/fd")) == before + 1
        assert [program.build_id in held for program in deleted] == [True, False]
        assert held.notes() == ["1 program not held while running: what was deleted since has no names"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_not_held_is_told_while_another_thread_finds_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_programs, "_MOST_HELD", 2)

    class Held(dict[str, Any]):
        def __contains__(self, build_id: object) -> bool:
            held._left_out.add("found meanwhile")
            return False

    with HeldPrograms() as held:
        held._leave_out("aa")
        held._held = Held()
        assert held.notes() == ["1 program not held while running: what was deleted since has no names"]


def test_more_than_are_told_apart_are_at_least_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_programs, "_MOST_HELD", 0)
    monkeypatch.setattr(held_programs, "_MOST_LEFT_OUT", 3)
    with HeldPrograms() as held:
        for build_id in ("aa", "bb", "cc", "dd"):
            held.hold_mapped_before(1, 0, 4096, build_id)
        said = "3 programs not held while running: what was deleted since has no names"
        assert held.notes() == [f"at least {said}"]
        held.begin_segment(None)
        assert held.notes() == [f"about {said}"]  # some may be gone as well


def test_what_nobody_has_mapped_for_some_segments_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with HeldProcess(os.getpid()) as process:
        identity = process.identity
    opened = []

    def open_any(*_: object) -> Any:
        opened.append(os.open("/proc/self/exe", os.O_PATH))
        return held_programs._Held(opened[-1], identity)

    monkeypatch.setattr(HeldPrograms, "_reach", open_any)
    monkeypatch.setattr(held_programs, "_MOST_HELD", 2)
    with HeldPrograms() as held:
        for build_id in ("aa", "bb", "cc"):
            held.hold_mapped_before(1, 0, 4096, build_id)
        assert ("aa" in held, "bb" in held, "cc" in held) == (True, True, False)
        said = ["1 program not held while running: what was deleted since has no names"]
        assert held.notes() == said
        held.begin_segment({"aa", "bb", "cc"})
        assert held.notes() == said
        assert held.not_held_before == 1
        for _ in range(9):
            held.begin_segment(None)
        assert held.notes() == [f"at most {said[0]}"]  # whoever had it may be gone
        for _ in range(3):
            held.begin_segment({"aa"})
        assert "bb" in held
        held.begin_segment({"aa"})
        assert ("aa" in held, "bb" in held) == (True, False)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[1])
        held.hold_mapped_before(1, 0, 4096, "cc")
        assert "cc" in held
        assert held.notes() == []
        held.begin_segment(None)
        assert held.not_held_before == 0
