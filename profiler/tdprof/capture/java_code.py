"""What a JVM knows of the code that it has compiled, beside its perf map in a capture: what was inlined, and lines.

A header, then records, each of which may name methods of records before it by number. The tables in them stay as the
JVM has them; ``symbolize.java_code`` looks up in them what is asked for.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tdprof.values import dataclass

NO_METHOD = 0xFFFFFFFF
_HEADER = struct.Struct("<8sBB6x")  # magic; see JavaHeader
_RECORD = struct.Struct("<II")  # kind, bytes behind this
_METHOD_KIND, _CODE_KIND = 1, 2
_METHOD = struct.Struct("<4H")  # bytes of holder, name, signature and file; the rest is the table of lines
_CODE = struct.Struct(
    "<QQIIII"
)  # begin, end, compilation, its method, bytes of places and of scopes; the rest: methods
_MAGIC = b"TDJAVA\0\1"


class JavaHeader(NamedTuple):
    """How to read the records.

    Attributes:
        lowest_byte: of a number in the JVM's tables: 0 up to JDK 19, then 1.
        is_everywhere: whether each instruction's scope is told (-XX:+DebugNonSafepoints), not only that of calls.
    """

    lowest_byte: int
    is_everywhere: bool

    def to_bytes(self) -> bytes:
        """The file's beginning."""
        return _HEADER.pack(_MAGIC, self.lowest_byte, self.is_everywhere)


@dataclass(frozen=True, slots=True)
class JavaMethod:
    """A method.

    Attributes:
        holder, name, signature, file: as in class files; of ``file`` there may be none.
        lines: the JVM's compressed table of lines.
    """

    holder: bytes
    name: bytes
    signature: bytes
    file: bytes
    lines: bytes

    def to_bytes(self) -> bytes:
        """Its record."""
        texts = (self.holder, self.name, self.signature, self.file)
        return _record(_METHOD_KIND, _METHOD.pack(*map(len, texts)) + b"".join(texts) + self.lines)


@dataclass(frozen=True, slots=True)
class JavaCode:
    """What a method was compiled to.

    Attributes:
        begin, end: run-time addresses.
        compilation: its number in the JVM.
        method: the number of its method.
        places: struct PcDesc[]: offset from ``begin``, offset in ``scopes``, two other numbers, 4 bytes each.
        scopes: the JVM's compressed scopes.
        methods: uint32[], the number of the method for each that scopes may speak of; ``NO_METHOD``: not known.
    """

    begin: int
    end: int
    compilation: int
    method: int
    places: bytes
    scopes: bytes
    methods: bytes

    def to_bytes(self) -> bytes:
        """Its record."""
        sizes = (len(self.places), len(self.scopes))
        head = _CODE.pack(self.begin, self.end, self.compilation, self.method, *sizes)
        return _record(_CODE_KIND, head + self.places + self.scopes + self.methods)


def _record(kind: int, body: bytes) -> bytes:
    return _RECORD.pack(kind, len(body)) + body


def read_header(data: bytes) -> JavaHeader | None:
    """The header of such a file; None: it is none."""
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        return None
    _, lowest_byte, is_everywhere = _HEADER.unpack_from(data)
    return JavaHeader(lowest_byte, bool(is_everywhere)) if lowest_byte <= 1 else None


def read_records(data: bytes) -> Iterator[JavaMethod | JavaCode]:
    """What is behind the header. A record that is cut off, or does not fit, ends it."""
    at = _HEADER.size
    while at + _RECORD.size <= len(data):
        kind, size = _RECORD.unpack_from(data, at)
        at += _RECORD.size
        body, at = data[at : at + size], at + size
        head = _METHOD if kind == _METHOD_KIND else _CODE
        if kind not in (_METHOD_KIND, _CODE_KIND) or len(body) < max(size, head.size):
            return
        rest = body[head.size :]
        if kind == _METHOD_KIND:
            yield JavaMethod(*_parts(rest, _METHOD.unpack_from(body)))
        else:
            begin, end, compilation, method, *sizes = _CODE.unpack_from(body)
            yield JavaCode(begin, end, compilation, method, *_parts(rest, sizes))


def _parts(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Pieces of these sizes, and the rest."""
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def code_name(pid: int) -> str:
    """Of the file beside a process's perf map."""
    return f"perf-{pid}.java"
