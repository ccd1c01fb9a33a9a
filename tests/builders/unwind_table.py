"""Reads unwind tables for tests, as bpf/unwind.h describes them. Shares no code with the program."""

import struct
from dataclasses import dataclass

import numpy as np

HEADER = struct.Struct("<QIIHBB8IIII64s")
SEGMENT = struct.Struct("<QQII")
CFA = {
    0: "sp",
    1: "fp",
    2: "*sp",
    3: "*fp",
    4: "plt",
    5: "none",
    6: "stop",
    7: "signal",
    8: "record",
    9: "guess",
    10: "unsupported",
    11: "switch",
    12: "call of C",
    13: "left fp",
}


@dataclass
class UnwindTable:
    """A table taken apart.

    Attributes:
        addresses: uint64[n]: where each row begins to hold.
        rules: int[n]: its rule.
        texts: of each rule, as ``describe`` writes it.
        segments: (elf_address, file_offset, bytes, first_bucket) of each.
        counts: of the header: entries, bad entries, unsupported rows, guessed gaps.
        calls: places that execution returns to; empty where the table does not say.
        beginnings: places of functions that it does not return to.
    """

    addresses: np.ndarray
    rules: np.ndarray
    texts: list[str]
    segments: list[tuple[int, int, int, int]]
    counts: tuple[int, int, int, int]
    sources: int
    calls: np.ndarray
    beginnings: np.ndarray

    def at(self, addresses: np.ndarray) -> np.ndarray:
        """The number of the rule at each address."""
        rows = np.searchsorted(self.addresses, np.asarray(addresses, np.uint64), side="right") - 1
        return self.rules[rows]

    def is_returned_to(self, address: int) -> bool:
        """Whether the table says that execution returns to an address of its first segment."""
        return address - (self.segments[0][0] & ~0xFF) in self.calls

    def text_at(self, address: int) -> str:
        return self.texts[int(self.at(np.array([address]))[0])]


def read_table(data: bytes) -> UnwindTable:
    fields = HEADER.unpack_from(data)
    sources = fields[5]
    segment_count, rule_count, bucket_count, row_count, *counts, call_count, beginning_count = fields[6:16]
    at = HEADER.size
    segments = [SEGMENT.unpack_from(data, at + i * SEGMENT.size) for i in range(segment_count)]
    at += segment_count * SEGMENT.size
    rules = np.frombuffer(data, "<u1, <u1, <i2, <i4", rule_count, at)
    at += rule_count * 8
    buckets = np.frombuffer(data, "<u4", bucket_count, at)
    rows = np.frombuffer(data, "<u4", row_count, at + bucket_count * 4)
    calls = np.frombuffer(data, "<u4", call_count, at + (bucket_count + row_count) * 4)
    beginnings = np.frombuffer(data, "<u4", beginning_count, at + (bucket_count + row_count + call_count) * 4)
    assert at + (bucket_count + row_count + call_count + beginning_count) * 4 == len(data)
    addresses = np.zeros(row_count, np.uint64)
    for address, _, size, first in segments:
        span = ((address & 0xFF) + size + 255) // 256
        numbers = buckets[first : first + span + 1].astype(np.int64)
        base = (address & ~0xFF) + 256 * np.arange(span)
        addresses[numbers[0] : numbers[-1]] = np.repeat(base, np.diff(numbers))
    addresses += (rows & 0xFF).astype(np.uint64)
    texts = [describe(*map(int, rule)) for rule in rules.tolist()]
    return UnwindTable(addresses, (rows >> 16).astype(int), texts, segments, tuple(counts), sources, calls, beginnings)


def describe(cfa: int, ra: int, fp: int, offset: int) -> str:
    """A rule in words: ``sp+16 fp=cfa-16 ra=cfa-8``, or a command; ``inferred`` before one made of instructions."""
    if cfa >= 128:
        return f"inferred {describe(cfa - 128, ra, fp, offset)}"
    if 5 <= cfa <= 10:
        return CFA[cfa]
    if cfa >= 64:
        cfa, kind = 2, f"*sp+8*r{cfa & 15}"
    else:
        kind = CFA.get(cfa) or ("*" if cfa >= 48 else "") + f"r{cfa & 15}"
    where = f"{kind[1:]}{offset >> 8:+d}]{offset & 255:+d}" if kind[0] == "*" else f"{kind}{offset:+d}"
    if kind[0] == "*":
        where = "[" + where
    text = where
    slot = fp & ~7
    if (fp & 2 and cfa == 0) or (fp & 1 and cfa == 1):
        slot -= offset
    if ra == 3:
        return f"{where} fp=cfa{-offset:+d} ra=cfa{slot:+d} kept"
    place = f"{'fp' if fp & 1 and cfa != 1 else 'sp' if fp & 2 and cfa != 0 else 'cfa'}{slot:+d}"
    if ra not in (2, 4) and fp != 0x7FFF:
        text += f" fp={place}"
    if ra == 0:
        return text + " ra=cfa-8"
    if ra == 1:
        return text + " ra=lr"
    if ra == 2:
        return text + f" ra={place}"
    if ra == 4:
        return text + f" ra={'lr' if fp == 0x7FFF else place} interrupted"
    if ra < 128:
        return text + f" ra=r{ra & 15}"
    return text + f" ra=cfa{slot + 8 * (ra - 192):+d}"
