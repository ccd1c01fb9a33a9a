"""Compiled and Python decoders of perf records agree on all inputs, valid or not."""

import struct
from typing import Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.perf_records import (
    CONTEXT_GUEST,
    CONTEXT_KERNEL,
    CONTEXT_USER,
    CONTEXT_USER_DEFERRED,
    Read,
    RecordWriter,
    Sample,
)
from tdprof.decode.perf.columns import RecordStream
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.records import CompiledRecordDecoder
from tdprof.decode.perf.records_python import PythonRecordDecoder
from tdprof.linux.perf_abi import RecordType, SampleType

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
word = st.one_of(
    u64,
    st.integers(0, 40),
    st.just(0),
    st.sampled_from([CONTEXT_USER, CONTEXT_KERNEL, CONTEXT_GUEST, CONTEXT_USER_DEFERRED, 2**64 - 4095]),
)
byteorders: st.SearchStrategy[Literal["little", "big"]] = st.sampled_from(["little", "big"])
IDS = ((1, 2), (3,), (2**40,))


@st.composite
def layouts_(draw: st.DrawFn) -> list[RecordLayout]:
    walk_registers = draw(st.sampled_from([(), (0, 2, 1, 32), (32, 0, 32, 2)]))
    return [
        RecordLayout(
            sample_type=draw(st.integers(0, 2**25 - 1)) | SampleType.IDENTIFIER,
            read_format=draw(st.integers(0, 31)),
            branch_sample_type=draw(st.sampled_from([0, 1 << 17, 1 << 19, 1 << 17 | 1 << 19])),
            sample_regs_user=draw(st.sampled_from([0, 0b111, 1 << 32 | 3, 1 << 32 | 7])),
            sample_regs_intr=draw(st.sampled_from([0, 0b101])),
            sample_id_all=draw(st.booleans()),
            fixed_period=draw(st.sampled_from([0, 4000])),
            user_pc_register=draw(st.sampled_from([-1, 1, 32])),
            walk_registers=walk_registers,
            embeds_sample=draw(st.booleans()),
            ids=ids,
        )
        for ids in IDS[: draw(st.integers(1, 3))]
    ]


@st.composite
def embedded_samples(draw: st.DrawFn) -> bytes:
    """What perf's program for time off CPUs puts into the raw data, and what is nearly that."""
    chain = draw(st.lists(word, max_size=4))
    data = struct.pack("<IIQQ", draw(u32), draw(u32), draw(u64), len(chain) + draw(st.sampled_from([0, 0, 0, 1, 9])))
    return data + struct.pack(f"<{len(chain) + 1}Q", *chain, draw(u64))


@st.composite
def samples(draw: st.DrawFn, layout: RecordLayout) -> Sample:
    count = draw(st.integers(0, 4)) if layout.read_format & 8 else 1
    return Sample(
        ip=draw(u64),
        pid=draw(u32),
        tid=draw(u32),
        time_ns=draw(u64),
        id=draw(st.sampled_from([*layout.ids, 0])),
        cpu=draw(u32),
        period=draw(u64),
        read=Read(draw(st.lists(st.tuples(u64, word, u64), min_size=count, max_size=count)), draw(u64), draw(u64)),
        chain=draw(st.lists(word, max_size=12)),
        raw=draw(st.binary(max_size=20) | embedded_samples()),
        branches=draw(st.lists(st.tuples(u64, u64, u64), max_size=4)),
        regs_user=draw(st.none() | st.just(list(range(layout.sample_regs_user.bit_count())))),
        stack=draw(st.binary(max_size=20)),
        stack_filled=draw(st.none() | st.integers(0, 40) | u64),
        regs_intr=draw(st.none() | st.just(list(range(layout.sample_regs_intr.bit_count())))),
        phys_addr=draw(u64),
        cgroup=draw(u64),
        aux=draw(st.binary(max_size=20)),
        misc=draw(st.integers(0, 5)) | draw(st.sampled_from([0, 1 << 14])),
    )


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[RecordLayout], Literal["little", "big"], list[bytes]]:
    """Layouts, byte order and records: samples, real side-band records, and any type with any body."""
    layouts = draw(layouts_())
    byteorder = draw(byteorders)
    writer = RecordWriter(layouts, byteorder)
    records = []
    for _ in range(draw(st.integers(0, 8))):
        event = draw(st.integers(0, len(layouts) - 1))
        kind = draw(st.sampled_from(["sample", "sample", "mmap2", "any"]))
        if kind == "sample":
            records.append(writer.sample(draw(samples(layouts[event])), event))
        elif kind == "mmap2":
            trailer = writer.sample_id(event, id_=layouts[event].ids[0], time_ns=draw(u64), pid=draw(u32))
            build_id = draw(st.none() | st.binary(max_size=20))
            records.append(
                writer.mmap2(1, draw(u64), draw(u64), 0, draw(st.binary()), build_id=build_id, trailer=trailer)
            )
        else:
            body = draw(st.binary(max_size=80))
            type_ = draw(st.sampled_from([*RecordType, 0, 22, 30, 68]))
            records.append(writer.record(type_, body + b"\0" * (-len(body) % 8), draw(st.integers(0, 2**16 - 1))))
    return layouts, byteorder, records


