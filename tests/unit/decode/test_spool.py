"""A spool into tables: stacks once, losses counted, whatever is missing null."""

import json
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow.parquet as pq
import pytest

from builders.bpf_spool import BUSY, DISCARD, in_ring, rows_frame, stack_copy, stack_record, thread_times
from builders.captures import table_writer
from builders.hosts import HOST
from builders.perf_records import CONTEXT_KERNEL, CONTEXT_USER, RecordWriter, Sample
from tdprof.capture.manifest import Manifest, Rung
from tdprof.capture.spool import SpoolWriter
from tdprof.capture.tables import has_table, read_table
from tdprof.decode import wakers
from tdprof.decode.bpf_aggregates import CPU_SHIFT, STATE_SHIFT
from tdprof.decode.bpf_copies import walk_spooled
from tdprof.decode.perf.columns import Copies
from tdprof.decode.perf.layout import MISC_SWITCH_OUT, RecordLayout
from tdprof.decode.replaced_files import ReplacedFiles
from tdprof.decode.spe.switches import switches_of_table
from tdprof.decode.spool import Decoded, write_tables
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.perf_abi import RecordType
from tdprof.model.arrays import U32, U64
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.spe import NO_TID
from tdprof.model.stack_ends import StackEnd
from tdprof.model.thread_state import ThreadState
from tdprof.recorder.chain_source import RING_SAMPLE_TYPE, SIDE_BAND_SAMPLE_TYPE
from tdprof.unwind.walk import Walked


def decode(folder: Path, stacks: bytes, rows: bytes, sample_type: int = 0, **changes: object) -> Decoded:
    (folder / "spool").mkdir(exist_ok=True)
    (folder / "spool" / "stacks.bpf").write_bytes(stacks)
    (folder / "spool" / "rows.bpf").write_bytes(rows)
    fields: dict = {"samples_counted": None, "losses": Losses(), "rung": Rung.BPF_SOFTWARE} | changes
    events = fields.pop("events", [EventInfo("cpu-clock", Unit.NANOSECONDS)])
    manifest = Manifest(HOST, [], [], False, events, fields.pop("rung"), "", 0, 0, 0, **fields)
    with table_writer(folder) as writer:
        return write_tables(
            folder / "spool", manifest, writer, [RecordLayout(sample_type)] * 2, lambda *_: walk_to_registers
        )


def walk_to_registers(pid: U32, time_ns: U64, copies: Copies) -> Walked:
    """A walk that finds pid, time and the first byte of the stack at the places that two registers name."""
    found = [
        [
            int(registers[0]),
            int(registers[16]),
            int(pid[row]),
            int(time_ns[row]),
            int(copies.stack[start]) if copies.stack_bytes[row] else 0,
        ]
        for row, (registers, start) in enumerate(zip(copies.registers, copies.stack_start, strict=True))
    ]
    methods = np.tile(np.array([4, 0, 0], np.uint16), (len(found), 1))
    depth, end = np.full(len(found), 5, np.uint32), np.full(len(found), StackEnd.COMPLETE, np.uint8)
    return Walked(np.array(found, np.uint64).reshape(-1), depth, end, methods, np.zeros(len(found), np.uint16))


def test_lost_records_of_spes_buffers_are_told(tmp_path: Path) -> None:
    writer = RecordWriter([RecordLayout(SIDE_BAND_SAMPLE_TYPE)])
    id_ = writer.sample_id(tid=7, time_ns=9, cpu=1)
    aux = writer.record(RecordType.AUX, writer.words([64, 128, 1]) + id_)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/spe.1.0.perf").write_bytes(aux + writer.record(RecordType.LOST, writer.words([0, 30]) + id_))
    decoded = decode(tmp_path, b"", b"", sample_type=SIDE_BAND_SAMPLE_TYPE)
    assert read_table(tmp_path, "spe_spans").to_pylist() == [
        {"time_ns": 9, "cpu": 1, "buffer": 0, "pid": 0, "tid": 7, "offset": 64, "size": 128, "flags": 1}
    ]
    assert [note for note in decoded.notes if note.startswith("30 records beside SPE's buffers were lost")]


