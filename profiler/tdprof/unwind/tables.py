"""Unwind tables of files: kept in the user's cache, and built in a process of their own where it has none.

A file's call-frame information takes time and memory that a sampling process should not spend; so only a forked child
reads more of a file than its identity.
"""

import contextlib
import gc
import io
import os
import signal
import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tdprof.linux.debug_link import DebugLink, is_debug_file, read_debug_link
from tdprof.linux.descriptors import keep_only
from tdprof.linux.elf import Elf, ElfError, is_build_id, open_content, open_elf, parse_elf
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.readable import is_readable
from tdprof.linux.user_cache import CacheFolder, cache_folder
from tdprof.native import unwind_api as binding
from tdprof.text import plural
from tdprof.unwind.sections import LAYOUT_BYTES, debug_frame, file_identity, shared_identity, table_input

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MOST_FILES = 512
MOST_BYTES = 128 << 20  # of one table; that of a program with 2.8 million rows has 15 MB
_PATIENCE_S = 0.5
_MOST_NAMED = 8  # damaged files
_PAGE_BYTES = (4 << 10, 16 << 10, 64 << 10)  # of the kernels there are
_FRAME = struct.Struct("<Iq")  # number of the file; bytes of its table that follow, or -1: it has none
_DESCRIPTORS = Path("/proc/self/fd")
_SYSTEM_DEBUG = Path("/usr/lib/debug")


class TableCache:
    """Tables on disk, by the identity of their file. Any failure to read or write is a miss: it only saves time."""

    def __init__(self, folder: CacheFolder | None = None) -> None:
        self._folder = folder or cache_folder("unwind")

    def load(self, identity: bytes) -> bytes | None:
        """The checked table of the file with this identity; None if there is none, or it is no table any more."""
        try:
            with self._folder.opened() as folder:
                data = folder.read(identity.hex(), MOST_BYTES)
        except (OSError, ValueError):
            return None
        if not binding.is_table(data):
            return None
        return data if identity_of(data) == identity else None

    def load_by_build_id(self, build_id: str) -> bytes | None:
        """The checked table of the one file with this build-id that nobody but root or we could have written.

        None if there is none, if that is no build-id, or if there are several: the whole file and the stripped one.
        The one that is there may still be of another layout: see ``is_mapped_as_laid_out``.
        """
        if not is_build_id(build_id):  # as a stranger's capture may say
            return None
        begin = shared_identity(build_id)
        try:
            with self._folder.opened() as folder:
                names = folder.names()
        except OSError:
            return None
        length = 2 * (len(begin) + LAYOUT_BYTES)
        found = [name for name in names if name.startswith(begin.hex()) and len(name) == length]
        return self.load(bytes.fromhex(found[0])) if len(found) == 1 else None

    def rows(self, identity: bytes) -> int | None:
        """How many rows the table has that is kept for the file with this identity; None if none is."""
        try:
            with self._folder.opened() as folder, folder.open_file(identity.hex()) as file:
                rows: int = binding.read_header(file.read(binding.HEADER_BYTES)).rows
        except (OSError, ValueError):
            return None
        return rows

    def store(self, identity: bytes, table: bytes) -> None:
        """Keep a table; those kept longest ago go."""
        with contextlib.suppress(OSError), self._folder.opened(make=True) as folder:
            with folder.replacing(identity.hex()) as file:
                file.write(table)
            _prune(folder)


def _prune(folder: OwnFolder) -> None:
    names = folder.names()
    if len(names) > MOST_FILES:
        kept = [(folder.stat(name).st_mtime_ns, name) for name in names]
        for _, name in sorted(kept)[: len(kept) - MOST_FILES]:
            folder.remove(name)


