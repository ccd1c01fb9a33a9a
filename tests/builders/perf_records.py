"""Writes perf records byte by byte from linux/perf_event.h, in either byte order; knows nothing of our decoders."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import ReadFormat, RecordType, SampleType

CONTEXT_HV = 2**64 - 32
CONTEXT_KERNEL = 2**64 - 128
CONTEXT_USER = 2**64 - 512
CONTEXT_USER_DEFERRED = 2**64 - 640
CONTEXT_GUEST = 2**64 - 2048


def branch_flags(
    *,
    mispredicted: bool = False,
    predicted: bool = False,
    in_transaction: bool = False,
    aborted: bool = False,
    cycles: int = 0,
    type_: int = 0,
    speculation: int = 0,
    new_type: int = 0,
    privilege: int = 0,
) -> int:
    """The bits behind the addresses of struct perf_branch_entry, as a little-endian machine has them."""
    flags = mispredicted | predicted << 1 | in_transaction << 2 | aborted << 3 | cycles << 4 | type_ << 20
    return flags | speculation << 24 | new_type << 26 | privilege << 30


@dataclass(frozen=True)
class Read:
    """Counter values: (value, id, lost) each; more than one only with PERF_FORMAT_GROUP."""

    values: Sequence[tuple[int, int, int]]
    enabled_ns: int = 0
    running_ns: int = 0


@dataclass(frozen=True)
class Sample:
    """The fields of one PERF_RECORD_SAMPLE; only those in the layout's sample_type are written."""

    ip: int = 0
    pid: int = 0
    tid: int = 0
    time_ns: int = 0
    addr: int = 0
    id: int = 0
    stream_id: int = 0
    cpu: int = 0
    period: int = 1
    read: Read = field(default_factory=lambda: Read([(0, 0, 0)]))
    chain: Sequence[int] = ()
    raw: bytes = b"\0" * 4
    branches: Sequence[tuple[int, int, int]] = ()
    regs_user: Sequence[int] | None = None
    stack: bytes = b""
    stack_filled: int | None = None  # what the kernel says it could read; None: all
    weight: int = 0
    data_src: int = 0
    transaction: int = 0
    regs_intr: Sequence[int] | None = None
    phys_addr: int = 0
    cgroup: int = 0
    data_page_size: int = 0
    code_page_size: int = 0
    aux: bytes = b""
    misc: int = 2


