"""Files whose reading once cost a product of two of their sizes, made as large as is asked for.

Each builder writes into a folder and returns the command that reads what it wrote; `tests/property/test_costs.py` runs
them small, `tools/fuzz/costly_files` as large as one likes.
"""

import lzma
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import zstandard

from builders.cost import python
from builders.elf import ElfFile, Symbol
from tdprof.capture.perf_maps import MapTimes

Builder = Callable[[Path, int], list[str]]
BUILDERS: dict[str, Builder] = {}
TEXT = 0x401000

_READ_ELF = """
import sys
import numpy as np
from pathlib import Path
from tdprof.model.addresses import MappedFile
from tdprof.symbolize.symbolizer import Symbolizer
from tdprof.symbolize.demangling import demangle
offsets = np.arange(0x1000, 0x2000, 4, dtype=np.uint64)
with Symbolizer(debug_dirs=[Path(sys.argv[1]).parent]) as symbolizer:
    found = symbolizer.locate(MappedFile(sys.argv[1]), offsets)
    found = symbolizer.locate(MappedFile(sys.argv[1]), offsets + np.uint64(1))
    demangle(found.strings)
    print(int((found.reason == 0).sum()), *symbolizer.notes(), sep="\\n")
"""
_READ_RUN_TIME_CODE = """
import sys
import numpy as np
from pathlib import Path
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.symbolize.symbolizer import Symbolizer
with Symbolizer(perf_map_dir=Path(sys.argv[1])) as symbolizer:
    file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
    found = symbolizer.locate(file, np.arange(0x1000, 0x2000, dtype=np.uint64))
    print(int((found.reason == 0).sum()), *symbolizer.notes(), sep="\\n")
"""


def builder(build: Builder) -> Builder:
    """Register a builder under its name."""
    BUILDERS[build.__name__] = build
    return build


def read_elf(path: Path, data: bytes) -> list[str]:
    path.write_bytes(data)
    return python(_READ_ELF, path)


# --- names


