"""Adding records up in compiled code, against a record at a time in Python."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arm_spe.tally
from arm_spe import ColumnMemory, Kind, RecordBatch, RecordDecoder
from arm_spe.groups import GroupTable
from arm_spe.native import load_native
from arm_spe.tallied import LATENCIES, NO_ROW, Tallied
from arm_spe.tally import NOTHING, OTHERS, Key, Lane, Rules, Tally, operation_lanes
from builders import spe
from tdprof.decode.spe.data_sources import encoding_of, fill_source_rules, source_codes, sources

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")
N1 = 0x410FD0C0
ROWS = 23


def rules_of(key: Key, midr: int | None) -> Rules:
    rules = Rules(key=key, shift=6, thread=1 << 32, core=midr or 0)
    rules.lanes[:] = operation_lanes()
    fill_source_rules(rules, encoding_of(midr))
    return rules


def row_of(first: int, second: int) -> int:
    return NO_ROW if first == NOTHING or (first + second) % 7 == 0 else (first * 31 + second) % ROWS


def place(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.array([row_of(*pair) for pair in pairs], np.int32)


def keys_of(batch: RecordBatch, key: Key, midr: int | None, threads: np.ndarray | None) -> list[tuple[int, int]]:
    present, pairs = batch["present"], []
    codes, is_load = source_codes(batch, encoding_of(midr))
    for i in range(len(batch)):
        thread = 1 << 32 if threads is None else int(threads[i])
        for kind, column in ((Kind.CTX1, "context_el1"), (Kind.CTX2, "context_el2")):
            thread = int(batch[column][i]) if present[i] >> kind & 1 else thread
        if key is Key.SOURCE:
            pairs.append((int(codes[i]) if is_load[i] else NOTHING, midr or 0))
        elif key is Key.ADDRESS:
            pairs.append((int(batch["va"][i]) >> 6 if present[i] >> Kind.VA & 1 else NOTHING, thread))
        else:
            pairs.append((int(batch["pc"][i]), thread))
    return pairs


def lanes_of(batch: RecordBatch, i: int, midr: int | None) -> set[int]:
    """What one record counts for."""
    events = {bit for bit in range(64) if int(batch["events"][i]) >> bit & 1}
    if 1 not in events:
        return {Lane.OPERATIONS}
    lanes: set[int] = {Lane.OPERATIONS, Lane.RETIRED}
    op_class, op = int(batch["op_class"][i]), int(batch["op"][i])
    load, store = op_class == 1 and not op & 1, op_class == 1 and op & 1
    lanes |= {Lane.LOADS} if load else {Lane.STORES} if store else {Lane.BRANCHES} if op_class == 2 else {Lane.OTHERS}
    if op_class == 2:
        lanes |= {lane for bit, lane in ((6, Lane.NOT_TAKEN), (7, Lane.MISPREDICTED)) if bit in events}
    pairs = [(4, 5, Lane.TLB_ACCESS, Lane.TLB_WALK, load or store), (2, 3, Lane.L1D_ACCESS, Lane.L1D_REFILL, load)]
    for access, miss, access_lane, miss_lane, counts in [*pairs, (8, 9, Lane.LLC_ACCESS, Lane.LLC_REFILL, load)]:
        if counts and access in events:
            lanes |= {access_lane} | ({miss_lane} if miss in events else set())
    # SVE and SME, by the bits that the manual's operation tables have for them
    vector = (op_class == 0 and op & 0x89 in (0x08, 0x88)) or (op_class == 1 and op & 0x0A == 0x08)
    if vector:
        lanes |= {Lane.VECTOR} | ({Lane.PARTIAL_PREDICATE} if 17 in events else set())
        lanes |= {Lane.EMPTY_PREDICATE} if 18 in events else set()
    if load:
        codes, _ = source_codes(batch, encoding_of(midr))
        source = sources(encoding_of(midr))[codes[i]]
        lanes |= {Lane.LOADS_BY_LEVEL + tuple(type(source.level).__members__.values()).index(source.level)}
        lanes |= {Lane.SNOOPED} if source.is_snooped else set()
    for kind, packet in enumerate((Kind.TOT, Kind.ISSUE, Kind.XLAT)):
        lanes |= {Lane.TOTAL_COUNT + kind} if batch["present"][i] >> packet & 1 else set()
    return lanes


def check(found: Tallied, batch: RecordBatch, pairs: list[tuple[int, int]], midr: int | None) -> None:
    lanes, cycles, latencies = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[int]()
    for i, pair in enumerate(pairs):
        row = row_of(*pair)
        if row == NO_ROW:
            continue
        mine = lanes_of(batch, i, midr)
        lanes.update((row, lane) for lane in mine)
        for kind, name in enumerate(LATENCIES):
            if Lane.TOTAL_COUNT + kind in mine:
                cycles[row, kind] += int(batch[name][i])
                latencies[(row * 3 + kind) << 16 | int(batch[name][i])] += 1
    assert {(r, k): int(found.lanes[r, k]) for r, k in np.argwhere(found.lanes).tolist()} == dict(lanes)
    assert {(r, k): int(found.cycles[r, k]) for r, k in np.argwhere(found.cycles).tolist()} == dict(+cycles)
    assert dict(zip(found.latency_key.tolist(), found.latency_count.tolist(), strict=True)) == dict(latencies)
    assert (np.diff(found.latency_key.astype(np.int64)) > 0).all()


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 600),
    key=st.sampled_from(Key),
    midr=st.sampled_from([N1, None]),
    has_threads=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_a_record_at_a_time(
    seed: int, count: int, key: Key, midr: int | None, has_threads: bool
) -> None:
    data, _ = spe.write_stream(spe.program(count, seed), spe.packed_record)
    (batch,) = RecordDecoder(data)
    rng = np.random.default_rng(seed)
    batch.columns["data_source"][:] = rng.integers(0, 300, count)  # values beyond the encodings too
    batch.columns["events"][:] = rng.integers(0, 1 << 26, count)
    batch.columns["op"][:] = rng.integers(0, 256, count)
    batch.columns["total_latency"][:] = rng.choice([0, 15, 31, 32, 33, 500, 65535], count)
    present: Any = batch.columns["present"]
    present &= rng.integers(0, 1 << 15, count).astype(np.uint32) | 1 << Kind.PC
    for kind, column in enumerate(LATENCIES):  # a missing field is 0
        batch.columns[column][present >> (Kind.TOT + kind) & 1 == 0] = 0
    threads = rng.integers(0, 5, count).astype(np.uint64) if has_threads else None
    tally = Tally(place)
    tally.add(batch, rules_of(key, midr), threads)
    check(Tallied.sum(tally.finish()), batch, keys_of(batch, key, midr, threads), midr)


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 3000),
    key=st.sampled_from(Key),
    layout=st.sampled_from(["slots", "wide_slots", "packed"]),
    has_timestamps=st.booleans(),
    rows=st.integers(1, 400),
    damage=st.lists(st.integers(0, 255), max_size=5),
    ignores_contexts=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_span_is_added_up_as_its_records_are(
    seed: int,
    count: int,
    key: Key,
    layout: str,
    has_timestamps: bool,
    rows: int,
    damage: list[int],
    ignores_contexts: bool,
) -> None:
    """Decoded and added in one call, slots without columns; enough of them to fill the counters of rows."""
    data, starts = spe.write_stream(spe.program(count, seed, timestamps=has_timestamps), spe.LAYOUTS[layout])
    array, rng = np.frombuffer(data, np.uint8).copy(), np.random.default_rng(seed)
    array[rng.integers(0, len(array), len(damage))] = damage
    for start in rng.choice(starts[:-1], min(len(damage), count)):  # headers are few, and decide most
        header = start + rng.choice([0, 9, 14, 19, 21, 30, 39, 42, 51, 55, 63])
        array[min(header, len(array) - 1)] ^= rng.choice([1, 2, 0x10, 0xB0])  # packed records are shorter
    span = array.tobytes()
    decoder = RecordDecoder(span)
    batches = list(decoder)
    rules = rules_of(key, N1)
    rules.ignores_contexts = ignores_contexts
    tally, wanted = Tally(place), Tally(place)
    assert tally.add_span(span, rules, ColumnMemory(rows)) == decoder.counts
    for batch in batches:
        wanted.add(batch, rules)
    assert tally.with_context == wanted.with_context
    found, sums = Tallied.sum(tally.finish()), Tallied.sum(wanted.finish())
    for name in Tallied.__slots__:
        assert getattr(found, name).tolist() == getattr(sums, name).tolist()
    if batches and not ignores_contexts:
        check(found, batches[0], keys_of(batches[0], key, N1, None), N1)


@pytest.mark.parametrize("has_timestamps", [True, False])
@pytest.mark.parametrize("events_bytes", [2, 4])
def test_each_byte_of_a_slot_counts_as_in_the_columns(events_bytes: int, has_timestamps: bool) -> None:
    """A slot of each kind among others like it, with each of its bytes changed in turn."""
    truths = list(spe.program(40, 3, timestamps=has_timestamps))
    slots = [spe.neoverse_slot(truth, events_bytes) for truth in truths]
    kinds = {(truth.op_class, truth.op & 1): slot for truth, slot in zip(truths, slots, strict=True)}
    assert len(kinds) == 6
    rules, memory = rules_of(Key.CODE, N1), ColumnMemory(64)
    for slot in kinds.values():
        for at in range(64):
            changed = slot[:at] + bytes([slot[at] ^ (0x10 if slot[at] else 0xFF)]) + slot[at + 1 :]
            span = b"".join([*slots[:20], changed, *slots[20:]])
            decoder = RecordDecoder(span)
            tally, wanted = Tally(place), Tally(place)
            for batch in decoder:
                wanted.add(batch, rules)
            assert tally.add_span(span, rules, memory) == decoder.counts, at
            found, sums = Tallied.sum(tally.finish()), Tallied.sum(wanted.finish())
            for name in Tallied.__slots__:
                assert getattr(found, name).tolist() == getattr(sums, name).tolist(), at


def test_many_records_of_a_row_in_slots_of_two_layouts() -> None:
    """More than its narrow counters hold; a stream of one core has one layout, but nothing says that it must."""
    rng = np.random.default_rng(8)
    sizes = iter(np.repeat(rng.choice([2, 4], 200), 100).tolist())
    data, _ = spe.write_stream(spe.program(20_000, 8), lambda truth: spe.neoverse_slot(truth, next(sizes)))
    (batch,) = RecordDecoder(data)
    tally = Tally(place)
    tally.add_span(data, rules_of(Key.CODE, N1), ColumnMemory(64))
    (part,) = tally.finish()
    assert part.wide_of.any()
    pairs = keys_of(batch, Key.CODE, N1, None)
    check(Tallied.sum([part]), batch, pairs, N1)
    rows = np.array([row_of(*pair) for pair in pairs])
    wanted = np.array([5, 2, ROWS + 3])  # of some rows, in any order; the last has no counters
    group = np.full(ROWS + 4, NO_ROW)
    group[wanted] = np.arange(len(wanted))
    some = Tallied.sum([part], group, len(wanted))
    assert some.lanes[:, Lane.OPERATIONS].tolist() == [(rows == row).sum() for row in wanted]
    every = Tallied.sum([part])
    assert some.cycles[:2].tolist() == every.cycles[wanted[:2]].tolist()
    kinds = np.isin(every.latency_key >> np.uint64(16), [*range(15, 18), *range(6, 9)])
    assert some.latency_count.sum() == every.latency_count[kinds].sum()


@pytest.mark.thorough
def test_little_room_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many placements, growing tables, and counters taken away in between."""
    monkeypatch.setattr(arm_spe.tally, "_MAX_WAITING", 1 << 12)
    monkeypatch.setattr(arm_spe.tally, "_COUNTER_LIMIT", 4000)
    data, _ = spe.write_stream(spe.program(30_000, 5), spe.packed_record)
    (batch,) = RecordDecoder(data)
    batch.columns["pc"][:] = np.arange(len(batch)) * 4  # a group each
    batch.columns["total_latency"][:] = np.arange(len(batch)) % 50_000
    placed: list[int] = []

    def place_and_note(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        placed.extend(first.tolist())
        return place(first, second)

    tally = Tally(place_and_note)
    for start in range(0, len(batch), 3000):
        part = RecordBatch({name: column[start : start + 3000] for name, column in batch.columns.items()})
        tally.add(part, rules_of(Key.CODE, N1))
    check(Tallied.sum(tally.finish()), batch, keys_of(batch, Key.CODE, N1, None), N1)
    assert placed == batch["pc"].tolist()  # each group once, in order


def test_groups_beyond_the_limit_share_one() -> None:
    data, _ = spe.write_stream(spe.program(40_000, 6), spe.packed_record)
    (batch,) = RecordDecoder(data)
    batch.columns["pc"][:] = np.arange(len(batch)) * 4

    def rest(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return ((first == OTHERS) & (second == OTHERS)).astype(np.int32)

    tally = Tally(rest, max_groups=1 << 12)
    tally.add(batch, rules_of(Key.CODE, N1))
    kept, others = Tallied.sum(tally.finish()).lanes[:, Lane.OPERATIONS].tolist()
    assert kept + others == len(batch)
    assert (1 << 12) - 128 <= kept <= 1 << 12


@given(seed=st.integers(0, 2**32), groups=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_sums_of_rows_are_the_rows_of_a_coarser_place(seed: int, groups: int) -> None:
    data, _ = spe.write_stream(spe.program(600, seed), spe.packed_record)
    (batch,) = RecordDecoder(data)
    group_of = np.random.default_rng(seed).integers(NO_ROW, groups, ROWS)

    def place_coarsely(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        rows = place(first, second)
        return np.where(rows == NO_ROW, NO_ROW, group_of[rows]).astype(np.int32)

    fine, coarse = Tally(place), Tally(place_coarsely)
    for tally in (fine, coarse):
        tally.add(batch, rules_of(Key.CODE, N1))
    found, wanted = fine.finish(), Tallied.sum(coarse.finish())
    sums = Tallied.sum(found, group_of, groups)
    rows = len(wanted.lanes)
    assert sums.lanes[:rows].tolist() == wanted.lanes.tolist()
    assert sums.cycles[:rows].tolist() == wanted.cycles.tolist()
    assert not sums.lanes[rows:].any()
    assert sums.latency_key.tolist() == wanted.latency_key.tolist()
    assert sums.latency_count.tolist() == wanted.latency_count.tolist()


def test_parts_are_added() -> None:
    data, _ = spe.write_stream(spe.program(5000, 7), spe.packed_record)
    (batch,) = RecordDecoder(data)
    parts = []
    for start, end in ((0, 1200), (1200, 1201), (1201, 5000)):
        tally = Tally(place)
        part = {name: column[start:end] for name, column in batch.columns.items() if not name.startswith("other")}
        others = {name: column[:0] for name, column in batch.columns.items() if name.startswith("other")}
        tally.add(RecordBatch(part | others), rules_of(Key.ADDRESS, N1))
        parts += tally.finish()
    whole = Tallied.sum(parts)
    check(whole, batch, keys_of(batch, Key.ADDRESS, N1, None), N1)
    one = Tallied.sum(parts, np.where(np.arange(ROWS) < 9, NO_ROW, 1), 2)
    assert not one.lanes[0].any()
    assert one.lanes[1].tolist() == whole.lanes[9:].sum(axis=0).tolist()
    histogram = Counter[int]()
    for key, count in zip(whole.latency_key.tolist(), whole.latency_count.tolist(), strict=True):
        row, kind = divmod(key >> 16, len(LATENCIES))
        if row >= 9:
            histogram[(len(LATENCIES) + kind) << 16 | key & 0xFFFF] += count
    assert one.latency_key.tolist() == sorted(histogram)
    assert dict(zip(one.latency_key.tolist(), one.latency_count.tolist(), strict=True)) == histogram
    assert Tallied.sum(Tally(place).finish()).latency_key.tolist() == []


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 5)), min_size=1))
def test_groups_are_numbered_as_they_appear(pairs: list[tuple[int, int]]) -> None:
    table = GroupTable()
    first, second = (np.array(column, np.uint64) for column in zip(*pairs, strict=True))
    numbers = table.number(first, second)
    known: dict[tuple[int, int], int] = {}
    assert numbers.tolist() == [known.setdefault(pair, len(known)) for pair in pairs]
    assert list(zip(table.first.tolist(), table.second.tolist(), strict=True)) == list(known)


def test_a_table_grows_with_its_groups() -> None:
    table = GroupTable()
    keys = np.arange(100_000, dtype=np.uint64)
    table.number(keys, keys)
    assert (table.number(keys[::-1], keys[::-1]) == keys[::-1]).all()
    assert len(table) == len(keys)
