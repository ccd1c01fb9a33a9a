"""How a stream's bytes were spent: every byte is in a record, padding, damage or an unfinished end."""

from dataclasses import dataclass, field
from enum import IntEnum


class Damage(IntEnum):
    """Why bytes were given up; the numbers of `enum spe_reason`."""

    HEADER = 0
    NO_PC = 1
    UNCLOSED = 2
    BOUNDARY = 3

    @property
    def text(self) -> str:
        """The reason in words."""
        return _DAMAGE_TEXT[self]


_DAMAGE_TEXT = {
    Damage.HEADER: "a byte that starts no packet",
    Damage.NO_PC: "a record without a PC",
    Damage.UNCLOSED: "a record that ran into the next",
    Damage.BOUNDARY: "no record follows its end",
}


@dataclass(slots=True)
class DecodeCounts:
    """Sums over one or more streams.

    Attributes:
        records: complete records given out.
        record_bytes: in them, padding inside included.
        padding_bytes: between records.
        damaged_regions: runs of bytes given up; each cost at least a part of one record.
        damaged_bytes: in them.
        damage: regions by reason.
        open_records: records not closed before the input ended; dropped.
        open_bytes: in them.
        unknown_packets: packets with reserved headers in the records given out.
        duplicate_packets: second packets of a kind in the records given out; the first was kept.
    """

    records: int = 0
    record_bytes: int = 0
    padding_bytes: int = 0
    damaged_regions: int = 0
    damaged_bytes: int = 0
    damage: dict[Damage, int] = field(default_factory=lambda: dict.fromkeys(Damage, 0))
    open_records: int = 0
    open_bytes: int = 0
    unknown_packets: int = 0
    duplicate_packets: int = 0

    @property
    def total_bytes(self) -> int:
        """All bytes decoded."""
        return self.record_bytes + self.padding_bytes + self.damaged_bytes + self.open_bytes

    def add(self, other: "DecodeCounts") -> None:
        """Adds another stream's counts to these."""
        for name in self.__slots__:
            if name != "damage":
                setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.damage.items():
            self.damage[reason] += count
