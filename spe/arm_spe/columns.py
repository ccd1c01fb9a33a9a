"""The columns a decoder fills: names, types, and the packet each value comes from."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arm_spe.packet import Kind


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """One value per record.

    Attributes:
        name: as in `struct spe_columns`.
        dtype: NumPy type.
        kind: the packet it comes from; None where every record has a value. Missing values are 0.
    """

    name: str
    dtype: type[np.generic]
    kind: Kind | None


RECORD_COLUMNS: tuple[RecordColumn, ...] = (
    RecordColumn("offset", np.uint64, None),  # of the record in the input
    RecordColumn("pc", np.uint64, Kind.PC),  # virtual addresses: bits 63:56 are copies of bit 55
    RecordColumn("branch_target", np.uint64, Kind.TGT),
    RecordColumn("va", np.uint64, Kind.VA),
    RecordColumn("pa", np.uint64, Kind.PA),  # bits 55:0
    RecordColumn("previous_branch_target", np.uint64, Kind.PBT),
    RecordColumn("events", np.uint64, Kind.EVENTS),
    RecordColumn("timestamp", np.uint64, Kind.TS),  # generic timer ticks
    RecordColumn("present", np.uint32, None),
    RecordColumn("context_el1", np.uint32, Kind.CTX1),
    RecordColumn("context_el2", np.uint32, Kind.CTX2),
    RecordColumn("total_latency", np.uint16, Kind.TOT),  # cycles; saturating
    RecordColumn("issue_latency", np.uint16, Kind.ISSUE),
    RecordColumn("translation_latency", np.uint16, Kind.XLAT),
    RecordColumn("alt_issue_latency", np.uint16, Kind.ALT),
    RecordColumn("data_source", np.uint16, Kind.SOURCE),
    RecordColumn("op_class", np.uint8, Kind.OP),  # header bits 1:0
    RecordColumn("op", np.uint8, Kind.OP),  # payload
    RecordColumn("pc_top", np.uint8, Kind.PC),  # payload bits 63:56: NS, EL, NSE
    RecordColumn("branch_target_top", np.uint8, Kind.TGT),
    RecordColumn("va_top", np.uint8, Kind.VA),  # tag
    RecordColumn("pa_top", np.uint8, Kind.PA),  # NS, CH, NSE, PAT
    RecordColumn("previous_branch_target_top", np.uint8, Kind.PBT),
)
OTHER_COLUMNS: tuple[RecordColumn, ...] = (
    RecordColumn("other_record", np.uint32, None),  # row of the record
    RecordColumn("other_header", np.uint16, None),  # first byte of an extended header << 8 | header byte
    RecordColumn("other_payload", np.uint64, None),
)
"""Packets that are no fields: implementation-defined and reserved ones, kept as they came."""

MAX_RECORD_BYTES = 2048
"""The largest PMSIDR_EL1.MaxSize."""
MIN_OTHER_CAPACITY = MAX_RECORD_BYTES // 2
"""Rows of other packets that one record can need."""


class RecordBatch:
    """Some records as columns.

    Args:
        columns: arrays by name: every one of RECORD_COLUMNS with a row per record, every one of OTHER_COLUMNS.
        native: `arm_spe.native.Columns` over the same memory, where the maker has one.
    """

    def __init__(self, columns: dict[str, NDArray[np.generic]], native: ctypes.Structure | None = None) -> None:
        self.columns = columns
        self.native = native

    def __len__(self) -> int:
        return len(self.columns["pc"])

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        return self.columns[name]

    def has(self, kind: Kind) -> NDArray[np.bool_]:
        """Which records have a packet of this kind."""
        present: NDArray[np.uint32] = self.columns["present"].view(np.uint32)
        has: NDArray[np.bool_] = (present & np.uint32(1 << kind)) != 0
        return has

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def copy(self) -> "RecordBatch":
        """The same in memory of its own."""
        return RecordBatch({name: column.copy() for name, column in self.columns.items()})


def allocate_columns(records: int, others: int) -> dict[str, NDArray[np.generic]]:
    """Uninitialised arrays for so many records and other packets."""
    arrays: dict[str, NDArray[np.generic]] = {c.name: np.empty(records, c.dtype) for c in RECORD_COLUMNS}
    arrays.update({c.name: np.empty(others, c.dtype) for c in OTHER_COLUMNS})
    return arrays


def join_batches(batches: Sequence[RecordBatch]) -> RecordBatch:
    """Batches as one; a single one is that one, in its own memory."""
    if len(batches) == 1:
        return batches[0]
    names = [column.name for column in (*RECORD_COLUMNS, *OTHER_COLUMNS)]
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    rows_before = np.cumsum([0, *(len(batch) for batch in batches[:-1])])
    others = [len(batch["other_record"]) for batch in batches]
    columns["other_record"] += np.repeat(rows_before, others).astype(np.uint32)
    return RecordBatch(columns)
