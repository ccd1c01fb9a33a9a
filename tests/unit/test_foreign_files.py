"""Files whose names others choose: only plain files are opened, no link is followed, no copy is left half done."""

import contextlib
import errno
import mmap
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.elf import ElfFile
from tdprof.elf import ElfError, open_elf, read_build_id
from tdprof.recorder import artefacts, foreign_files
from tdprof.recorder.artefacts import MappedProgram, save_files
from tdprof.recorder.foreign_files import contents, copy_file, open_below


def test_a_plain_file_is_opened_and_copied(tmp_path: Path) -> None:
    (tmp_path / "root/usr/lib").mkdir(parents=True)
    (tmp_path / "root/usr/lib/library").write_bytes(b"x" * 3_000_000)
    with open_below(tmp_path / "root", "/usr/lib/library") as fd:
        copy_file(fd, tmp_path / "out/copy")
    assert (tmp_path / "out/copy").read_bytes() == b"x" * 3_000_000
    assert os.listdir(tmp_path / "out") == ["copy"]


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
    with pytest.raises(OSError, match=r"no plain path|regular file|Not a directory"), open_below(root, path):
        pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_opened_is_read_whatever_its_name_means_now(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("first")
    with open_below(tmp_path, "file") as fd:
        (tmp_path / "file").unlink()
        (tmp_path / "file").symlink_to("/etc/passwd")
        assert contents(fd).read_text() == "first"


def test_a_file_too_large_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "LARGEST_COPY", 9)
    (tmp_path / "file").write_bytes(b"0123456789")
    with open_below(tmp_path, "file") as fd, pytest.raises(OSError, match="large") as caught:
        copy_file(fd, tmp_path / "out/copy")
    assert caught.value.errno == errno.EFBIG
    assert not (tmp_path / "out/copy").exists()


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(bytes(100))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with open_below(tmp_path, "file") as fd, pytest.raises(KeyboardInterrupt):
        copy_file(fd, tmp_path / "out/copy")
    assert os.listdir(tmp_path / "out") == []


def test_elf_files_are_looked_at_before_they_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    really_open = os.open

    def look(path: str, flags: int, **options: int | None) -> int:
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
    assert save_files(tmp_path / "capture", deleted) == []
    kept = {path.name: read_build_id(path) for path in (tmp_path / "capture/files").iterdir()}
    assert kept == {program.build_id: program.build_id for program in deleted}


def test_all_files_together_have_a_limit(
    tmp_path: Path, deleted: list[MappedProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "_MOST_BYTES_OF_FILES", len(ElfFile(build_id=bytes(4)).to_bytes()))
    assert save_files(tmp_path / "capture", deleted) == [deleted[1].path]
    assert os.listdir(tmp_path / "capture/files") == [deleted[0].build_id]


def test_what_has_another_build_id_is_not_kept(tmp_path: Path, deleted: list[MappedProgram]) -> None:
    assert save_files(tmp_path / "capture", [deleted[0]._replace(build_id="abcdef")]) == []
    assert not (tmp_path / "capture/files").exists()
