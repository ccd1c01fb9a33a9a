"""The debug sections of an ELF file, uncompressed."""

import struct
import zlib

from tdprof.elf import SHF_COMPRESSED, Elf, Section
from tdprof.symbolize.dwarf import SECTIONS, Buffer

_COMPRESSION_HEADER = struct.Struct("<IIQQ")  # Elf64_Chdr: type, reserved, size, alignment
_OLD_HEADER = struct.Struct(">4sQ")  # of .zdebug_*: "ZLIB", size
_ELFCOMPRESS_ZLIB, _ELFCOMPRESS_ZSTD = 1, 2
_DEFLATE_MOST = 1032  # no deflated byte makes more than this many
_ZSTD_MOST = 1 << 17  # a block of one repeated byte; more than real debug data ever reaches


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
        DebugDataError: one is compressed in a way that cannot be undone.
    """
    found = {name: elf.section(f".debug_{name}{suffix}") or elf.section(f".zdebug_{name}{suffix}") for name in SECTIONS}
    present = [(name, section) for name, section in found.items() if section is not None]
    if not any(is_compressed(section) for _, section in present):
        return {name: elf.section_data(section) for name, section in present}
    from concurrent.futures import ThreadPoolExecutor  # slow to load

    # zlib lets other threads run meanwhile.
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(pool.map(lambda item: (item[0], read_section(elf, item[1])), present))


def is_compressed(section: Section) -> bool:
    """Whether the section's bytes have to be uncompressed."""
    return bool(section.flags & SHF_COMPRESSED) or section.name.startswith(".zdebug")


def read_section(elf: Elf, section: Section) -> Buffer:
    """A section's bytes, uncompressed.

    Raises:
        DebugDataError: it is compressed in a way that cannot be undone.
    """
    data = elf.section_data(section)
    try:
        if section.flags & SHF_COMPRESSED:
            kind, _, size, _ = _COMPRESSION_HEADER.unpack_from(data)
            packed = data[_COMPRESSION_HEADER.size :]
            if kind == _ELFCOMPRESS_ZLIB:
                return _inflate(packed, size)
            if kind == _ELFCOMPRESS_ZSTD:
                return _unpack_zstd(packed, size)
            raise DebugDataError(f"{section.name} is compressed with an unknown method ({kind})")
        if section.name.startswith(".zdebug"):
            magic, size = _OLD_HEADER.unpack_from(data)
            if magic == b"ZLIB":
                return _inflate(data[_OLD_HEADER.size :], size)
    except (struct.error, zlib.error, OSError, ValueError, MemoryError) as error:
        raise DebugDataError(f"{section.name} cannot be uncompressed: {error}") from error
    return data


def _inflate(packed: memoryview, size: int) -> Buffer:
    if size > _DEFLATE_MOST * len(packed) + 64:
        raise ValueError("the size it states is impossible")
    return zlib.decompressobj().decompress(packed, max(size, 1))


def _unpack_zstd(packed: memoryview, size: int) -> Buffer:
    if size > _ZSTD_MOST * len(packed) + 64:
        raise ValueError("the size it states is impossible")
    import pyarrow as pa  # slow to load, and few files need it

    return memoryview(pa.decompress(packed, decompressed_size=size, codec="zstd"))
