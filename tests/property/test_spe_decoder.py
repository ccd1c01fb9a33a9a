"""Streams with a known truth, whole and damaged: what is there is found, and nothing else."""

import random
from bisect import bisect_right
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_spe import DecodeCounts, Kind, RecordBatch, RecordDecoder, dump_packets
from arm_spe.dump import dump_reference
from arm_spe.native import load_native
from arm_spe.reference import decode_reference
from builders import spe

needs_native = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")

U64 = st.integers(0, 2**64 - 1)
U16 = st.integers(0, 2**16 - 1)
truths = st.builds(
    spe.Truth,
    pc=U64,
    op_class=st.integers(0, 2),
    op=st.integers(0, 255),
    events=st.integers(0, 2**16 - 1),
    total=U16,
    timestamp=st.none() | U64,
    **{name: st.none() | U16 for name in ("issue", "translation", "alt_issue", "source")},
    **{name: st.none() | U64 for name in ("target", "va", "pa", "previous_target")},
    **{name: st.none() | st.integers(0, 2**32 - 1) for name in ("context_el1", "context_el2")},
)
paddings = st.integers(0, 20).map(bytes)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[spe.Truth]]:
    """Valid records in any order of packets, with padding anywhere between packets."""
    records = draw(st.lists(truths, max_size=6))
    out = bytearray(draw(paddings))
    for truth in records:
        packets = draw(st.permutations(list(truth.packets(draw(st.sampled_from([2, 4, 8]))).values())))
        for packet in (*packets, truth.closing):
            out += packet + draw(st.just(b"") | paddings)
    return bytes(out), records


def decode(data: bytes, batch_records: int = 4) -> tuple[dict[str, list[int]], DecodeCounts]:
    """All batches joined; rows of other packets count from the first batch on."""
    decoder = RecordDecoder(data, batch_records=batch_records)
    joined: dict[str, list[int]] = {}
    rows = 0
    for batch in decoder:
        for name in batch:
            shift = rows if name == "other_record" else 0
            joined.setdefault(name, []).extend(int(value) + shift for value in batch[name])
        rows += len(batch)
    return joined, decoder.counts


def as_lists(batch: RecordBatch) -> dict[str, list[int]]:
    return {name: batch[name].tolist() for name in batch} if len(batch) else {}


def sign_extended(payload: int) -> int:
    return (payload & (1 << 56) - 1) | (0xFF << 56 if payload >> 55 & 1 else 0)


COLUMN_OF = {
    "total": "total_latency",
    "issue": "issue_latency",
    "translation": "translation_latency",
    "alt_issue": "alt_issue_latency",
    "target": "branch_target",
    "previous_target": "previous_branch_target",
    "source": "data_source",
}
KIND_OF = {
    "pc": Kind.PC,
    "target": Kind.TGT,
    "va": Kind.VA,
    "pa": Kind.PA,
    "previous_target": Kind.PBT,
    "total": Kind.TOT,
    "issue": Kind.ISSUE,
    "translation": Kind.XLAT,
    "alt_issue": Kind.ALT,
    "events": Kind.EVENTS,
    "op": Kind.OP,
    "op_class": Kind.OP,
    "context_el1": Kind.CTX1,
    "context_el2": Kind.CTX2,
    "source": Kind.SOURCE,
    "timestamp": Kind.TS,
}


@given(streams())
@settings(max_examples=150, deadline=None)
def test_every_field_of_every_record(stream: tuple[bytes, list[spe.Truth]]) -> None:
    data, records = stream
    columns, counts = decode(data)
    assert counts.records == len(records)
    assert counts.damaged_regions == counts.open_records == counts.unknown_packets == 0
    assert counts.total_bytes == len(data)
    for row, truth in enumerate(records):
        for field in fields(truth):
            value = getattr(truth, field.name)
            has = columns["present"][row] >> KIND_OF[field.name] & 1
            assert has == (value is not None), field.name
            cell = columns[COLUMN_OF.get(field.name, field.name)][row]
            if field.name in ("pc", "target", "va", "previous_target"):
                assert cell == (0 if value is None else sign_extended(value)), field.name
                top = columns[f"{COLUMN_OF.get(field.name, field.name)}_top"][row]
                assert top == (value or 0) >> 56
            elif field.name == "pa":
                assert cell == (value or 0) & (1 << 56) - 1
            else:
                assert cell == (value or 0), field.name