@builder
def names_that_double(folder: Path, size: int) -> list[str]:
    """C++ names of 283 bytes whose parts refer twice to the part before."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    parts = [f"S_IS{digits[i]}_S{digits[i]}_E" for i in range(1, 28)]
    name = "St4pairI1aS0_E" + "".join(parts)
    count = max(1, size // (len(name) + 40))
    step = max(1, 0x1000 // count)
    symbols = [Symbol(f"_Z{len(str(i)) + 1}f{i}{name}", TEXT + i * step, step) for i in range(count)]
    return read_elf(folder / "program", ElfFile(symbols=symbols).to_bytes())


@builder
def names_that_nest(folder: Path, size: int) -> list[str]:
    """Names of pointers to pointers, as deep as a name is long."""
    length = min(size, 63_000)
    count = max(1, size // length)
    symbols = [Symbol(f"_Z1f{'P' * length}i{i}", TEXT + 64 * i, 64) for i in range(count)]
    return read_elf(folder / "program", ElfFile(symbols=symbols).to_bytes())


# --- ELF


@builder
def symbols_behind_a_long_one(folder: Path, size: int) -> list[str]:
    """One symbol over all the code, short ones at its beginning, and addresses behind those."""
    count = size // 32
    text = b"\x90" * 0x1000
    symbols = [Symbol("outer", TEXT - count, count + 0x1000)]
    symbols += [Symbol("f", TEXT - count + 1 + i, 1) for i in range(count - 2)]
    return read_elf(folder / "program", ElfFile(text=text, symbols=symbols).to_bytes())


@builder
def symbols_named_by_ends_of_one_text(folder: Path, size: int) -> list[str]:
    """Symbols whose names begin one behind the other in a text without a NUL."""
    count = min(size // 48, 4096)
    text_bytes = size - 24 * count
    symbols = [Symbol("x", TEXT + i, 1) for i in range(count)]
    data = bytearray(ElfFile(symbols=symbols, sections={".names": b"y" * text_bytes}).to_bytes())
    shoff = struct.unpack_from("<Q", data, 40)[0]
    headers = list(struct.iter_unpack("<IIQQQQIIQQ", data[shoff:]))
    at = next(h[4] for h in headers if h[1] == 2)
    names = next(i for i, h in enumerate(headers) if h[5] == text_bytes)
    link = next(i for i, h in enumerate(headers) if h[1] == 2)
    struct.pack_into("<I", data, shoff + 64 * link + 40, names)
    for i in range(count):
        struct.pack_into("<I", data, at + 24 * (i + 1), i)
    return read_elf(folder / "program", bytes(data))


def _compressed(folder: Path, size: int, kind: int, pack: Callable[[bytes], bytes]) -> list[str]:
    piece = pack(bytes(64 << 20))
    count = max(1, min(8, size // len(piece)))
    packed = struct.pack("<IIQQ", kind, 0, 64 << 20, 1) + piece
    names = [f".debug_{name}" for name in ("info", "abbrev", "line", "str", "line_str", "rnglists", "ranges", "addr")]
    sections = dict.fromkeys(names[:count], packed)
    elf = ElfFile(symbols=[Symbol("main", TEXT, 16)], sections=sections, section_flags=dict.fromkeys(sections, 0x800))
    return read_elf(folder / "program", elf.to_bytes())


@builder
def zstd_sections(folder: Path, size: int) -> list[str]:
    """Debug sections of zeros, a thousand times smaller and more."""
    return _compressed(folder, size, 2, zstandard.ZstdCompressor().compress)


@builder
def zlib_sections(folder: Path, size: int) -> list[str]:
    """The same with zlib."""
    return _compressed(folder, size, 1, lambda data: zlib.compress(data, 9))


@builder
def mini_debug_info(folder: Path, size: int) -> list[str]:
    """An xz stream of zeros."""
    packed = lzma.compress(bytes(min(size * 200, 600 << 20)), preset=1)
    elf = ElfFile(dynamic_symbols=[Symbol("main", TEXT, 16)], sections={".gnu_debugdata": packed})
    return read_elf(folder / "program", elf.to_bytes())


# --- code made at run time


@builder
def jitdump_moves(folder: Path, size: int) -> list[str]:
    """A function with a long name and many lines that moves again and again."""
    from unit.symbolize.test_jitdump import HEADER, debug, load, move

    lines = [(0x1000 + i, i, b"\xff") for i in range(size // 3 // 18)]
    moves = b"".join(move(0x1000 + i, 0x1001 + i, 16, 1) for i in range(size // 3 // 72))
    data = HEADER + debug(0x1000, *lines) + load(0x1000, 16, "f" * (size // 3), 1) + moves
    (folder / "jit-42.dump").write_bytes(data)
    return python(_READ_RUN_TIME_CODE, folder)


def _moved_there_and_back(folder: Path, size: int, lines: bytes) -> list[str]:
    """A function that moves between two places that overlap, each time at a later time, with others' lines."""
    from unit.symbolize.test_jitdump import HEADER, debug, load, move

    first, second = 0x1000, 0x1800
    told = [(first + i, i, lines) for i in range(size // 3 // (17 + len(lines)))]
    steps = enumerate([(first, second), (second, first)] * (size // 6 // 72))
    moves = b"".join(move(old, new, 0x1000, 1, 5 + i) for i, (old, new) in steps)
    data = HEADER + debug(first, *told) + load(first, 0x1000, "f" * 1000, 1, 4) + moves
    (folder / "jit-42.dump").write_bytes(data + load(0x1C00, 0x1000, "other", 2, 5 + size))
    return python(_READ_RUN_TIME_CODE, folder)


@builder
def jitdump_moves_there_and_back(folder: Path, size: int) -> list[str]:
    return _moved_there_and_back(folder, size, b"\xff")


@builder
def jitdump_moves_with_names_of_files(folder: Path, size: int) -> list[str]:
    return _moved_there_and_back(folder, size, b"a/file.py")


@builder
def jitdump_of_a_long_name_replaced(folder: Path, size: int) -> list[str]:
    """A function with a long name that others replace, and that replaces others, byte by byte."""
    from unit.symbolize.test_jitdump import HEADER, load, move

    after = b"".join(load(0x1000 + i % 4096, 1, f"f{i:x}", 2 + i, 5 + i) for i in range(size // 2 // 72))
    over = b"".join(move(0x1000, 0x1000 + i % 4096, 1, 1, 5 + size + i) for i in range(size // 3 // 72))
    (folder / "jit-42.dump").write_bytes(HEADER + load(0x1000, 4096, "f" * 65000, 1, 4) + after + over)
    return python(_READ_RUN_TIME_CODE, folder)


@builder
def perf_map_overlaps(folder: Path, size: int) -> list[str]:
    """Functions of a perf map that all cover each other."""
    lines = (f"{0x1000 + i:x} {size:x} f\n" for i in range(size // 14))
    (folder / "perf-42.map").write_text("".join(lines))
    return python(_READ_RUN_TIME_CODE, folder)


@builder
def perf_map_slides(folder: Path, size: int) -> list[str]:
    """A perf map whose times are known, of functions that each cut those before into pieces."""
    lines = [f"{0x1000 + i:x} 8 f{i:x}\n".encode() for i in range(size // 16)]
    text = b"".join(lines)
    (folder / "perf-42.map").write_bytes(text)
    steps = [(len(text) // 2, 5), (len(text), 6)]
    (folder / "perf-42.times").write_bytes(MapTimes.of(text, steps, 10**9).to_bytes())
    return python(_READ_RUN_TIME_CODE, folder)


@builder
def perf_map_short_lines(folder: Path, size: int) -> list[str]:
    """A perf map of as many lines as fit."""
    (folder / "perf-42.map").write_text("".join(f"{0x1000 + i % 4096:x} 1 f\n" for i in range(size // 9)))
    return python(_READ_RUN_TIME_CODE, folder)
