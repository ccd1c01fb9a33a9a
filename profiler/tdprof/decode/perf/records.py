"""The compiled decoder of perf records (``native/perf_records.c``), and the columns it fills."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tdprof.decode.perf.chains import ChainTable, grown
from tdprof.decode.perf.columns import (
    BRANCH,
    NOT_RECORDED,
    READ,
    SAMPLE_COLUMNS,
    SIDE_BAND,
    Buffer,
    Chains,
    Copies,
    DamagedRecords,
    RecordLosses,
    RecordStream,
    Samples,
    SideBand,
    Table,
    little_endian_branch_flags,
)
from tdprof.decode.perf.layout import RecordLayout, copied_words, locate_ids
from tdprof.decode.perf.records_python import PythonRecordDecoder
from tdprof.model.arrays import I32
from tdprof.native.library import load_native
from tdprof.native.perf_records import (
    DAMAGE_KEPT,
    MOST_WALK_REGISTERS,
    NO_WORD,
    PerfDecoder,
    PerfLayout,
    PerfLosses,
    Stop,
)

ByteOrder = Literal["little", "big"]


_COPY_COLUMNS: dict[str, type[np.generic]] = {
    "sample": np.uint64,
    "registers": np.uint64,
    "stack_start": np.uint64,
    "stack_bytes": np.uint32,
}
_ID = np.dtype([("id", "u8"), ("event", "u4"), ("pad", "u4")])
_HASH_K1, _HASH_K2 = 0x6A09E667F3BCC909, 0xBB67AE8584CAA73B  # of profiler/native/hash.h


def _id_table(layouts: Sequence[RecordLayout]) -> Table:
    """An open-addressed table from id to event, at most half full, hashed as ``perf_id_slot`` in C does."""
    pairs = {id_: event for event, layout in enumerate(layouts) for id_ in layout.ids}
    table = np.zeros(max(4, 1 << (2 * len(pairs)).bit_length()), _ID)
    table["event"] = NOT_RECORDED
    mask, address = len(table) - 1, table.ctypes.data
    for id_, event in pairs.items():
        product = (id_ ^ _HASH_K2 ^ address) * _HASH_K1
        slot = (product ^ product >> 64) & mask
        while table["event"][slot] != NOT_RECORDED:
            slot = (slot + 1) & mask
        table[slot] = (id_, event, 0)
    return table


class CompiledRecordDecoder:
    """A stream of perf records into columns, in compiled code (see ``RecordStream`` for the methods).

    Memory grows with the rows of one batch (what is fed between two ``take_`` calls) and with the distinct call chains.

    Args:
        layouts: one per event, in the order that ``Samples.event`` numbers.
        byteorder: of the records.
        keep_branches: whether ``take_branches`` is wanted.
        keep_copies: whether ``take_copies`` is.
        skip_samples: whether only the side-band is wanted, which is several times faster.

    Raises:
        TdprofError: the events' records cannot be told apart.
        RuntimeError: the compiled library is missing; ``open_record_stream`` falls back instead.
    """

    def __init__(
        self,
        layouts: Sequence[RecordLayout],
        byteorder: ByteOrder = "little",
        *,
        keep_branches: bool = False,
        keep_copies: bool = False,
        skip_samples: bool = False,
    ) -> None:
        library = load_native()
        if library is None:
            raise RuntimeError("tdprof's compiled library is missing")
        self._decode = library.tdprof_perf_decode

        ids = locate_ids(layouts)
        self._layouts = (PerfLayout * len(layouts))(*(_native_layout(layout) for layout in layouts))
        self._id_table = _id_table(layouts)
        self._big = byteorder == "big"
        self._d = PerfDecoder(
            layouts=ctypes.addressof(self._layouts),
            ids=self._id_table.ctypes.data,
            id_mask=len(self._id_table) - 1,
            layout_count=len(layouts),
            swap=byteorder != sys.byteorder,
            sample_id_word=NO_WORD if ids.sample is None else ids.sample,
            trailer_id_word=NO_WORD if ids.trailer is None else ids.trailer,
            mixed_layouts=ids.mixed,
            keep_branches=keep_branches,
            skip_samples=skip_samples,
            asks_build_ids=any(layout.has_build_ids for layout in layouts),
        )
        self._d.copies.words = copied_words(layouts, byteorder) if keep_copies else 0
        self._chains = ChainTable(library, self._d.chains)
        self._offset = 0
        self._tool_record = False
        # Of samples: those that are filled, and those that were lent out, whose turn is after the next time.
        self._columns, self._lent = (
            {name: np.empty(1024, dtype) for name, dtype in SAMPLE_COLUMNS.items()} for _ in range(2)
        )
        self._reads = np.empty(0, READ)
        self._branches = np.empty(0, BRANCH)
        self._side_band = np.empty(0, SIDE_BAND)
        self._names = np.empty(0, np.uint8)
        self._copies = {name: np.empty(0, dtype) for name, dtype in _COPY_COLUMNS.items()}
        self._copies["registers"] = np.empty((0, self._d.copies.words), np.uint64)
        self._stack = np.empty(0, np.uint8)
        self._point_samples()

    def feed(self, data: Buffer, *, final: bool = False) -> int:
        view = np.frombuffer(data, np.uint8)
        consumed, done = ctypes.c_uint64(), 0
        while True:
            stop = self._decode(
                ctypes.byref(self._d),
                view.ctypes.data + done,
                len(view) - done,
                self._offset,
                final,
                ctypes.byref(consumed),
            )
            done += consumed.value
            self._offset += consumed.value
            if stop in (Stop.END, Stop.TOOL_RECORD):
                self._tool_record = stop == Stop.TOOL_RECORD
                return done
            self._make_room(stop)

    @property
    def tool_record(self) -> bool:
        return self._tool_record

    @property
    def is_between_records(self) -> bool:
        """Whether what was fed ended as a record does, and not in damage."""
        return not self._d.searching and not self._d.spare_bytes

    @property
    def has_no_damage(self) -> bool:
        """Whether all that was fed were records."""
        return not self._d.losses.malformed

    def skip(self, size_bytes: int) -> None:
        self._offset += size_bytes

    def take_samples(self, *, copy: bool = True) -> Samples:
        rows = self._d.samples.rows
        self._d.samples.rows = 0
        columns = {name: column[:rows] for name, column in self._columns.items()}
        if copy:
            return Samples(**{name: column.copy() for name, column in columns.items()})
        self._columns, self._lent = self._lent, self._columns
        self._point_samples()
        return Samples(**columns)

    def take_reads(self) -> Table:
        rows = self._reads[: self._d.read_rows].copy()
        self._d.read_rows = 0
        return rows

    def take_branches(self) -> Table:
        rows = self._branches[: self._d.branch_rows].copy()
        self._d.branch_rows = 0
        if self._big:
            rows["flags"] = little_endian_branch_flags(rows["flags"])
        return rows

    def take_copies(self) -> Copies:
        native = self._d.copies
        rows, used = native.rows, native.stack_used
        native.rows = native.stack_used = 0
        return Copies(**{name: column[:rows] for name, column in self._copies.items()}, stack=self._stack[:used])

    def take_side_band(self) -> SideBand:
        taken = SideBand(self._side_band[: self._d.side_band_rows].copy(), self._names[: self._d.name_bytes].tobytes())
        self._d.side_band_rows = self._d.name_bytes = 0
        return taken

    def chains(self, first: int = 0) -> Chains:
        return self._chains.chains(first)

    def forget_chains(self) -> None:
        self._chains.forget()

    def add_chains(self, chains: Chains) -> I32:
        """int32[n]: the numbers of another decoder's chains here, new ones where they are."""
        return self._chains.add(chains.frames, chains.offsets)

    def take_losses(self) -> RecordLosses:
        """Those since the last time."""
        losses = self.losses
        self._d.losses = PerfLosses()
        return losses

    def add_losses(self, losses: RecordLosses) -> None:
        """What another decoder, which met no damage, counted besides."""
        for type_, count in losses.by_type.items():
            self._d.losses.by_type[type_] += count
        for name in ("unknown_types", "unknown_ids", "guest_frames", "unknown_contexts", "deferred_chains"):
            setattr(self._d.losses, name, getattr(self._d.losses, name) + getattr(losses, name))

    @property
    def losses(self) -> RecordLosses:
        losses = self._d.losses
        return RecordLosses(
            by_type={type_: count for type_, count in enumerate(losses.by_type) if count},
            unknown_types=losses.unknown_types,
            malformed=losses.malformed,
            malformed_bytes=losses.malformed_bytes,
            unknown_ids=losses.unknown_ids,
            guest_frames=losses.guest_frames,
            unknown_contexts=losses.unknown_contexts,
            deferred_chains=losses.deferred_chains,
            damage=tuple(
                DamagedRecords(damage.offset, damage.bytes)
                for damage in losses.damage[: min(losses.malformed, DAMAGE_KEPT)]
            ),
        )

    def _make_room(self, stop: int) -> None:
        d = self._d
        if stop == Stop.SAMPLES:
            self._grow_samples(2 * d.samples.capacity)
        elif stop == Stop.READS:
            self._reads = grown(self._reads)
            d.reads, d.read_capacity = self._reads.ctypes.data, len(self._reads)
        elif stop == Stop.BRANCHES:
            self._branches = grown(self._branches)
            d.branches, d.branch_capacity = self._branches.ctypes.data, len(self._branches)
        elif stop == Stop.SIDE_BAND:
            self._side_band = grown(self._side_band)
            d.side_band, d.side_band_capacity = self._side_band.ctypes.data, len(self._side_band)
        elif stop == Stop.NAMES:
            self._names = grown(self._names)
            d.names, d.name_capacity = self._names.ctypes.data, len(self._names)
        elif stop == Stop.COPIES:
            self._grow_copies()
        elif stop == Stop.STACK_BYTES:
            # A record has room for less than 64 KiB of stack.
            self._stack = np.concatenate([self._stack, np.empty(max(1 << 20, len(self._stack)), np.uint8)])
            d.copies.stack, d.copies.stack_capacity = self._stack.ctypes.data, len(self._stack)
        else:
            self._chains.make_room(stop)

    def _grow_samples(self, capacity: int) -> None:
        rows = self._d.samples.rows
        larger = {name: np.empty(capacity, dtype) for name, dtype in SAMPLE_COLUMNS.items()}
        for name, column in larger.items():
            column[:rows] = self._columns[name][:rows]
        self._columns = larger
        self._point_samples()

    def _point_samples(self) -> None:
        d = self._d.samples
        for name, column in self._columns.items():
            setattr(d, name, column.ctypes.data)
        d.capacity = len(self._columns["time_ns"])

    def _grow_copies(self) -> None:
        native = self._d.copies
        self._copies = {name: grown(column) for name, column in self._copies.items()}
        for name, column in self._copies.items():
            setattr(native, name, column.ctypes.data)
        native.capacity = len(self._copies["sample"])


def _native_layout(layout: RecordLayout) -> PerfLayout:
    places = layout.walk_places
    return PerfLayout(
        layout.sample_type,
        layout.read_format,
        layout.branch_sample_type,
        layout.fixed_period,
        layout.sample_regs_user.bit_count(),
        layout.sample_regs_intr.bit_count(),
        layout.user_pc,
        layout.sample_id_all,
        (ctypes.c_int32 * MOST_WALK_REGISTERS)(*places),
        layout.has_copies,
        layout.embeds_sample,
    )


def open_record_stream(
    layouts: Sequence[RecordLayout],
    byteorder: ByteOrder = "little",
    *,
    keep_branches: bool = False,
    keep_copies: bool = False,
    skip_samples: bool = False,
) -> RecordStream:
    """The compiled decoder, or the Python one where it was not built; both give the same columns."""
    decoder = PythonRecordDecoder if load_native() is None else CompiledRecordDecoder
    return decoder(layouts, byteorder, keep_branches=keep_branches, keep_copies=keep_copies, skip_samples=skip_samples)
