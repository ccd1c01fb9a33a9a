"""The debug sections of an ELF file, uncompressed."""

import struct
import zlib
from collections.abc import Sequence

from tdprof.linux.elf import SHF_COMPRESSED, Elf, ElfSection
from tdprof.native.dwarf_api import SECTIONS
from tdprof.symbolize.dwarf import Buffer

_COMPRESSION_HEADER = struct.Struct("<IIQQ")  # Elf64_Chdr: type, reserved, size, alignment
_OLD_HEADER = struct.Struct(">4sQ")  # of .zdebug_*: "ZLIB", size
_UNCOMPRESSED, _ELFCOMPRESS_ZLIB, _ELFCOMPRESS_ZSTD = 0, 1, 2
# What a file's sections may become, all together: its size times this, and something for small ones. Debug data
# shrinks to a third, single sections to an eighth.
_MOST_TO_FILE, _SPARE_BYTES = 8, 16 << 20


class DebugDataError(ValueError):
    """A section of debug data cannot be read; says which, and why."""


def has_debug_info(elf: Elf) -> bool:
    """Whether the file itself holds DWARF (rather than another file that it points to)."""
    return any(
        section is not None and elf.holds(section)
        for section in (elf.section(".debug_info"), elf.section(".zdebug_info"))
    )


def read_debug_sections(elf: Elf, suffix: str = "") -> dict[str, Buffer]:
    """The sections that the DWARF reader takes, by its names; with ``suffix`` ``.dwo`` those of a split unit.

    Raises:
        DebugDataError: one is compressed in a way that cannot be undone, or they are too large.
    """
    found = {name: elf.section(f".debug_{name}{suffix}") or elf.section(f".zdebug_{name}{suffix}") for name in SECTIONS}
    present = [(name, section) for name, section in found.items() if section is not None]
    if not any(is_compressed(section) for _, section in present):
        return {name: elf.section_data(section) for name, section in present}
    _check_sizes(elf, [section for _, section in present])
    from concurrent.futures import ThreadPoolExecutor  # slow to load

    # zlib lets other threads run meanwhile.
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(pool.map(lambda item: (item[0], read_section(elf, item[1])), present))


def is_compressed(section: ElfSection) -> bool:
    """Whether the section's bytes have to be uncompressed."""
    return bool(section.flags & SHF_COMPRESSED) or section.name.startswith(".zdebug")


def read_section(elf: Elf, section: ElfSection) -> Buffer:
    """A section's bytes, uncompressed.

    Raises:
        DebugDataError: it is compressed in a way that cannot be undone, or too large.
    """
    if not is_compressed(section):
        return elf.section_data(section)
    _check_sizes(elf, [section])
    kind, size, packed = _packed(elf, section)
    try:
        if kind == _ELFCOMPRESS_ZLIB:
            return zlib.decompressobj().decompress(packed, max(size, 1))
        if kind == _ELFCOMPRESS_ZSTD:
            import pyarrow as pa  # slow to load, and few files need it

            return memoryview(pa.decompress(packed, decompressed_size=size, codec="zstd"))
    except (zlib.error, OSError, ValueError, MemoryError) as error:
        raise DebugDataError(f"{section.name} cannot be uncompressed: {error}") from error
    if kind == _UNCOMPRESSED:
        return packed
    raise DebugDataError(f"{section.name} is compressed with an unknown method ({kind})")


def _packed(elf: Elf, section: ElfSection) -> tuple[int, int, memoryview]:
    """How a section is compressed (``ELFCOMPRESS_*``), the size that it states, and its bytes without the header."""
    data = elf.section_data(section)
    try:
        if section.flags & SHF_COMPRESSED:
            kind, _, size, _ = _COMPRESSION_HEADER.unpack_from(data)
            return kind, size, data[_COMPRESSION_HEADER.size :]
        if is_compressed(section):
            magic, size = _OLD_HEADER.unpack_from(data)
            if magic == b"ZLIB":
                return _ELFCOMPRESS_ZLIB, size, data[_OLD_HEADER.size :]
    except struct.error as error:
        raise DebugDataError(f"{section.name} cannot be uncompressed: {error}") from error
    return _UNCOMPRESSED, len(data), data


def _check_sizes(elf: Elf, sections: Sequence[ElfSection]) -> None:
    """Raises DebugDataError for sections that would become more than a file of this size can hold."""
    total = sum(_packed(elf, section)[1] for section in sections)
    most = _SPARE_BYTES + _MOST_TO_FILE * elf.content.size
    if total > most:
        raise DebugDataError(f"its compressed sections would become {total} bytes, of which at most {most} are read")
