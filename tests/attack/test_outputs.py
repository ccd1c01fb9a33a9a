"""What commands of root write, in folders where another user has put links, or swaps names meanwhile."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from attack.conftest import User
from attack.races import EXCHANGE, PLANT_LINKS, SWAP_FOLDER_FOR_LINK
from builders.captures import table_writer, write_manifest
from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung, State
from tdprof.capture.manifest import write_manifest as write_own_manifest
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.schema import TABLES
from tdprof.capture.tables import replace_table
from tdprof.errors import TdprofError
from tdprof.linux.output_file import new_file, replaced_file
from tdprof.model.losses import Losses
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.session import record

pytestmark = pytest.mark.beside_others

ROUNDS = 1000
MANIFEST = Manifest(
    host=HOST,
    command=["true"],
    pids=[],
    is_system_wide=False,
    events=[],
    rung=Rung.RING_BUFFER,
    rung_reason="a test",
    start_realtime_ns=1,
    start_monotonic_ns=2,
    end_monotonic_ns=3,
    losses=Losses(),
    state=State.COMPLETE,
)


def tdprof(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tdprof", *map(str, words)]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )


def as_sudo(user: User) -> dict[str, str]:
    return {"SUDO_UID": str(user.uid), "SUDO_GID": str(user.uid)}


@pytest.fixture
def place(meadow: Path, mallory: User) -> Path:
    """The attacker's folder, in which root is to work."""
    return mallory.folder(meadow / "place")


@pytest.fixture
def sudo_caller(monkeypatch: pytest.MonkeyPatch, alice: User) -> User:
    """alice calls sudo."""
    for name, value in as_sudo(alice).items():
        monkeypatch.setenv(name, value)
    return alice


def plant(user: User, link: Path, target: Path) -> None:
    user.run("import os, sys; os.symlink(*sys.argv[1:])", target, link)


@pytest.mark.needs_perf
@pytest.mark.parametrize("kind", ["empty folder", "link to a folder"])
def test_record_takes_no_folder_that_others_prepared(
    place: Path, treasure: Path, mallory: User, untouched: Callable[[], None], kind: str
) -> None:
    if kind == "empty folder":
        mallory.folder(place / "out", 0o777)
        for name in (".capture.json", "capture.json.part", "spool"):
            plant(mallory, place / "elsewhere" if name == "spool" else place / name, treasure)
    else:
        plant(mallory, place / "out", treasure)
    before = sorted(place.rglob("*"))
    result = tdprof("record", "-o", place / "out", "--", "true")
    assert result.returncode == 1
    assert "exists already" in result.stderr
    assert sorted(place.rglob("*")) == before
    untouched()


