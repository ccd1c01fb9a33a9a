"""Whole commands of root beside another user, told by nothing but what they leave: whatever the code is like inside."""

import os
import platform
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack.conftest import User
from builders.elf import ElfFile, Symbol, with_program_header

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]

SECRET = "7f0000000000 1000 the_secret_of_root\n"
PATIENCE_S = 300.0  # the recordings last a second
# Maps a file, lets a mount of its own cover it, and is busy. {} in the paths is its number.
COVER_AND_WORK = """
import mmap, os, subprocess, sys
secret, *paths = [word.replace("{}", str(os.getpid())) for word in sys.argv[1:]]
for path in paths:
    with open(path, "w+b") as file:
        file.write(b"DTiJ" + bytes(4092))
        file.flush()
        mapped = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        globals()["keep" + path] = mapped
    subprocess.run(["mount", "--bind", secret, path], check=True)
print("ready", flush=True)
while True:
    pass
"""
IN_NAMESPACE = """
import os, sys
os.execvp("unshare", ["unshare", "-r", "-m", sys.executable, "-I", "-c", *sys.argv[1:]])
"""
MAP_AND_WORK = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
mapped = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
while True:
    pass
"""
# Runs the code of a file, an endless loop, from its second page.
RUN_MAPPED = """
import ctypes, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
kinds = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
mapped = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=kinds, offset=4096)
print("ready", flush=True)
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(mapped)))()
"""
ENDLESS = {"x86_64": b"\xeb\xfe", "aarch64": b"\x00\x00\x00\x14"}[platform.machine()]
# Lets a file be whole for a moment, and cut behind its code for another.
CUT_AND_MEND = """
import os, random, sys, time
path = sys.argv[1]
data = open(path, "rb").read()
fd = os.open(path, os.O_RDWR)
print("ready", flush=True)
while True:
    os.pwrite(fd, data, 0)
    time.sleep(random.uniform(0, 0.005))
    os.truncate(path, 8192)
    time.sleep(random.uniform(0, 0.001))
"""


def tdprof(
    *words: object, environment: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tdprof", *map(str, words)]
    return subprocess.run(
        command,
        env=os.environ | (environment or {}),
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=PATIENCE_S,
        check=False,
    )


def contents(folder: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def secret(meadow: Path) -> Path:
    """What only root may read; it looks like a perf map."""
    path = meadow / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def test_an_output_that_waits_is_not_taken(meadow: Path, mallory: User, treasure: Path) -> None:
    home = mallory.folder(meadow / "home", 0o777)
    mallory.folder(home / "ready")
    mallory.run("import os, sys; os.symlink(*sys.argv[1:])", treasure, home / "link")
    for name in ("ready", "link"):
        assert tdprof("record", "-o", home / name, "--", "true").returncode == 1
        assert not list((home / name).iterdir())


def test_an_older_capture_does_not_lead_away(meadow: Path, mallory: User, treasure: Path) -> None:
    """The default name, in a folder where somebody else has been."""
    home = mallory.folder(meadow / "home", 0o777)
    mallory.run("import os, sys; os.symlink(*sys.argv[1:])", treasure, home / "tdprof.capture")
    assert tdprof("record", "--", "true", cwd=home).returncode == 1
    assert not list(treasure.iterdir())


@pytest.mark.thorough
def test_a_secret_put_over_a_perf_map_or_a_dump_stays_one(meadow: Path, mallory: User, secret: Path) -> None:
    home = mallory.folder(meadow / "home")
    words = (COVER_AND_WORK, secret, "/tmp/perf-{}.map", home / "jit-{}.dump")
    with mallory.busy(IN_NAMESPACE, *words) as process:
        try:
            said = tdprof("record", "-p", process.pid, "--duration", 0.5, "-o", meadow / "out")
        finally:
            Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)
    assert said.returncode == 0, said.stderr
    assert not any(b"the_secret_of_root" in data for data in contents(meadow / "out"))
    for command in (["report", "--limit", 0], ["export", "--to", "folded"]):
        shown = tdprof(command[0], meadow / "out", *command[1:])
        assert shown.returncode == 0, shown.stderr
        assert "the_secret_of_root" not in shown.stdout


def test_a_mapped_file_of_endless_notes_does_not_stop_a_recording(meadow: Path, mallory: User) -> None:
    home = mallory.folder(meadow / "home")
    path = home / "notes"
    path.write_bytes(with_program_header(ElfFile().to_bytes(), 4, 0x2000, 1 << 40)[:0x1000])
    os.truncate(path, 1 << 40)
    with mallory.busy(MAP_AND_WORK, path):
        command = [sys.executable, "-m", "tdprof", "record", "-a", "-o", str(meadow / "out"), "--duration", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
            try:
                _, said = recorder.communicate(timeout=PATIENCE_S)
            finally:
                recorder.kill()
    assert recorder.returncode == 0, said


@pytest.mark.thorough
def test_a_program_that_its_owner_cuts_short_ends_no_command(meadow: Path, mallory: User) -> None:
    home = mallory.folder(meadow / "home")
    path = home / "program"
    symbols = [Symbol(f"function_{number}", 0x401000 + number, 1) for number in range(100_000)]
    path.write_bytes(ElfFile(text=ENDLESS.ljust(4096), build_id=b"\xab" * 20, symbols=symbols).to_bytes())
    os.chown(path, mallory.uid, mallory.uid)
    with mallory.busy(RUN_MAPPED, path) as process:
        recorded = tdprof("record", "-p", process.pid, "--duration", 1, "-o", meadow / "out")
        assert recorded.returncode == 0, recorded.stderr
        assert "function_0" in tdprof("report", meadow / "out").stdout
        with mallory.busy(CUT_AND_MEND, path):
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                said = tdprof("report", meadow / "out")
                assert said.returncode == 0, said


def test_what_root_records_and_makes_of_it_is_for_root(meadow: Path) -> None:
    before = os.umask(0)
    try:
        no_sudo = {"SUDO_UID": "", "SUDO_GID": ""}
        assert tdprof("record", "-o", meadow / "out", "--", "true", environment=no_sudo).returncode == 0
        made = tdprof("export", meadow / "out", "--to", "folded", "-o", meadow / "folded", environment=no_sudo)
        assert made.returncode == 0, made.stderr
    finally:
        os.umask(before)
    modes = {path: stat.filemode(path.stat().st_mode) for path in [*meadow.rglob("*")]}
    assert not {path: mode for path, mode in modes.items() if mode[4:] != "------"}


def test_a_home_of_another_user_is_no_place_for_caches(meadow: Path, mallory: User, treasure: Path) -> None:
    """sudo that keeps HOME: neither is written below what he links, nor into his own folders."""
    home = mallory.folder(meadow / "home")
    mallory.run("import os, sys; os.symlink(*sys.argv[1:])", treasure, home / ".cache")
    program = "import time\nuntil = time.time() + .3\nwhile time.time() < until: pass"
    environment = {"HOME": str(home), "XDG_CACHE_HOME": "", "DEBUGINFOD_URLS": "http://127.0.0.1:9"}
    words = ("record", "-o", meadow / "out", "--", sys.executable, "-c", program)
    assert tdprof(*words, environment=environment).returncode == 0
    assert tdprof("report", meadow / "out", environment=environment).returncode == 0
    assert not list(treasure.iterdir())
    assert [path.name for path in home.iterdir()] == [".cache"]
