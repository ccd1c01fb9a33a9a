"""Compressed sections, of each kind that tools write, and damaged ones."""

import struct
import zlib

import pytest
import zstandard

from builders.elf import ElfFile
from tdprof.linux.elf import SHF_COMPRESSED, Elf, parse_elf
from tdprof.linux.elf_compression import CompressionError, uncompressed

DATA = bytes(range(256)) * 8
ZLIB, ZSTD = 1, 2


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def compressed(kind: int, packed: bytes, size: int = len(DATA)) -> bytes:
    return struct.pack("<IIQQ", kind, 0, size, 1) + packed


def elf_with(name: str, data: bytes, flags: int) -> Elf:
    return parse_elf(memoryview(ElfFile(sections={name: data}, section_flags={name: flags}).to_bytes()))


def read(data: bytes, name: str = ".debug_frame", flags: int = SHF_COMPRESSED) -> bytes:
    elf = elf_with(name, data, flags)
    section = elf.section(name)
    assert section is not None
    return bytes(uncompressed(elf, section))


@pytest.mark.parametrize(
    "data",
    [
        compressed(ZLIB, zlib.compress(DATA)),
        compressed(ZSTD, zstd(DATA)),
        compressed(ZSTD, zstd(DATA[:700]) + zstd(DATA[700:])),
        compressed(ZSTD, zstandard.ZstdCompressor(write_content_size=False).compress(DATA)),
    ],
    ids=["zlib", "zstd", "zstd in two frames", "zstd without its size"],
)
def test_what_is_compressed_is_the_same_again(data: bytes) -> None:
    assert read(data) == DATA


def test_old_gnu_sections_and_what_is_not_compressed() -> None:
    assert read(b"ZLIB" + struct.pack(">Q", len(DATA)) + zlib.compress(DATA), ".zdebug_frame", 0) == DATA
    assert read(DATA, ".zdebug_frame", 0) == DATA
    assert read(DATA, flags=0) == DATA


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\1\0\0", "cannot be uncompressed"),
        (compressed(3, DATA), "unknown method"),
        (compressed(ZLIB, b"no stream"), "cannot be uncompressed"),
        (compressed(ZSTD, b"no frame"), "cannot be uncompressed"),
        (compressed(ZSTD, zstd(DATA)[:-9]), "cannot be uncompressed"),
        (compressed(ZSTD, zstd(DATA), len(DATA) + 1), "it ends early"),
        (compressed(ZSTD, zstd(bytes(1 << 25)), 1 << 25), "at most"),
    ],
)
def test_what_cannot_be_uncompressed_is_said(data: bytes, words: str) -> None:
    with pytest.raises(CompressionError, match=words):
        read(data)
    assert len(data) < 4096
