"""What is read of a JVM's compiled code, with its structures laid out as two versions have them."""

import errno
import itertools
import struct
from collections.abc import Iterator
from typing import cast

import pytest

from builders.java_code import Scopes, lines
from tdprof.capture.java_code import NO_METHOD, JavaCode, JavaHeader, JavaMethod, read_header, read_records
from tdprof.recorder.hotspot import CodeHeap, HeapLayout, HotSpot, NotKnownError
from tdprof.recorder.java_code import CompiledCode

BASE, SIZE = 0x10_0000, 0x4000
HEAP, BLOCK = BASE + 0x100, 256  # a segment; each block has one, and 16 bytes before its blob
TABLE = lines((0, 5), (9, 6))
IN_17 = {
    ("CodeBlob", "_code_begin"): 32,
    ("CodeBlob", "_code_end"): 40,
    ("CompiledMethod", "_method"): 48,
    ("CompiledMethod", "_scopes_data_begin"): 56,
    ("nmethod", "_metadata_offset"): 64,
    ("nmethod", "_scopes_pcs_offset"): 68,
    ("nmethod", "_dependencies_offset"): 72,
    ("ConstMethod", "_flags"): 8,
}
IN_25 = {
    ("CodeBlob", "_code_offset"): 32,
    ("CodeBlob", "_data_offset"): 36,
    ("CodeBlob", "_mutable_data"): 40,
    ("CodeBlob", "_relocation_size"): 48,
    ("CodeBlob", "_mutable_data_size"): 52,
    ("nmethod", "_method"): 56,
    ("nmethod", "_immutable_data"): 64,
    ("nmethod", "_immutable_data_size"): 72,
    ("nmethod", "_scopes_pcs_offset"): 76,
    ("nmethod", "_scopes_data_offset"): 80,
    ("ConstMethod", "_flags._flags"): 8,
}
IN_BOTH = {
    ("CodeBlob", "_name"): 0,
    ("nmethod", "_compile_id"): 8,
    ("Method", "_constMethod"): 8,
    ("ConstMethod", "_constants"): 0,
    ("ConstMethod", "_name_index"): 10,
    ("ConstMethod", "_signature_index"): 12,
    ("ConstMethod", "_code_size"): 14,
    ("ConstMethod", "_constMethod_size"): 16,
    ("ConstantPool", "_pool_holder"): 0,
    ("ConstantPool", "_source_file_name_index"): 8,
    ("Klass", "_name"): 0,
    ("Symbol", "_length"): 0,
    ("Symbol", "_body"): 2,
}


