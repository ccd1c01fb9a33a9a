"""Stacks that perf copied, walked on their way out of the rings: what comes out, what stays, and what is asked."""

import platform
import struct
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.captures import table_writer
from builders.hosts import HOST
from builders.perf_records import CONTEXT_KERNEL, RecordWriter, Sample
from tdprof.capture.manifest import Manifest, Rung
from tdprof.capture.tables import read_table
from tdprof.decode.perf.columns import Copies
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.spool import write_tables
from tdprof.linux.perf_abi import PC_REGISTER, WALK_REGISTERS, RecordType
from tdprof.model.arrays import U32, U64
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.stack_ends import StackEnd
from tdprof.native.library import load_native
from tdprof.recorder.bpf.unwind_arrays import Extent, copies_after_nothing_new
from tdprof.recorder.call_graph import MOST_STACK_BYTES, CallGraph
from tdprof.recorder.chain_source import COPIED_STACK, RING_SAMPLE_TYPE, SIDE_BAND_SAMPLE_TYPE
from tdprof.recorder.events import parse_events
from tdprof.recorder.ring import RingPart
from tdprof.recorder.ring_walk import RingWalker, as_frequency, can_walk, chain_source
from tdprof.recorder.targets import Rate
from tdprof.unwind.walk import Walked

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled library was not built")

REGISTERS = WALK_REGISTERS[platform.machine()]
PC = PC_REGISTER[platform.machine()]
# Numbers of sp and of the frame pointer among perf's registers.
SP, FP = (31, 29) if platform.machine() == "aarch64" else (7, 6)
LAYOUT = RecordLayout(
    RING_SAMPLE_TYPE | COPIED_STACK,
    sample_regs_user=sum(1 << number for number in REGISTERS),
    user_pc_register=PC,
    walk_registers=REGISTERS,
    ids=(1,),
)
SIDE_BAND = RecordLayout(SIDE_BAND_SAMPLE_TYPE, ids=(2,))
WRITER = RecordWriter([LAYOUT, SIDE_BAND])
CODE, STACK, PID = 0x7F0000000000, 0x7FFF00001000, 7
CALLERS = [CODE + 0x200, CODE + 0x300]


def sample(
    time_ns: int = 100, *, pid: int = PID, chain: list[int] | None = None, copied: int = 4096, filled: int | None = None
) -> bytes:
    """Taken in generated code that keeps frame pointers: two callers, then a frame pointer that leads nowhere."""
    words = [0] * 512
    words[1:3] = STACK + 40, CALLERS[0]
    words[5:7] = 0, CALLERS[1]
    registers = dict.fromkeys(REGISTERS, 0) | {PC: CODE + 0x100, SP: STACK, FP: STACK + 8}
    return WRITER.sample(
        Sample(
            ip=CODE + 0x100,
            pid=pid,
            tid=pid,
            time_ns=time_ns,
            id=1,
            period=10,
            chain=[CONTEXT_KERNEL, *chain] if chain else [],
            regs_user=[registers[number] for number in sorted(registers)],
            stack=struct.pack("<512Q", *words)[:copied],
            stack_filled=filled,
        )
    )


def comm_exec(time_ns: int) -> bytes:
    return WRITER.comm(PID, PID, b"new", exec_=True, trailer=trailer(time_ns))


def trailer(time_ns: int) -> bytes:
    return WRITER.sample_id(1, pid=PID, tid=PID, time_ns=time_ns, id_=2)


def known(*pids: int) -> RingWalker:
    walker = RingWalker()
    for pid in pids:
        assert walker.publish(pid, [Extent(CODE, 0x1000, 0, StackEnd.JIT)])
    return walker


def in_ring(data: bytes, start: int = 0) -> RingPart:
    """Records as a ring holds them, from some position on."""
    size = max(1, len(data))
    turned = -start % size
    ring = bytearray(data[turned:] + data[:turned]).ljust(size, b"\0")
    return RingPart(memoryview(ring), start, start + len(data))


def walked(walker: RingWalker, data: bytes, *newer: bytes, start: int = 0) -> bytes:
    """What becomes of the records of a ring, while others have more."""
    part = in_ring(data, start)
    walker.forget([walker.side_band(part), *newer])
    return b"".join(map(bytes, walker.walk(part)))


