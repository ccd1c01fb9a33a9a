"""The BPF spool's readers: round trips, damage, and compiled = Python."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.bpf_spool import BUSY, DISCARD, old_stack_record, rows_frame, stack_copy, stack_record
from tdprof.decode import bpf_aggregates
from tdprof.decode.bpf_aggregates import StackBatch, decode_stacks_python, read_rows, read_stacks
from tdprof.decode.bpf_copies import decode_copies
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.native.library import load_native

u64 = st.integers(0, 2**64 - 1) | st.just(0)
u32 = st.integers(0, 2**32 - 1)
stack = st.tuples(u64, st.lists(u64, max_size=255), st.booleans(), st.sampled_from([0, 0, 0, BUSY, DISCARD]))
u16 = st.integers(0, 2**16 - 1)
walk = st.tuples(st.integers(0, 255), u16, st.tuples(u16, u16, u16))
row = st.tuples(u64, u64, u32, u32, u32, st.binary(max_size=15).filter(lambda b: not b.endswith(b"\0")), u64, u64)
decode_native = pytest.param(
    bpf_aggregates._decode_native,
    id="compiled",
    marks=pytest.mark.skipif(load_native() is None, reason="the compiled library was not built"),
)
both = pytest.mark.parametrize("decode", [decode_native, pytest.param(decode_stacks_python, id="python")])


def as_lists(batch: StackBatch) -> list[tuple[int, bool, list[int]]]:
    kinds, starts = batch.walk["is_kernel"], batch.start
    return [
        (int(batch.hash[i]), bool(kinds[i]), batch.address[starts[i] : starts[i + 1]].tolist())
        for i in range(len(batch.hash))
    ]


def without_end(addresses: list[int]) -> list[int]:
    """Without the zeros at the end, where an unwinder ran off the stack."""
    return addresses[: max((at for at, address in enumerate(addresses, 1) if address), default=0)]


@both
@pytest.mark.parametrize("write", [stack_record, old_stack_record])
@given(st.lists(stack, max_size=20))
def test_stacks_round_trip(decode, write, stacks) -> None:
    data = b"".join(write(h, a, is_kernel=k, flags=f) for h, a, k, f in stacks)
    batch, consumed, damaged = decode(data)
    assert as_lists(batch) == [(h, k, without_end(a)) for h, a, k, f in stacks if f == 0]
    assert consumed == len(data)
    assert damaged == sum(f == BUSY for *_, f in stacks)


@both
@given(st.lists(st.tuples(st.lists(u64, max_size=9), walk), max_size=9))
def test_how_a_stack_was_found_round_trips(decode, stacks) -> None:
    data = b"".join(stack_record(1, a, end=e, guessed_from=g, found=f) for a, (e, g, f) in stacks)
    batch, *_ = decode(data)
    assert batch.walk["depth"].tolist() == np.diff(batch.start.astype(np.int64)).tolist()
    names = ["end", "guessed_from", "by_table", "by_fp", "by_lr"]
    assert batch.walk[names].tolist() == [(e, g, *f) for _, (e, g, f) in stacks]


@pytest.mark.skipif(load_native() is None, reason="the compiled library was not built")
@given(
    st.binary(max_size=400) | st.lists(stack, max_size=4).map(lambda ss: b"".join(stack_record(*s[:2]) for s in ss)),
    st.data(),
)
def test_compiled_equals_python_on_any_bytes(data: bytes, draw) -> None:
    broken = bytearray(data)
    for at in draw.draw(st.lists(st.integers(0, max(len(data) - 1, 0)), max_size=4)):
        if broken:
            broken[at] ^= draw.draw(st.integers(1, 255))
    compiled, python = bpf_aggregates._decode_native(bytes(broken)), decode_stacks_python(bytes(broken))
    assert as_lists(compiled[0]) == as_lists(python[0])
    assert compiled[0].walk.tolist() == python[0].walk.tolist()
    assert compiled[1:] == python[1:]


@given(frames=st.lists(st.tuples(u64, st.lists(row, min_size=1, max_size=5)), max_size=4), data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_rows_survive_damage_around_them(tmp_path: Path, frames, data) -> None:
    path = tmp_path / "rows.bpf"
    parts = [rows_frame(time_ns, rows) for time_ns, rows in frames]
    victim = data.draw(st.integers(-1, len(parts) - 1))
    if victim >= 0:
        at = data.draw(st.integers(0, len(parts[victim]) - 1))
        parts[victim] = parts[victim][:at] + bytes([parts[victim][at] ^ 0x55]) + parts[victim][at + 1 :]
    path.write_bytes(b"".join(parts))
    damage = SpoolDamage()
    read = [time_ns for batch in read_rows(path, damage) for time_ns in batch.time_ns.tolist()]
    assert read == [time_ns for index, (time_ns, rows) in enumerate(frames) if index != victim for _ in rows]
    assert damage.bytes == (len(parts[victim]) if victim >= 0 else 0)


def test_fields_are_where_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "rows.bpf"
    path.write_bytes(rows_frame(5, [(1, 2, 3, 4, 6, b"name", 7, 8)]))
    (batch,) = read_rows(path, SpoolDamage())
    assert batch.time_ns.tolist() == [5]
    assert batch.keys[["user_stack", "kernel_stack", "pid", "tid", "event", "comm"]].tolist() == [
        (1, 2, 3, 4, 6, b"name")
    ]
    assert batch.values.tolist() == [(7, 8)]


def test_a_cut_file_keeps_what_is_whole_and_counts_the_rest(tmp_path: Path) -> None:
    records = [stack_record(n, [n] * 5) for n in range(1, 4)]
    path = tmp_path / "stacks.bpf"
    path.write_bytes(b"".join(records)[:-3])
    damage = SpoolDamage()
    batches = list(read_stacks(path, damage, chunk_bytes=50))
    assert [identity for batch in batches for identity in batch.hash.tolist()] == [1, 2]
    assert damage.bytes == len(records[2]) - 3
    assert np.concatenate([batch.address for batch in batches]).tolist() == [1] * 5 + [2] * 5


def test_missing_files_are_empty(tmp_path: Path) -> None:
    assert list(read_rows(tmp_path / "no", SpoolDamage())) == list(read_stacks(tmp_path / "no", SpoolDamage())) == []


@pytest.mark.skipif(load_native() is None, reason="the compiled library was not built")
@given(
    st.lists(st.tuples(u64, u64, u32, st.binary(max_size=99), st.sampled_from([0, 0, BUSY, DISCARD])), max_size=5),
    st.binary(max_size=200),
)
def test_copies_round_trip_whatever_follows(copies, rest: bytes) -> None:
    whole = b"".join(stack_copy(i, t, p, [i] * 17, stack, flags=flags) for i, t, p, stack, flags in copies)
    batch, consumed, damaged = decode_copies(whole + rest)
    kept = [(i, t, p, stack) for i, t, p, stack, flags in copies if flags == 0]
    starts, sizes = batch.copies.stack_start.tolist(), batch.copies.stack_bytes.tolist()
    stacks = [batch.copies.stack[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True)]
    found = list(zip(batch.identity.tolist(), batch.time_ns.tolist(), batch.pid.tolist(), stacks, strict=True))
    assert found[: len(kept)] == kept
    assert consumed >= len(whole)
    assert damaged >= sum(flags == BUSY for *_, flags in copies)
    assert all(start + size <= len(whole + rest) for start, size in zip(starts, sizes, strict=True))
