"""Where a JVM (HotSpot) keeps what it has compiled, as it describes its own structures.

``gHotSpotVMStructs`` and its kin are what the JDK's own debugger reads: src/hotspot/share/runtime/vmStructs.hpp.
"""

import contextlib
import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Self

from tdprof.linux.elf import PF_X, PT_LOAD, Elf, ElfSegment, parse_elf
from tdprof.linux.file_bytes import FileBytes, MemoryBytes, reopen_regular
from tdprof.recorder.executable_maps import ExecutableLine
from tdprof.recorder.symbol_places import find_symbols
from tdprof.values import dataclass

_LIBRARIES = ("libjvm.so", "libjvm.so (deleted)")  # where another one was installed since
_FIELDS = b"gHotSpotVMStructs"
_STRIDE = b"gHotSpotVMStructEntryArrayStride"
# Where a row has what, in all versions so far; each file says it, too.
_ROW = struct.Struct("<QQQIIQQ")  # type, field, the field's type, whether it is static, padding, offset, address
_ROW_OFFSETS = {
    b"gHotSpotVMStructEntryTypeNameOffset": 0,
    b"gHotSpotVMStructEntryFieldNameOffset": 8,
    b"gHotSpotVMStructEntryTypeStringOffset": 16,
    b"gHotSpotVMStructEntryIsStaticOffset": 24,
    b"gHotSpotVMStructEntryOffsetOffset": 32,
    b"gHotSpotVMStructEntryAddressOffset": 40,
    _STRIDE: _ROW.size,
}
_TYPES = b"gHotSpotVMTypes"
_TYPE_STRIDE = b"gHotSpotVMTypeEntryArrayStride"
_TYPE_ROW = struct.Struct("<QQIIIIQ")  # type, what it derives from, whether it is an oop, an integer, unsigned; size
_TYPE_OFFSETS = {
    b"gHotSpotVMTypeEntryTypeNameOffset": 0,
    b"gHotSpotVMTypeEntrySizeOffset": 32,
    _TYPE_STRIDE: _TYPE_ROW.size,
}
# Structures of which anything is asked: a JVM describes hundreds, which would stay in memory while it runs.
_STRUCTURES = frozenset(
    [
        "AbstractInterpreter",
        "Abstract_VM_Version",
        "CodeBlob",
        "CodeCache",
        "CodeHeap",
        "CompiledMethod",
        "ConstMethod",
        "ConstantPool",
        "GenericGrowableArray",
        "GrowableArray<int>",
        "GrowableArrayBase",
        "HeapBlock::Header",
        "JVMFlag",
        "Klass",
        "Method",
        "StubQueue",
        "StubRoutines",
        "Symbol",
        "VirtualSpace",
        "nmethod",
    ]
)
_MOST_ROWS = 4096  # versions have some 600 to 2,500
_ROWS_AT_ONCE = 64
_NAME_BYTES = 64
_MOST_HEAPS = 8  # HotSpot has 1, or 3 or 4 by kind of code
_MOST_HEAP_BYTES = 1 << 32  # ReservedCodeCacheSize is at most 2 GB
_MOST_OFFSET = 1 << 15
_CONSTANT_BYTES = 72  # JAVA_CONSTANT_BYTES
_MADE_BYTES_OTHERWISE = 20  # the JDK from which on numbers in tables have no zero bytes
_MOST_LOADS = 64  # segments of the library; it has 4 to 6

Read = Callable[[int, int], bytes]


class NotKnownError(Exception):
    """This JVM does not describe what is needed, or not so."""


class NotThereYetError(Exception):
    """The JVM is about to start."""


class JavaLayout(ctypes.Structure):
    """``struct java_layout``."""

    _fields_ = [
        (name, ctypes.c_uint16)
        for name in (
            "constant",
            "pool",
            "bytes",
            "code_bytes",
            "name",
            "signature",
            "constant_bytes",
            "flags",
            "holder",
            "file",
            "pool_bytes",
            "class_name",
            "text_length",
            "text",
            "lowest_byte",
            "reserved",
        )
    ]


class HeapLayout(ctypes.Structure):
    """``struct code_heap``."""

    _fields_ = [
        *[(name, ctypes.c_uint64) for name in ("low", "segments", "interpreter", "call_return")],
        ("interpreter_bytes", ctypes.c_uint32),
        ("methods", JavaLayout),
        *[(name, ctypes.c_uint16) for name in ("header_bytes", "frame_size", "frame_complete", "code_begin")],
        *[(name, ctypes.c_uint16) for name in ("code_end", "kind", "compilation", "compiled")],
        *[(name, ctypes.c_uint8) for name in ("segment_shift", "complete_bytes", "code_begin_bytes", "reserved")],
    ]


