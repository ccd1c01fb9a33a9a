"""Finding a file's separate debug data, as gdb does: by build-id, by ``.gnu_debuglink``, by dwz's alternate link.

Formats: GDB manual, "Debugging Information in Separate Files" and "MiniDebugInfo"; dwz(1).
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tdprof.linux.debug_link import is_debug_file, read_debug_link
from tdprof.linux.elf import Elf, ElfError, is_build_id, open_elf, parse_elf
from tdprof.values import dataclass

if TYPE_CHECKING:  # slow to load, and few need it
    from tdprof.symbolize.debuginfod import Debuginfod

SYSTEM_DEBUG_DIR = Path("/usr/lib/debug")
PERF_STORE = Path("~/.debug")  # what `perf buildid-cache` or `perf archive` kept of another machine
# Mini debug info, uncompressed: the file's size times this, and something for small ones; real ones are smaller
# than the file. So much memory unpacking may take: what xz -9 asks for.
_MINI_TO_FILE, _SPARE_MINI_BYTES = 4, 16 << 20
_UNPACKING_BYTES = 70 << 20


@dataclass(frozen=True, slots=True)
class DebugFile:
    """An ELF file with debug data, and where it was found."""

    elf: Elf
    path: Path


@dataclass(frozen=True, slots=True)
class DebugDirs:
    """Where separate debug data is looked for.

    Attributes:
        roots: folders laid out like ``/usr/lib/debug``, best first.
        symfs: what to put before absolute paths, or None.
        server: where to fetch what none of the folders has, or None.
    """

    roots: Sequence[Path]
    symfs: Path | None = None
    server: "Debuginfod | None" = None

    @classmethod
    def make(cls, extra: Sequence[Path], symfs: Path | None, server: "Debuginfod | None" = None) -> "DebugDirs":
        """The user's folders first, then the system's (that of ``symfs``, where there is one)."""
        return cls((*extra, under(symfs, SYSTEM_DEBUG_DIR)), symfs, server)

    def hold(self, path: Path) -> bool:
        """Whether a file is one of these folders', or any may be opened; not one that a capture carries elsewhere."""
        return self.symfs is None or any(path.is_relative_to(root) for root in (self.symfs, *self.roots))

    def by_build_id(self, build_id: str, suffix: str = ".debug") -> Iterator[Path]:
        """The places of a file with this build-id."""
        if is_build_id(build_id):
            for root in self.roots:
                yield root / ".build-id" / build_id[:2] / f"{build_id[2:]}{suffix}"


def programs_by_build_id(root: Path, build_id: str) -> list[Path]:
    """Where a folder has the program itself: as distributions link to it, and as ``perf buildid-cache`` keeps it."""
    if not is_build_id(build_id):
        return []
    place = root / ".build-id" / build_id[:2] / build_id[2:]
    return [place, place / "elf"]


def under(symfs: Path | None, path: str | Path) -> Path:
    """An absolute path of the recorded machine as it is seen here."""
    return symfs / str(path).lstrip("/") if symfs else Path(path)


def find_debug_file(elf: Elf, path: Path, dirs: DebugDirs) -> DebugFile | None:
    """The separate debug data of the ELF file at ``path`` (with ``symfs`` already before it), or None."""
    for place in dirs.by_build_id(elf.build_id):
        found = _open_if(place, build_id=elf.build_id)
        if found:
            return found
    return _find_by_link(elf, path, dirs) or _fetch(elf.build_id, dirs)


def _fetch(build_id: str, dirs: DebugDirs) -> DebugFile | None:
    fetched = dirs.server.find(build_id, "debuginfo") if dirs.server else None
    return _open_if(fetched, build_id=build_id) if fetched else None


def _find_by_link(elf: Elf, path: Path, dirs: DebugDirs) -> DebugFile | None:
    link = read_debug_link(elf)
    if link is None or not dirs.hold(path):
        return None
    folder = path.parent
    is_recorded_path = dirs.symfs is not None and folder.is_relative_to(dirs.symfs)
    original = Path("/") / folder.relative_to(dirs.symfs) if is_recorded_path and dirs.symfs else folder
    below = [root / str(original).lstrip("/") for root in dirs.roots]
    for place in (folder, folder / ".debug", *below):
        if place / link.name == path:
            continue
        found = _open_if(place / link.name, build_id=elf.build_id, crc=link.crc)
        if found:
            return found
    return None


def find_shared_file(debug: DebugFile, dirs: DebugDirs) -> DebugFile | None:
    """The file that dwz moved common debug data to, or None if there is none or it cannot be found."""
    link = debug.elf.section(".gnu_debugaltlink")
    if link is None:
        return None
    name, _, build_id = bytes(debug.elf.section_data(link)).partition(b"\0")
    target = Path(os.fsdecode(name))
    if target.is_absolute():
        places = [under(dirs.symfs, target)]
    else:
        places = [debug.path.parent / target] if dirs.hold(debug.path) else []
    # Distributions link to /usr/lib/debug/.dwz/…; a folder of debug data copied elsewhere keeps that below it.
    places += [root / target.relative_to(SYSTEM_DEBUG_DIR) for root in dirs.roots if _is_below(target)]
    places += dirs.by_build_id(build_id.hex())
    for place in places:
        found = _open_if(place, build_id=build_id.hex())
        if found:
            return found
    return _fetch(build_id.hex(), dirs)


def _is_below(path: Path) -> bool:
    return path.is_relative_to(SYSTEM_DEBUG_DIR)


def _open_if(path: Path, *, build_id: str, crc: int | None = None) -> DebugFile | None:
    """The file, if it can be read and is the one that is meant: same build-id, or with the CRC where it has none."""
    try:
        elf = open_elf(path)
    except (OSError, ElfError):
        return None
    return DebugFile(elf, path) if is_debug_file(elf, build_id, crc) else None


def read_mini_debug_info(elf: Elf) -> Elf | None:
    """The ELF file inside ``.gnu_debugdata``, which holds the symbols that ``.dynsym`` lacks; or None.

    Raises:
        ElfError: it is there, but cannot be uncompressed or read.
    """
    section = elf.section(".gnu_debugdata")
    if section is None:
        return None
    import lzma  # slow to load, and few files need it

    most = _SPARE_MINI_BYTES + _MINI_TO_FILE * elf.content.size
    try:
        unpacker = lzma.LZMADecompressor(memlimit=_UNPACKING_BYTES)
        data = unpacker.decompress(elf.section_data(section), most)
    except (lzma.LZMAError, EOFError, MemoryError) as error:
        raise ElfError(f".gnu_debugdata cannot be uncompressed: {error}") from error
    if not unpacker.eof and len(data) == most:
        raise ElfError(f".gnu_debugdata is not read: it would become more than {most} bytes")
    return parse_elf(memoryview(data))
