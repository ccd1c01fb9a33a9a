"""Reads what a JVM (HotSpot) knows of its compiled code from its memory, while it runs: what was inlined, and lines.

Its structures as it describes them itself (hotspot.py); what they hold: src/hotspot/share/code/{nmethod,pcDesc}.hpp and
src/hotspot/share/oops/{method,constMethod,constantPool,symbol}.hpp. Nobody stops the JVM meanwhile: what does not fit
is left out, and the report holds what is kept against the names that the JVM gives.
"""

import functools
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from tdprof.capture.java_code import NO_METHOD, JavaCode, JavaHeader, JavaMethod
from tdprof.recorder.executable_maps import reach, read_executable_lines
from tdprof.recorder.hotspot import CodeHeap, HotSpot, NotKnownError, Read, find_library, open_library
from tdprof.recorder.process_memory import ProcessMemory

_BLOCK_BYTES = 1 << 14  # read at once: what is asked for lies side by side
_MOST_BLOCKS = 1 << 10
_MOST_PART_BYTES = 1 << 22  # of what one compilation has of each
_MOST_TABLE_BYTES = 1 << 17  # a method and its tables
_MOST_METHODS = _MOST_CODES = 1 << 17
_SEGMENTS_AT_ONCE = 1 << 16
# The interpreter is shared with the thread that drains the buffers.
_AT_ONCE, _PAUSE_S = 32, 0.001
_HAS_LINES = 1  # ConstMethod::_has_linenumber_table
_PLACE = 16  # sizeof(PcDesc)
# Members that say where tables are, and their bytes.
_IMMUTABLE = (("_immutable_data", 8), ("_immutable_data_size", 4))
_MUTABLE = (("_mutable_data", 8), ("_relocation_size", 4), ("_mutable_data_size", 4))


