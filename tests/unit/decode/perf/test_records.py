"""Both decoders of perf records, field by field."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from builders.perf_records import (
    CONTEXT_GUEST,
    CONTEXT_KERNEL,
    CONTEXT_USER,
    CONTEXT_USER_DEFERRED,
    Read,
    RecordWriter,
    Sample,
)
from tdprof.decode.perf.columns import NOT_RECORDED, DamagedRecords, RecordLosses, RecordStream
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.records import CompiledRecordDecoder
from tdprof.decode.perf.records_python import PythonRecordDecoder
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import ReadFormat, RecordType, SampleType

Open = Callable[..., RecordStream]
USUAL = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.PERIOD


@pytest.fixture(params=[CompiledRecordDecoder, PythonRecordDecoder], ids=["compiled", "python"])
def open_(request: pytest.FixtureRequest) -> Open:
    decoder: Open = request.param
    return decoder


@pytest.fixture(params=["little", "big"])
def byteorder(request: pytest.FixtureRequest) -> Literal["little", "big"]:
    order: Literal["little", "big"] = request.param
    return order


def test_every_sample_field_is_read_or_skipped_exactly(open_: Open, byteorder: Literal["little", "big"]) -> None:
    """Each field alone in front of the next sample: a wrong size would spoil that one."""
    for bit in SampleType:
        layout = RecordLayout(
            sample_type=USUAL | bit,
            read_format=ReadFormat.GROUP | ReadFormat.ID | ReadFormat.LOST | ReadFormat.TOTAL_TIME_ENABLED,
            branch_sample_type=1 << 17 | 1 << 19,
            sample_regs_user=0b1011,
            sample_regs_intr=0b11,
        )
        writer = RecordWriter([layout], byteorder)
        sample = Sample(
            ip=0x401000,
            pid=7,
            tid=8,
            time_ns=99,
            cpu=3,
            period=1000,
            chain=[CONTEXT_USER, 0x401000, 0x402000],
            read=Read([(5, 1, 0), (6, 2, 0)], enabled_ns=9),
            raw=b"abcdef",
            branches=[(1, 2, 3), (4, 5, 6)],
            regs_user=[1, 2, 3],
            regs_intr=[4, 5],
            stack=b"stack",
            aux=b"aux",
        )
        decoder = open_([layout], byteorder)
        data = writer.sample(sample) * 2
        assert decoder.feed(data) == len(data), bit
        samples = decoder.take_samples()
        assert len(samples) == 2, bit
        assert decoder.losses == RecordLosses(by_type={9: 2}), bit
        for name, value in {"ip": 0x401000, "pid": 7, "tid": 8, "time_ns": 99, "cpu": 3, "period": 1000}.items():
            assert getattr(samples, name).tolist() == [value, value], (bit, name)


def test_fields_that_are_not_recorded_are_marked(open_: Open) -> None:
    layout = RecordLayout(sample_type=SampleType.IP, fixed_period=4000)
    decoder = open_([layout])
    decoder.feed(RecordWriter([layout]).sample(Sample(ip=5)))
    samples = decoder.take_samples()
    assert (samples.pid[0], samples.tid[0], samples.cpu[0]) == (NOT_RECORDED,) * 3
    assert samples.period[0] == 4000


def frames(decoder: RecordStream, chain: int) -> list[int]:
    chains = decoder.chains()
    return [] if chain < 0 else chains.frames[int(chains.offsets[chain]) : int(chains.offsets[chain + 1])].tolist()


@pytest.mark.parametrize(
    ("misc", "chain", "user", "kernel"),
    [
        (1, [CONTEXT_KERNEL, 0xA, 0xB, CONTEXT_USER, 0x1, 0x2], [0x1, 0x2], [0xA, 0xB]),
        (2, [CONTEXT_USER, 0x1], [0x1], []),
        (2, [0x1, 0x2], [0x1, 0x2], []),  # no marker: the sample's own mode
        (1, [0xA], [], [0xA]),
        (2, [CONTEXT_USER, 0x1, 0], [0x1], []),  # the end of a frame-pointer chain
        (2, [CONTEXT_USER, 0, 0x1, 0, 0], [0, 0x1], []),
        (2, [], [0x99], []),  # nothing asked for or nothing readable: the address itself
        (1, [CONTEXT_USER, 0x1], [0x1], [0x99]),  # exclude_callchain_kernel
        (1, [CONTEXT_USER, 0x1, CONTEXT_KERNEL, 0xA, CONTEXT_USER, 0x2], [0x1, 0x2], [0xA]),
        (4, [CONTEXT_GUEST, 0x5], [], []),
        (2, [2**64 - 4095, 0x5, CONTEXT_USER, 0x6], [0x6], []),  # a marker of the future
        (1, [CONTEXT_KERNEL, 0xA, CONTEXT_USER_DEFERRED, 0xC00C1E], [], [0xA]),
        (1, [CONTEXT_KERNEL, 0xA, CONTEXT_USER_DEFERRED], [], [0xA]),
    ],
)
def test_markers_split_the_chain(open_: Open, misc: int, chain: list[int], user: list[int], kernel: list[int]) -> None:
    layout = RecordLayout(sample_type=USUAL | SampleType.CALLCHAIN)
    decoder = open_([layout])
    decoder.feed(RecordWriter([layout]).sample(Sample(ip=0x99, chain=chain, misc=misc)))
    samples = decoder.take_samples()
    assert frames(decoder, int(samples.user_chain[0])) == user
    assert frames(decoder, int(samples.kernel_chain[0])) == kernel


def test_frames_left_out_of_chains_are_counted(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL | SampleType.CALLCHAIN)
    decoder = open_([layout])
    chain = [CONTEXT_GUEST, 1, 2, 2**64 - 4095, 3, CONTEXT_USER_DEFERRED, 4]
    decoder.feed(RecordWriter([layout]).sample(Sample(ip=9, chain=chain)))
    losses = decoder.losses
    assert (losses.guest_frames, losses.unknown_contexts, losses.deferred_chains) == (2, 1, 1)


def test_equal_chains_are_stored_once(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL | SampleType.CALLCHAIN)
    writer = RecordWriter([layout])
    decoder = open_([layout])
    stacks = [[CONTEXT_USER, *range(1, depth)] for depth in range(2, 120)]
    for _ in range(3):
        for chain in stacks:
            decoder.feed(writer.sample(Sample(chain=chain)))
    samples = decoder.take_samples()
    assert len(samples) == 3 * len(stacks)
    assert len(decoder.chains()) == len(stacks)
    assert samples.user_chain.tolist() == list(range(len(stacks))) * 3
    assert decoder.chains(len(stacks) - 1).frames.tolist() == list(range(1, 119))
    decoder.forget_chains()
    assert len(decoder.chains()) == 0


def test_user_pc_stands_in_for_a_user_chain_that_was_not_recorded(open_: Open) -> None:
    layout = RecordLayout(
        sample_type=USUAL | SampleType.CALLCHAIN | SampleType.REGS_USER,
        sample_regs_user=1 << 29 | 1 << 31 | 1 << 32,
        user_pc_register=32,
    )
    decoder = open_([layout])
    sample = Sample(ip=0xFFFF, chain=[CONTEXT_KERNEL, 0xFFFF], misc=1, regs_user=[1, 2, 0x401234])
    decoder.feed(RecordWriter([layout]).sample(sample))
    samples = decoder.take_samples()
    assert frames(decoder, int(samples.user_chain[0])) == [0x401234]


def test_events_are_told_apart_by_id(open_: Open, byteorder: Literal["little", "big"]) -> None:
    """Different layouts with PERF_SAMPLE_IDENTIFIER; ids of inherited events are the parent's."""
    layouts = [
        RecordLayout(sample_type=USUAL, ids=(10, 11)),
        RecordLayout(sample_type=USUAL | SampleType.CALLCHAIN, ids=(20, 2**63 + 1)),
    ]
    writer = RecordWriter(layouts, byteorder)
    decoder = open_(layouts, byteorder)
    plan = [(0, 10), (1, 2**63 + 1), (1, 20), (0, 11), (0, 999)]
    data = b"".join(writer.sample(Sample(id=id_, chain=[CONTEXT_USER, 1]), event) for event, id_ in plan)
    assert decoder.feed(data) == len(data)
    assert decoder.take_samples().event.tolist() == [0, 1, 1, 0]
    assert decoder.losses.unknown_ids == 1