class Jvm:
    """In place of `HotSpot`: its memory from BASE on, which can be read, and what it says of it."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.fields = IN_BOTH | (IN_17 if version < 20 else IN_25)
        self.memory = bytearray(SIZE)
        self.free = BASE + 0x1000
        self.blocks = 0
        self.segments = self.put(b"\xff" * 8)
        self.name, self.kind = self.put(b"nmethod\0"), self.put(b"vtable..")

    def put(self, data: bytes) -> int:
        at = self.free
        self.write(at, data)
        self.free += -(-len(data) // 8) * 8
        return at

    def write(self, at: int, data: bytes) -> None:
        self.memory[at - BASE : at - BASE + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        if not BASE <= address < BASE + SIZE:
            raise OSError(errno.EFAULT, "")
        return bytes(self.memory[address - BASE : address - BASE + size])

    def symbol(self, text: bytes) -> int:
        return self.put(struct.pack("<H", len(text)) + text)

    def method(self, holder: bytes, name: bytes, signature: bytes, file: bytes, table: bytes) -> int:
        symbols = [self.symbol(text) for text in (name, signature, file)]
        klass = self.put(struct.pack("<Q", self.symbol(holder)))
        pool = self.put(struct.pack("<QQ4Q", klass, 3 if file else 0, 0, *symbols))
        size = 24 + 8 * -(-(3 + len(table)) // 8)
        head = struct.pack("<QHHHHIxxxx", pool, 1 if table else 0, 1, 2, 3, size // 8)
        constant = self.put((head + b"BBB" + table).ljust(size, b"\0"))
        return self.put(struct.pack("<QQ", self.kind, constant))

    def compile(self, number: int, method: int, scopes: Scopes, methods: list[int], name: int | None = None) -> int:
        blob = HEAP + self.blocks * BLOCK + 16
        self.write(self.segments + self.blocks, b"\0")
        self.blocks += 1
        pointers, table = struct.pack(f"<{len(methods)}Q", *methods), scopes.table()
        self.write(blob, struct.pack("<QI", self.name if name is None else name, number))
        if self.version < 20:
            at = self.put(pointers)
            data = self.put(scopes.data)
            places = self.put(table)
            assert data == at + len(pointers)  # whole words
            offsets = [each - blob for each in (at, places, places + len(table))]
            self.write(blob + 32, struct.pack("<QQQQ3I", blob + 128, blob + 160, method, data, *offsets))
        else:
            mutable = self.put(b"relocate" + pointers)
            tables = self.put(table + scopes.data)
            whole = len(table) + len(scopes.data)
            head = struct.pack("<IIQII", 128, 160, mutable, 8, 8 + len(pointers))
            self.write(blob + 32, head + struct.pack("<QQ3I", method, tables, whole, 0, len(table)))
        return blob

    def heaps(self) -> list[CodeHeap]:
        layout = HeapLayout(low=HEAP, segments=self.segments, segment_shift=8, header_bytes=16)
        return [CodeHeap(HEAP, HEAP + 100 * BLOCK, HEAP + 8 * BLOCK, layout)]

    def has(self, type_: str, name: str) -> bool:
        return (type_, name) in self.fields

    def offset(self, type_: str, name: str) -> int:
        try:
            return self.fields[type_, name]
        except KeyError:
            raise NotKnownError from None

    def size_of(self, type_: str) -> int:
        return {"ConstMethod": 24, "ConstantPool": 16}[type_]

    @property
    def compiled_method(self) -> int:
        return self.offset("CompiledMethod" if self.version < 20 else "nmethod", "_method")

    @property
    def line_flags(self) -> str:
        return "_flags" if self.version < 20 else "_flags._flags"

    @property
    def lowest_byte(self) -> int:
        return self.version // 20

    def flag(self, name: str) -> int | None:
        assert name == "DebugNonSafepoints"
        return 1 if self.version < 20 else 0


def padded() -> Scopes:
    scopes = Scopes()
    scopes.place(8, scopes.add(0, 1, 0))
    scopes.data = scopes.data.ljust(16, b"\xff")
    return scopes


def records(code: CompiledCode) -> Iterator[JavaMethod | JavaCode]:
    return read_records(code.header.to_bytes() + b"".join(code.more()))


@pytest.fixture(params=[17, 25])
def jvm(request: pytest.FixtureRequest) -> Jvm:
    return Jvm(request.param)


def test_methods_are_told_once_and_before_code_that_has_them(jvm: Jvm) -> None:
    one = jvm.method(b"p/A", b"one", b"()V", b"A.java", TABLE)
    two = jvm.method(b"B", b"two", b"(I)J", b"", b"")
    scopes = padded()
    other = jvm.put(b"no class")
    first = jvm.compile(7, one, scopes, [one, other, two, BASE - 8])
    code = CompiledCode(cast(HotSpot, jvm), jvm.read)
    assert read_header(code.header.to_bytes()) == JavaHeader(jvm.version // 20, jvm.version < 20)

    found = list(records(code))
    assert found[:2] == [
        JavaMethod(b"p/A", b"one", b"()V", b"A.java", found[0].lines if isinstance(found[0], JavaMethod) else b""),
        JavaMethod(b"B", b"two", b"(I)J", b"", b""),
    ]
    assert isinstance(found[0], JavaMethod)
    assert found[0].lines.startswith(TABLE)
    numbers = struct.pack("<4I", 0, NO_METHOD, 1, NO_METHOD)
    assert found[2:] == [JavaCode(first + 128, first + 160, 7, 0, scopes.table(), scopes.data, numbers)]

    assert list(records(code)) == []
    second = jvm.compile(8, two, scopes, [one])
    numbers = struct.pack("<I", 0)
    expected = JavaCode(second + 128, second + 160, 8, 1, scopes.table(), scopes.data, numbers)
    assert list(records(code)) == [expected]


def test_what_is_no_method_or_lies_nowhere_is_left_out(jvm: Jvm) -> None:
    method = jvm.method(b"A", b"one", b"()V", b"", b"")
    jvm.compile(1, method, padded(), [], name=jvm.put(b"adapter\0"))
    jvm.compile(2, method, padded(), [], name=BASE - 4096)
    jvm.compile(3, BASE + SIZE + 64, padded(), [])
    blob = jvm.compile(4, method, padded(), [])
    for (type_, name), at in jvm.fields.items():
        if name in ("_scopes_pcs_offset", "_scopes_data_offset", "_immutable_data_size") and type_ == "nmethod":
            jvm.write(blob + at, b"\xff\xff\xff\x7f")
    good = jvm.compile(5, method, padded(), [])
    found = [each for each in records(CompiledCode(cast(HotSpot, jvm), jvm.read)) if isinstance(each, JavaCode)]
    assert [(each.begin, each.compilation) for each in found] == [(good + 128, 5)]


def test_records_that_are_cut_off_end_the_file(jvm: Jvm) -> None:
    jvm.compile(7, jvm.method(b"p/A", b"one", b"()V", b"A.java", TABLE), padded(), [])
    code = CompiledCode(cast(HotSpot, jvm), jvm.read)
    data = code.header.to_bytes() + b"".join(code.more())
    counts = [len(list(read_records(data[:size]))) for size in range(16, len(data) + 1)]
    assert counts == sorted(counts)
    assert [count for count, _ in itertools.groupby(counts)] == [0, 1, 2]