def only_pid(pid: U32, time_ns: U64, copies: Copies) -> Walked:
    """A walk at the end of the recording that finds nothing but the process's number."""
    count = len(pid)
    ends = np.full(count, StackEnd.COMPLETE, np.uint8)
    methods = np.zeros((count, 3), np.uint16)
    return Walked(pid.astype(np.uint64), np.ones(count, np.uint32), ends, methods, np.zeros(count, np.uint16))


def test_copies_become_chains_and_the_rest_stays(tmp_path: Path) -> None:
    other = WRITER.comm(9, 9, b"other", trailer=trailer(90))
    data = sample(chain=[2**63 + 5]) + other + sample(110)
    out = walked(known(PID), data)
    assert other in out
    assert len(out) < len(data) / 8
    (tmp_path / "spool").mkdir()
    # One whose process was not known when it was drained is walked at the end.
    (tmp_path / "spool" / "ring.3.perf").write_bytes(out + sample(120, pid=8))
    events = [EventInfo("cpu-clock", Unit.NANOSECONDS)]
    manifest = Manifest(HOST, [], [], False, events, Rung.RING_BUFFER, "", 0, 0, 0, Losses())
    with table_writer(tmp_path) as writer:
        decoded = write_tables(tmp_path / "spool", manifest, writer, [LAYOUT, SIDE_BAND], lambda *_: only_pid)
    assert (decoded.samples, decoded.losses, decoded.kernel_addresses.tolist()) == (3, Losses(), [2**63 + 5])
    stacks = {stack["stack"]: stack for stack in pq.ParquetFile(tmp_path / "stacks.parquet").read().to_pylist()}
    first, second, third = read_table(tmp_path, "samples").to_pylist()
    assert (first["time_ns"], second["time_ns"], third["weight"]) == (100, 110, 10)
    assert stacks[first["kernel_stack"]]["addresses"] == [2**63 + 5]
    assert second["kernel_stack"] is None
    assert second["user_stack"] == first["user_stack"]
    found = stacks[first["user_stack"]]
    assert found["addresses"] == [CODE + 0x100, *CALLERS]
    assert (found["end"], found["guessed_from"], found["by_fp"]) == ("jit", 1, 2)
    assert stacks[third["user_stack"]]["addresses"] == [8]
    assert stacks[third["user_stack"]]["end"] == "complete"


@pytest.mark.parametrize("start", [0, 8, 3000, 5016, 9000, 1 << 40])
def test_wherever_a_ring_wraps_its_records_are_the_same(start: int) -> None:
    other = WRITER.comm(9, 9, b"other", trailer=trailer(90))
    data = sample(chain=[2**63 + 5]) + other + sample(110) + sample(120, pid=8)
    assert RingWalker().side_band(in_ring(data, start)) == other
    assert in_ring(data, start).copy() == data
    out = walked(known(PID), data, start=start)
    assert out == walked(known(PID), data)
    assert out.endswith(sample(120, pid=8))


def test_more_than_fits_at_once_comes_in_pieces() -> None:
    data = sample(120, pid=8) * 100
    pieces = list(map(bytes, RingWalker().walk(in_ring(data, 4000))))
    assert len(pieces) > 1
    assert b"".join(pieces) == data


@pytest.mark.parametrize(("filled", "kept"), [(4096, 4096), (3001, 3008), (8, 8), (1, 8), (0, 8)])
def test_what_stays_has_no_more_of_its_stack_than_could_be_read(filled: int, kept: int) -> None:
    out = walked(RingWalker(), sample(120, pid=8, filled=filled))
    assert out == sample(120, pid=8, filled=filled, copied=kept)


def test_who_is_not_known_is_asked_for_once_and_then_walked() -> None:
    walker = RingWalker()
    data = sample() + sample()
    assert walked(walker, data) == data
    assert walker.has_questions
    assert walker.take_questions() == {PID}
    assert walker.publish(PID, [Extent(CODE, 0x1000, 0, StackEnd.JIT)])
    assert walker.has(PID)
    assert len(walked(walker, data)) < len(data)
    walker.release([PID])
    assert not walker.has(PID)
    assert walked(walker, data) == data


