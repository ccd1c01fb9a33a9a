"""The decoder in Python: slow, and the statement of what the compiled one must do.

The rules for damaged data stand in docs/spe.md; `spe/native/frame.c` follows the same ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from arm_spe.columns import MAX_RECORD_BYTES, OTHER_COLUMNS, RECORD_COLUMNS, RecordBatch, allocate_columns
from arm_spe.counts import Damage, DecodeCounts
from arm_spe.packet import (
    HAS_DUPLICATE,
    HAS_OTHER,
    Kind,
    Packet,
    canonical,
    is_address,
    read_packet,
    short_kind,
    skip_padding,
)

SLOT_BYTES = 64
SLOT_RUN = 4
MAX_UNKNOWN = 16
FAR_TICKS = 1 << 32
REQUIRED = 1 << Kind.PC | 1 << Kind.TOT | 1 << Kind.EVENTS | 1 << Kind.OP


class Status(Enum):
    """How parsing a record ended."""

    CLOSED = auto()
    UNFINISHED = auto()
    BROKEN = auto()


class Mode(Enum):
    """What a record may hold."""

    ANY = auto()  # whatever has a size
    DISTINCT = auto()  # every kind once, a few unknown packets
    DEFINED = auto()  # every kind once, none unknown


@dataclass(slots=True)
class Record:
    """One record as parsed; `end` is the offset after its closing packet."""

    start: int
    end: int = 0
    values: dict[Kind, int] = field(default_factory=dict)
    others: list[Packet] = field(default_factory=list)
    unknown: int = 0
    duplicates: int = 0
    op_class: int = 0
    close: Kind | None = None
    restart: int = 0  # the second packet of the kind that began the record, or 0

    @property
    def present(self) -> int:
        """The `present` column's value."""
        bits = sum(1 << kind for kind in self.values)
        return bits | (HAS_OTHER if self.others else 0) | (HAS_DUPLICATE if self.duplicates else 0)

    def has(self, fields: int) -> bool:
        """Whether the record has all of these fields."""
        return self.present & fields == fields


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of bytes: a record, damage with its reason, or (neither) an unfinished end."""

    start: int
    end: int
    record: Record | None = None
    damage: Damage | None = None


def _parse(data: memoryview, start: int, mode: Mode) -> tuple[Status, Record]:
    record = Record(start)
    limit = min(len(data), start + MAX_RECORD_BYTES)
    seen_impdef: set[tuple[bool, int]] = set()
    first: Kind | None = None
    at = start
    while True:
        at = skip_padding(data[:limit], at)
        if at >= limit:
            record.end = limit
            return Status.UNFINISHED if limit == len(data) else Status.BROKEN, record
        packet = read_packet(data, at)
        record.end = at + packet.bytes
        match packet.kind:
            case Kind.END:
                record.close = Kind.END
                return Status.CLOSED, record
            case Kind.TS:
                record.close = Kind.TS
                record.values[Kind.TS] = packet.payload
                too_long = record.end - start > MAX_RECORD_BYTES
                return Status.BROKEN if too_long else Status.CLOSED, record
            case Kind.BAD:
                return Status.BROKEN, record
            case Kind.CUT:
                return Status.UNFINISHED, record
            case Kind.UNKNOWN:
                if mode is Mode.DEFINED or (mode is Mode.DISTINCT and record.unknown == MAX_UNKNOWN):
                    return Status.BROKEN, record
                record.unknown += 1
                record.others.append(packet)
            case Kind.IMPDEF:
                identity = is_address(packet.header & 0xFF), packet.index
                if identity in seen_impdef:
                    if mode is not Mode.ANY:
                        return Status.BROKEN, record
                    record.duplicates += 1
                seen_impdef.add(identity)
                record.others.append(packet)
            case field_kind if field_kind in record.values:
                if mode is not Mode.ANY:
                    return Status.BROKEN, record
                if field_kind == first and not record.restart:
                    record.restart = at
                record.duplicates += 1
            case field_kind:
                record.values[field_kind] = packet.payload
                if field_kind == Kind.OP:
                    record.op_class = packet.header & 3
        if first is None:
            first = packet.kind
        at += packet.bytes


class Framer:
    """Cuts a stream into pieces; holds what is known of the stream so far."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._last: Record | None = None
        self._timestamp = 0
        self._required = REQUIRED
        self._slot_run = 0
        self._close: Kind | None = None
        self._unknown_ok = False

    def pieces(self) -> Iterator[Piece]:
        """All pieces in order; what lies between them is padding."""
        at = skip_padding(self._data, 0)
        while at < len(self._data):
            piece = self._next_piece(at)
            if piece.record is not None:
                self._note(piece.record)
            yield piece
            at = skip_padding(self._data, piece.end)

    def _note(self, record: Record) -> None:
        self._required = (record.present | (self._last.present if self._last else 0)) & REQUIRED
        self._last = record
        is_slot = record.end - record.start == SLOT_BYTES
        self._slot_run = min(self._slot_run + 1, SLOT_RUN) if is_slot else 0
        self._close = record.close
        self._unknown_ok = record.unknown > 0
        if record.close == Kind.TS:
            self._timestamp = record.values[Kind.TS]

    def _is_boundary(self, at: int) -> bool:
        """Whether the bytes from `at` on read as two whole records, or as one and the input's end."""
        mode = Mode.DISTINCT if self._unknown_ok else Mode.DEFINED
        for turn in range(2):
            at = skip_padding(self._data, at)
            if at == len(self._data):
                return turn == 1
            status, record = _parse(self._data, at, mode)
            if status is Status.UNFINISHED:
                return turn == 1
            if status is Status.BROKEN or not record.has(self._required):
                return False
            at = record.end
        return True

    def _is_followed(self, at: int, mode: Mode) -> bool:
        """Whether a record follows at `at`; asked about one that is odd but closed."""
        at = skip_padding(self._data, at)
        if at == len(self._data):
            return True
        status, record = _parse(self._data, at, mode)
        if status is Status.CLOSED:
            return record.has(1 << Kind.PC)
        return status is Status.UNFINISHED and not record.unknown

    def _after_close(self, at: int) -> int:
        """The offset after the closing packet that `at` may be, or 0."""
        following = {0x01: at + 1, 0x71: at + 9}.get(self._data[at], 0)
        return following if following <= len(self._data) else 0

    def _find_similar(self, start: int) -> int:
        """A boundary near `start` where a record begins with the same kind of packet as the last one did, or 0.

        It comes after something like a close or, where the close was destroyed, at something like the last one's PC.
        """
        data, last = self._data, self._last
        if last is None:
            return 0
        first = read_packet(data, last.start).kind
        last_pc = last.values[Kind.PC] >> 48
        for at in range(start, min(len(data), start + 2 * MAX_RECORD_BYTES)):
            following = self._after_close(at)
            begin = skip_padding(data, following)
            is_similar = following and begin < len(data) and short_kind(data[begin]) == first
            if is_similar and self._is_boundary(following):
                return following
            if at > start and short_kind(data[at]) == first:
                status, record = _parse(data, at, Mode.DISTINCT)
                is_near = record.values.get(Kind.PC, 0) >> 48 == last_pc
                if status is Status.CLOSED and is_near and self._is_boundary(at):
                    return at
        return 0

    def _resynchronise(self, start: int) -> int:
        """The first boundary after the damaged record at `start`, or the length."""
        data = self._data
        if self._slot_run >= SLOT_RUN:
            for at in range(start + SLOT_BYTES, min(start + 8 * SLOT_BYTES + 1, len(data)), SLOT_BYTES):
                if data[at] and self._is_boundary(at):
                    return at
        similar = self._find_similar(start)
        if similar:
            return similar
        for at in range(start, len(data)):
            following = self._after_close(at)
            if following and self._is_boundary(following):
                return following
        return len(data)

    def _is_doubtful_close(self, record: Record) -> bool:
        """A close of the other kind, or a time far from the last one: both occur, and both come of damage."""
        if self._close is None:
            return False
        if self._close != record.close:
            return True
        if record.close != Kind.TS:
            return False
        distance = (record.values[Kind.TS] - self._timestamp) % (1 << 64)
        return FAR_TICKS < distance < (1 << 64) - FAR_TICKS

    def _leaves_slot(self, record: Record) -> bool:
        """Whether a clean record that ends elsewhere than its slot of 64 bytes is what it looks like.

        Records of some cores fill slots of other sizes, too. A shorter one is if padding or a whole record follows it,
        for which a slot has no room twice. A longer one is if what begins the next slot does not begin records here:
        the next record, into which it would have run, does.
        """
        data, slot_end = self._data, record.start + SLOT_BYTES
        if record.end > slot_end:
            assert self._last is not None
            return read_packet(data, slot_end).kind != read_packet(data, self._last.start).kind
        at = skip_padding(data, record.end)
        if at == slot_end:
            return not self._is_doubtful_close(record)
        status, following = _parse(data, at, Mode.DEFINED)
        return status is Status.CLOSED and following.has(REQUIRED)

    def _next_piece(self, start: int) -> Piece:
        data = self._data
        slot_end = start + SLOT_BYTES
        status, record = _parse(data, start, Mode.ANY)
        is_clean = record.has(REQUIRED) and not record.duplicates and not record.unknown
        reason = Damage.HEADER
        if status is Status.CLOSED:
            # On a core with slots a record that leaves its slot is damaged, if the next slot begins with records.
            if (
                self._slot_run >= SLOT_RUN
                and record.end != slot_end
                and slot_end <= len(data)
                and (slot_end == len(data) or (data[slot_end] and self._is_boundary(slot_end)))
                and not (is_clean and self._leaves_slot(record))
            ):
                return Piece(start, slot_end, damage=Damage.UNCLOSED)
            if not record.present:
                return Piece(start, record.end, damage=Damage.NO_PC)
            if is_clean and not self._is_doubtful_close(record):
                return Piece(start, record.end, record)
            # Its own close was lost and it ran into the next record, which is whole.
            if record.restart:
                second_status, second = _parse(data, record.restart, Mode.DEFINED)
                if second_status is Status.CLOSED and second.has(REQUIRED):
                    return Piece(start, record.restart, damage=Damage.UNCLOSED)
            if self._is_followed(record.end, Mode.DISTINCT if record.unknown else Mode.DEFINED):
                if record.has(1 << Kind.PC):
                    return Piece(start, record.end, record)
                return Piece(start, record.end, damage=Damage.NO_PC)
            reason = Damage.BOUNDARY
        following = self._resynchronise(start)
        if status is Status.UNFINISHED and following == len(data):
            return Piece(start, len(data))
        return Piece(start, following, damage=reason)


