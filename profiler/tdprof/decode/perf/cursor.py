"""Bounds-checked reading of one perf record in either byte order."""

import struct


class Malformed(Exception):  # noqa: N818  said of the record
    """A record too short for what its header and event say it holds."""


class Cursor:
    """Reads one record's body; past its end it raises ``Malformed``."""

    def __init__(self, data: memoryview, byteorder: str) -> None:
        self.data = data
        self.at = 0
        self.order = "<" if byteorder == "little" else ">"

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Malformed
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def words(self, count: int) -> tuple[int, ...]:
        if count * 8 > self.left:
            raise Malformed
        return struct.unpack(f"{self.order}{count}Q", self.take(count * 8))

    def u64(self) -> int:
        return self.words(1)[0]

    def u32(self) -> int:
        return int(struct.unpack(f"{self.order}I", self.take(4))[0])

    def u16(self) -> int:
        return int(struct.unpack(f"{self.order}H", self.take(2))[0])

    def u64_at(self, word: int) -> int | None:
        """The id word: from the start if >= 0, from the end if negative; None if it lies outside."""
        position = len(self.data) + 8 * word if word < 0 else self.at + 8 * word
        if position < self.at or position + 8 > len(self.data):
            return None
        return int(struct.unpack_from(f"{self.order}Q", self.data, position)[0])

    def text(self) -> bytes:
        """The rest up to the first NUL."""
        return self.take(self.left).split(b"\0", 1)[0]