def test_an_unknown_id_among_equal_layouts_keeps_the_sample(open_: Open) -> None:
    layouts = [RecordLayout(sample_type=USUAL, ids=(id_,)) for id_ in (1, 2)]
    decoder = open_(layouts)
    decoder.feed(RecordWriter(layouts).sample(Sample(id=3, pid=4)))
    samples = decoder.take_samples()
    assert (samples.event[0], samples.pid[0]) == (NOT_RECORDED, 4)
    assert decoder.losses.unknown_ids == 1


def test_layouts_without_a_common_id_are_refused(open_: Open) -> None:
    with pytest.raises(TdprofError, match="no common id"):
        open_([RecordLayout(sample_type=SampleType.IP), RecordLayout(sample_type=SampleType.TID)])


def test_old_perf_ids_are_found_behind_the_address(open_: Open) -> None:
    """Before PERF_SAMPLE_IDENTIFIER (Linux 3.12) the id stood in the middle, at one place for all events."""
    common = SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.ID
    layouts = [
        RecordLayout(sample_type=common | SampleType.CPU, ids=(1,)),
        RecordLayout(sample_type=common | SampleType.CPU | SampleType.PERIOD, ids=(2,)),
    ]
    writer = RecordWriter(layouts)
    decoder = open_(layouts)
    decoder.feed(writer.sample(Sample(id=1), 0) + writer.sample(Sample(id=2, period=6), 1))
    decoder.feed(writer.comm(5, 5, b"sh", trailer=writer.sample_id(1, id_=2, time_ns=77)))
    assert decoder.take_samples().event.tolist() == [0, 1]
    side_band = decoder.take_side_band()
    assert (side_band.rows["event"][0], side_band.rows["time_ns"][0]) == (1, 77)