def test_where_a_guess_leads_to_what_is_not_known_is_asked_for_and_what_leads_nowhere_is_not() -> None:
    walker = RingWalker()
    walker.publish(PID, [Extent(CODE, 0x180, 0, StackEnd.JIT)])  # both callers are behind it
    walker.answer(PID, is_waiting=False)
    kept = copies_after_nothing_new(is_waiting=False)
    data = sample() * (kept + 1)
    out = walked(walker, data)
    assert out.startswith(sample() * kept)
    assert len(out) < len(data)
    assert walker.take_questions() == {PID}
    assert not list(walker.notes())  # it may be nothing
    walker.publish(PID, [Extent(CODE, 0x1000, 0, StackEnd.JIT)])
    assert len(walked(walker, data)) < len(data) / 2
    assert not walker.has_questions


@pytest.mark.parametrize("extents", [[], [Extent(CODE, 0x1000, 0, StackEnd.NO_TABLE)]])
@pytest.mark.parametrize("is_waiting", [False, True])
def test_of_one_process_so_many_are_kept(extents: list[Extent], is_waiting: bool) -> None:
    walker = RingWalker()
    walker.publish(PID, extents)
    walker.answer(PID, is_waiting=is_waiting)
    kept = copies_after_nothing_new(is_waiting=is_waiting)
    data = sample() * (kept + 2)
    out = walked(walker, data)
    assert out.startswith(sample() * kept)
    assert len(sample()) < len(data) - len(out) < 2 * len(sample())
    assert next(walker.notes()).startswith("2 stacks")


def test_what_ran_before_an_exec_is_not_walked_by_what_is_mapped_since() -> None:
    walker = known(PID)
    before, since = sample(100), sample(300)
    # The record that says so is in another ring, and came after this one was taken.
    assert walked(walker, before + since, comm_exec(200)) == before + since
    assert not walker.has(PID)
    walker.publish(PID, [Extent(CODE, 0x1000, 0, StackEnd.JIT)])
    out = walked(walker, before + since, comm_exec(200))
    assert out.startswith(before)
    assert len(out) < len(before + since)


def test_a_process_that_has_ended_is_forgotten_and_a_thread_is_not() -> None:
    walker = known(PID)
    walked(walker, WRITER.task(RecordType.EXIT, PID, 1, PID + 1, 1, 50, trailer(50)))
    assert walker.has(PID)
    walked(walker, WRITER.task(RecordType.EXIT, PID, 1, PID, 1, 60, trailer(60)))
    assert not walker.has(PID)


@given(
    st.lists(st.binary(max_size=300).map(lambda body: WRITER.record(9, body, 2)) | st.binary(max_size=40), max_size=6),
    st.data(),
)
def test_whatever_the_bytes_nothing_is_added(parts: list[bytes], data: st.DataObject) -> None:
    broken = bytearray(b"".join([sample(), *parts]))
    for at in data.draw(st.lists(st.integers(0, len(broken) - 1), max_size=4)):
        broken[at] ^= data.draw(st.integers(1, 255))
    assert len(walked(known(PID), bytes(broken), bytes(broken))) <= len(broken)


def copied(rate: Rate, events: int = 1, ring_bytes: int = 512 << 10, *, asked: int = 0) -> int:
    return chain_source(asked, rate, events).for_rings(ring_bytes).stack_bytes


def test_as_much_is_copied_as_the_rate_leaves_room_for() -> None:
    assert copied(Rate(frequency_hz=999)) == 16 << 10
    assert copied(Rate(frequency_hz=99)) == MOST_STACK_BYTES
    assert copied(Rate(frequency_hz=4999)) == 3 << 10
    assert copied(Rate(frequency_hz=999), 90) == copied(Rate(frequency_hz=49_999)) == 2 << 10
    assert copied(Rate(period=1000)) == 4 << 10


