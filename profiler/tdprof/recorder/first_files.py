"""The files that a command will map first: its program, the interpreter, and the libraries they link to.

Only a forecast, so that what unwinding needs of them is there in time; what it misses is found when it is mapped.
Search order: ld.so(8). Dynamic section: System V ABI, "Dynamic Linking".
"""

import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from tdprof.linux.elf import Elf, ElfError, open_elf
from tdprof.recorder.host import read_text

_PT_INTERP = 3
_DT_NEEDED, _DT_RPATH, _DT_RUNPATH = 1, 15, 29
_DYNAMIC = struct.Struct("<QQ")
_MOST_FILES = 256
_MOST_NAME_BYTES = 4096
_MOST_SCRIPTS = 4  # as the kernel follows interpreters of interpreters
# Java's launcher links to the first and loads the second, which lies beside it, with JDK 8 beside its folder.
_JAVA_LAUNCHER, _JVM = "libjli.so", "server/libjvm.so"


def files_of_command(command: Sequence[str]) -> list[Path]:
    """Paths, the program first. What cannot be read is left out."""
    found: dict[Path, None] = {}
    system_folders = list(_system_folders())
    waiting = list(_programs(command[0]))
    while waiting and len(found) < _MOST_FILES:
        path = waiting.pop()
        if path in found:
            continue
        try:
            elf = open_elf(path)
        except (OSError, ElfError):
            continue
        found[path] = None
        waiting += _linked(elf, path, system_folders)
        if path.name == _JAVA_LAUNCHER:
            waiting += [jvm for folder in path.parents[:2] if (jvm := folder / _JVM).is_file()]
    return list(found)


def _programs(name: str) -> Iterator[Path]:
    """The program, or if it is a script the program that runs it."""
    for _ in range(_MOST_SCRIPTS):
        found = shutil.which(name)
        if not found:
            return
        path = Path(os.path.realpath(found))
        try:
            with path.open("rb") as file:
                first = file.readline(_MOST_NAME_BYTES)
        except OSError:
            return
        if not first.startswith(b"#!"):
            yield path
            return
        words = os.fsdecode(first[2:]).split()
        if not words:
            return
        # `env NAME` runs another program still.
        name = words[1] if Path(words[0]).name == "env" and len(words) > 1 else words[0]


def _linked(elf: Elf, path: Path, system_folders: Sequence[str]) -> Iterator[Path]:
    for segment in elf.segments:
        if segment.type == _PT_INTERP:
            text = bytes(elf.content.read(segment.offset, min(segment.file_size, _MOST_NAME_BYTES)))
            yield Path(os.path.realpath(os.fsdecode(text.split(b"\0")[0])))
    names, run_paths = _needed(elf)
    folders = [part.replace("$ORIGIN", str(path.parent)) for text in run_paths for part in text.split(":")]
    folders = [*folders, *os.environ.get("LD_LIBRARY_PATH", "").split(":"), *system_folders]
    for name in names:
        for folder in folders if "/" not in name else [""]:
            candidate = Path(folder, name)
            if (folder or "/" in name) and candidate.is_file():
                yield Path(os.path.realpath(candidate))
                break


def _needed(elf: Elf) -> tuple[list[str], list[str]]:
    """Names of libraries, and lists of folders to search for them first."""
    dynamic, texts = elf.section(".dynamic"), elf.section(".dynstr")
    names: list[str] = []
    run_paths: list[str] = []
    if dynamic is None or texts is None:
        return names, run_paths
    data, strings = elf.section_data(dynamic), elf.section_data(texts)
    for tag, value in _DYNAMIC.iter_unpack(data[: len(data) // _DYNAMIC.size * _DYNAMIC.size]):
        text = os.fsdecode(bytes(strings[value : value + _MOST_NAME_BYTES]).split(b"\0")[0])
        if tag == _DT_NEEDED:
            names.append(text)
        elif tag in (_DT_RPATH, _DT_RUNPATH):
            run_paths.append(text)
    return names, run_paths


def _system_folders() -> Iterator[str]:
    """Where ldconfig looks."""
    for configuration in sorted(Path("/etc/ld.so.conf.d").glob("*.conf")):
        yield from (line for line in read_text(configuration).splitlines() if line.startswith("/"))
    machine = os.uname().machine
    yield from (
        f"/lib/{machine}-linux-gnu",
        f"/usr/lib/{machine}-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
    )
