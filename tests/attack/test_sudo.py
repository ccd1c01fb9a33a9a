"""Root by way of sudo, with the caller's environment or without: whose the results are, and where caches lie."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest
from click.testing import CliRunner

from attack.conftest import User
from attack.test_outputs import as_sudo, tdprof
from builders import capture_tables
from builders.costly_captures import write_capture
from builders.programs import compile_program
from tdprof.cli.main import cli
from tdprof.linux import user_cache
from tdprof.linux.elf import open_elf
from tdprof.recorder.bpf.cache import BpfCache
from tdprof.recorder.bpf.object_file import BpfObject, Compiler, Program

pytestmark = pytest.mark.beside_others


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of root's."""
    return compile_program(tmp_path_factory.mktemp("program"), "gcc", "-O2", "-g", "-Wl,--build-id")


def code_of(program: Path) -> tuple[int, int]:
    """Where the program's code lies in its file, and how long it is."""
    (code,) = [segment for segment in open_elf(program).segments if segment.type == 1 and segment.flags & 1]
    return code.offset, code.file_size


def write_program_capture(folder: Path, program: Path, owner: User) -> None:
    """A capture of ``owner`` in which the program ran."""
    offset, length = code_of(program)
    folder.mkdir()
    write_capture(
        folder,
        mappings=capture_tables.mappings(
            (0, 42, 0x400000, length, offset, str(program), open_elf(program).build_id),
        ),
        stacks=capture_tables.stacks((1, False, [0x400010 + 8 * step for step in range(40)])),
    )
    for path in (folder, *folder.iterdir()):
        os.chown(path, owner.uid, owner.uid)


def run(*words: object) -> str:
    result = CliRunner().invoke(cast(click.Command, cli), [*map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("xdg", [None, "alice's", "mallory's", "root's"])
@pytest.mark.parametrize("is_home_kept", [False, True])
def test_results_are_the_callers_and_caches_are_roots(
    meadow: Path,
    alice: User,
    mallory: User,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_home_kept: bool,
    xdg: str | None,
) -> None:
    home, root_home = alice.folder(meadow / "home"), meadow / "root"
    root_home.mkdir(mode=0o700)
    alice.folder(home / ".cache", 0o700)
    places = {
        "alice's": home / ".cache",
        "mallory's": mallory.folder(meadow / "mallory", 0o777),
        "root's": meadow / "cache",
    }
    places["root's"].mkdir(mode=0o700)
    monkeypatch.setattr(user_cache, "pwd", SimpleNamespace(getpwuid=lambda _: SimpleNamespace(pw_dir=str(root_home))))
    monkeypatch.setenv("HOME", str(home if is_home_kept else root_home))
    monkeypatch.setenv("SUDO_UID", str(alice.uid))
    monkeypatch.setenv("SUDO_GID", str(alice.uid))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    if xdg:
        monkeypatch.setenv("XDG_CACHE_HOME", str(places[xdg]))
    else:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache = places["root's"] if xdg == "root's" else root_home / ".cache"
    assert user_cache.cache_home() == cache

    write_program_capture(home / "capture", program, alice)
    before = files_below(meadow)
    assert program.name in run("report", home / "capture")
    run("export", home / "capture", "--to", "folded", "-o", home / "folded")
    run("export", home / "capture", "--to", "html", "-o", home / "page.html")
    run("archive", home / "capture")
    kept = BpfObject([], [Program("f", b"\x95" + bytes(7))], Compiler(str(program), "1", *_state(program)))
    objects = BpfCache(user_cache.user_cache("bpf"))
    objects.store({"key": 1}, kept)
    assert objects.load({"key": 1}) == kept

    made = files_below(meadow) - before
    results = {home / "folded", home / "page.html", home / "capture/symbols.parquet"}
    assert results <= made
    for path in made:
        assert path.stat().st_mode & 0o077 == 0
        if path in results:
            assert (path.stat().st_uid, path.stat().st_gid) == (alice.uid, alice.uid)
        else:
            assert path.is_relative_to(cache), path
            assert path.stat().st_uid == 0
    assert {path.relative_to(cache).parts[1] for path in made - results} >= {"bpf", "symbols"}


def _state(path: Path) -> tuple[int, int]:
    return path.stat().st_mtime_ns, path.stat().st_size


@pytest.mark.needs_perf
def test_what_root_records_for_a_caller_is_all_his(meadow: Path, alice: User, mallory: User) -> None:
    """By the command itself, whose cache and temporary files are another user's if it believed its environment."""
    home = alice.folder(meadow / "home")
    theirs = mallory.folder(meadow / "theirs", 0o777)
    environment = as_sudo(alice) | {"HOME": str(home), "XDG_CACHE_HOME": str(theirs), "TMPDIR": str(theirs)}
    recorded = tdprof("record", "--no-bpf", "-o", home / "capture", "--", "true", **environment)
    assert recorded.returncode == 0, recorded.stderr
    counted = tdprof("stat", "-e", "page-faults", "-o", home / "counts", "--", "true", **environment)
    assert counted.returncode == 0, counted.stderr
    for path in (home, *home.rglob("*")):
        assert (path.stat().st_uid, path.stat().st_gid) == (alice.uid, alice.uid), path
    assert {path.name for path in home.iterdir()} == {"capture", "counts"}
    assert not list(theirs.iterdir())