@pytest.mark.parametrize("group", [False, True])
def test_read_values(open_: Open, byteorder: Literal["little", "big"], group: bool) -> None:
    format_ = (
        ReadFormat.TOTAL_TIME_ENABLED
        | ReadFormat.TOTAL_TIME_RUNNING
        | ReadFormat.ID
        | ReadFormat.LOST
        | (ReadFormat.GROUP if group else 0)
    )
    layouts = [
        RecordLayout(sample_type=USUAL | SampleType.READ, read_format=format_, ids=(1,)),
        RecordLayout(sample_type=USUAL | SampleType.READ, read_format=format_, ids=(2,)),
    ]
    writer = RecordWriter(layouts, byteorder)
    decoder = open_(layouts, byteorder)
    values = [(100, 1, 3), (200, 2, 4)] if group else [(100, 1, 3)]
    data = writer.sample(Sample(id=1, tid=5)) + writer.sample(
        Sample(id=1, tid=5, time_ns=50, read=Read(values, enabled_ns=8, running_ns=7))
    )
    data += writer.record(
        RecordType.READ,
        writer.pack("II", 30, 31)
        + writer.read_format(layouts[0], Read(values, enabled_ns=8, running_ns=7))
        + writer.sample_id(id_=1, time_ns=60),
    )
    assert decoder.feed(data) == len(data)
    rows = decoder.take_reads()[1:]
    assert rows["value"].tolist() == [value for value, _, _ in values] * 2
    assert rows["event"].tolist() == [id_ - 1 for _, id_, _ in values] * 2
    assert rows["lost"].tolist() == [lost for _, _, lost in values] * 2
    assert set(rows["enabled_ns"]) == {8}
    assert set(rows["running_ns"]) == {7}
    assert rows["sample"].tolist() == [1] * len(values) + [-1] * len(values)
    assert rows["tid"].tolist() == [5] * len(values) + [31] * len(values)
    assert rows["time_ns"].tolist() == [50] * len(values) + [60] * len(values)


def test_branch_stacks_have_one_bit_order(open_: Open) -> None:
    """A big-endian machine fills the flags' bitfield from the top."""
    layout = RecordLayout(sample_type=USUAL | SampleType.BRANCH_STACK)
    little = 0b01 | 1234 << 4 | 3 << 20  # mispredicted, 1234 cycles, type indirect
    big = 1 << 63 | 1234 << 44 | 3 << 40
    orders: list[tuple[Literal["little", "big"], int]] = [("little", little), ("big", big)]
    for order, flags in orders:
        decoder = open_([layout], order, keep_branches=True)
        decoder.feed(RecordWriter([layout], order).sample(Sample(branches=[(0x10, 0x20, flags), (0x30, 0x40, 0)])))
        rows = decoder.take_branches()
        assert rows["from"].tolist() == [0x10, 0x30]
        assert rows["to"].tolist() == [0x20, 0x40]
        assert rows["flags"].tolist() == [little, 0]