Told: TypeAlias = tuple[int, RecordType, int, list[int]]


def told(*records: Told) -> bytes:
    """Records of thread 7 on CPU 1: time, kind, misc, and what stands before the id."""
    writer = RecordWriter([RecordLayout(SIDE_BAND_SAMPLE_TYPE)])
    return b"".join(
        writer.record(kind, writer.words(body) + writer.sample_id(tid=7, time_ns=time, cpu=1), misc)
        for time, kind, misc, body in records
    )


CAME: Told = (10, RecordType.SWITCH, 0, [])
WENT: Told = (50, RecordType.SWITCH, MISC_SWITCH_OUT, [])
LOST = RecordType.LOST


@pytest.mark.parametrize(
    ("ring", "spe", "runs"),
    [
        ([CAME, (50, LOST, 0, [0, 3]), WENT], [], NO_TID),
        ([(20, LOST, 0, [0, 3])], [CAME, WENT], 7),
        ([], [CAME, (50, LOST, 0, [0, 3]), WENT], NO_TID),
    ],
)
def test_switches_are_lost_only_in_the_ring_that_tells_them(
    tmp_path: Path, ring: list[Told], spe: list[Told], runs: int
) -> None:
    """Samples with copied stacks find theirs full long before."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/ring.1.perf").write_bytes(told(*ring))
    (tmp_path / "spool/spe.1.0.perf").write_bytes(told(*spe))
    decode(tmp_path, b"", b"", sample_type=SIDE_BAND_SAMPLE_TYPE, rung=Rung.RING_BUFFER)
    switches = switches_of_table(read_table(tmp_path, "switches"))
    assert switches[1].thread_at(np.array([10, 49], np.uint64)).tolist() == [runs, runs]


@pytest.mark.parametrize(
    ("rung", "samples", "losses"),
    [(Rung.RING_BUFFER, 2, (2, 1)), (Rung.RING_BUFFER, 5, (5, 0)), (Rung.RING_BUFFER, 0, (3, 0)),
     (Rung.BPF_SOFTWARE, 0, (0, 3))],
)  # fmt: skip
def test_what_is_lost_beside_samples_is_told_as_that(
    tmp_path: Path, rung: Rung, samples: int, losses: tuple[int, int]
) -> None:
    """Events count their own samples since Linux 6.0; before, nearly all that is lost are samples."""
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool/ring.1.perf").write_bytes(told((50, LOST, 0, [0, 3])))
    changes = {"rung": rung, "losses": Losses(samples_ring_full=samples)}
    found = decode(tmp_path, b"", b"", sample_type=SIDE_BAND_SAMPLE_TYPE, **changes).losses
    assert (found.samples_ring_full, found.side_band_records_lost) == losses


def test_copied_stacks_are_walked_and_stand_under_their_identity(tmp_path: Path) -> None:
    copies = b"".join(
        stack_copy(identity, 40, 7, range(identity, identity + 17), bytes([identity]) * size, flags=flags)
        for identity, size, flags in ((3, 65536, 0), (5, 1, 0), (6, 8, BUSY), (7, 8, DISCARD), (9, 0, 0))
    )
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "copies.bpf").write_bytes(copies + b"cut")
    decoded = decode(tmp_path, stack_record(1, [11]), rows_frame(50, [row(1, 0), row(3, 0, 2), row(5, 0), row(6, 0)]))
    stacks = {s["stack"]: s for s in pq.ParquetFile(tmp_path / "stacks.parquet").read().to_pylist()}
    assert stacks[3]["addresses"] == [3, 19, 7, 40, 3]
    assert stacks[5]["addresses"] == [5, 21, 7, 40, 5]
    assert (stacks[3]["end"], stacks[3]["by_table"], stacks[3]["is_kernel"]) == ("complete", 4, False)
    assert read_table(tmp_path, "samples")["user_stack"].to_pylist() == [1, 3, 5, None]
    assert decoded.losses.bytes_damaged == 3
    assert decoded.losses.by_reason == {
        "call stacks that were not whole when they were read": 1,
        "samples whose call stack never reached the capture": 1,
    }


def test_copies_without_room_for_memory_end_where_the_table_was_not_there(tmp_path: Path) -> None:
    """What was read and could not be is another reason."""

    def unreadable(pid: U32, time_ns: U64, copies: Copies) -> Walked:
        n = len(pid)
        end = np.full(n, StackEnd.UNREADABLE, np.uint8)
        return Walked(
            copies.registers[:, 0], np.ones(n, np.uint32), end, np.zeros((n, 3), np.uint16), np.zeros(n, np.uint16)
        )

    path = tmp_path / "copies.bpf"
    every = (1 << 64) - 1
    path.write_bytes(
        b"".join(
            stack_copy(1, 40, 7, [1] * 17, stack, pages=pages)
            for stack, pages in ((b"", every), (b"", 0), (bytes(8), every))
        )
    )
    [batch] = walk_spooled(path, SpoolDamage(), unreadable, ReplacedFiles(tmp_path / "none", SpoolDamage()))
    assert [StackEnd(end) for end in batch.walk["end"]] == [StackEnd.NO_TABLE, StackEnd.UNREADABLE, StackEnd.UNREADABLE]


def row(user: int, kernel: int, count: int = 1) -> tuple:
    return (user, kernel, 7, 8, 0, b"name", count, count * 10)


def test_rows_of_sleeps_have_who_ended_them(tmp_path: Path) -> None:
    def waking(identity: int, waker: int, user: int) -> bytes:
        record = np.array((identity, 9, (waker, user, 4, 70, 71, b"feeder")), wakers.RECORD).tobytes()
        return in_ring(record)

    (tmp_path / "spool").mkdir()
    told = waking(50, 500, 3) + waking(51, 501, 33) + waking(50, 500, 3) + in_ring(b"short")
    (tmp_path / "spool" / "wakings.bpf").write_bytes(told)
    stacks = b"".join(stack_record(each, [each]) for each in (3, 5))
    stacks += b"".join(stack_record(each, [each], is_kernel=True) for each in (4, 9))
    decoded = decode(
        tmp_path,
        stacks,
        rows_frame(50, [asleep(5, 50), asleep(5, 9), asleep(5, 51), asleep(0, 52)]),
        events=[EventInfo("cpu-clock", Unit.NANOSECONDS), EventInfo("off-cpu", Unit.NANOSECONDS)],
        has_thread_times=True,
        has_wakers=True,
    )
    samples = read_table(tmp_path, "samples", ("state", "waker"))
    assert samples["kernel_stack"].to_pylist() == [9, 9, 9, None]
    assert samples["waker"].to_pylist() == [500, None, 501, None]
    assert read_table(tmp_path, "wakers").to_pylist() == [
        {"waker": 500, "pid": 70, "tid": 71, "thread_name": "feeder", "user_stack": 3, "kernel_stack": 4},
        {"waker": 501, "pid": 70, "tid": 71, "thread_name": "feeder", "user_stack": None, "kernel_stack": 4},
    ]
    assert decoded.losses.by_reason == {"samples whose call stack never reached the capture": 1}
    assert decoded.losses.bytes_damaged == wakers.RECORD.itemsize


def test_rows_have_their_cpu_where_it_was_asked_for(tmp_path: Path) -> None:
    on_cpus = [(1, 0, 7, 8, event | (cpu + 1) << CPU_SHIFT, b"name", 1, 10) for event, cpu in ((0, 0), (2, 191))]
    events = [EventInfo(name, Unit.COUNT) for name in ("a", "b", "c", "off-cpu")]
    rows = rows_frame(50, [*on_cpus, (1, 0, 7, 8, 3 | ThreadState.RUNNABLE << STATE_SHIFT, b"name", 1, 10)])
    decode(tmp_path, stack_record(1, [11]), rows, events=events, has_thread_times=True, has_cpus=True)
    samples = read_table(tmp_path, "samples", ("cpu", "state"))
    assert samples["event"].to_pylist() == [0, 2, 3]
    assert samples["cpu"].to_pylist() == [0, 191, None]
    assert samples["state"].to_pylist() == [None, None, ThreadState.RUNNABLE]


def asleep(user: int, kernel: int) -> tuple:
    return (user, kernel, 7, 8, 1 | ThreadState.INTERRUPTIBLE << STATE_SHIFT, b"name", 1, 10)


def test_a_stack_sent_twice_is_written_once(tmp_path: Path) -> None:
    record = stack_record(5, [1, 2, 3])
    decoded = decode(
        tmp_path, record + stack_record(9, [2**63], is_kernel=True) + record, rows_frame(50, [row(5, 9, 3), row(5, 0)])
    )
    stacks = read_table(tmp_path, "stacks").to_pylist()
    assert sorted((s["stack"], s["is_kernel"], s["addresses"]) for s in stacks) == [
        (5, False, [1, 2, 3]),
        (9, True, [2**63]),
    ]
    samples = read_table(tmp_path, "samples").to_pylist()
    assert [(s["user_stack"], s["kernel_stack"], s["count"], s["weight"]) for s in samples] == [
        (5, 9, 3, 30),
        (5, None, 1, 10),
    ]
    assert (decoded.samples, decoded.end_ns, decoded.kernel_addresses.tolist()) == (4, 50, [2**63])
    assert decoded.losses == Losses()


@pytest.mark.parametrize("other", [[1, 2, 4], [1, 2], [2, 1, 3], []])
def test_two_stacks_of_one_identity_are_neither(tmp_path: Path, other: list[int]) -> None:
    decoded = decode(
        tmp_path,
        stack_record(5, [1, 2, 3]) + stack_record(6, [1]) + stack_record(5, other),
        rows_frame(50, [row(5, 0, 3), row(6, 0)]),
    )
    assert decoded.losses.stack_id_collisions == 3
    assert read_table(tmp_path, "samples")["user_stack"].to_pylist() == [None, 6]


def test_a_stack_that_never_came_and_samples_that_never_came(tmp_path: Path) -> None:
    decoded = decode(
        tmp_path,
        b"",
        rows_frame(50, [row(5, 0, 3)]),
        samples_counted=10,
        losses=Losses(samples_map_full=2, samples_outside_namespace=1),
    )
    assert read_table(tmp_path, "samples")["user_stack"].to_pylist() == [None]
    assert decoded.losses.by_reason == {
        "samples counted in the kernel that never reached the capture": 4,
        "samples whose call stack never reached the capture": 3,
    }


@pytest.mark.parametrize("left", [None, 0, 9])
def test_what_is_gone_of_a_file_is_said(tmp_path: Path, left: int | None) -> None:
    with OwnFolder.open(tmp_path) as folder, SpoolWriter(folder) as writer:
        os.write(writer.descriptor("ring.3.perf"), bytes(100))
        writer.note_sums()
        os.write(writer.descriptor("ring.3.perf"), bytes(900))
        os.write(writer.descriptor("python.jsonl"), b"{}")
        writer.note_sums()
        os.write(writer.descriptor("ring.3.perf"), bytes(1000))
    file = tmp_path / "spool" / "ring.3.perf"
    file.write_bytes(bytes(left or 0))
    if left is None:
        file.unlink()
    decoded = decode(tmp_path, b"", b"")
    assert (
        f"1 file of the spool (ring.3.perf) with {1000 - (left or 0):,} bytes less than were recorded" in decoded.notes
    )
    assert decoded.losses.bytes_damaged >= 1000 - (left or 0)


def test_what_changed_of_a_file_is_said(tmp_path: Path) -> None:
    with OwnFolder.open(tmp_path) as folder, SpoolWriter(folder) as writer:
        for part in (b"abc", b"def"):
            os.write(writer.descriptor("ring.3.perf"), part)
            os.write(writer.descriptor("ring.5.perf"), part)
            writer.note_sums()
        os.write(writer.descriptor("ring.3.perf"), b"later")
    assert not any("changed" in note for note in decode(tmp_path, b"", b"").notes)
    (tmp_path / "spool" / "ring.3.perf").write_bytes(b"abcdeflater"[:5] + b"glater")
    assert "1 file of the spool (ring.3.perf) changed since, and may show anything" in decode(tmp_path, b"", b"").notes


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b"[" * 9999,
        b'{"../../etc/passwd": [1000000, 1], "a/b": [5, 1], "": [7, 1], "..": [9, 9], "rows.bpf": [0, 0]}',
        b'{"a": [1e999, 1]}',
        b'{"a": 5}',
        b'{"a": [17592186044416, 1]}',
    ],
)
def test_sums_that_nobody_noted_say_nothing(tmp_path: Path, told: bytes) -> None:
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "sums.json").write_bytes(told)
    decoded = decode(tmp_path, b"", b"")
    assert (decoded.notes, decoded.losses.bytes_damaged) == ([], 0)


def test_an_empty_spool_makes_empty_tables(tmp_path: Path) -> None:
    assert decode(tmp_path, b"", b"").samples == 0
    assert all(len(read_table(tmp_path, name)) == 0 for name in ("samples", "stacks", "mappings", "processes"))


@pytest.mark.parametrize(("period", "total", "skipped"), [(1, 9, 5), (1, 4, 0), (10, 60, 0), (10, 100, 4), (0, 99, 0)])
def test_samples_that_the_kernel_kept_to_itself_show_in_the_exact_total(
    tmp_path: Path, period: int, total: int, skipped: int
) -> None:
    """Two CPUs, one thread: with a period of 10 up to two samples may be under way at the end."""
    event = EventInfo("page-faults", Unit.COUNT, period, 0 if period else 999, total)
    decoded = decode(tmp_path, stack_record(5, [1]), rows_frame(50, [row(5, 0, 4)]), events=[event])
    assert sum(decoded.losses.by_reason.values()) == skipped


def test_samples_name_their_control_groups(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    names = [{"cgroup": 7, "path": "/a"}, {"cgroup": 1 << 31 | 7, "path": "/old"}, {"cgroup": 7, "path": "/renamed"}]
    lines = [*map(json.dumps, names), json.dumps({"cgroup": 8, "path": "/\udcff"})]
    good = len(lines)
    lines += ["{", '{"cgroup": "x", "path": "/b"}', "[]", "[" * 100_000, '{"cgroup": 1e999, "path": "/b"}']
    (tmp_path / "spool" / "cgroups.jsonl").write_text("".join(f"{line}\n" for line in lines))
    rows = rows_frame(50, [row(0, 0), row(0, 0), row(0, 0)], cgroups=[7, 1 << 31 | 7, 0])
    decoded = decode(tmp_path, b"", rows, has_cgroups=True)
    assert read_table(tmp_path, "samples", ["cgroup"])["cgroup"].to_pylist() == [7, 1 << 31 | 7, None]
    found = {row["cgroup"]: row["path"] for row in read_table(tmp_path, "cgroups").to_pylist()}
    assert found == {7: "/renamed", 1 << 31 | 7: "/old", 8: "/?"}
    assert decoded.losses.bytes_damaged == sum(map(len, lines[good:]))


def test_recordings_without_control_groups_have_no_column_of_them(tmp_path: Path) -> None:
    decode(tmp_path, b"", rows_frame(50, [row(0, 0)], cgroups=[7]))
    assert "cgroup" not in read_table(tmp_path, "samples").column_names


def test_time_off_a_cpu_is_one_event_in_several_states(tmp_path: Path) -> None:
    clocks = [EventInfo("cpu-clock", Unit.NANOSECONDS), EventInfo("off-cpu", Unit.NANOSECONDS, 100)]
    (tmp_path / "spool").mkdir()
    ended = thread_times(7, 8, 1000, 1900, (100, 300, 200, 300), waits=4)
    (tmp_path / "spool" / "ended.bpf").write_bytes(in_ring(ended) + in_ring(ended, BUSY) + in_ring(ended[:-1]) + b"c")
    alive = [
        thread_times(7, 7, 1000, 1500, (500, 0, 0, 0), comm=b"runs"),
        thread_times(7, 9, 1000, 1500, (100, 0, 400, 0), state=1, left_ns=1100, waits=1),
        thread_times(0, 0, 1000, 1500, (0, 500, 0, 0)),  # nobody knows its number
    ]
    (tmp_path / "spool" / "alive.bpf").write_bytes((2000).to_bytes(8, "little") + b"".join(alive) + b"cut")
    states = [row(0, 0, 5), (0, 0, 7, 8, 1 << 24 | 1, b"app", 3, 300), (0, 0, 7, 8, 3 << 24 | 1, b"app", 2, 200)]

    decoded = decode(tmp_path, b"", rows_frame(50, states), events=clocks, has_thread_times=True)

    samples = read_table(tmp_path, "samples", ("state",))
    assert [samples[name].to_pylist() for name in ("event", "state", "count")] == [[0, 1, 1], [None, 1, 3], [5, 3, 2]]
    times = read_table(tmp_path, "thread_times").to_pylist()
    assert [(each["tid"], each["thread_name"], each["waits"]) for each in times] == [
        (8, "app", 4),
        (7, "runs", 0),
        (9, "app", 1),
    ]
    names = ("running_ns", "runnable_ns", "interruptible_ns", "uninterruptible_ns")
    spent = [[each[name] for name in names] for each in times]
    assert spent == [[100, 300, 200, 300], [1000, 0, 0, 0], [100, 500, 400, 0]]
    assert [sum(each) for each in spent] == [each["end_ns"] - each["begin_ns"] for each in times]
    assert [each["unsampled_ns"] for each in times] == [0, 0, 900]
    assert decoded.off_cpu_ns == 800  # without what no sample can stand for
    assert decoded.losses.bytes_damaged == 2 * len(ended) + len(b"c") + len(b"cut")


def test_a_killed_recording_knows_no_time_of_threads(tmp_path: Path) -> None:
    clocks = [EventInfo("cpu-clock", Unit.NANOSECONDS), EventInfo("off-cpu", Unit.NANOSECONDS, 100)]
    (tmp_path / "spool").mkdir()
    ended = thread_times(7, 8, 1000, 1900, (100, 300, 200, 300), waits=4)
    (tmp_path / "spool" / "ended.bpf").write_bytes(in_ring(ended))

    decoded = decode(tmp_path, b"", rows_frame(50, [row(0, 0, 5)]), events=clocks, has_thread_times=True)

    assert decoded.off_cpu_ns is None  # of threads that still were nothing is told
    assert not has_table(tmp_path, "thread_times")


def test_stacks_as_long_as_the_kernel_walks_count_as_cut(tmp_path: Path) -> None:
    layouts = [RecordLayout(RING_SAMPLE_TYPE, ids=(1,)), RecordLayout(SIDE_BAND_SAMPLE_TYPE, ids=(2,))]
    writer = RecordWriter(layouts)
    user, kernel = [*range(0x1000, 0x1000 + 0x80)], [*range(2**63, 2**63 + 0x80)]
    chains = [
        [CONTEXT_USER, *user[:127]],
        [CONTEXT_KERNEL, *kernel[:7], CONTEXT_USER, *user[:120]],
        [CONTEXT_KERNEL, *kernel[:127]],
        [CONTEXT_USER, *user[:126]],
        [CONTEXT_KERNEL, *kernel[:7], CONTEXT_USER, *user[:119]],
        [],
    ]
    samples = [
        writer.sample(
            Sample(ip=(chain or user)[-1], pid=7, tid=7, time_ns=90, id=1, period=1, chain=chain, misc=1 if mode else 2)
        )
        for chain in [*chains, *chains[:1]]
        for mode in [CONTEXT_KERNEL in chain]
    ]
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "ring.0.perf").write_bytes(b"".join(samples))
    manifest = Manifest(
        HOST, [], [], False, [EventInfo("cpu-clock", Unit.NANOSECONDS)], Rung.RING_BUFFER, "", 0, 0, 0, Losses()
    )
    with table_writer(tmp_path) as tables:
        decoded = write_tables(tmp_path / "spool", manifest, tables, layouts, lambda *_: walk_to_registers)
    assert (decoded.samples, decoded.losses) == (7, Losses(stacks_truncated=4))
