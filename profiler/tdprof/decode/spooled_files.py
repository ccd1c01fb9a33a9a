"""Opens the files of a spool, which anybody may have made, and counts what cannot be read of them."""

import itertools
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from tdprof.capture.spool import SUMS_FILE
from tdprof.linux.file_bytes import appended_bytes, open_own
from tdprof.text import few, plural, printable

_MOST_SUMS_BYTES = 1 << 20
_PIECE_BYTES = 1 << 20
_LONGEST_FILE = 1 << 44  # no recorder's is; however many claim more, a counter holds their sum


class SpoolDamage:
    """Counts what could not be read of a spool.

    Attributes:
        bytes: that make no sense.
        stacks: records that are not whole.
        changed: files that are not what was written.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.stacks = 0
        self._holes: dict[str, int] = {}  # what is not read of a file
        self.changed: list[str] = []
        self._missing: dict[str, int] = {}  # what it had when it was recorded, and has no more

    def add_hole(self, name: str, size: int) -> None:
        """Tell that so many bytes of a file are not read, since they lie behind holes; of one file once."""
        self._holes[name] = size

    def add_missing(self, name: str, size: int) -> None:
        """Tell that a file has so many bytes less than were written."""
        self._missing[name] = size
        self.bytes += size

    def add_records(self, damage: "SpoolDamage", record_bytes: int) -> None:
        """Count what could not be read of a file of records of one size."""
        self.bytes += damage.bytes + damage.stacks * record_bytes
        self._holes |= damage._holes

    def notes(self) -> Iterator[str]:
        """What the user should know of it."""
        if self._missing:
            files = plural(len(self._missing), "file", "s")
            names = few([printable(name) for name in self._missing])
            missing = plural(sum(self._missing.values()), "byte", "s")
            yield f"{files} of the spool ({names}) with {missing} less than were recorded"
        if self.changed:
            files = plural(len(self.changed), "file", "s")
            names = few([printable(name) for name in self.changed])
            yield f"{files} of the spool ({names}) changed since, and may show anything"
        if self._holes:
            files = plural(len(self._holes), "file", "s")
            names = few([printable(name) for name in self._holes])
            yield (
                f"{files} of the spool ({names}) with holes, as no recorder makes them: "
                f"{sum(self._holes.values()):,} bytes from there on were not read"
            )


def spooled_bytes(path: Path, fd: int, damage: SpoolDamage) -> int:
    """How much of a spool's open file is read: all of what a recorder appended."""
    size = os.fstat(fd).st_size
    believed = appended_bytes(fd)
    if believed < size:
        damage.add_hole(path.name, size - believed)
    return believed


def spooled_pieces(path: Path, damage: SpoolDamage, piece_bytes: int) -> Iterator[bytes]:
    """A file of a spool from its beginning, so many bytes at a time; none of one that is not there.

    Raises:
        OSError: it is a link or no file, or cannot be read.
    """
    if not os.path.lexists(path):
        return
    with open_own(path) as file:
        left = spooled_bytes(path, file.fileno(), damage)
        while piece := file.read(min(piece_bytes, left)):
            left -= len(piece)
            yield piece


def spooled_beginning(path: Path, damage: SpoolDamage, most_bytes: int) -> bytes:
    """The first bytes of such a file, as many as there are.

    Raises:
        OSError: as ``spooled_pieces``.
    """
    return b"".join(itertools.islice(spooled_pieces(path, damage, most_bytes), 1))


def damage_by_sums(spool: Path) -> SpoolDamage:
    """What files of a spool had at its last drain, as it was noted then, and have no more, or otherwise.

    Raises:
        OSError: as ``spooled_pieces``.
    """
    damage = SpoolDamage()
    try:
        told = json.loads(spooled_beginning(spool / SUMS_FILE, damage, _MOST_SUMS_BYTES))
        sums = [(str(name), int(length), crc) for name, (length, crc) in told.items()]
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        return damage
    for name, length, crc in sums:
        path = spool / name
        if "/" not in name and name not in {"", ".", ".."} and length < _LONGEST_FILE:
            there = os.lstat(path).st_size if os.path.lexists(path) else 0
            if there < length:
                damage.add_missing(name, length - there)
            elif crc is not None and _crc_of(path, length, damage) != crc:
                damage.changed.append(name)
    return damage


def _crc_of(path: Path, length: int, damage: SpoolDamage) -> int:
    """CRC-32 of the beginning of a file."""
    crc = 0
    for piece in spooled_pieces(path, damage, _PIECE_BYTES):
        crc = zlib.crc32(piece[:length], crc)
        length -= len(piece[:length])
        if not length:
            break
    return crc


def spooled_lines(path: Path, damage: SpoolDamage, most_bytes: int = 1 << 62) -> list[bytes]:
    """The lines within its first bytes.

    Raises:
        OSError: as ``spooled_pieces``.
    """
    return spooled_beginning(path, damage, most_bytes).splitlines()