class RecordWriter:
    """Records of the given layouts (one per event) as bytes."""

    def __init__(self, layouts: Sequence[RecordLayout], byteorder: Literal["little", "big"] = "little") -> None:
        self.layouts = layouts
        self.order = "<" if byteorder == "little" else ">"

    def pack(self, format_: str, *values: int) -> bytes:
        return struct.pack(self.order + format_, *values)

    def words(self, values: Iterable[int]) -> bytes:
        values = list(values)
        return self.pack(f"{len(values)}Q", *values)

    def record(self, type_: int, body: bytes, misc: int = 0) -> bytes:
        return self.pack("IHH", type_, misc, 8 + len(body)) + body

    def read_format(self, layout: RecordLayout, read: Read) -> bytes:
        has = ReadFormat(layout.read_format)
        times = (
            [read.enabled_ns] * (ReadFormat.TOTAL_TIME_ENABLED in has),
            [read.running_ns] * (ReadFormat.TOTAL_TIME_RUNNING in has),
        )
        values = [
            [value] + [id_] * (ReadFormat.ID in has) + [lost] * (ReadFormat.LOST in has)
            for value, id_, lost in read.values
        ]
        if ReadFormat.GROUP in has:
            return self.words([len(values), *times[0], *times[1], *(word for row in values for word in row)])
        return self.words([values[0][0], *times[0], *times[1], *values[0][1:]])

    def sample(self, sample: Sample, event: int = 0) -> bytes:
        layout = self.layouts[event]
        has = SampleType(layout.sample_type)
        body = b""
        if SampleType.IDENTIFIER in has:
            body += self.words([sample.id])
        if SampleType.IP in has:
            body += self.words([sample.ip])
        if SampleType.TID in has:
            body += self.pack("II", sample.pid, sample.tid)
        for bit, value in (
            (SampleType.TIME, sample.time_ns),
            (SampleType.ADDR, sample.addr),
            (SampleType.ID, sample.id),
            (SampleType.STREAM_ID, sample.stream_id),
        ):
            if bit in has:
                body += self.words([value])
        if SampleType.CPU in has:
            body += self.pack("II", sample.cpu, 0)
        if SampleType.PERIOD in has:
            body += self.words([sample.period])
        if SampleType.READ in has:
            body += self.read_format(layout, sample.read)
        if SampleType.CALLCHAIN in has:
            body += self.words([len(sample.chain), *sample.chain])
        if SampleType.RAW in has:
            padded = sample.raw + b"\0" * (-(len(sample.raw) + 4) % 8)
            body += self.pack("I", len(padded)) + padded
        if SampleType.BRANCH_STACK in has:
            body += self.words([len(sample.branches)])
            if layout.branch_sample_type & 1 << 17:
                body += self.words([2**64 - 1])
            body += self.words(word for branch in sample.branches for word in branch)
            if layout.branch_sample_type & 1 << 19:
                body += self.words([0] * len(sample.branches))
        if SampleType.REGS_USER in has:
            body += self.words([0] if sample.regs_user is None else [2, *sample.regs_user])
        if SampleType.STACK_USER in has:
            padded = sample.stack + b"\0" * (-len(sample.stack) % 8)
            body += self.words([len(padded)])
            if padded:
                filled = len(sample.stack) if sample.stack_filled is None else sample.stack_filled
                body += padded + self.words([filled])
        if has & (SampleType.WEIGHT | SampleType.WEIGHT_STRUCT):
            body += self.words([sample.weight])
        for bit, value in ((SampleType.DATA_SRC, sample.data_src), (SampleType.TRANSACTION, sample.transaction)):
            if bit in has:
                body += self.words([value])
        if SampleType.REGS_INTR in has:
            body += self.words([0] if sample.regs_intr is None else [2, *sample.regs_intr])
        for bit, value in (
            (SampleType.PHYS_ADDR, sample.phys_addr),
            (SampleType.CGROUP, sample.cgroup),
            (SampleType.DATA_PAGE_SIZE, sample.data_page_size),
            (SampleType.CODE_PAGE_SIZE, sample.code_page_size),
        ):
            if bit in has:
                body += self.words([value])
        if SampleType.AUX in has:
            padded = sample.aux + b"\0" * (-len(sample.aux) % 8)
            body += self.words([len(padded)]) + padded
        return self.record(RecordType.SAMPLE, body, sample.misc)

    def sample_id(
        self, event: int = 0, *, pid: int = 0, tid: int = 0, time_ns: int = 0, id_: int = 0, cpu: int = 0
    ) -> bytes:
        """The struct sample_id at the end of a side-band record; empty without sample_id_all."""
        layout = self.layouts[event]
        has = SampleType(layout.sample_type)
        if not layout.sample_id_all:
            return b""
        body = self.pack("II", pid, tid) if SampleType.TID in has else b""
        for bit, value in ((SampleType.TIME, time_ns), (SampleType.ID, id_), (SampleType.STREAM_ID, id_)):
            if bit in has:
                body += self.words([value])
        if SampleType.CPU in has:
            body += self.pack("II", cpu, 0)
        return body + (self.words([id_]) if SampleType.IDENTIFIER in has else b"")

    def name(self, text: bytes) -> bytes:
        """NUL-terminated and padded to 8, as the kernel writes names."""
        return text + b"\0" * (8 - len(text) % 8)

    def mmap2(
        self,
        pid: int,
        addr: int,
        length: int,
        pgoff: int,
        path: bytes,
        *,
        tid: int | None = None,
        build_id: bytes | None = None,
        inode: tuple[int, int, int, int] = (8, 1, 77, 3),
        prot: int = 5,
        flags: int = 2,
        trailer: bytes = b"",
    ) -> bytes:
        tid = pid if tid is None else tid
        if build_id is None:
            identity = self.pack("IIQQ", *inode)
        else:
            identity = self.pack("BBH", len(build_id), 0, 0) + build_id.ljust(20, b"\0")
        body = self.pack("IIQQQ", pid, tid, addr, length, pgoff) + identity + self.pack("II", prot, flags)
        misc = 2 | (1 << 14 if build_id is not None else 0)
        return self.record(RecordType.MMAP2, body + self.name(path) + trailer, misc)

    def mmap(
        self, pid: int, addr: int, length: int, pgoff: int, path: bytes, *, misc: int = 2, trailer: bytes = b""
    ) -> bytes:
        body = self.pack("IIQQQ", pid, pid & 0xFFFFFFFF, addr, length, pgoff)
        return self.record(RecordType.MMAP, body + self.name(path) + trailer, misc)

    def comm(self, pid: int, tid: int, name: bytes, *, exec_: bool = False, trailer: bytes = b"") -> bytes:
        body = self.pack("II", pid, tid) + self.name(name) + trailer
        return self.record(RecordType.COMM, body, 1 << 13 if exec_ else 0)

    def namespaces(self, pid: int, tid: int, links: Sequence[tuple[int, int]], trailer: bytes = b"") -> bytes:
        """(device, inode) of each kind, in the order of the kernel's header."""
        body = self.pack("IIQ", pid, tid, len(links)) + self.words(word for link in links for word in link)
        return self.record(RecordType.NAMESPACES, body + trailer)

    def cgroup(self, id_: int, path: bytes, trailer: bytes = b"") -> bytes:
        return self.record(RecordType.CGROUP, self.words([id_]) + self.name(path) + trailer)

    def task(self, type_: RecordType, pid: int, ppid: int, tid: int, ptid: int, time_ns: int, trailer: bytes) -> bytes:
        """FORK or EXIT."""
        return self.record(type_, self.pack("IIIIQ", pid, ppid, tid, ptid, time_ns) + trailer)
