"""Writes what a JVM has of its compiled code, as its tables have it: scopes, lines, places."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field


def number(value: int, lowest_byte: int) -> bytes:
    """A compressed number: six bits a byte while the rest does not fit below 192."""
    done, left = b"", value
    while left >= 192 - lowest_byte and len(done) < 4:
        left -= 192 - lowest_byte
        done += bytes([192 + left % 64])
        left //= 64
    return done + bytes([left + lowest_byte])


def lines(*rows: tuple[int, int], lowest_byte: int = 0) -> bytes:
    """A table of lines of (bytecode, line)."""
    table, at, line = b"", 0, 0
    for to, its in rows:
        step, more = to - at, its - line
        if 0 <= step < 31 and 0 <= more < 8 and step + more:
            table += bytes([step << 3 | more])
        else:
            signed = (each << 1 if each >= 0 else (-each << 1) - 1 for each in (step, more))
            table += b"\xff" + b"".join(number(each, lowest_byte) for each in signed)
        at, line = to, its
    return table + b"\0"


@dataclass
class Scopes:
    """The scopes of a compilation."""

    lowest_byte: int = 0
    data: bytes = b"\xff"  # nothing begins at 0
    places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, around: int, method: int, bytecode: int) -> int:
        """A scope within another (0: in none) of the method of this number, counted from 1; returns where it is."""
        at = len(self.data)
        self.data += b"".join(number(each, self.lowest_byte) for each in (around, method, bytecode + 1, 0, 0))
        return at

    def place(self, offset: int, scope: int) -> None:
        """The code before an offset is of this scope."""
        self.places.append((offset, scope))

    def table(self) -> bytes:
        """The places, with those that begin and end each table."""
        rows: Sequence[tuple[int, int]] = [(-1, 0), *self.places, (0x7FFFFFFF, 0)]
        return b"".join(struct.pack("<4i", offset, scope, 0, 0) for offset, scope in rows)
