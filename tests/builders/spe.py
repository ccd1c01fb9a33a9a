"""Writes SPE records as a core would, and knows what it wrote; shares no code with the decoder."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

PC, TARGET, VA, PA, PREVIOUS_TARGET = range(5)
TOTAL, ISSUE, TRANSLATION, ALT_ISSUE = 0, 1, 2, 4


def address(index: int, payload: int) -> bytes:
    return bytes([0xB0 + index]) + payload.to_bytes(8, "little")


def counter(index: int, value: int) -> bytes:
    return bytes([0x98 + index]) + value.to_bytes(2, "little")


def events(value: int, size: int) -> bytes:
    return bytes([0x42 | (size.bit_length() - 1) << 4]) + value.to_bytes(size, "little")


def operation(op_class: int, payload: int) -> bytes:
    return bytes([0x48 | op_class, payload])


def context(level: int, value: int) -> bytes:
    return bytes([0x63 + level]) + value.to_bytes(4, "little")


def data_source(value: int, size: int = 1) -> bytes:
    return bytes([0x43 if size == 1 else 0x53]) + value.to_bytes(size, "little")


def timestamp(value: int) -> bytes:
    return b"\x71" + value.to_bytes(8, "little")


END = b"\x01"


@dataclass(frozen=True)
class Truth:
    """What one written record says; None where it has no such packet."""

    pc: int  # raw payload, as are the other addresses
    op_class: int
    op: int
    events: int
    total: int
    issue: int | None = None
    translation: int | None = None
    alt_issue: int | None = None
    target: int | None = None
    va: int | None = None
    pa: int | None = None
    previous_target: int | None = None
    context_el1: int | None = None
    context_el2: int | None = None
    source: int | None = None
    timestamp: int | None = None

    def packets(self, events_bytes: int) -> dict[str, bytes]:
        """The packets by name, without the closing one, in the order most cores use."""
        optional: dict[str, tuple[int | None, Callable[[int], bytes]]] = {
            "context_el1": (self.context_el1, lambda v: context(1, v)),
            "context_el2": (self.context_el2, lambda v: context(2, v)),
            "issue": (self.issue, lambda v: counter(ISSUE, v)),
            "alt_issue": (self.alt_issue, lambda v: counter(ALT_ISSUE, v)),
            "va": (self.va, lambda v: address(VA, v)),
            "target": (self.target, lambda v: address(TARGET, v)),
            "previous_target": (self.previous_target, lambda v: address(PREVIOUS_TARGET, v)),
            "translation": (self.translation, lambda v: counter(TRANSLATION, v)),
            "pa": (self.pa, lambda v: address(PA, v)),
            "source": (self.source, lambda v: data_source(v, 1 if v < 256 else 2)),
        }
        packets = {
            "pc": address(PC, self.pc),
            "op": operation(self.op_class, self.op),
            "events": events(self.events, events_bytes),
            "total": counter(TOTAL, self.total),
        }
        packets.update({name: write(value) for name, (value, write) in optional.items() if value is not None})
        return packets

    @property
    def closing(self) -> bytes:
        return END if self.timestamp is None else timestamp(self.timestamp)


def neoverse_slot(truth: Truth, events_bytes: int = 2) -> bytes:
    """A 64-byte slot: N1 with two bytes of events, V1 and V2 with four; absent packets leave zeros."""
    p = truth.packets(events_bytes)

    def slot(name: str, size: int) -> bytes:
        return p.get(name, b"").ljust(size, b"\0")

    head = p["pc"] + slot("context_el1", 5) + slot("context_el2", 5) + p["op"] + p["events"] + p["issue"] + p["total"]
    body = (p.get("va", b"") or p.get("target", b"")).ljust(9, b"\0")
    body += slot("translation", 3) + slot("pa", 9) + slot("source", 2)
    return (head + body).ljust(64 - len(truth.closing), b"\0") + truth.closing


def kunpeng_record(truth: Truth) -> bytes:
    """Variable length, padded before the timestamp so that the record is a multiple of four bytes."""
    p = truth.packets(2)
    body = b"".join(p[name] for name in ("pc", "issue", "total", "events", "op"))
    body += b"".join(p.get(name, b"") for name in ("target", "va", "translation", "context_el2"))
    return body + b"\0" * (-(len(body) + len(truth.closing)) % 4) + truth.closing


def packed_record(truth: Truth, events_bytes: int = 2) -> bytes:
    """Packets back to back."""
    return b"".join(truth.packets(events_bytes).values()) + truth.closing


def model_record(truth: Truth) -> bytes:
    """As Arm's software model orders it: operation first, PC late."""
    p = truth.packets(1 if truth.events < 256 else 2)
    order = ["op", "target", "va", "pa", "translation", "context_el2", "source", "issue", "events", "pc", "total"]
    return b"".join(p.get(name, b"") for name in order) + truth.closing


def half_slots(truth: Truth) -> bytes:
    """In multiples of 32 bytes, the close at their end."""
    packets = b"".join(truth.packets(2).values())
    size = -(len(packets) + len(truth.closing)) // 32 * -32
    return packets.ljust(size - len(truth.closing), b"\0") + truth.closing


LAYOUTS: dict[str, Callable[[Truth], bytes]] = {
    "slots": neoverse_slot,
    "wide_slots": lambda truth: neoverse_slot(truth, 4),
    "half_slots": half_slots,
    "kunpeng": kunpeng_record,
    "packed": packed_record,
    "wide_packed": lambda truth: packed_record(truth, 8),
    "model": model_record,
}


def program(count: int, seed: int, *, timestamps: bool = True) -> Iterable[Truth]:
    """Records such as a real program leaves: loads, stores, branches and the rest, time going up."""
    rng = random.Random(seed)
    now = rng.randrange(1 << 40)
    for _ in range(count):
        now += rng.randrange(20, 400)
        pc = 0x80 << 56 | 0xAAAA_0000_0000 + 4 * rng.randrange(20000)
        kind = rng.choices(("load", "store", "branch", "other"), (35, 15, 20, 30))[0]
        issue = rng.choice((1, 2, 3, 5, 9, 30))
        common: dict[str, Any] = {
            "pc": pc,
            "issue": issue,
            "total": min(issue + rng.choice((1, 2, 4, 8, 40, 300, 1000)), 4095),
            "context_el2": 4242,
            "timestamp": now if timestamps else None,
        }
        if kind in ("load", "store"):
            yield Truth(
                op_class=1,
                op=int(kind == "store") | rng.choice((0x00, 0x04)),
                events=0x16 | rng.choice((0, 0, 0, 0x8, 0x308)),
                va=0xFFFF_8000_0000 + rng.randrange(1 << 26),
                translation=rng.choice((1, 1, 1, 2, 30)),
                source=rng.choice((0, 0, 0, 8, 0xB, 0xE)) if kind == "load" else None,
                **common,
            )
        elif kind == "branch":
            yield Truth(
                op_class=2, op=rng.choice((0, 1, 1, 2)), events=rng.choice((2, 2, 0x42, 0x82)), target=pc + 64, **common
            )
        else:
            yield Truth(op_class=0, op=rng.choice((0, 1, 2)), events=2, **common)


def write_stream(records: Iterable[Truth], layout: Callable[[Truth], bytes]) -> tuple[bytes, list[int]]:
    """A stream and the offset of each record; a last item gives the stream's length."""
    pieces = [layout(truth) for truth in records]
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece))
    return b"".join(pieces), starts