class _Memory:
    """Keeps what was read of a process, for one look."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._blocks: dict[int, bytes] = {}

    def read(self, address: int, size: int) -> bytes:
        """All these bytes; NotKnownError where they are not all there."""
        if not 0 <= size <= _MOST_PART_BYTES:
            raise NotKnownError
        parts = []
        first = address - address % _BLOCK_BYTES
        for block in range(first, address + size, _BLOCK_BYTES):
            begin, end = max(address, block), min(address + size, block + _BLOCK_BYTES)
            data = self._block(block)[begin - block : end - block]
            if len(data) < end - begin:  # memory begins or ends within the block
                data = self._bytes(begin, end - begin)
            parts.append(data)
        return b"".join(parts)

    def _block(self, block: int) -> bytes:
        if block not in self._blocks:
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()
            try:
                self._blocks[block] = self._read(block, _BLOCK_BYTES)
            except OSError:
                self._blocks[block] = b""
        return self._blocks[block]

    def _bytes(self, address: int, size: int) -> bytes:
        data = self._read(address, size)
        if len(data) < size:
            raise NotKnownError
        return data

    def number(self, address: int, size: int = 8) -> int:
        """A number there."""
        return int.from_bytes(self.read(address, size), "little")


class _Blob(NamedTuple):
    """A compilation as its head says it: addresses."""

    begin: int
    end: int
    compilation: int
    method: int
    places: tuple[int, int]
    scopes: tuple[int, int]
    methods: tuple[int, int]


class CompiledCode:
    """The compiled code of a JVM, as far as it was not told yet.

    Args:
        jvm: what it says of its structures.
        read: bytes of its memory, from an address; OSError where there are none.
    """

    def __init__(self, jvm: HotSpot, read: Read) -> None:
        self._jvm = jvm
        self._read = read
        self._memory = _Memory(read)
        self._told: set[tuple[int, int]] = set()  # begin and number of each compilation
        self._numbers: dict[tuple[int, int], int] = {}  # of methods that were told, by two of their addresses
        self._kinds: set[int] = set()  # what methods begin with: the class that they are of in the JVM
        self.header = JavaHeader(jvm.lowest_byte, bool(jvm.flag("DebugNonSafepoints")))

    def more(self) -> Iterator[bytes]:
        """Records of what was compiled since the last time.

        Raises:
            NotKnownError, OSError: as `HotSpot`.
        """
        try:
            for heap in self._jvm.heaps():
                for blob in filter(None, map(self._blob, self._used(heap))):
                    yield from self._records(blob)
                    if len(self._told) % _AT_ONCE == 0:
                        time.sleep(_PAUSE_S)
        finally:
            self._memory = _Memory(self._read)  # what was read is old at the next look

    def _used(self, heap: CodeHeap) -> Iterator[int]:
        """Where blocks of a heap begin that are in use."""
        layout = heap.layout
        count = (heap.grown_to - heap.start) >> layout.segment_shift
        for first in range(0, count, _SEGMENTS_AT_ONCE):
            segments = self._read(layout.segments + first, min(_SEGMENTS_AT_ONCE, count - first))
            at = segments.find(0)
            while at >= 0:
                yield heap.start + (first + at << layout.segment_shift) + layout.header_bytes
                at = segments.find(0, at + 1)

    def _blob(self, blob: int) -> _Blob | None:
        """A compilation, unless that is none, or was told."""
        try:
            name = self._memory.number(blob + self._jvm.offset("CodeBlob", "_name"))
            if self._memory.read(name, 8) != b"nmethod\0":
                return None
            number = self._memory.number(blob + self._jvm.offset("nmethod", "_compile_id"), 4)
            if (blob, number) in self._told or len(self._told) >= _MOST_CODES:
                return None
            self._told.add((blob, number))
            found = self._parts_25(blob) if self._jvm.has("nmethod", "_immutable_data") else self._parts_17(blob)
            method = self._memory.number(blob + self._jvm.compiled_method)
        except (NotKnownError, OSError):
            return None
        return found._replace(compilation=number, method=method)

    def _parts_17(self, blob: int) -> _Blob:
        """Where all is in the code heap."""
        offset, number = self._jvm.offset, self._memory.number
        begin, end = (number(blob + offset("CodeBlob", name)) for name in ("_code_begin", "_code_end"))
        places, behind, methods = (
            blob + number(blob + offset("nmethod", name), 4)
            for name in ("_scopes_pcs_offset", "_dependencies_offset", "_metadata_offset")
        )
        scopes = number(blob + offset("CompiledMethod", "_scopes_data_begin"))
        return _Blob(begin, end, 0, 0, (places, behind), (scopes, places), (methods, scopes))

    def _parts_25(self, blob: int) -> _Blob:
        """Where tables are elsewhere."""
        offset, number = self._jvm.offset, self._memory.number
        begin = blob + number(blob + offset("CodeBlob", "_code_offset"), 4)
        end = blob + number(blob + offset("CodeBlob", "_data_offset"), 4)
        tables, size = (number(blob + offset("nmethod", name), n) for name, n in _IMMUTABLE)
        places, scopes = (
            tables + number(blob + offset("nmethod", name), 4) for name in ("_scopes_pcs_offset", "_scopes_data_offset")
        )
        mutable, relocations, whole = (number(blob + offset("CodeBlob", name), n) for name, n in _MUTABLE)
        methods = (mutable + relocations, mutable + whole)
        return _Blob(begin, end, 0, 0, (places, scopes), (scopes, tables + size), methods)

    def _records(self, blob: _Blob) -> Iterator[bytes]:
        try:
            places, scopes, pointers = (
                self._memory.read(begin, end - begin) for begin, end in (blob.places, blob.scopes, blob.methods)
            )
            new: list[bytes] = []
            own = self._method(blob.method, new, is_one=True)
            numbers = [
                self._method(pointer, new, is_one=False)
                for (pointer,) in struct.iter_unpack("<Q", pointers[: len(pointers) // 8 * 8])
            ]
        except (NotKnownError, OSError):
            return
        yield from new
        if len(places) > 2 * _PLACE and own != NO_METHOD:  # the first and the last only say that it begins and ends
            methods = struct.pack(f"<{len(numbers)}I", *numbers)
            yield JavaCode(blob.begin, blob.end, blob.compilation, own, places, scopes, methods).to_bytes()

    def _method(self, method: int, new: list[bytes], *, is_one: bool) -> int:
        """The number of a method; ``new`` gets the record of one that has none yet."""
        try:
            kind = self._memory.number(method)
            if not is_one and kind not in self._kinds:
                return NO_METHOD
            constant = self._memory.number(method + self._jvm.offset("Method", "_constMethod"))
            known = self._numbers.get((method, constant))
            if known is not None or len(self._numbers) >= _MOST_METHODS:
                return NO_METHOD if known is None else known
            found = self._read_method(constant)
        except (NotKnownError, OSError):
            return NO_METHOD
        self._kinds.add(kind)
        new.append(found.to_bytes())
        return self._numbers.setdefault((method, constant), len(self._numbers))

    def _read_method(self, constant: int) -> JavaMethod:
        offset, number = self._jvm.offset, self._memory.number
        pool = number(constant + offset("ConstMethod", "_constants"))
        name, signature = (
            self._text(pool, number(constant + offset("ConstMethod", f"_{which}_index"), 2))
            for which in ("name", "signature")
        )
        holder = number(pool + offset("ConstantPool", "_pool_holder"))
        file = number(pool + offset("ConstantPool", "_source_file_name_index"), 2)
        return JavaMethod(
            self._symbol(number(holder + offset("Klass", "_name"))),
            name,
            signature,
            self._text(pool, file) if file else b"",
            self._lines(constant),
        )

    def _lines(self, constant: int) -> bytes:
        """Behind the bytecodes, up to what is at the end."""
        offset, number = self._jvm.offset, self._memory.number
        if not number(constant + offset("ConstMethod", self._jvm.line_flags), 2) & _HAS_LINES:
            return b""
        begin = self._jvm.size_of("ConstMethod") + number(constant + offset("ConstMethod", "_code_size"), 2)
        end = 8 * number(constant + offset("ConstMethod", "_constMethod_size"), 4)
        return self._memory.read(constant + begin, min(max(end - begin, 0), _MOST_TABLE_BYTES))

    def _text(self, pool: int, index: int) -> bytes:
        """A text among a class's constants."""
        return self._symbol(self._memory.number(pool + self._jvm.size_of("ConstantPool") + 8 * index))

    def _symbol(self, symbol: int) -> bytes:
        length = self._memory.number(symbol + self._jvm.offset("Symbol", "_length"), 2)
        return self._memory.read(symbol + self._jvm.offset("Symbol", "_body"), length)


def compiled_code(pid: int, memory: ProcessMemory) -> CompiledCode:
    """The compiled code of a process.

    Raises:
        NotKnownError, NotThereYetError, OSError: as `HotSpot`.
        ElfError: its library is none.
        ProcessLookupError: it runs something else by now.
    """
    line = find_library(read_executable_lines(pid))
    if line is None:
        raise ProcessLookupError
    read = functools.partial(memory.read, pid)
    fd = reach(pid, line)
    try:
        return CompiledCode(HotSpot(*open_library(fd, line.start, line.file_offset), read), read)
    finally:
        os.close(fd)
