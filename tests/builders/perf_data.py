"""Writes perf.data files as the perf tool would, in file or pipe form and either byte order."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import zstandard

from builders.perf_records import RecordWriter
from tdprof.decode.perf.layout import RecordLayout

ATTR_BYTES = 128  # PERF_ATTR_SIZE_VER7, the newest that perf 6.1 accepts
COMPRESSED, COMPRESSED2, AUXTRACE_INFO, AUXTRACE, TIME_CONV = 81, 83, 70, 71, 79

# perf_event_attr flag bits that matter here.
FLAG_BITS = {
    "inherit": 1,
    "mmap": 8,
    "comm": 9,
    "freq": 10,
    "enable_on_exec": 12,
    "task": 13,
    "sample_id_all": 18,
    "use_clockid": 25,
    "write_backward": 27,
}


@dataclass(frozen=True)
class Event:
    """One event of the file: its attr, ids and name."""

    layout: RecordLayout
    name: str = "cycles"
    type: int = 0
    config: int = 0
    sample_period: int = 4000
    flags: Sequence[str] = ("mmap", "comm", "task")
    clockid: int = 0


@dataclass
class PerfDataWriter:
    """Collects what the file holds; ``file()``, ``pipe()`` and ``compressed()`` return its bytes."""

    events: Sequence[Event]
    byteorder: Literal["little", "big"] = "little"
    features: dict[int, bytes] = field(default_factory=dict)
    attr_bytes: int = ATTR_BYTES

    @property
    def records(self) -> RecordWriter:
        return RecordWriter([event.layout for event in self.events], self.byteorder)

    def pack(self, format_: str, *values: int) -> bytes:
        return struct.pack(("<" if self.byteorder == "little" else ">") + format_, *values)

    def attr(self, event: Event) -> bytes:
        layout = event.layout
        flags = sum(1 << FLAG_BITS[name] for name in event.flags)
        flags |= layout.sample_id_all << FLAG_BITS["sample_id_all"]
        if self.byteorder == "big":
            flags = int(f"{flags:064b}"[::-1], 2)
        data = self.pack("II", event.type, self.attr_bytes)
        data += self.pack("QQQQQ", event.config, event.sample_period, layout.sample_type, layout.read_format, flags)
        data += self.pack("IIQQ", 0, 0, 0, 0)
        data += self.pack(
            "QQIiQ", layout.branch_sample_type, layout.sample_regs_user, 0, event.clockid, layout.sample_regs_intr
        )
        return data.ljust(max(136, self.attr_bytes), b"\0")[: self.attr_bytes]

    def string(self, text: str) -> bytes:
        padded = text.encode() + b"\0" * (64 - len(text.encode()) % 64)
        return self.pack("I", len(padded)) + padded

    def event_desc(self) -> bytes:
        data = self.pack("II", len(self.events), self.attr_bytes)
        for event in self.events:
            ids = event.layout.ids
            data += self.attr(event) + self.pack("I", len(ids)) + self.string(event.name)
            data += self.pack(f"{len(ids)}Q", *ids)
        return data

    def build_id(self, path: str, build_id: bytes, pid: int = -1) -> bytes:
        name = path.encode() + b"\0" * (64 - len(path) % 64)
        identity = build_id.ljust(20, b"\0") + bytes([len(build_id)]) + b"\0" * 3
        body = self.pack("i", pid) + identity + name
        return self.pack("IHH", 67, 1 << 15 | 2, 8 + len(body)) + body

    def all_features(self) -> dict[int, bytes]:
        return {12: self.event_desc(), **self.features}

    def file(self, data: bytes, *, data_size: int | None = None) -> bytes:
        """The seekable form; ``data_size`` lies about the data's size (0: perf was killed)."""
        ids_at = 104
        ids = b"".join(self.pack(f"{len(e.layout.ids)}Q", *e.layout.ids) for e in self.events)
        attrs_at = ids_at + len(ids)
        attrs = b""
        for event in self.events:
            size = 8 * len(event.layout.ids)
            attrs += self.attr(event) + self.pack("QQ", ids_at, size)
            ids_at += size
        data_at = attrs_at + len(attrs)
        features = dict(sorted(self.all_features().items()))
        bits = [0] * 4
        for bit in features:
            bits[bit // 64] |= 1 << bit % 64
        header = self.pack("Q", 0x32454C4946524550) + self.pack("QQ", 104, self.attr_bytes + 16)
        header += self.pack("QQ", attrs_at, len(attrs))
        header += self.pack("QQ", data_at, len(data) if data_size is None else data_size)
        header += self.pack("QQ", 0, 0) + self.pack("4Q", *bits)
        table, sections = b"", b""
        sections_at = data_at + len(data) + 16 * len(features)
        for content in features.values():
            table += self.pack("QQ", sections_at + len(sections), len(content))
            sections += content
        return header + ids + attrs + data + table + sections

    def tool_record(self, type_: int, body: bytes) -> bytes:
        return self.pack("IHH", type_, 0, 8 + len(body)) + body

    def pipe(self, data: bytes) -> bytes:
        """The form of ``perf record -o -``: everything is a record."""
        out = self.pack("Q", 0x32454C4946524550) + self.pack("Q", 16)
        for event in self.events:
            ids = event.layout.ids
            out += self.tool_record(64, self.attr(event) + self.pack(f"{len(ids)}Q", *ids))
        for bit, content in self.all_features().items():
            out += self.tool_record(80, self.pack("Q", bit) + content)
        return out + data

    def compressed(self, data: bytes, *, piece_bytes: int = 1000, version: int = 1) -> bytes:
        """Records as COMPRESSED records: one zstd stream, flushed at every piece and never ended, as perf does."""
        stream = zstandard.ZstdCompressor().compressobj()
        out = b""
        for at in range(0, len(data), piece_bytes):
            payload = stream.compress(data[at : at + piece_bytes])
            payload += stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            if version == 2:
                payload = self.pack("Q", len(payload)) + payload + b"\0" * (-len(payload) % 8)
            out += self.tool_record(COMPRESSED if version == 1 else COMPRESSED2, payload)
        return out

    def auxtrace(self, payload: bytes, *, aux_offset: int = 0, idx: int = 0, tid: int = -1, cpu: int = 0) -> bytes:
        """An AUXTRACE record and the raw bytes behind it."""
        padded = payload + b"\0" * (-len(payload) % 8)
        body = self.pack("QQQ", len(padded), aux_offset, 7) + self.pack("IiiI", idx, tid, cpu, 0)
        return self.tool_record(AUXTRACE, body) + padded