def test_side_band(open_: Open, byteorder: Literal["little", "big"]) -> None:
    layout = RecordLayout(sample_type=USUAL)
    w = RecordWriter([layout], byteorder)
    t = w.sample_id(pid=70, tid=71, time_ns=1234, id_=9, cpu=2)
    build_id = bytes(range(20))
    records: list[tuple[bytes, dict[str, int], bytes]] = [
        (
            w.mmap(5, 0x1000, 0x2000, 0x300, b"/bin/a", trailer=t),
            {"pid": 5, "tid": 5, "addr": 0x1000, "len": 0x2000, "pgoff": 0x300, "time_ns": 1234, "cpu": 2, "id": 9},
            b"/bin/a",
        ),
        (
            w.mmap2(5, 0x1000, 0x2000, 0x300, b"/bin/longer-name", trailer=t),
            {"maj": 8, "min": 1, "ino": 77, "ino_generation": 3, "prot": 5, "flags": 2, "build_id_bytes": 0},
            b"/bin/longer-name",
        ),
        (
            w.mmap2(5, 0x1000, 0x2000, 0x300, b"//anon", build_id=build_id, trailer=t),
            {"maj": 0, "ino": 0, "prot": 5, "flags": 2, "build_id_bytes": 20},
            b"//anon",
        ),
        (w.comm(5, 6, b"worker", exec_=True, trailer=t), {"pid": 5, "tid": 6, "misc": 1 << 13}, b"worker"),
        (w.task(RecordType.FORK, 5, 4, 6, 3, 1, t), {"pid": 5, "ppid": 4, "tid": 6, "ptid": 3, "time_ns": 1234}, b""),
        (w.task(RecordType.EXIT, 5, 4, 6, 3, 1, t), {"pid": 5, "ppid": 4, "tid": 6, "ptid": 3}, b""),
        (w.record(RecordType.LOST, w.words([3, 17]) + t), {"id": 3, "value": 17, "time_ns": 1234}, b""),
        (w.record(RecordType.LOST_SAMPLES, w.words([18]) + t), {"id": 9, "value": 18}, b""),
        (w.record(RecordType.THROTTLE, w.words([5, 6, 7]) + t), {"id": 6, "time_ns": 1234}, b""),
        (w.record(RecordType.UNTHROTTLE, w.words([5, 6, 7]) + t), {"id": 6}, b""),
        (w.record(RecordType.SWITCH, t, 1 << 13), {"pid": 70, "tid": 71, "misc": 1 << 13}, b""),
        (w.record(RecordType.SWITCH_CPU_WIDE, w.pack("II", 80, 81) + t), {"tid": 71, "ppid": 80, "ptid": 81}, b""),
        (w.record(RecordType.AUX, w.words([64, 128, 5]) + t), {"addr": 64, "len": 128, "flags": 5, "cpu": 2}, b""),
        (w.record(RecordType.ITRACE_START, w.pack("II", 8, 9) + t), {"pid": 8, "tid": 9}, b""),
        (
            w.record(RecordType.NAMESPACES, w.pack("II", 8, 9) + w.words([2, 1, 2, 3, 4]) + t),
            {"pid": 8, "value": 2},
            np.array([1, 2, 3, 4], np.uint64).tobytes(),
        ),
        (
            w.record(RecordType.KSYMBOL, w.pack("QIHH", 0xFFFF0000, 256, 1, 1) + w.name(b"bpf_prog_x") + t),
            {"addr": 0xFFFF0000, "len": 256, "value": 1, "flags": 1},
            b"bpf_prog_x",
        ),
        (
            w.record(RecordType.BPF_EVENT, w.pack("HHI", 1, 0, 44) + b"tagtag!!" + t),
            {"flags": 1, "value": 44},
            b"tagtag!!",
        ),
        (w.record(RecordType.CGROUP, w.words([55]) + w.name(b"/user.slice") + t), {"value": 55}, b"/user.slice"),
        (
            w.record(RecordType.TEXT_POKE, w.pack("QHH", 0xA, 2, 2) + b"\x01\x02\x03\x04" + t),
            {"addr": 0xA, "value": 2, "len": 2},
            b"\x01\x02\x03\x04",
        ),
        (w.record(RecordType.AUX_OUTPUT_HW_ID, w.words([66]) + t), {"value": 66, "id": 9}, b""),
    ]
    decoder = open_([layout], byteorder)
    data = b"".join(record for record, _, _ in records)
    assert decoder.feed(data) == len(data)
    side_band = decoder.take_side_band()
    assert len(side_band) == len(records)
    for row, (_, expected, name) in zip(side_band.rows, records, strict=True):
        for column, value in expected.items():
            assert int(row[column]) == value, (RecordType(int(row["type"])), column)
        assert side_band.name(row) == name
    assert side_band.rows["build_id"][2].tobytes() == build_id
    assert decoder.losses.malformed == 0


