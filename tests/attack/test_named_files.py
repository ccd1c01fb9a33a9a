"""Files that a process names: read with the rights of that process, so that nobody gets what only root may read."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attack.conftest import ALICE, MALLORY, User
from builders.elf import ElfFile
from builders.waiting import wait_until
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder import artefacts, code_watch, held_programs
from tdprof.recorder.artefacts import MappedProgram, save_files, save_run_time_code
from tdprof.recorder.code_watch import CodeWatch
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.identity import HeldProcess, Identity, call_as

pytestmark = pytest.mark.beside_others

TICK_NS = 10_000_000
SECRET_MAP = "1000 10 secret\n"
# Covers a file of the user's with one of root's, in a mount namespace of the user's own.
COVER = """
import os, sys
cover = 'touch "$2"; mount --bind "$1" "$2" && echo ready; exec sleep 600'
path = sys.argv[2].replace("PID", str(os.getpid()))
os.execvp("unshare", ["unshare", "-r", "-m", "sh", "-c", cover, "sh", sys.argv[1], path])
"""
WRITE_MAP = """
import os, sys, time
with open(sys.argv[1].replace("PID", str(os.getpid())), "w") as file:
    file.write("1000 10 mine\\n")
print("ready", flush=True)
time.sleep(600)
"""
WRITE_MAP_IN_NAMESPACE = """
import os, sys
write = 'echo 1000 10 mine > "$1"; echo ready; exec sleep 600'
os.execvp("unshare", ["unshare", "-r", "-m", "sh", "-c", write, "sh", sys.argv[1].replace("PID", str(os.getpid()))])
"""
# The same code twice under two names.
WRITE_DUMP = """
import os, struct, sys, time
with open(sys.argv[1].replace("PID", str(os.getpid())), "wb") as file:
    file.write(struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 42, 0, 0))
    for name in (b"f", b"g"):
        body = struct.pack("<IIQQQQ", 42, 42, 0x1000, 0x1000, 0x20, 1) + name + bytes(0x21)
        file.write(struct.pack("<IIQ", 0, 16 + len(body), 5) + body)
print("ready", flush=True)
time.sleep(600)
"""
MAP_PROGRAM = """
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _namespaces(mallory: User) -> None:
    probe = "import subprocess, sys; sys.exit(subprocess.run(['unshare', '-r', '-m', 'true']).returncode)"
    with mallory.start(probe) as process:
        process.communicate(timeout=300)
    if process.returncode:
        pytest.skip("users may not make namespaces here (user.max_user_namespaces)")


@pytest.fixture
def maps() -> Iterator[Callable[[int], Path]]:
    """Where a process's perf map lies; removed in the end."""
    found: list[Path] = []

    def path(pid: int) -> Path:
        found.append(Path(f"/tmp/perf-{pid}.map"))
        return found[-1]

    yield path
    for each in found:
        each.unlink(missing_ok=True)


@pytest.fixture
def capture(meadow: Path) -> Iterator[OwnFolder]:
    (meadow / "capture").mkdir(mode=0o700)
    with OwnFolder.open(meadow / "capture") as folder:
        yield folder


@pytest.fixture
def secret(meadow: Path) -> Path:
    """A file that only root may read, and that looks like a perf map."""
    path = meadow / "secret"
    path.write_text(SECRET_MAP)
    path.chmod(0o600)
    return path


Saving = Callable[[OwnFolder, int, str], list[str]]


def save_at_the_end(capture: OwnFolder, pid: int, dump: str) -> list[str]:
    """As when a recording ends."""
    return save_run_time_code(capture, [pid], [(pid, dump)] if dump else [])


def save_what_was_watched(capture: OwnFolder, pid: int, dump: str) -> list[str]:
    """As maps and dumps are while it runs; what is not used is said in the end."""
    watch = CodeWatch(ends_intervals=True)
    watch.start()
    if dump:
        watch.found_dump(pid, dump)
    watch.finish()
    watch.save_maps(capture, lambda other: other == pid)
    # Of this machine's other maps, one may have been left by a process whose number another has by now.
    others = {path.stem.removeprefix("perf-") for path in Path("/tmp").glob("perf-[0-9]*.map")} - {str(pid)}
    assert not watch.take_replaced() or any(Path("/proc", other).exists() for other in others)
    return []


ways = pytest.mark.parametrize("save", [save_at_the_end, save_what_was_watched], ids=lambda save: save.__name__)