def everything(decoder: RecordStream, chunks: list[bytes]) -> list[object]:
    """All that a decoder makes of a stream fed in chunks, the leftover carried as a caller would."""
    rest = b""
    for number, chunk in enumerate(chunks):
        rest += chunk
        while True:
            rest = rest[decoder.feed(rest, final=number == len(chunks) - 1) :]
            if not decoder.tool_record:
                break
            size = min(len(rest), 8)
            decoder.skip(size)
            rest = rest[size:]
    taken = decoder.take_samples()
    chains, copies = decoder.chains(), decoder.take_copies()
    side_band = decoder.take_side_band()
    return [
        *(getattr(taken, name).tolist() for name in taken.__slots__),
        decoder.take_reads().tolist(),
        decoder.take_branches().tolist(),
        *(np.asarray(getattr(copies, name)).tolist() for name in copies.__slots__),
        [tuple(np.asarray(field).tolist() for field in row) for row in side_band.rows],
        side_band.names,
        chains.frames.tolist(),
        chains.offsets.tolist(),
        decoder.losses,
        rest,
    ]


def both(
    layouts: list[RecordLayout], byteorder: Literal["little", "big"], chunks: list[bytes]
) -> tuple[list[object], list[object]]:
    return (
        everything(CompiledRecordDecoder(layouts, byteorder, keep_branches=True, keep_copies=True), chunks),
        everything(PythonRecordDecoder(layouts, byteorder, keep_branches=True, keep_copies=True), chunks),
    )


@pytest.mark.thorough
@given(streams())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_compiled_equals_python(stream: tuple[list[RecordLayout], Literal["little", "big"], list[bytes]]) -> None:
    layouts, byteorder, records = stream
    compiled, python = both(layouts, byteorder, [b"".join(records)])
    assert compiled == python


@given(streams(), st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_compiled_equals_python_on_damage(
    stream: tuple[list[RecordLayout], Literal["little", "big"], list[bytes]], data: st.DataObject
) -> None:
    """Bytes changed, cut out and put in, and the stream fed in pieces."""
    layouts, byteorder, records = stream
    stream_bytes = bytearray(b"".join(records))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream_bytes)))
        kind = data.draw(st.sampled_from(["flip", "cut", "insert"]))
        if kind == "flip" and at < len(stream_bytes):
            stream_bytes[at] ^= data.draw(st.integers(1, 255))
        elif kind == "cut":
            del stream_bytes[at : at + data.draw(st.integers(1, 40))]
        else:
            stream_bytes[at:at] = data.draw(st.binary(max_size=40))
    middle = data.draw(st.integers(0, len(stream_bytes)))
    compiled, python = both(layouts, byteorder, [bytes(stream_bytes[:middle]), bytes(stream_bytes[middle:])])
    assert compiled == python


@given(streams(), st.integers(1, 64))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_chunks_do_not_matter(
    stream: tuple[list[RecordLayout], Literal["little", "big"], list[bytes]], size: int
) -> None:
    layouts, byteorder, records = stream
    writer = RecordWriter(layouts, byteorder)
    whole = b"".join(record for record in records if int.from_bytes(record[:4], byteorder) in (9, 10)) + writer.record(
        RecordType.SWITCH, writer.sample_id()
    )
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert everything(CompiledRecordDecoder(layouts, byteorder), chunks) == everything(
        CompiledRecordDecoder(layouts, byteorder), [whole]
    )


@given(streams(), st.integers(1, 64), st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_chunks_do_not_matter_to_damage(
    stream: tuple[list[RecordLayout], Literal["little", "big"], list[bytes]], size: int, data: st.DataObject
) -> None:
    layouts, byteorder, records = stream
    whole = bytearray(b"".join(record for record in records if int.from_bytes(record[:4], byteorder) < 64))
    for _ in range(data.draw(st.integers(0, 3)) if whole else 0):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    chunks = [bytes(whole[at : at + size]) for at in range(0, len(whole), size)] or [b""]
    assert everything(CompiledRecordDecoder(layouts, byteorder), chunks) == everything(
        CompiledRecordDecoder(layouts, byteorder), [bytes(whole)]
    )


def test_what_follows_damage_is_waited_for() -> None:
    """A sample behind a record that is none was lost where the first chunk ended between them; so was a wrong size."""
    layouts = [RecordLayout(sample_type=SampleType.IDENTIFIER, ids=(1,))]
    good = struct.pack("<IHHQ", RecordType.SAMPLE, 0, 16, 1)
    damaged = struct.pack("<IHH", RecordType.MMAP2, 0, 16) + bytes(8)
    too_long = struct.pack("<IHHQ", RecordType.SAMPLE, 0, 24, 1)
    for whole, taken in ((damaged + good + good, 2), (too_long + good + good + good, 4)):
        for at in range(0, len(whole), 8):
            decoder = CompiledRecordDecoder(layouts)
            assert len(everything(decoder, [whole[:at], whole[at:]])[0]) == taken  # type: ignore[arg-type]
            assert decoder.losses.malformed_bytes == (16 if whole.startswith(damaged) else 0)