@pytest.mark.parametrize(("has_build_ids", "length"), [(False, 0), (False, 20), (True, 20), (True, 8)])
def test_a_mark_of_build_ids_that_nobody_asked_for(open_: Open, has_build_ids: bool, length: int) -> None:
    """Linux leaves it on the next event's record where another recording asks for build-ids."""
    layout = RecordLayout(sample_type=USUAL, sample_id_all=False, has_build_ids=has_build_ids)
    w = RecordWriter([layout])
    record = bytearray(w.mmap2(5, 0x1000, 0x2000, 0, b"/bin/a", build_id=bytes(range(1, 1 + length)) or None))
    record[5] |= 1 << 6  # PERF_RECORD_MISC_MMAP_BUILD_ID
    decoder = open_([layout])
    decoder.feed(bytes(record), final=True)
    [row] = decoder.take_side_band().rows
    assert row["build_id_bytes"] == length
    assert (row["maj"], row["ino"]) == ((0, 0) if length else (8, 77))


def test_side_band_without_sample_id_takes_the_bodys_time(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL, sample_id_all=False)
    writer = RecordWriter([layout])
    decoder = open_([layout])
    decoder.feed(writer.task(RecordType.FORK, 5, 4, 6, 3, 42, b""))
    assert decoder.take_side_band().rows["time_ns"].tolist() == [42]


def test_a_partial_last_record_is_left_to_the_caller(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL)
    record = RecordWriter([layout]).sample(Sample(ip=1))
    decoder = open_([layout])
    for cut in range(1, len(record)):
        assert decoder.feed(record + record[:cut]) == len(record)
    assert len(decoder.take_samples()) == len(record) - 1
    assert decoder.feed(b"") == 0
    assert decoder.losses.malformed == 0


def test_unknown_types_are_skipped_and_counted(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL)
    writer = RecordWriter([layout])
    decoder = open_([layout])
    data = writer.record(40, b"\0" * 24) + writer.sample(Sample(ip=1))
    assert decoder.feed(data) == len(data)
    assert len(decoder.take_samples()) == 1
    assert decoder.losses.unknown_types == 1
    assert decoder.losses.by_type == {9: 1, 40: 1}


def test_stops_in_front_of_the_perf_tools_records(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL)
    writer = RecordWriter([layout])
    decoder = open_([layout])
    sample, tool = writer.sample(Sample(ip=1)), writer.record(68, b"")
    assert decoder.feed(sample + tool + sample) == len(sample)
    assert decoder.tool_record
    decoder.skip(len(tool))
    assert decoder.feed(sample) == len(sample)
    assert not decoder.tool_record
    assert len(decoder.take_samples()) == 2


@pytest.mark.parametrize("damage", [b"\0" * 64, b"\xff" * 24, bytes(range(256)), b"\x09\0\0\0\x02\0\x03\0" + b"\0" * 8])
def test_goes_on_after_damage(open_: Open, byteorder: Literal["little", "big"], damage: bytes) -> None:
    layout = RecordLayout(sample_type=USUAL)
    writer = RecordWriter([layout], byteorder)
    good = b"".join(writer.sample(Sample(ip=i + 1)) for i in range(5))
    decoder = open_([layout], byteorder)
    data = good + damage + good
    assert decoder.feed(data, final=True) == len(data)
    assert decoder.take_samples().ip.tolist() == [1, 2, 3, 4, 5] * 2
    losses = decoder.losses
    assert losses.malformed_bytes == len(damage)
    assert losses.damage == (DamagedRecords(len(good), len(damage)),)


def test_a_wrong_size_costs_one_sample_at_most(open_: Open) -> None:
    layout = RecordLayout(sample_type=USUAL)
    writer = RecordWriter([layout])
    records = [bytearray(writer.sample(Sample(ip=i + 1))) for i in range(9)]
    size = int.from_bytes(records[4][6:8], "little")
    for wrong in range(0, 2 * size, 8):
        damaged = [bytearray(record) for record in records]
        damaged[4][6:8] = wrong.to_bytes(2, "little")
        decoder = open_([layout])
        decoder.feed(b"".join(damaged), final=True)
        ips = decoder.take_samples().ip.tolist()
        assert set(ips) >= {1, 2, 3, 4, 6, 7, 8, 9}, wrong
        assert len(ips) == len(set(ips)) <= 9