@dataclass(frozen=True, slots=True)
class CodeHeap:
    """Memory that is reserved for compiled code, and how to find one's way in it; run-time addresses.

    Attributes:
        grown_to: where what may hold code ends so far.
    """

    start: int
    end: int
    grown_to: int
    layout: HeapLayout


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a structure."""

    type: str
    offset: int
    address: int  # of a static one


@dataclass(frozen=True, slots=True)
class HotSpotLibrary:
    """What is needed of a libjvm.so: where its description stands, and its constants.

    Attributes:
        content: of the file.
        loads: what of it is loaded.
        places: ELF addresses of the variables that say where the description is and how to read it.
    """

    content: FileBytes | MemoryBytes
    loads: tuple[ElfSegment, ...]
    places: dict[bytes, int]

    @classmethod
    def of(cls, elf: Elf) -> Self:
        """Of a file.

        Raises:
            NotKnownError: it has no such description.
            OSError: it cannot be read.
        """
        wanted = (_FIELDS, *_ROW_OFFSETS, _TYPES, *_TYPE_OFFSETS)
        places = {name: min(found)[0] for name, found in find_symbols(elf, wanted).items()}
        if not places.keys() >= {_FIELDS, *_ROW_OFFSETS}:
            raise NotKnownError
        loads = (segment for segment in elf.segments if segment.type == PT_LOAD)
        return cls(elf.content, tuple(itertools.islice(loads, _MOST_LOADS)), places)


class HotSpot:
    """What a JVM says of its structures.

    Args:
        library: its libjvm.so.
        shift: from its ELF addresses to the process's.
        read: bytes of the process's memory, from an address; OSError where there are none.

    Raises:
        NotKnownError: as it says.
        OSError: its memory or the file cannot be read.
    """

    def __init__(self, library: HotSpotLibrary, shift: int, read: Read) -> None:
        self._library = library
        self._shift = shift
        self._read = read
        self._fields = self._described()

    def heaps(self) -> list[CodeHeap]:
        """Its code heaps, ascending.

        Raises:
            NotKnownError, NotThereYetError: as they say.
            OSError: its memory cannot be read.
        """
        heaps = self.word(self.static("CodeCache", "_heaps"))
        interpreter = self.word(self.static("AbstractInterpreter", "_code"))
        call_return = self.word(self.static("StubRoutines", "_call_stub_return_address"))
        if not (heaps and interpreter and call_return):
            raise NotThereYetError
        length = self.number(heaps + self._array_length(), 4)
        if not 0 < length <= _MOST_HEAPS:
            raise NotKnownError
        data = self.word(heaps + self.offset("GrowableArray<int>", "_data"))
        layout = self._layout()
        layout.interpreter = self.word(interpreter + self.offset("StubQueue", "_stub_buffer"))
        # It makes its code piece by piece, in more room than it keeps: with the last piece it gives back the rest.
        made, room = (
            self.number(interpreter + self.offset("StubQueue", name), 4) for name in ("_queue_end", "_buffer_limit")
        )
        if made != room:
            raise NotThereYetError
        layout.interpreter_bytes = made
        layout.call_return = call_return
        found = [self._heap(self.word(data + 8 * number), layout) for number in range(length)]
        return sorted(found, key=lambda heap: heap.start)

    def _heap(self, heap: int, of_all: HeapLayout) -> CodeHeap:
        memory = heap + self.offset("CodeHeap", "_memory")
        low, low_boundary, grown_to, high = (
            self.word(memory + self.offset("VirtualSpace", name))
            for name in ("_low", "_low_boundary", "_high", "_high_boundary")
        )
        shift = self.number(heap + self.offset("CodeHeap", "_log2_segment_size"), 4)
        if not (low == low_boundary < high <= low + _MOST_HEAP_BYTES and 3 <= shift <= 16):
            raise NotKnownError
        layout = HeapLayout.from_buffer_copy(of_all)
        layout.low = low
        segments = heap + self.offset("CodeHeap", "_segmap") + self.offset("VirtualSpace", "_low")
        layout.segments = self.word(segments)
        layout.segment_shift = shift
        return CodeHeap(low, high, min(max(low, grown_to), high), layout)

    def _layout(self) -> HeapLayout:
        """What is the same for all heaps."""
        complete = self.field("CodeBlob", "_frame_complete_offset")
        is_address = self.has("CodeBlob", "_code_begin")
        layout = HeapLayout(
            # A HeapBlock is its header, in whole words, of which this is the last member.
            header_bytes=(self.offset("HeapBlock::Header", "_used") + 8) & ~7,
            frame_size=self.offset("CodeBlob", "_frame_size"),
            frame_complete=complete.offset,
            complete_bytes=2 if complete.type == "int16_t" else 4,
            code_begin=self.offset("CodeBlob", "_code_begin" if is_address else "_code_offset"),
            code_begin_bytes=8 if is_address else 4,
            methods=self._methods(),
        )
        with contextlib.suppress(NotKnownError):  # then compiled methods have names by the JVM's map alone
            layout.compilation = self.offset("nmethod", "_compile_id")
            layout.compiled = self.compiled_method
            layout.code_end = self.offset("CodeBlob", "_code_end" if is_address else "_data_offset")
            layout.kind = self.offset("CodeBlob", "_name") if layout.methods.constant else 0
        return layout

    @property
    def compiled_method(self) -> int:
        """Where a compilation has its method; raises as `field`."""
        return self.offset("nmethod" if self.has("nmethod", "_method") else "CompiledMethod", "_method")

    def _methods(self) -> JavaLayout:
        """How methods lie; zeros where that is not known: compiled code does not depend on it."""
        try:
            layout = JavaLayout(
                constant=self.offset("Method", "_constMethod"),
                pool=self.offset("ConstMethod", "_constants"),
                bytes=self.offset("ConstMethod", "_constMethod_size"),
                code_bytes=self.offset("ConstMethod", "_code_size"),
                name=self.offset("ConstMethod", "_name_index"),
                signature=self.offset("ConstMethod", "_signature_index"),
                constant_bytes=self.size_of("ConstMethod"),
                flags=self.offset("ConstMethod", self.line_flags),
                holder=self.offset("ConstantPool", "_pool_holder"),
                file=self.offset("ConstantPool", "_source_file_name_index"),
                pool_bytes=self.size_of("ConstantPool"),
                class_name=self.offset("Klass", "_name"),
                text_length=self.offset("Symbol", "_length"),
                text=self.offset("Symbol", "_body"),
                lowest_byte=self.lowest_byte,
            )
        except NotKnownError:
            return JavaLayout()
        read_at_once = (layout.pool, layout.bytes, layout.code_bytes, layout.name, layout.signature, layout.flags)
        return layout if max(read_at_once) <= _CONSTANT_BYTES - 8 else JavaLayout()

    @property
    def line_flags(self) -> str:
        """The field of ``ConstMethod`` whose lowest bit says whether it has a table of lines."""
        return "_flags" if self.has("ConstMethod", "_flags") else "_flags._flags"

    @property
    def lowest_byte(self) -> int:
        """Of numbers in its tables; raises as `number`."""
        version = self.number(self.static("Abstract_VM_Version", "_vm_major_version"), 4)
        return int(version >= _MADE_BYTES_OTHERWISE)

    def _array_length(self) -> int:
        """Of a growable array; its base had another name up to JDK 15."""
        is_new = self.has("GrowableArrayBase", "_len")
        return self.offset("GrowableArrayBase" if is_new else "GenericGrowableArray", "_len")

    def _rows(self, table: bytes, offsets: Mapping[bytes, int], row: struct.Struct) -> Iterator[tuple[int, ...]]:
        """The rows of a table, up to the one that ends it."""
        places = self._library.places
        if not places.keys() >= {table, *offsets}:
            raise NotKnownError
        if any(self.word(self._shift + places[name]) != offset for name, offset in offsets.items()):
            raise NotKnownError
        begin = self.word(self._shift + places[table])
        for first in range(0, _MOST_ROWS, _ROWS_AT_ONCE):
            data = self._read(begin + first * row.size, _ROWS_AT_ONCE * row.size)
            for values in row.iter_unpack(data[: len(data) // row.size * row.size]):
                if not values[0]:
                    return
                yield values
            if len(data) < _ROWS_AT_ONCE * row.size:
                break
        raise NotKnownError

    def _described(self) -> dict[tuple[str, str], Field]:
        """The fields of `_STRUCTURES` that the JVM tells of, by type and name."""
        texts: dict[int, str] = {}
        fields: dict[tuple[str, str], Field] = {}
        for row in self._rows(_FIELDS, _ROW_OFFSETS, _ROW):
            type_ = self._text(row[0], texts)
            if type_ in _STRUCTURES:
                field, of = (self._text(address, texts) for address in row[1:3])
                fields[type_, field] = Field(of, row[5], row[6])
        return fields

    @functools.cached_property
    def _sizes(self) -> dict[str, int]:
        """The bytes of `_STRUCTURES` that the JVM tells of."""
        texts: dict[int, str] = {}
        sizes = {self._text(row[0], texts): row[6] for row in self._rows(_TYPES, _TYPE_OFFSETS, _TYPE_ROW)}
        return {type_: size for type_, size in sizes.items() if type_ in _STRUCTURES}

    def _text(self, address: int, known: dict[int, str]) -> str:
        """A text among the file's constants, cut where it is longer than any that matters."""
        if address not in known:
            place = address - self._shift
            data = b""
            for segment in self._library.loads:
                if 0 <= place - segment.address < segment.file_size:
                    data = bytes(self._library.content.read(segment.offset + place - segment.address, _NAME_BYTES))
            known[address] = data.partition(b"\0")[0].decode("ascii", "replace")
        return known[address]

    def has(self, type_: str, name: str) -> bool:
        """Whether the JVM tells of a field."""
        assert type_ in _STRUCTURES
        return (type_, name) in self._fields

    def field(self, type_: str, name: str) -> Field:
        """What it says of a field.

        Raises:
            NotKnownError: nothing, or nothing that can be.
        """
        field = self._fields.get((type_, name)) if self.has(type_, name) else None
        if field is None or field.offset >= _MOST_OFFSET:
            raise NotKnownError
        return field

    def offset(self, type_: str, name: str) -> int:
        """Where a field lies in its structure; raises as `field`."""
        return self.field(type_, name).offset

    def static(self, type_: str, name: str) -> int:
        """Where a static field lies; raises as `field`."""
        return self.field(type_, name).address

    def size_of(self, type_: str) -> int:
        """The bytes of a structure; raises as `field`."""
        size = self._sizes.get(type_, 0)
        if not 0 < size < _MOST_OFFSET:
            raise NotKnownError
        return size

    def flag(self, name: str) -> int | None:
        """The lowest byte of an option; None: there is none of this name.

        Raises:
            NotKnownError, OSError: as `HotSpot`.
        """
        rows, size = self.word(self.static("JVMFlag", "flags")), self.size_of("JVMFlag")
        count = min(self.word(self.static("JVMFlag", "numFlags")), _MOST_ROWS)
        name_at, value_at = self.offset("JVMFlag", "_name"), self.offset("JVMFlag", "_addr")
        for row in range(rows, rows + count * size, size):
            text = self.word(row + name_at)
            if text and self._text(text, {}) == name:
                return self.number(self.word(row + value_at), 1)
        return None

    def word(self, address: int) -> int:
        """8 bytes of its memory, as a number; raises as `number`."""
        return self.number(address, 8)

    def number(self, address: int, size: int) -> int:
        """So many bytes of its memory, as a number.

        Raises:
            NotKnownError: they are not all there.
            OSError: none can be read.
        """
        data = self._read(address, size)
        if len(data) < size:
            raise NotKnownError
        return int.from_bytes(data, "little")


def is_jvm(path: PurePath) -> bool:
    """Whether a file's name is that of the JVM's library."""
    return path.name in _LIBRARIES


def find_library(lines: Iterable[ExecutableLine]) -> ExecutableLine | None:
    """The JVM's library among what a process has mapped; None: it has none."""
    files = (line for line in lines if line.is_file)
    return next((line for line in files if is_jvm(PurePath(line.path))), None)


def open_library(fd: int, start: int, file_offset: int) -> tuple[HotSpotLibrary, int]:
    """A JVM's library, and the shift from its ELF addresses to a process's.

    Args:
        fd: an ``O_PATH`` descriptor of it.
        start, file_offset: of the process's executable mapping of it.

    Raises:
        NotKnownError, OSError: as `HotSpotLibrary.of`.
        ElfError: it is none.
    """
    elf = parse_elf(FileBytes(reopen_regular(fd)))
    library = HotSpotLibrary.of(elf)
    code = next((each for each in elf.segments if each.type == PT_LOAD and each.flags & PF_X), None)
    if code is None:
        raise NotKnownError
    return library, start - file_offset + code.offset - code.address
