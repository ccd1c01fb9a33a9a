"""Captures and programs of strangers: what root reads of them, and what of that outlives the reading."""

import contextlib
import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import click
import numpy as np
import pytest
from click.testing import CliRunner

from attack.conftest import User
from builders.captures import write_manifest
from builders.elf import ElfFile, Symbol
from builders.programs import compile_program
from builders.spe_capture import APP, PID, write_spe_capture
from builders.waiting import PATIENCE_S, ends_within
from tdprof.capture.manifest import State, read_manifest
from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.linux.elf import SHT_SYMTAB, open_elf
from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import U64
from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.symbol_table import read_elf_symbols
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.beside_others

IN_ACCESS, IN_MODIFY, IN_OPEN, IN_CREATE = 0x1, 0x2, 0x20, 0x100  # linux/inotify.h
EVENT = struct.Struct("<iIII")


class Watch:
    """Tells what was opened or written in a folder and its subfolders, by whomever."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        for each in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            kinds = IN_ACCESS | IN_MODIFY | IN_OPEN | IN_CREATE
            assert libc.inotify_add_watch(self.fd, os.fsencode(each), kinds) >= 0

    def events(self) -> list[str]:
        """Names, or "" for a folder itself, since the last call."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        names = []
        while data:
            *_, length = EVENT.unpack_from(data)
            names.append(data[EVENT.size : EVENT.size + length].rstrip(b"\0").decode())
            data = data[EVENT.size + length :]
        return names


@pytest.fixture
def loot(meadow: Path) -> Path:
    """What a stranger would have root read: it looks like all that a capture consists of."""
    folder = write_spe_capture(meadow / "loot")
    for name, text in (("perf-maps", "401000 10 secret\n"), ("spool", ""), ("files", "")):
        (folder / name).mkdir()
        for file in (f"perf-{PID}.map", f"jit-{PID}.dump", "ring.0.perf", "initial.jsonl", "stacks.bpf", APP.build_id):
            (folder / name / file).write_text(text)
    (folder / "vdso.so").write_bytes(ElfFile(symbols=[Symbol("secret", 0x401000, 16)]).to_bytes())
    return folder


def changed_captures(loot: Path, made: Path, put: Callable[[Path, Path], None]) -> Iterator[Path]:
    """Captures of which one file or folder is something else, each at a time: what ``put(place, original)`` makes."""
    made.mkdir()
    for number, path in enumerate(sorted(loot.rglob("*"))):
        capture = made / f"{number}-{path.name}"
        shutil.copytree(loot, capture)
        place = capture / path.relative_to(loot)
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        put(place, path)
        if "spool" in str(place):
            # Of an interrupted recording, whose tables are made of its spool.
            write_manifest(capture, replace(read_manifest(loot), state=State.RECORDING, spe=None))
        yield capture


def run(*words: object) -> None:
    with contextlib.suppress(TdprofError):
        CliRunner().invoke(cast(click.Command, cli), [*map(str, words)], catch_exceptions=False)


def test_no_link_in_a_capture_is_followed(meadow: Path, loot: Path) -> None:
    commands = (["report"], ["report", "--spe"], ["spe", "report"], ["export", "--to", "folded"], ["archive"])
    captures = list(changed_captures(loot, meadow / "captures", Path.symlink_to))
    assert len(captures) > 25
    watch = Watch(loot)
    for capture in captures:
        for command in commands:
            run(*command, capture)
        assert (capture.name, watch.events()) == (capture.name, [])
    (loot / "capture.json").read_text()
    assert watch.events()


def put_pipe(place: Path, _original: Path) -> None:
    os.mkfifo(place)


def put_hole(place: Path, original: Path) -> None:
    """More than any memory or disk has, behind what was there."""
    place.write_bytes(original.read_bytes() if original.is_file() else b"")
    os.truncate(place, 1 << 42)


@pytest.mark.parametrize("put", [put_pipe, put_hole])
def test_no_pipe_or_endless_file_in_a_capture_holds_a_command_up(
    meadow: Path, loot: Path, put: Callable[[Path, Path], None]
) -> None:
    for capture in changed_captures(loot, meadow / "captures", put):
        with ends_within(int(PATIENCE_S), AssertionError(f"it hangs: {capture.name}")):
            run("report", capture)
        shutil.rmtree(capture)


def name_at(symbolizer: Symbolizer, path: Path, build_id: str, offset: int) -> str:
    found = symbolizer.locate(MappedFile(str(path), build_id), cast(U64, np.array([offset], np.uint64)))
    return found.strings[found.function[0]] if len(found.function) else ""


@pytest.fixture
def programs(meadow: Path) -> tuple[Path, Path, str, int]:
    """A program without symbols; one of the attacker's with its build-id and a name of his; that; where ``work`` is.

    Its debug data lies in the folder ``debug``.
    """
    whole = compile_program(meadow, "gcc", "-O2", "-g", "-Wl,--build-id")
    real, forged = meadow / "real", meadow / "forged"
    build_id = open_elf(whole).build_id
    place = meadow / "debug/.build-id" / build_id[:2]
    place.mkdir(parents=True)
    for words in (
        ["--only-keep-debug", whole, place / f"{build_id[2:]}.debug"],
        ["--strip-all", whole, real],
        ["--strip-debug", "--redefine-sym", "work=forged", whole, forged],
    ):
        subprocess.run(["objcopy", *map(str, words)], check=True)
    elf = open_elf(whole)
    table = read_elf_symbols(elf, SHT_SYMTAB)
    (row,) = [row for row, name in enumerate(table.names(range(len(table)))) if name == "work"]
    (code,) = [segment for segment in elf.segments if segment.type == 1 and segment.flags & 1]
    whole.unlink()
    return real, forged, build_id, int(table.start[row]) - code.address + code.offset


def test_who_borrows_a_build_id_leaves_no_names_in_the_cache(
    meadow: Path, mallory: User, programs: tuple[Path, Path, str, int]
) -> None:
    real, forged, build_id, offset = programs
    os.chown(forged, mallory.uid, mallory.uid)
    for path, name in ((forged, "forged"), (real, "work"), (forged, "forged")):
        with Symbolizer(debug_dirs=[meadow / "debug"], cache=SymbolCache(meadow / "cache")) as symbolizer:
            assert name_at(symbolizer, path, build_id, offset) == name


def test_a_file_that_the_capture_carries_names_nothing_that_is_here(
    meadow: Path, programs: tuple[Path, Path, str, int]
) -> None:
    """A user's file that claims to be everybody's C library."""
    real, forged, build_id, offset = programs
    carried = meadow / "capture/files"
    carried.mkdir(parents=True)
    shutil.copy(forged, carried / build_id)
    with Symbolizer(debug_dirs=[meadow / "debug"], carried_files=carried) as symbolizer:
        assert name_at(symbolizer, real, build_id, offset) == "work"
        assert name_at(symbolizer, meadow / "gone", build_id, offset) == "forged"