def kept(capture: OwnFolder) -> dict[str, str]:
    return {path.name: path.read_text() for path in capture.path.rglob("*.*") if path.is_file()}


def place_of(pid: int, path: Path) -> tuple[int, int]:
    """Where a process has mapped a file, and how much of it."""
    (line,) = [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if line.endswith(str(path))]
    start, end = (int(number, 16) for number in line.split()[0].split("-"))
    return start, end - start


@ways
def test_a_map_covered_with_a_file_of_roots_is_not_read(
    mallory: User, capture: OwnFolder, secret: Path, maps: Callable[[int], Path], save: Saving
) -> None:
    with mallory.busy(COVER, secret, "/tmp/perf-PID.map") as process:
        maps(process.pid)
        assert Path(f"/proc/{process.pid}/root/tmp/perf-{process.pid}.map").read_text() == SECRET_MAP
        notes = save(capture, process.pid, "")
    assert kept(capture) == {}
    if save is save_at_the_end:
        assert f"tmp/perf-{process.pid}.map of process {process.pid} is not used: Permission denied" in notes


@ways
def test_a_dump_covered_with_a_file_of_roots_is_not_read(
    mallory: User, meadow: Path, capture: OwnFolder, secret: Path, save: Saving
) -> None:
    secret.write_bytes(b"DTiJ" + bytes(100))
    dump = mallory.folder(meadow / "his") / "jit-1.dump"
    with mallory.busy(COVER, secret, dump) as process:
        save(capture, process.pid, str(dump))
    assert kept(capture) == {}


@pytest.mark.parametrize("has_ended", [True, False])
@ways
def test_a_hard_link_to_a_file_of_roots_is_not_read(
    save: Saving, has_ended: bool, capture: OwnFolder, maps: Callable[[int], Path], secret: Path
) -> None:
    """As the map of root's process, or of one that is gone; without fs.protected_hardlinks any user can make it."""
    with subprocess.Popen(["sleep", "60"]) as process:
        if has_ended:
            process.kill()
            process.wait()
        os.link(secret, maps(process.pid))
        save(capture, process.pid, "")
        process.kill()
    assert kept(capture) == {}


@ways
def test_a_map_covered_with_a_readable_file_of_roots_is_not_used(
    mallory: User, capture: OwnFolder, secret: Path, maps: Callable[[int], Path], save: Saving
) -> None:
    secret.chmod(0o644)
    with mallory.busy(COVER, secret, "/tmp/perf-PID.map") as process:
        maps(process.pid)
        notes = save(capture, process.pid, "")
    assert kept(capture) == {}
    if save is save_at_the_end:
        assert f"tmp/perf-{process.pid}.map of process {process.pid} is not used: it belongs to another user" in notes


@pytest.mark.parametrize("program", [WRITE_MAP, WRITE_MAP_IN_NAMESPACE])
def test_a_users_own_map_is_kept(alice: User, capture: OwnFolder, maps: Callable[[int], Path], program: str) -> None:
    with alice.busy(program, "/tmp/perf-PID.map") as process:
        maps(process.pid)
        assert save_run_time_code(capture, [process.pid]) == []
    assert kept(capture) == {f"perf-{process.pid}.map": "1000 10 mine\n"}


def test_maps_of_many_processes_have_one_limit_however_often_they_are_saved(
    mallory: User, capture: OwnFolder, maps: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "_MOST_BYTES_OF_CODE", 60)
    notes = []
    for _ in range(5):
        with mallory.busy(WRITE_MAP, "/tmp/perf-PID.map") as process:
            maps(process.pid)
            notes += save_run_time_code(capture, [process.pid])
    assert 0 < sum(map(len, kept(capture).values())) <= 60
    assert len(kept(capture)) + sum("too large to be kept" in note for note in notes) == 5


def test_a_map_that_another_user_wrote_for_a_process_is_not_used(
    alice: User, mallory: User, capture: OwnFolder, maps: Callable[[int], Path]
) -> None:
    write = "import sys; open(sys.argv[1], 'w').write('1000 10 forged')"
    with alice.busy("print('ready', flush=True); import time; time.sleep(600)") as process:
        mallory.run(write, maps(process.pid))
        save_run_time_code(capture, [process.pid])
        assert kept(capture) == {}
    # And when it has ended, and only its number is left.
    notes = save_run_time_code(capture, [process.pid])
    assert kept(capture) == {}
    assert notes == [f"tmp/perf-{process.pid}.map of process {process.pid} is not used: it belongs to another user"]