def test_a_capture_goes_into_the_folder_that_was_made_whatever_its_name_means(
    place: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    """A thousand captures in an attacker's folder, whose names he swaps for links while they are written."""
    made = 0
    with mallory.busy(SWAP_FOLDER_FOR_LINK, place, "out", treasure):
        for number in range(ROUNDS):
            try:
                with OutputFolder(place / "out") as output:
                    folder = output.make()
                    write_own_manifest(folder, MANIFEST)
                    replace_table(folder, "samples", TABLES["samples"].empty_table())
                    output.publish()
                    assert "capture.json" in folder.names()
                    assert "samples.parquet" in folder.names()
                    made += 1
            except (TdprofError, FileNotFoundError):  # also a folder that was removed while it was empty
                pass
            for name in ("out", "aside"):
                try:
                    os.rename(place / name, treasure.parent / f"{name}.{number}")
                except OSError:
                    continue
    assert made
    untouched()


def test_archive_follows_no_link_of_a_strangers_capture(
    place: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    capture = mallory.folder(place / "capture", 0o755)
    put_capture(capture)
    names = ("symbols.parquet", ".symbols.parquet.part")
    with mallory.busy(PLANT_LINKS, capture, treasure, *names):
        result = tdprof("archive", capture)
    assert result.returncode == 1
    assert "belongs to user 54321" in result.stderr
    untouched()
    # What a folder of root's own has in it is not followed either.
    os.chown(capture, 0, 0)
    assert tdprof("archive", capture).returncode == 0
    assert not (capture / "symbols.parquet").is_symlink()
    untouched()


def put_capture(folder: Path) -> None:
    """A whole capture in a folder of another user, all his."""
    owner = folder.stat()
    os.chown(folder, 0, 0)
    with table_writer(folder):
        pass
    write_manifest(folder, MANIFEST)
    for path in (folder, *folder.iterdir()):
        os.chown(path, owner.st_uid, owner.st_gid)


def test_links_that_others_made_are_no_place_for_a_result(
    place: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    plant(mallory, place / "out", treasure / "new")
    plant(mallory, place / "way", treasure)
    for path in (place / "out", place / "way" / "out"):
        with pytest.raises(PermissionError, match="link that user 54321 made"), replaced_file(path) as file:
            file.write(b"x")
        with pytest.raises(PermissionError, match="link that user 54321 made"):
            new_file(path)
        with (
            pytest.raises(TdprofError, match=r"link that user 54321 made|exists already"),
            OutputFolder(path) as output,
        ):
            output.make()
    untouched()


@pytest.mark.parametrize("write", [replaced_file, new_file])
def test_a_pipe_that_another_made_gets_no_result(
    meadow: Path, mallory: User, write: Callable[[Path], contextlib.AbstractContextManager[BinaryIO]]
) -> None:
    """Its maker would read the result, or let the command wait for ever."""
    shared = meadow / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    mallory.run("import os, sys; os.mkfifo(sys.argv[1])", shared / "pipe")
    with pytest.raises(PermissionError, match="a pipe that user 54321 made"), write(shared / "pipe"):
        pass
    os.mkfifo(shared / "own")
    reader = os.open(shared / "own", os.O_RDONLY | os.O_NONBLOCK)
    with write(shared / "own") as file:
        file.write(b"result")
    assert os.read(reader, 100) == b"result"
    os.close(reader)


@pytest.mark.parametrize("write", [replaced_file, new_file])
def test_what_takes_the_place_of_a_folder_gets_no_result(
    place: Path, meadow: Path, mallory: User, write: Callable[[Path], contextlib.AbstractContextManager[BinaryIO]]
) -> None:
    """A link, exchanged for it in the moment between: it could lead to a disk, which is written to as it is."""
    os.mkfifo(meadow / "roots")
    reader = os.open(meadow / "roots", os.O_RDONLY | os.O_NONBLOCK)
    with mallory.busy(EXCHANGE, place, meadow / "roots"):
        for _ in range(4 * ROUNDS):
            with pytest.raises(OSError, match=r"directory|link|exchanged"), write(place / "out") as file:
                file.write(b"result")
    with contextlib.suppress(BlockingIOError):
        assert not os.read(reader, 100)
    os.close(reader)


def test_a_result_is_written_through_no_link_that_appears_meanwhile(
    place: Path, treasure: Path, mallory: User, untouched: Callable[[], None]
) -> None:
    written = 0
    names = ("out", "log", f".out.{os.getpid()}.partial")
    with mallory.busy(PLANT_LINKS, place, treasure, *names):
        for _ in range(ROUNDS):
            try:
                with replaced_file(place / "out") as file:
                    file.write(b"x")
                new_file(place / "log").close()
                written += 1
            except OSError:
                pass
            for name in ("out", "log"):
                (place / name).unlink(missing_ok=True)
    assert written
    untouched()


@pytest.mark.needs_perf
def test_captures_are_for_root_alone(meadow: Path, alice: User) -> None:
    """Kernel addresses and every user's command lines are nobody else's."""
    before = os.umask(0)
    try:
        result = tdprof("record", "-o", meadow / "out", "--", "true", SUDO_UID="", SUDO_GID="")
        assert result.returncode == 0, result.stderr
        exported = tdprof("export", meadow / "out", "--to", "folded", "-o", meadow / "folded")
        assert exported.returncode == 0, exported.stderr
    finally:
        os.umask(before)
    assert (meadow / "out").stat().st_mode & 0o777 == 0o700
    for path in [meadow / "folded", *(meadow / "out").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0
        assert path.stat().st_uid == 0
    said = alice.run("import os, sys; print(os.access(sys.argv[1], os.R_OK | os.X_OK))", meadow / "out")
    assert said.strip() == "False"


@pytest.mark.needs_perf
def test_who_called_sudo_gets_the_capture(meadow: Path, alice: User) -> None:
    home = alice.folder(meadow / "home")
    result = tdprof("record", "-o", home / "out", "--", "true", **as_sudo(alice))
    assert result.returncode == 0, result.stderr
    for path in [home / "out", *(home / "out").rglob("*")]:
        assert (path.stat().st_uid, path.stat().st_gid) == (alice.uid, alice.uid)
        assert path.stat().st_mode & 0o077 == 0
    assert tdprof("archive", home / "out", **as_sudo(alice)).returncode == 0
    exported = tdprof("export", home / "out", "--to", "folded", "-o", home / "folded", **as_sudo(alice))
    assert exported.returncode == 0, exported.stderr
    for path in (home / "out" / "symbols.parquet", home / "folded"):
        assert path.stat().st_uid == alice.uid
    manifest = alice.run("import sys; print(open(sys.argv[1]).read())", home / "out" / "capture.json")
    assert json.loads(manifest)["command"] == ["true"]


def test_until_it_is_complete_the_capture_is_roots(meadow: Path, sudo_caller: User) -> None:
    home = sudo_caller.folder(meadow / "home")
    with OutputFolder(home / "out") as output:
        folder = output.make()
        write_own_manifest(folder, MANIFEST)
        with folder.subfolder("spool", make=True) as spool:
            os.close(spool.create("ring.0.perf"))
        output.publish()
        for path in [home / "out", *(home / "out").rglob("*")]:
            assert path.stat().st_uid == 0
    for path in [home / "out", *(home / "out").rglob("*")]:
        assert path.stat().st_uid == sudo_caller.uid


def test_sudo_gives_nothing_away_where_only_root_may_write(treasure: Path, meadow: Path, sudo_caller: User) -> None:
    """A file of theirs in /etc would be theirs to change afterwards."""
    closed = meadow / "closed"
    closed.mkdir(mode=0o755)
    with replaced_file(closed / "whole") as file:
        file.write(b"x")
    new_file(closed / "growing").close()
    with OutputFolder(closed / "capture") as output:
        output.make()
        output.publish()
    assert {path.stat().st_uid for path in closed.iterdir()} == {0}


def test_only_captures_make_way(meadow: Path, mallory: User, sudo_caller: User) -> None:
    """Neither other folders of root, renamed by who owns the folder around them, nor those of strangers."""
    home = sudo_caller.folder(meadow / "home")
    for uid, has_manifest, makes_way in ((0, False, False), (mallory.uid, True, False), (sudo_caller.uid, True, True)):
        for name in ("capture", "capture.old"):
            (home / name).mkdir()
            if has_manifest:
                (home / name / "capture.json").touch()
            (home / name / "precious").touch()
            os.chown(home / name, uid, uid)
        if makes_way:
            with OutputFolder(home / "capture", replaces_older=True) as output:
                output.make()
                output.publish()
            assert not (home / "capture" / "precious").exists()
            assert (home / "capture.old" / "precious").exists()
        else:
            with (
                pytest.raises(TdprofError, match="exists already"),
                OutputFolder(home / "capture", replaces_older=True) as output,
            ):
                output.make()
            for name in ("capture", "capture.old"):
                assert (home / name / "precious").exists()
                os.rename(home / name, home / f"{name}.{uid}")


class Interfered(OutputFolder):
    """Between its making and its publication something that is no capture takes the name NAME.old."""

    def publish(self) -> None:
        (self.path.parent / f"{self.path.name}.old").mkdir()
        super().publish()


@pytest.mark.needs_perf
def test_a_command_that_runs_is_not_ended_for_a_name(meadow: Path) -> None:
    """The capture keeps the name that it was made with, and says so."""
    (meadow / "new").mkdir()
    (meadow / "new" / "capture.json").touch()
    options = RecordOptions(command=["sh", "-c", f"echo done > {meadow}/finished"], use_bpf=False)
    with Interfered(meadow / "new", replaces_older=True) as output:
        outcome = record(options, output)
        with outcome.held:
            pass
    assert outcome.failure is None
    assert (meadow / "finished").read_text() == "done\n"
    assert output.path.parent == meadow
    assert output.path.name.startswith(".new.")
    assert (output.path / "capture.json").exists()
    assert any(f"this capture is {output.path}" in note for note in outcome.manifest.notes)