def test_larger_rings_are_for_more_of_each_stack() -> None:
    assert copied(Rate(frequency_hz=999), ring_bytes=8 << 20) == MOST_STACK_BYTES
    assert copied(Rate(frequency_hz=1999), ring_bytes=16 << 20) == MOST_STACK_BYTES
    assert copied(Rate(frequency_hz=1999), ring_bytes=4 << 20) == 16 << 10
    assert copied(Rate(frequency_hz=1999), 4, ring_bytes=16 << 20) == 16 << 10
    assert copied(Rate(period=1000), ring_bytes=8 << 20) == 4 << 10
    assert copied(Rate(frequency_hz=1999), ring_bytes=8 << 20, asked=2048) == 2048


@pytest.mark.parametrize(
    ("names", "period", "frequency_hz"),
    [
        ("cpu-clock", 1_000_000, 1000),
        ("task-clock:u", 3_000_001, 334),
        ("cycles:u", 1_000_003, 4000),
        ("cycles,cpu-clock", 1_000_003, 4000),
        ("cpu-clock", 125_000, 8000),
        ("cpu-clock", 124_999, 0),
        ("instructions", 1_000_000_000, 0),
        ("cycles,page-faults", 1_000_000_000, 0),
    ],
)
def test_the_period_of_a_clock_is_a_frequency(names: str, period: int, frequency_hz: int) -> None:
    asked = Rate(period=period)
    assert as_frequency(asked, parse_events(names)) == (Rate(frequency_hz=frequency_hz) if frequency_hz else asked)
    assert as_frequency(Rate(frequency_hz=99), parse_events(names)) == Rate(frequency_hz=99)


@pytest.mark.parametrize("ring_bytes", [4 << 10, 16 << 10, 64 << 10, 256 << 10])
@pytest.mark.parametrize("frequency_hz", [1, 20, 99, 999, 4999])
def test_small_rings_have_room_for_samples(frequency_hz: int, ring_bytes: int) -> None:
    """As many as the usual one has, as far as a copy is of use; one that no record fits into would lose them all."""
    rate = Rate(frequency_hz=frequency_hz)
    small, usual = copied(rate, ring_bytes=ring_bytes), copied(rate)
    assert 1024 <= small <= ring_bytes // 2
    assert small in (1024, ring_bytes // 2) or ring_bytes // small >= min((512 << 10) // usual, frequency_hz // 8)


@pytest.mark.parametrize(
    ("way", "events", "rate", "walks"),
    [
        ("auto", 1, Rate(frequency_hz=999), True),
        ("auto", 1, Rate(period=1), False),
        ("auto", 90, Rate(frequency_hz=999), False),
        ("dwarf", 90, Rate(period=1000), True),
        ("fp", 1, Rate(frequency_hz=999), False),
        ("no", 1, Rate(frequency_hz=999), False),
    ],
)
def test_ways_that_need_a_walk(way: str, events: int, rate: Rate, walks: bool) -> None:
    assert can_walk(CallGraph(way), events, rate) is walks


def mapped(time_ns: int, start: int, *, prot: int = 5) -> bytes:
    return WRITER.mmap2(PID, start, 0x1000, 0, b"/lib/other", prot=prot, trailer=trailer(time_ns))


@pytest.mark.parametrize(
    ("record", "is_known"),
    [
        pytest.param(mapped(150, CODE), False, id="there"),
        pytest.param(mapped(150, CODE + 0x1000), True, id="behind it"),
        pytest.param(mapped(150, CODE, prot=1), True, id="data"),
    ],
)
def test_a_file_at_the_addresses_of_another_ends_what_is_known(record: bytes, is_known: bool) -> None:
    """Samples before are walked at the end, by what was mapped then; those after as soon as that is known."""
    walker = RingWalker()
    assert walker.publish(PID, [Extent(CODE, 0x1000, 0, 0)])
    before, after = sample(100, chain=[2**63 + 5]), sample(200, chain=[2**63 + 5])
    assert (walked(walker, before + after, record) == before + after) is not is_known
    assert walker.has(PID) is is_known
    # Another look at the same record does not take back what was said since.
    assert walker.publish(PID, [Extent(CODE, 0x1000, 0, 0)])
    assert walked(walker, b"", record) == b""
    assert walker.has(PID)
