"""Where a JVM (HotSpot) keeps what it has compiled, as it describes its own structures.

``gHotSpotVMStructs`` and its kin are what the JDK's own debugger reads: src/hotspot/share/runtime/vmStructs.hpp.
"""

import ctypes
import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from tdprof.linux.elf import PT_LOAD, Elf, ElfSegment
from tdprof.linux.file_bytes import FileBytes, MemoryBytes
from tdprof.recorder.symbol_places import find_symbols

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
_MOST_ROWS = 4096  # versions have some 600 to 2,500
_ROWS_AT_ONCE = 64
_NAME_BYTES = 64
_MOST_HEAPS = 8  # HotSpot has 1, or 3 or 4 by kind of code
_MOST_HEAP_BYTES = 1 << 32  # ReservedCodeCacheSize is at most 2 GB
_MOST_OFFSET = 1 << 15
_MOST_LOADS = 64  # segments of the library; it has 4 to 6

Read = Callable[[int, int], bytes]


class NotKnownError(Exception):
    """This JVM does not describe what is needed, or not so."""


class NotThereYetError(Exception):
    """The JVM is about to start."""


class HeapLayout(ctypes.Structure):
    """``struct code_heap``."""

    _fields_ = [
        *[(name, ctypes.c_uint64) for name in ("low", "segments", "interpreter", "call_return")],
        ("interpreter_bytes", ctypes.c_uint32),
        *[(name, ctypes.c_uint16) for name in ("header_bytes", "frame_size", "frame_complete", "code_begin")],
        *[(name, ctypes.c_uint8) for name in ("segment_shift", "complete_bytes", "code_begin_bytes", "reserved")],
    ]


@dataclass(frozen=True, slots=True)
class CodeHeap:
    """Memory that is reserved for compiled code, and how to find one's way in it; run-time addresses."""

    start: int
    end: int
    layout: HeapLayout


@dataclass(frozen=True, slots=True)
class _Field:
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
        places = {name: min(found)[0] for name, found in find_symbols(elf, (_FIELDS, *_ROW_OFFSETS)).items()}
        if len(places) != 1 + len(_ROW_OFFSETS):
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
        heaps = self._word(self._static("CodeCache", "_heaps"))
        interpreter = self._word(self._static("AbstractInterpreter", "_code"))
        call_return = self._word(self._static("StubRoutines", "_call_stub_return_address"))
        if not (heaps and interpreter and call_return):
            raise NotThereYetError
        length = self._number(heaps + self._array_length(), 4)
        if not 0 < length <= _MOST_HEAPS:
            raise NotKnownError
        data = self._word(heaps + self._offset("GrowableArray<int>", "_data"))
        layout = self._layout()
        layout.interpreter = self._word(interpreter + self._offset("StubQueue", "_stub_buffer"))
        # What it takes so far: it makes its code piece by piece, in more room than it keeps.
        layout.interpreter_bytes = self._number(interpreter + self._offset("StubQueue", "_queue_end"), 4)
        layout.call_return = call_return
        found = [self._heap(self._word(data + 8 * number), layout) for number in range(length)]
        return sorted(found, key=lambda heap: heap.start)

    def _heap(self, heap: int, of_all: HeapLayout) -> CodeHeap:
        memory = heap + self._offset("CodeHeap", "_memory")
        low, low_boundary, high = (
            self._word(memory + self._offset("VirtualSpace", name))
            for name in ("_low", "_low_boundary", "_high_boundary")
        )
        shift = self._number(heap + self._offset("CodeHeap", "_log2_segment_size"), 4)
        if not (low == low_boundary < high <= low + _MOST_HEAP_BYTES and 3 <= shift <= 16):
            raise NotKnownError
        layout = HeapLayout.from_buffer_copy(of_all)
        layout.low = low
        segments = heap + self._offset("CodeHeap", "_segmap") + self._offset("VirtualSpace", "_low")
        layout.segments = self._word(segments)
        layout.segment_shift = shift
        return CodeHeap(low, high, layout)

    def _layout(self) -> HeapLayout:
        """What is the same for all heaps."""
        complete = self._field("CodeBlob", "_frame_complete_offset")
        is_address = ("CodeBlob", "_code_begin") in self._fields
        return HeapLayout(
            # A HeapBlock is its header, in whole words, of which this is the last member.
            header_bytes=(self._offset("HeapBlock::Header", "_used") + 8) & ~7,
            frame_size=self._offset("CodeBlob", "_frame_size"),
            frame_complete=complete.offset,
            complete_bytes=2 if complete.type == "int16_t" else 4,
            code_begin=self._offset("CodeBlob", "_code_begin" if is_address else "_code_offset"),
            code_begin_bytes=8 if is_address else 4,
        )

    def _array_length(self) -> int:
        """Of a growable array; its base had another name up to JDK 15."""
        is_new = ("GrowableArrayBase", "_len") in self._fields
        return self._offset("GrowableArrayBase" if is_new else "GenericGrowableArray", "_len")

    def _described(self) -> dict[tuple[str, str], _Field]:
        """All fields that the JVM tells of, by type and name."""
        at = {name: self._shift + place for name, place in self._library.places.items()}
        if any(self._word(at[name]) != offset for name, offset in _ROW_OFFSETS.items()):
            raise NotKnownError
        table = self._word(at[_FIELDS])
        texts: dict[int, str] = {}
        fields: dict[tuple[str, str], _Field] = {}
        for first in range(0, _MOST_ROWS, _ROWS_AT_ONCE):
            data = self._read(table + first * _ROW.size, _ROWS_AT_ONCE * _ROW.size)
            for row in _ROW.iter_unpack(data[: len(data) // _ROW.size * _ROW.size]):
                if not row[0]:
                    return fields
                type_, field, of = (self._text(address, texts) for address in row[:3])
                fields[type_, field] = _Field(of, row[5], row[6])
            if len(data) < _ROWS_AT_ONCE * _ROW.size:
                break
        raise NotKnownError

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

    def _field(self, type_: str, name: str) -> _Field:
        field = self._fields.get((type_, name))
        if field is None or field.offset >= _MOST_OFFSET:
            raise NotKnownError
        return field

    def _offset(self, type_: str, name: str) -> int:
        return self._field(type_, name).offset

    def _static(self, type_: str, name: str) -> int:
        return self._field(type_, name).address

    def _word(self, address: int) -> int:
        return self._number(address, 8)

    def _number(self, address: int, size: int) -> int:
        data = self._read(address, size)
        if len(data) < size:
            raise NotKnownError
        return int.from_bytes(data, "little")