def test_a_map_of_a_process_that_only_has_the_number_now_is_not_used(
    alice: User, capture: OwnFolder, maps: Callable[[int], Path]
) -> None:
    with alice.busy(WRITE_MAP, "/tmp/perf-PID.map") as process:
        maps(process.pid)
        with HeldProcess(process.pid) as held:
            began_ns = held.started_ns()
        save_run_time_code(capture, [process.pid], until_ns=began_ns - TICK_NS)
        assert kept(capture) == {}
        save_run_time_code(capture, [process.pid], until_ns=began_ns + TICK_NS)
        assert len(kept(capture)) == 1


def test_a_map_that_a_later_process_of_that_number_wrote_is_not_used(
    capture: OwnFolder, maps: Callable[[int], Path]
) -> None:
    """As root, whose maps are believed also where their process has ended."""
    with User(0).busy(WRITE_MAP, "/tmp/perf-PID.map") as process:
        path = maps(process.pid)
        with HeldProcess(process.pid) as held:
            began_ns = held.started_ns()
        (note,) = save_run_time_code(capture, [process.pid], until_ns=began_ns - TICK_NS)
        assert "a process that began after the recording has its number" in note
        assert kept(capture) == {}
        written_s = time.time() - 1
        os.utime(path, (written_s, written_s))
        save_run_time_code(capture, [process.pid], until_ns=began_ns - TICK_NS)
        assert len(kept(capture)) == 1


def test_a_map_that_is_older_than_its_process_is_not_used(capture: OwnFolder, maps: Callable[[int], Path]) -> None:
    """Another process of its number left it; also where both have ended."""
    written_s = time.time() - 1
    with User(0).busy(WRITE_MAP, "/tmp/perf-PID.map") as process:
        os.utime(maps(process.pid), (written_s, written_s))
        with HeldProcess(process.pid) as held:
            began_ns = {process.pid: held.started_ns()}
        (note,) = save_run_time_code(capture, [process.pid])
    assert "it is older than the process" in note
    assert save_run_time_code(capture, [process.pid], began_ns=began_ns) == [note]
    assert kept(capture) == {}
    assert not save_run_time_code(capture, [process.pid])
    assert len(kept(capture)) == 1


@pytest.mark.parametrize("has_dumps", [False, True])
def test_one_users_maps_and_dumps_leave_places_for_those_of_others(
    alice: User, mallory: User, capture: OwnFolder, meadow: Path, monkeypatch: pytest.MonkeyPatch, has_dumps: bool
) -> None:
    """In `record -a`, with many more processes than are followed."""
    monkeypatch.setattr(code_watch, "_MOST_FILES", 8)
    monkeypatch.setattr(code_watch, "MAPS_FOLDER", str(meadow / "tmp"))
    (meadow / "tmp").mkdir()
    (meadow / "tmp").chmod(0o1777)
    watch = CodeWatch(ends_intervals=True)
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(mallory.busy(WRITE_MAP, meadow / "tmp/perf-PID.map")) for _ in range(12)]
        watch.start()
        for process in many if has_dumps else ():
            for number in range(8):
                watch.found_dump(process.pid, f"{meadow}/tmp/jit-{number}.dump")
                watch.found_dump(process.pid, f"{meadow}/tmp/perf-{process.pid}.map")
        one = stack.enter_context(alice.busy(WRITE_DUMP if has_dumps else WRITE_MAP, meadow / "tmp/perf-PID.map"))
        if has_dumps:
            watch.found_dump(one.pid, f"{meadow}/tmp/perf-{one.pid}.map")
            assert select.select([watch.fd], [], [], 60)[0]
        else:
            wait_until(lambda: one.pid in watch._maps)
            assert len(watch._maps) == 5
    watch.finish()


@pytest.mark.parametrize(("mode", "is_kept"), [(0o755, True), (0o711, False)])
def test_a_program_that_its_process_may_not_read_is_not_kept(
    alice: User, meadow: Path, capture: OwnFolder, mode: int, is_kept: bool
) -> None:
    path = meadow / "program"
    path.write_bytes(ElfFile(build_id=b"\xab" * 20).to_bytes())
    path.chmod(0o755)
    with alice.busy(MAP_PROGRAM, path) as process:
        place = place_of(process.pid, path)
        path.chmod(mode)
        path.rename(meadow / "elsewhere")
        notes = save_files(capture, [MappedProgram(process.pid, str(path), "ab" * 20, *place)])
    assert (capture.path / "files" / ("ab" * 20)).exists() == is_kept
    assert notes == ([] if is_kept else [f"{path} is not kept for when its container has ended: Permission denied"])