@pytest.mark.parametrize("layout", spe.LAYOUTS)
@pytest.mark.parametrize("timestamps", [False, True])
def test_nothing_of_a_whole_stream_is_damage(layout: str, timestamps: bool) -> None:
    """Records of several sizes, too, of which some happen to fill what is a slot on other cores."""
    data, starts = spe.write_stream(spe.program(5000, 7, timestamps=timestamps), spe.LAYOUTS[layout])
    decoder = RecordDecoder(data)
    found = [offset for batch in decoder for offset in batch["offset"].tolist()]
    assert found == starts[:-1]
    assert decoder.counts.damaged_bytes == 0


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Flips, overwrites, cuts, inserts, swaps and repeats, a few of them."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at, size = rng.randrange(len(out) + 1), rng.randrange(1, 40)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + size] = rng.randbytes(min(size, len(out) - at))
            case 2:
                del out[at : at + size]
            case 3:
                out[at:at] = rng.randbytes(size)
            case 4:
                out[at:at] = out[: rng.randrange(len(out) + 1)][-size:]
            case 5:
                out[at:at] = bytes(rng.choice([0x00, 0x01, 0x71, 0xB0, 0x9E, 0xAB, 0x22]) for _ in range(size))
    return bytes(out)


@needs_native
@pytest.mark.parametrize("layout", spe.LAYOUTS)
@given(seed=st.integers(0, 2**32), count=st.integers(1, 25), timestamps=st.booleans())
@settings(max_examples=40, deadline=None)
def test_compiled_is_reference_on_damaged_streams(layout: str, seed: int, count: int, timestamps: bool) -> None:
    data, _ = spe.write_stream(spe.program(count, seed, timestamps=timestamps), spe.LAYOUTS[layout])
    check_against_reference(mutate(data, random.Random(seed)))


@needs_native
@given(st.binary(max_size=600) | st.lists(st.sampled_from([0, 1, 0x71, 0xB0, 0x98, 0x52, 0x49, 0x22, 7])).map(bytes))
@settings(max_examples=150, deadline=None)
def test_compiled_is_reference_on_noise(data: bytes) -> None:
    check_against_reference(data)


def check_against_reference(data: bytes) -> None:
    columns, counts = decode(data)
    expected, expected_counts = decode_reference(data)
    assert columns == as_lists(expected)
    assert counts == expected_counts
    assert counts.total_bytes == len(data)
    assert b"".join(dump_packets(data)).decode().splitlines() == list(dump_reference(data))


@needs_native
@pytest.mark.parametrize("layout", spe.LAYOUTS)
@pytest.mark.parametrize("damage", ["bit", "byte", "burst", "whole"])
def test_damage_costs_only_what_it_hits(layout: str, damage: str) -> None:
    """One record in a thousand is hit: 99.9 % of the others are found, none that was not written."""
    records, rng = 10_000, random.Random(99)
    truths = list(spe.program(records, 5))
    data, starts = spe.write_stream(truths, spe.LAYOUTS[layout])
    out = bytearray(data)
    hit = set(rng.sample(range(records), records // 1000))
    for index in hit:
        begin, end = starts[index], starts[index + 1]
        at = begin if damage == "whole" else rng.randrange(begin, end)
        size = {"bit": 1, "byte": 1, "burst": 8, "whole": end - begin}[damage]
        size = min(size, end - at)
        out[at : at + size] = bytes([out[at] ^ 1 << rng.randrange(8)]) if damage == "bit" else rng.randbytes(size)

    decoder = RecordDecoder(bytes(out), batch_records=records)
    (batch,) = decoder
    found = {int(offset): row for row, offset in enumerate(batch["offset"])}
    assert decoder.counts.total_bytes == len(data)
    whole = [index for index in range(records) if index not in hit and starts[index] in found]
    assert len(whole) >= 0.999 * (records - len(hit))
    rows = np.array([found[starts[index]] for index in whole])
    assert batch["pc"][rows].tolist() == [sign_extended(truths[index].pc) for index in whole]
    assert batch["timestamp"][rows].tolist() == [truths[index].timestamp for index in whole]
    # What else was given out stands where a record was hit, or begins inside the one behind it.
    beside = {starts[index] for index in hit} | {starts[index + 1] for index in hit}
    for offset in set(found) - set(starts):
        begin = starts[bisect_right(starts, offset) - 1]
        assert begin in beside, "a record far from any damage"
    if damage in ("burst", "whole"):
        assert decoder.counts.damaged_regions > 0