def is_mapped_as_laid_out(table: bytes, file_offset: int, size: int) -> bool:
    """Whether a mapping of a file may be of one of the checked table's executable segments, as loaders map them.

    Args:
        table: of a file with the same build-id.
        file_offset, size: of the mapping. A first segment may be mapped with all that follows it.
    """
    for page in _PAGE_BYTES:
        for segment in binding.read_segments(table):
            end = -(-(segment.file_offset + segment.bytes) // page) * page
            if file_offset == segment.file_offset // page * page and file_offset + size >= end:
                return True
    return False


def read_identity(path: Path) -> bytes | None:
    """What a file's table is known by: its build-id, or its place and time; None if it is no ELF file."""
    try:
        return file_identity(open_elf(path), os.stat(path))
    except (OSError, ElfError):
        return None


def build_file_table(path: Path) -> bytes | None:
    """Build the table of an ELF file, or of the vDSO's bytes in a file; None if it is none or holds no code.

    For a process of its own: see ``TableWorker``.
    """
    try:
        elf = open_elf(path)
        source = table_input(elf, _debug_file(elf, path), file_identity(elf, os.stat(path)))
    except (OSError, ElfError):
        return None
    return binding.build_table(source) if source.segments else None


def _debug_file(elf: Elf, path: Path) -> Elf | None:
    """The separate debug file with ``.debug_frame``, where the program has none itself.

    Whether it has ``.eh_frame`` says nothing: the C library's start files bring some into each program.
    """
    if debug_frame(elf):
        return None
    link = read_debug_link(elf)
    owners = {0, os.geteuid(), os.stat(path).st_uid}
    for place in _debug_places(elf, path, link):
        try:
            content = open_content(place)
            # Another's must not tell what the table of a file says that is not his.
            if content.owner() not in owners:
                continue
            found = parse_elf(content)
            if is_debug_file(found, elf.build_id, link.crc if link else None):
                return found if debug_frame(found) else None
        except (OSError, ElfError):
            continue
    return None


def _debug_places(elf: Elf, path: Path, link: DebugLink | None) -> Iterator[Path]:
    """By build-id below the system's folder; then as the link names it, beside the file and below."""
    build_id = elf.build_id
    if len(build_id) > 2:
        yield _SYSTEM_DEBUG / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    if link:
        folder = path.resolve().parent  # of a descriptor of ours, too
        for place in (folder, folder / ".debug", _SYSTEM_DEBUG / folder.relative_to("/")):
            if place / link.name != path.resolve():
                yield place / link.name


class TableWorker:
    """A child that finds the tables of some files in the cache, or builds and keeps them, one after the other.

    Use as a context manager: leaving it ends a child that has not finished. ``fileno`` is readable when a table has
    come. What the child cannot read has no table; if the child dies, neither has what it had not come to. Only the
    child opens the files, so one that cannot be opened without waiting holds up nobody else; left behind, the child
    holds nothing of ours but those files.

    Args:
        paths: the files; of descriptors of ours, as ``/proc/self/fd/N``.
        cache: where to keep the tables.
    """

    def __init__(self, paths: Sequence[Path], cache: TableCache) -> None:
        self._left = len(paths)
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            self._pid = os.fork()
        except OSError:
            os.close(reader)
            os.close(writer)
            raise
        if self._pid == 0:
            _serve(paths, cache, writer)
        os.close(writer)
        self._ended = os.pidfd_open(self._pid)
        # Unbuffered, so that ``fileno`` is readable while there is something to take.
        self._input = io.FileIO(reader)

    def fileno(self) -> int:
        return self._input.fileno()

    def results(self) -> Iterator[tuple[int, bytes | None]]:
        """Wait for the tables: the number of the file in ``paths``, and its table or None."""
        while (result := self.take()) is not None:
            yield result

    def take(self) -> tuple[int, bytes | None] | None:
        """The next of `results`, for which it waits; None if there are no more."""
        if not self._left:
            return None
        head = self._read(_FRAME.size)
        if len(head) < _FRAME.size:
            return None
        number, size = _FRAME.unpack(head)
        table = self._read(size) if size >= 0 else None
        if table is not None and len(table) < size:
            return None
        self._left -= 1
        return number, table

    def _read(self, size: int) -> bytes:
        """As many bytes as the child still writes."""
        return io.BufferedReader(_Part(self._input, size)).read(size)

    def close(self) -> None:
        """End the child, if it has not ended."""
        self._input.close()
        if self._pid:
            # A child that has answered all may still be keeping the last table. Another one is ended; but not even
            # SIGKILL ends one that is held up by a file system in user space.
            if self._left:
                os.kill(self._pid, signal.SIGKILL)
            if not self._left or is_readable(self._ended, _PATIENCE_S):
                os.waitpid(self._pid, 0)
            os.close(self._ended)
            self._pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Part(io.RawIOBase):
    """So many bytes of a pipe: a buffered reader puts them where they stay, and takes nothing behind them."""

    def __init__(self, source: io.FileIO, size: int) -> None:
        self._source, self._left = source, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with memoryview(buffer) as view:
            count = self._source.readinto(view[: self._left]) or 0
        self._left -= count
        return count


def _serve(paths: Sequence[Path], cache: TableCache, writer: int) -> None:
    """The child: never returns."""
    status = 1
    # Of NumPy, which some files take: its threads, one for each CPU, would spin while samples are taken.
    os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        gc.freeze()  # garbage of the parent's would close files of ours that have its descriptors' numbers by then
        keep_only({writer, *(int(path.name) for path in paths if path.parent == _DESCRIPTORS)})
        with os.fdopen(writer, "wb", buffering=0) as output:
            for number, path in enumerate(paths):
                identity = read_identity(path)
                kept = cache.load(identity) if identity else None
                table = kept or build_file_table(path)
                output.write(_FRAME.pack(number, -1 if table is None else len(table)))
                if table is not None:
                    _write_all(output.fileno(), table)
                    if table is not kept:
                        cache.store(identity_of(table), table)
        status = 0
    except BrokenPipeError:
        status = 0  # nobody waits for it any more
    finally:
        os._exit(status)


def identity_of(table: bytes) -> bytes:
    """What a table is known by: the identity of the file that it was built of."""
    header = binding.read_header(table)
    return bytes(header.identity[: header.identity_size])


def has_v8(table: bytes) -> bool:
    """Whether V8 is in the file: then code that it makes is in the processes that have mapped it."""
    return bool(binding.read_header(table).sources & binding.FROM_V8)


class TableDamage(Enum):
    """How much of a file's call-frame information is not used, because entries of it cannot be right."""

    NONE = auto()
    PART = auto()  # a function's entry of .debug_frame; or all of a section, in whose place there is another
    ALL = auto()


def damage_of(table: bytes) -> TableDamage:
    """Of the file that a table was built of."""
    header = binding.read_header(table)
    if not header.bad_entries:
        return TableDamage.NONE
    return TableDamage.PART if header.sources & (binding.FROM_EH_FRAME | binding.FROM_DEBUG_FRAME) else TableDamage.ALL


def damage_notes(damaged: Mapping[str, TableDamage]) -> Iterator[str]:
    """What the user should know of files whose call-frame information is damaged, by their paths."""
    for path, damage in sorted(damaged.items(), key=lambda each: each[0])[:_MOST_NAMED]:
        if damage is TableDamage.PART:
            yield (
                f"a part of the call-frame information of {path} is damaged and not used: its functions' callers are "
                "guessed from instructions, or missing"
            )
        else:
            yield (
                f"the call-frame information of {path} is damaged and not used: callers are guessed from its "
                "instructions"
            )
    if len(damaged) > _MOST_NAMED:
        yield f"that of {plural(len(damaged) - _MOST_NAMED, 'more file', 's')} is damaged, too"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