def _cells(record: Record) -> dict[str, int]:
    values = record.values
    cells = {"offset": record.start, "present": record.present, "op_class": record.op_class}
    for column in RECORD_COLUMNS:
        if column.name in cells or column.kind is None:
            continue
        value = values.get(column.kind, 0)
        if column.name.endswith("_top"):
            value >>= 56
        elif column.kind == Kind.PA:
            value &= (1 << 56) - 1
        elif column.kind <= Kind.PBT:
            value = canonical(value)
        cells[column.name] = value
    return cells


def decode_reference(data: bytes | memoryview) -> tuple[RecordBatch, DecodeCounts]:
    """Decodes a whole buffer; for tests, and for machines without the compiled library."""
    counts = DecodeCounts()
    records: list[Record] = []
    for piece in Framer(data).pieces():
        size = piece.end - piece.start
        if piece.record is not None:
            records.append(piece.record)
            counts.records += 1
            counts.record_bytes += size
            counts.unknown_packets += piece.record.unknown
            counts.duplicate_packets += piece.record.duplicates
        elif piece.damage is not None:
            counts.damaged_regions += 1
            counts.damaged_bytes += size
            counts.damage[piece.damage] += 1
        else:
            counts.open_records += 1
            counts.open_bytes += size
    counts.padding_bytes = len(data) - counts.total_bytes

    others = [(row, packet) for row, record in enumerate(records) for packet in record.others]
    columns = allocate_columns(len(records), len(others))
    for row, record in enumerate(records):
        for name, cell in _cells(record).items():
            columns[name][row] = cell
    for position, (row, packet) in enumerate(others):
        for column, value in zip(OTHER_COLUMNS, (row, packet.header, packet.payload), strict=True):
            columns[column.name][position] = value
    return RecordBatch(columns), counts
