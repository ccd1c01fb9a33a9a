"""Thrift's compact protocol, as far as a Parquet footer needs it: structs read into dictionaries and written again.

Format: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. It reads what pyarrow wrote a
moment ago, not files of others.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, _MAP, STRUCT = range(1, 13)

Struct = dict[int, tuple[int, Any]]
"""By field: its type and value. A list's value is the type of its elements and these."""


class CompactReader:
    """Reads values one after the other from ``data``."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        """The struct that begins here.

        Raises:
            ValueError: a type that Parquet's metadata do not use.
            IndexError: the data end within it.
        """
        fields: Struct = {}
        field = 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self._signed()
            fields[field] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind))
        return fields

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._unsigned()
        return value >> 1 ^ -(value & 1)

    def _bytes(self, length: int) -> bytes:
        self._at += length
        return self._data[self._at - length : self._at]

    def _value(self, kind: int) -> Any:
        if kind == STRUCT:
            return self.struct()
        if kind in (I16, I32, I64):
            return self._signed()
        if kind == BINARY:
            return self._bytes(self._unsigned())
        if kind in (TRUE, FALSE, BYTE):  # elements of a list: a byte each
            return self._byte()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind in (LIST, SET):
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._unsigned()
            return head & 15, [self._value(head & 15) for _ in range(length)]
        raise ValueError(f"Thrift type {kind} in a Parquet footer")


def write_struct(fields: Struct) -> bytes:
    """A struct as `CompactReader.struct` returns it; a struct within it may also be bytes: one written already."""
    out = bytearray()
    _write_fields(fields, out)
    return bytes(out)


def _write_fields(fields: Struct, out: bytearray) -> None:
    before = 0
    for field, (kind, value) in sorted(fields.items()):
        step = field - before
        before = field
        kind = (TRUE if value else FALSE) if kind in (TRUE, FALSE) else kind
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_signed(field, out)
        if kind not in (TRUE, FALSE):
            _write_value(kind, value, out)
    out.append(0)


def write_unsigned(value: int, out: bytearray) -> None:
    """Append a number as a varint, seven bits a byte, low ones first."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def _write_signed(value: int, out: bytearray) -> None:
    write_unsigned(value << 1 if value >= 0 else ~value << 1 | 1, out)


def _write_value(kind: int, value: Any, out: bytearray) -> None:
    if kind == STRUCT and isinstance(value, dict):
        _write_fields(value, out)
    elif kind == STRUCT:
        out += value
    elif kind in (I16, I32, I64):
        _write_signed(value, out)
    elif kind == BINARY:
        write_unsigned(len(value), out)
        out += value
    elif kind in (LIST, SET):
        element, values = value
        out.append(min(len(values), 15) << 4 | element)
        if len(values) >= 15:
            write_unsigned(len(values), out)
        for each in values:
            _write_value(element, each, out)
    elif kind == DOUBLE:
        out += value
    else:
        out.append(value)
