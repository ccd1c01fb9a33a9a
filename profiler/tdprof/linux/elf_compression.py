"""Compressed sections of ELF files.

System V ABI, "Section Compression"; .zdebug_* are what GNU tools wrote before that.
"""

import struct
import zlib
from collections.abc import Sequence

from tdprof.linux.elf import SHF_COMPRESSED, Elf, ElfSection

_COMPRESSION_HEADER = struct.Struct("<IIQQ")  # Elf64_Chdr: type, reserved, size, alignment
_OLD_HEADER = struct.Struct(">4sQ")  # of .zdebug_*: "ZLIB", size
_UNCOMPRESSED, _ELFCOMPRESS_ZLIB, _ELFCOMPRESS_ZSTD = 0, 1, 2
# What a file's sections may become, all together: its size times this, and something for small ones. Debug data
# shrinks to a third, single sections to an eighth.
_MOST_TO_FILE, _SPARE_BYTES = 8, 16 << 20


class CompressionError(ValueError):
    """A section cannot be uncompressed; says which, and why."""


def is_compressed(section: ElfSection) -> bool:
    """Whether the section's bytes have to be uncompressed."""
    return bool(section.flags & SHF_COMPRESSED) or section.name.startswith(".zdebug")


def uncompressed(elf: Elf, section: ElfSection) -> bytes | memoryview:
    """A section's bytes.

    Raises:
        CompressionError: it is compressed in a way that cannot be undone, or too large.
    """
    if not is_compressed(section):
        return elf.section_data(section)
    check_sizes(elf, [section])
    kind, size, packed = _packed(elf, section)
    if kind == _UNCOMPRESSED:
        return packed
    if kind not in (_ELFCOMPRESS_ZLIB, _ELFCOMPRESS_ZSTD):
        raise CompressionError(f"{section.name} is compressed with an unknown method ({kind})")
    try:
        if kind == _ELFCOMPRESS_ZLIB:
            return zlib.decompressobj().decompress(packed, max(size, 1))
        return _of_zstd(packed, size)
    except (zlib.error, ValueError, MemoryError) as error:
        raise CompressionError(f"{section.name} cannot be uncompressed: {error}") from error


def check_sizes(elf: Elf, sections: Sequence[ElfSection]) -> None:
    """Raises CompressionError for sections that would become more than a file of this size can hold."""
    total = sum(_packed(elf, section)[1] for section in sections)
    most = _SPARE_BYTES + _MOST_TO_FILE * elf.content.size
    if total > most:
        raise CompressionError(f"its compressed sections would become {total} bytes, of which at most {most} are read")


def _of_zstd(packed: memoryview, size: int) -> bytes:
    import zstandard  # slow to load, and few files need it

    try:  # mold writes one frame after the other
        data = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read(size)
    except zstandard.ZstdError as error:
        raise ValueError(error) from error
    if len(data) < size:
        raise ValueError("it ends early")
    return data


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
        raise CompressionError(f"{section.name} cannot be uncompressed: {error}") from error
    return _UNCOMPRESSED, len(data), data
