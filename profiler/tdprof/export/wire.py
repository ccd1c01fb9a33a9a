"""Protobuf's wire format, as far as the requests that are pushed need it."""

from collections.abc import Iterable, Iterator

_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_FIXED_BYTES = {_FIXED64: 8, 5: 4}


def field(number: int, content: bytes) -> bytes:
    """A field of a message that has a length; ``number`` is below 16, as are all of these requests."""
    return bytes([number << 3 | _LENGTH]) + varint(len(content)) + content


def text(number: int, value: str) -> bytes:
    """A field that is text."""
    return field(number, value.encode())


def integer(number: int, value: int) -> bytes:
    """A field that is an integer from 0 on; 0 is left out, as it is what a reader assumes."""
    return bytes([number << 3 | _VARINT]) + varint(value) if value else b""


def fixed64(number: int, value: int) -> bytes:
    """A field of eight bytes."""
    return bytes([number << 3 | _FIXED64]) + value.to_bytes(8, "little")


def packed(number: int, values: Iterable[int]) -> bytes:
    """A field that is a list of integers from 0 on; nothing for an empty one."""
    content = b"".join(map(varint, values))
    return field(number, content) if content else b""


def varint(value: int) -> bytes:
    """An integer from 0 on, seven bits a byte."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field; ends where the bytes are no message any more."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(message, at)
            if at <= len(message):
                yield key >> 3, value
            continue
        size, at = _read_varint(message, at) if kind == _LENGTH else (_FIXED_BYTES.get(kind, len(message) + 1), at)
        if at + size > len(message):
            return
        yield key >> 3, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """The integer, and where what follows it begins: beyond the end if it is cut."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        value |= (message[at] & 0x7F) << shift
        at += 1
        if message[at - 1] < 0x80:
            return value, at
    return value, len(message) + 1
