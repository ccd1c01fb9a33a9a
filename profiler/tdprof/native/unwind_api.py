"""Binding to the compiled builder of unwind tables and walker over copied stacks (``profiler/native/unwind_api.h``)."""

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from tdprof.native.library import load_native
from tdprof.values import dataclass

Buffer = bytes | memoryview

MOST_SEGMENTS = 16
HEADER_BYTES = 128


FROM_EH_FRAME, FROM_DEBUG_FRAME, FROM_V8 = 1, 2, 16  # UNWIND_FROM_*
PLAIN, CERTAIN, BUILTINS, WITHIN = 0, 1, 2, 3  # enum unwind_stretch_kind


class Rule(ctypes.Structure):
    """``struct unwind_rule``."""

    _fields_ = (
        ("cfa", ctypes.c_uint8),
        ("ra", ctypes.c_uint8),
        ("fp", ctypes.c_int16),
        ("offset", ctypes.c_int32),
    )


class Segment(ctypes.Structure):
    """``struct unwind_segment``: an executable segment."""

    _fields_ = (
        ("elf_address", ctypes.c_uint64),
        ("file_offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint32),
        ("first_bucket", ctypes.c_uint32),
    )


class Header(ctypes.Structure):
    """``struct unwind_header``: the beginning of a table's file."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("crc", ctypes.c_uint32),
        ("machine", ctypes.c_uint16),
        ("identity_size", ctypes.c_uint8),
        ("sources", ctypes.c_uint8),
        ("segments", ctypes.c_uint32),
        ("rules", ctypes.c_uint32),
        ("buckets", ctypes.c_uint32),
        ("rows", ctypes.c_uint32),
        ("entries", ctypes.c_uint32),
        ("bad_entries", ctypes.c_uint32),
        ("unsupported_rows", ctypes.c_uint32),
        ("guessed_gaps", ctypes.c_uint32),
        ("calls", ctypes.c_uint32),
        ("beginnings", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("identity", ctypes.c_uint8 * 64),
    )


HEADER_BYTES = ctypes.sizeof(Header)


class _Section(ctypes.Structure):
    """``struct unwind_section``."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_uint64), ("address", ctypes.c_uint64))


class Stretch(ctypes.Structure):
    """``struct unwind_stretch``: code of which the rule is known."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("rule", Rule),
        ("kind", ctypes.c_uint64),
    )


_READ_CODE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)


class _Input(ctypes.Structure):
    """``struct unwind_input``."""

    _fields_ = (
        ("eh_frame", _Section),
        ("eh_frame_hdr", _Section),
        ("debug_frame", _Section),
        ("gopclntab", _Section),
        ("symbols", _Section),
        ("read_code", _READ_CODE),
        ("text_address", ctypes.c_uint64),
        ("segments", ctypes.c_void_p),
        ("stretches", ctypes.c_void_p),
        ("segment_count", ctypes.c_uint32),
        ("stretch_count", ctypes.c_uint32),
        ("machine", ctypes.c_uint16),
        ("identity_size", ctypes.c_uint16),
        ("is_vdso", ctypes.c_uint32),
        ("identity", ctypes.c_uint8 * 64),
    )


class UnwindSamples(ctypes.Structure):
    """``struct unwind_samples``."""

    _fields_ = (
        ("registers", ctypes.c_void_p),
        ("space", ctypes.c_void_p),
        ("stack_start", ctypes.c_void_p),
        ("stack_bytes", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_total", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("is_leaf_known", ctypes.c_uint32),
        ("machine", ctypes.c_uint16),
        ("most_frames", ctypes.c_uint16),
        ("pages", ctypes.c_void_p),
    )


class UnwindWorld(ctypes.Structure):
    """``struct unwind_world``."""

    _fields_ = (
        ("first_mapping", ctypes.c_void_p),
        ("mappings", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("spaces", ctypes.c_uint32),
        ("table_count", ctypes.c_uint32),
    )


class UnwindStacks(ctypes.Structure):
    """``struct unwind_stacks``."""

    _fields_ = (
        ("addresses", ctypes.c_void_p),
        ("capacity", ctypes.c_uint64),
        ("depth", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("methods", ctypes.c_void_p),
        ("guessed_from", ctypes.c_void_p),
        ("is_lost", ctypes.c_void_p),
    )


class UnwindSession(ctypes.Structure):
    """``struct unwind_session``."""

    _fields_ = (
        ("rules", ctypes.c_void_p),
        ("rule_slots", ctypes.c_void_p),
        ("buckets", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("rule_count", ctypes.c_uint32),
        ("bucket_count", ctypes.c_uint32),
        ("row_count", ctypes.c_uint32),
        ("rule_capacity", ctypes.c_uint32),
        ("bucket_capacity", ctypes.c_uint32),
        ("row_capacity", ctypes.c_uint32),
    )


class UnwindExtent(ctypes.Structure):
    """``struct unwind_extent``."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("bucket", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True)
class Section:
    """Bytes of a file's section, uncompressed, and its ELF address."""

    data: Buffer = b""
    address: int = 0


@dataclass(frozen=True, slots=True)
class TableInput:
    """What a table is built from.

    Attributes:
        machine: ``e_machine``.
        segments: the executable ones, by address.
        eh_frame, debug_frame, gopclntab: call-frame information and Go's table; empty where there is none.
        eh_frame_hdr: has where each function of ``eh_frame`` begins.
        text_address: ELF address that Go's table counts from, where it does not say.
        symbols: the symbol table, which says where functions begin that nothing else tells of.
        read_code: the bytes at an ELF address, so many; fewer, and they are not looked into.
        stretches: code of which the rule is known from elsewhere, by address and not overlapping.
        identity: build-id, or what else tells the file from others; at most 64 bytes.
        is_vdso: aarch64's, which has no call-frame information: ordinary code whose functions begin where symbols say.
    """

    machine: int
    segments: Sequence[Segment]
    eh_frame: Section = Section()
    eh_frame_hdr: Section = Section()
    debug_frame: Section = Section()
    gopclntab: Section = Section()
    symbols: Section = Section()
    read_code: Callable[[int, int], Buffer] | None = None
    text_address: int = 0
    stretches: Sequence[Stretch] = ()
    identity: bytes = b""
    is_vdso: bool = False


def build_table(source: TableInput) -> bytes | None:
    """The table as a file's bytes (``bpf/unwind.h``); None if it has more text than the format holds, or no memory.

    Work and memory are linear in the sections' sizes, whatever they hold.
    """
    native = library()
    alive: list[object] = []  # what C holds pointers into
    segments = (Segment * len(source.segments))(*source.segments)
    stretches = (Stretch * len(source.stretches))(*source.stretches)
    given = _Input(
        eh_frame=_section(source.eh_frame, alive),
        eh_frame_hdr=_section(source.eh_frame_hdr, alive),
        debug_frame=_section(source.debug_frame, alive),
        gopclntab=_section(source.gopclntab, alive),
        symbols=_section(source.symbols, alive),
        read_code=_code_reader(source.read_code),
        text_address=source.text_address,
        segments=ctypes.addressof(segments),
        stretches=ctypes.addressof(stretches),
        segment_count=len(source.segments),
        stretch_count=len(source.stretches),
        machine=source.machine,
        identity_size=len(source.identity),
        is_vdso=source.is_vdso,
    )
    ctypes.memmove(given.identity, source.identity, len(source.identity))
    handle = native.tdprof_unwind_build(ctypes.byref(given))
    if not handle:
        return None
    try:
        out = ctypes.create_string_buffer(native.tdprof_unwind_size(handle))
        native.tdprof_unwind_write(handle, out)
        return out.raw
    finally:
        native.tdprof_unwind_close(handle)


def _code_reader(read_code: Callable[[int, int], Buffer] | None) -> Any:
    def read(address: int, code: int, size: int) -> int:
        assert read_code
        found = bytes(read_code(address, size))
        ctypes.memmove(code, found, len(found))
        return len(found) < size

    return _READ_CODE(read) if read_code else _READ_CODE()


def is_table(data: Buffer) -> bool:
    """Whether the bytes are a whole table of this version; reads each row once."""
    held: list[object] = []
    section = _section(Section(data), held)
    return bool(library().tdprof_unwind_check(section.data, section.size))


def read_header(data: Buffer) -> Header:
    """The header of a table that was checked."""
    return Header.from_buffer_copy(data)


def read_segments(data: Buffer) -> list[Segment]:
    """The executable segments of a table that was checked."""
    return list((Segment * read_header(data).segments).from_buffer_copy(data, HEADER_BYTES))


def end_words() -> tuple[str, ...]:
    """The word of each ``enum unwind_end``, by its number; that of 0 (not ended) is empty."""
    words = [""]
    while (word := library().tdprof_unwind_end_word(len(words))) is not None:
        words.append(word.decode())
    return tuple(words)


def is_available() -> bool:
    """Whether the compiled library was built."""
    return load_native() is not None


def _section(section: Section, alive: list[object]) -> _Section:
    # bytes() of a memoryview copies, but ctypes can point into a read-only mapping in no other way without NumPy.
    data = bytes(section.data)
    alive.append(data)
    return _Section(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data), section.address)


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled library with this binding's functions declared; ask ``is_available`` before."""
    native = load_native()
    assert native is not None, "is_available() was not asked"
    pointer, u64, u32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    functions: tuple[tuple[str, Any, list[Any]], ...] = (
        ("build", pointer, [pointer]),
        ("size", u64, [pointer]),
        ("write", None, [pointer, pointer]),
        ("close", None, [pointer]),
        ("check", ctypes.c_int, [pointer, u64]),
        ("place", ctypes.c_int, [pointer, pointer, pointer]),
        ("extent", ctypes.c_int, [pointer, u64, u64, u64, pointer]),
        ("walk", u64, [pointer, pointer, pointer]),
        ("end_word", ctypes.c_char_p, [u32]),
    )
    for name, result, arguments in functions:
        function = getattr(native, f"tdprof_unwind_{name}")
        function.restype, function.argtypes = result, arguments
    return native
