"""What a stripped file says of its separate debug file (GDB manual, "Debugging Information in Separate Files")."""

import os
import zlib

from tdprof.linux.elf import Elf
from tdprof.values import dataclass

_CHECKSUM_BYTES = 1 << 20  # at a time


@dataclass(frozen=True, slots=True)
class DebugLink:
    """``.gnu_debuglink``.

    Attributes:
        name: of the debug file, without a folder.
        crc: CRC-32 of its bytes.
    """

    name: str
    crc: int


def read_debug_link(elf: Elf) -> DebugLink | None:
    """The link of a file; None if it has none that can be followed."""
    link = elf.section(".gnu_debuglink")
    if link is None:
        return None
    # A file name, NUL, padding to four bytes, the checksum.
    name, _, rest = bytes(elf.section_data(link)).partition(b"\0")
    if not name or b"/" in name or len(rest) < 4:
        return None
    return DebugLink(os.fsdecode(name), int.from_bytes(rest[-4:], "little"))


def is_debug_file(elf: Elf, build_id: str, crc: int | None) -> bool:
    """Whether it is the one that is meant: the same build-id, or the checksum where it has none."""
    if build_id and elf.build_id == build_id:
        return True
    return crc is not None and not elf.build_id and _checksum(elf) == crc


def _checksum(elf: Elf) -> int:
    checksum = 0
    for offset in range(0, elf.content.size, _CHECKSUM_BYTES):
        checksum = zlib.crc32(elf.content.read(offset, _CHECKSUM_BYTES), checksum)
    return checksum
