"""One SPE packet: what its header says, how long it is, what it carries.

Format: Arm Architecture Reference Manual (DDI 0487), "The Statistical Profiling Extension", sample record format.
`spe/native/packet.h` is the compiled twin and uses the same numbers.
"""

from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """A packet's kind; below END the field it fills, whose bit in the `present` column is ``1 << kind``."""

    PC = 0
    TGT = 1
    VA = 2
    PA = 3
    PBT = 4
    TOT = 5
    ISSUE = 6
    XLAT = 7
    ALT = 8
    EVENTS = 9
    OP = 10
    CTX1 = 11
    CTX2 = 12
    SOURCE = 13
    TS = 14
    END = 15
    PAD = 16
    IMPDEF = 17  # address or counter with an implementation-defined index
    UNKNOWN = 18  # reserved, but its size is known
    BAD = 19  # no defined size: the stream is damaged here
    CUT = 20  # the input ends inside the packet


HAS_OTHER = 1 << 16
"""In `present`: the record has packets that are no fields; they are listed in the `other_…` columns."""
HAS_DUPLICATE = 1 << 17
"""In `present`: a kind of packet came twice; the first was kept."""

_ADDRESSES = {0: Kind.PC, 1: Kind.TGT, 2: Kind.VA, 3: Kind.PA, 4: Kind.PBT}
_COUNTERS = {0: Kind.TOT, 1: Kind.ISSUE, 2: Kind.XLAT, 4: Kind.ALT}


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet as it stands in the stream.

    Attributes:
        offset: of its first byte in the input.
        kind: what it is.
        header: the header byte; for an extended header ``first << 8 | second``.
        payload: zero-extended little-endian value.
        bytes: header and payload; the run's length for PAD, what is left of the input for CUT.
        index: of an address or counter.
    """

    offset: int
    kind: Kind
    header: int
    payload: int
    bytes: int
    index: int


def is_address(header: int) -> bool:
    """Whether the header byte (the second one, if extended) is an address packet's."""
    return header & 0xF8 == 0xB0


def is_counter(header: int) -> bool:
    """Whether the header byte (the second one, if extended) is a counter packet's."""
    return header & 0xF8 == 0x98


def _indexed_kind(header: int, index: int) -> Kind:
    if index >= 16 or index in (6, 7):
        return Kind.IMPDEF
    return (_ADDRESSES if is_address(header) else _COUNTERS).get(index, Kind.UNKNOWN)


def short_kind(header: int) -> Kind:
    """The kind of packet that a one-byte header of at least 0x40 begins."""
    if header == 0x71:
        return Kind.TS
    if is_address(header) or is_counter(header):
        return _indexed_kind(header, header & 7)
    if header & 0xCF == 0x42:
        return Kind.EVENTS
    # The size rule allows 4 and 8 bytes of data source too; no core writes them, so they stay unknown and whole.
    if header in (0x43, 0x53):
        return Kind.SOURCE
    if header in (0x64, 0x65):
        return Kind.CTX1 if header == 0x64 else Kind.CTX2
    if 0x48 <= header <= 0x4A:
        return Kind.OP
    return Kind.UNKNOWN


def skip_padding(data: bytes | memoryview, offset: int) -> int:
    """The offset of the first byte at or after `offset` that is not padding, or the length."""
    while offset < len(data) and not data[offset]:
        offset += 1
    return offset


def read_packet(data: bytes | memoryview, offset: int) -> Packet:
    """The packet at `offset`, which must be inside `data`; a run of padding is one packet."""
    first = data[offset]
    if first < 0x20:
        if first == 0:
            return Packet(offset, Kind.PAD, 0, 0, skip_padding(data, offset) - offset, 0)
        return Packet(offset, Kind.END if first == 1 else Kind.BAD, first, 0, 1, 0)
    left = len(data) - offset
    header, header_bytes, index = first, 1, first & 7
    if first < 0x40:
        if left < 2:
            return Packet(offset, Kind.CUT, first, 0, 1, 0)
        header, header_bytes, index = data[offset + 1], 2, 0
        # Includes the alignment packet of early drafts (20-2f, 00): no core writes it, so it means damage.
        if header < 0x40:
            return Packet(offset, Kind.BAD, first, 0, 1, 0)
        kind = Kind.UNKNOWN
        if first < 0x24 and (is_address(header) or is_counter(header)):
            index = (first & 3) << 3 | header & 7
            kind = _indexed_kind(header, index)
    else:
        kind = short_kind(header)
    size = header_bytes + (1 << (header >> 4 & 3))
    full_header = header if header_bytes == 1 else first << 8 | header
    if left < size:
        return Packet(offset, Kind.CUT, full_header, 0, left, index)
    payload = int.from_bytes(data[offset + header_bytes : offset + size], "little")
    return Packet(offset, kind, full_header, payload, size, index)


def canonical(payload: int) -> int:
    """The virtual address in an address payload: bits 55:0 are delivered, bit 55 says what the rest were."""
    address = payload & (1 << 56) - 1
    return address | 0xFF << 56 if address >> 55 else address