def test_one_users_programs_leave_places_for_those_of_others(
    alice: User, mallory: User, meadow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_programs, "_MOST_HELD", 4)
    with contextlib.ExitStack() as stack, HeldPrograms() as held:
        for number, user in enumerate([mallory] * 6 + [alice]):
            path, build_id = meadow / f"program{number}", bytes([number] * 20)
            path.write_bytes(ElfFile(build_id=build_id).to_bytes())
            path.chmod(0o755)
            process = stack.enter_context(user.busy(MAP_PROGRAM, path))
            for _ in range(5):
                held.hold_mapped_before(process.pid, *place_of(process.pid, path), build_id.hex())
        assert [bytes([number] * 20).hex() in held for number in range(7)] == [True] * 2 + [False] * 4 + [True]
        assert held.notes() == ["4 programs not held while running: what was deleted since has no names"]


@pytest.mark.parametrize("claims_one_of_roots", [True, False])
def test_a_program_with_the_build_id_of_one_of_roots_is_not_kept(
    alice: User, meadow: Path, capture: OwnFolder, claims_one_of_roots: bool
) -> None:
    """Out of a capture it would name the functions of all who run the real one."""
    real, forged = meadow / "real", meadow / "forged"
    for path in (real, forged):
        path.write_bytes(ElfFile(build_id=b"\xab" * 20).to_bytes())
        path.chmod(0o755)
    if not claims_one_of_roots:
        os.chown(real, alice.uid, alice.uid)
    with alice.busy(MAP_PROGRAM, forged) as process:
        place = place_of(process.pid, forged)
        forged.unlink()
        mapped = MappedProgram(process.pid, str(forged), "ab" * 20, *place)
        save_files(capture, [mapped], seen=[MappedProgram(1, str(real), "ab" * 20, *place)])
    assert (capture.path / "files" / ("ab" * 20)).exists() != claims_one_of_roots


@pytest.mark.parametrize("what", ["root", "map_files"])
def test_a_process_that_gives_up_root_meanwhile_is_not_taken_for_root(
    monkeypatch: pytest.MonkeyPatch, mallory: User, what: str
) -> None:
    """Between the looks at who it is and at what it has: then a root and mappings of its user's are opened as root."""
    wait, tell = os.pipe()
    child = os.fork()
    if not child:
        os.read(wait, 1)
        os.setresuid(mallory.uid, mallory.uid, mallory.uid)
        signal.pause()
    real_open = os.open

    def open_late(path: str, *given: Any, **more: Any) -> int:
        if f"/proc/{child}/{what}" in str(path):
            os.write(tell, b"x")
            wait_until(lambda: uid_of(child) == mallory.uid)
        return real_open(path, *given, **more)

    def uid_of(pid: int) -> int:
        return int(re.findall(r"^Uid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[0])

    line = next(line for line in Path(f"/proc/{child}/maps").read_text().splitlines() if "r-xp" in line and "/" in line)
    start, end = (int(number, 16) for number in line.split()[0].split("-"))
    monkeypatch.setattr(os, "open", open_late)
    try:
        with pytest.raises(PermissionError, match="became another user's"), HeldProcess(child) as process:
            process.hold_mapped(start, end - start)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(wait)
        os.close(tell)


def test_only_the_one_call_has_another_identity(secret: Path) -> None:
    for _ in range(100):
        with pytest.raises(PermissionError):
            call_as(Identity(MALLORY, ALICE, ()), secret.read_text)
        assert secret.read_text() == SECRET_MAP
    os.chown(secret, 0, ALICE)
    secret.chmod(0o640)
    for identity in (Identity(MALLORY, ALICE, ()), Identity(MALLORY, MALLORY, (ALICE,))):
        assert call_as(identity, secret.read_text) == SECRET_MAP
    with pytest.raises(PermissionError):
        call_as(Identity(MALLORY, MALLORY, ()), secret.read_text)
    assert os.getgroups() == sorted(os.getgroups())


def test_a_file_system_that_never_answers_is_left(meadow: Path) -> None:
    os.mkfifo(meadow / "pipe")
    with pytest.raises(TimeoutError):
        call_as(Identity.own(), (meadow / "pipe").read_text, patience_s=0.1)
