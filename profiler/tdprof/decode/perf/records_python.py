"""The reference decoder of perf records: what ``records.py`` does, readable and slow.

Used where the compiled library was not built; a property test holds the two equal.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdprof.decode.perf.columns import (
    BRANCH,
    NO_CHAIN,
    NOT_RECORDED,
    READ,
    SAMPLE_COLUMNS,
    SIDE_BAND,
    Buffer,
    Chains,
    Copies,
    DamagedRecords,
    RecordLosses,
    Samples,
    SideBand,
    Table,
    little_endian_branch_flags,
)
from tdprof.decode.perf.cursor import Cursor, Malformed
from tdprof.decode.perf.layout import (
    BRANCH_COUNTERS,
    BRANCH_HW_INDEX,
    MISC_CPUMODE_MASK,
    MISC_HYPERVISOR,
    MISC_KERNEL,
    MISC_USER,
    RecordLayout,
    copied_words,
    locate_ids,
)
from tdprof.decode.perf.side_band_python import begin_row, fill_row
from tdprof.decode.perf.split_chain import SplitChain
from tdprof.linux.perf_abi import ReadFormat, RecordType, SampleType

_FIRST_TOOL_TYPE = 64
_LAST_TOOL_TYPE = 95
_LAST_KERNEL_TYPE = 22
_CREDIBLE_TYPES = 1024
_DAMAGE_KEPT = 64
_ABI_64 = 2  # PERF_SAMPLE_REGS_ABI_64


class PythonRecordDecoder:
    """Same arguments, methods and results as ``records.CompiledRecordDecoder``."""

    def __init__(
        self,
        layouts: Sequence[RecordLayout],
        byteorder: str = "little",
        *,
        keep_branches: bool = False,
        keep_copies: bool = False,
        skip_samples: bool = False,
    ) -> None:
        self._layouts = list(layouts)
        self._asks_build_ids = any(layout.has_build_ids for layout in layouts)
        self._ids = {id_: event for event, layout in enumerate(layouts) for id_ in layout.ids}
        self._words = locate_ids(layouts)
        self._byteorder = byteorder
        self._keep_branches = keep_branches
        self._skip_samples = skip_samples
        self._copied_words = copied_words(layouts, byteorder) if keep_copies else 0
        self._copies: list[tuple[int, list[int], bytes]] = []
        self._offset = 0
        self._searching = False
        self._spare_bytes = 0  # as in C
        self._tool_record = False
        self._rows: list[tuple[int, ...]] = []
        self._reads: list[tuple[int, ...]] = []
        self._branches: list[tuple[int, ...]] = []
        self._side_band: list[dict[str, Any]] = []
        self._names = bytearray()
        self._counts: dict[str, int] = dict.fromkeys(
            ("unknown_types", "malformed", "malformed_bytes", "unknown_ids"), 0
        ) | dict.fromkeys(("guest_frames", "unknown_contexts", "deferred_chains"), 0)
        self._by_type: dict[int, int] = {}
        self._damage: list[DamagedRecords] = []
        self.forget_chains()

    # --- the record loop

    def feed(self, data: Buffer, *, final: bool = False) -> int:
        view = np.frombuffer(data, np.uint8).data
        at, end = 0, len(view)
        self._tool_record = False
        while end - at >= 8:
            if self._searching:
                found = self._find_record(view, at, final)
                self._count_damage(at, found - at)
                at = found
                if self._searching:
                    break
                continue
            if self._spare_bytes:
                is_there = self._spare_bytes <= end - at
                verdict = self._likely_chain(view, at + self._spare_bytes, 1, final) if is_there else None
                if verdict is None:
                    break
                self._searching = not verdict
                at += self._spare_bytes if verdict else 0
                self._spare_bytes = 0
                continue
            type_, misc, size = self._header(view, at)
            if size < 8 or not 0 < type_ < _CREDIBLE_TYPES or (type_ < _FIRST_TOOL_TYPE and size % 8):
                self._count_damage(at, 8)
                at += 8
                self._searching = True
                continue
            if type_ >= _FIRST_TOOL_TYPE:
                self._tool_record = True
                break
            if size > end - at:
                break
            if type_ == RecordType.SAMPLE and self._skip_samples:
                at += size
                continue
            cursor = Cursor(view[at + 8 : at + size], self._byteorder)
            try:
                taken = self._take_record(type_, misc, cursor)
            except Malformed:
                verdict = self._likely_chain(view, at + size, 1, final)
                if verdict is None:
                    break
                self._searching = not verdict
                lost = size if verdict else 8
                self._count_damage(at, lost)
                at += lost
                continue
            self._by_type[type_] = self._by_type.get(type_, 0) + 1
            used = (8 + cursor.at + 7) & ~7 if taken and type_ == RecordType.SAMPLE else size
            self._spare_bytes = size - used
            at += used
        self._offset += at
        return at

    @property
    def tool_record(self) -> bool:
        return self._tool_record

    def skip(self, size_bytes: int) -> None:
        self._offset += size_bytes

    def _header(self, view: memoryview, at: int) -> tuple[int, int, int]:
        type_, misc, size = struct.unpack_from("<IHH" if self._byteorder == "little" else ">IHH", view, at)
        return type_, misc, size

    def _likely_chain(self, view: memoryview, at: int, records: int, final: bool) -> bool | None:
        for _ in range(records):
            if len(view) - at < 8:
                return True if final else None
            type_, misc, size = self._header(view, at)
            known = 1 <= type_ <= _LAST_KERNEL_TYPE or _FIRST_TOOL_TYPE <= type_ <= _LAST_TOOL_TYPE
            if not known or size < 8 or size % 8 or misc & ~(MISC_CPUMODE_MASK | 0xF000):
                return False
            at = min(at + size, len(view))
        return True

    def _find_record(self, view: memoryview, at: int, final: bool) -> int:
        verdict: bool | None = False
        while len(view) - at >= 8 and (verdict := self._likely_chain(view, at, 3, final)) is False:
            at += 8
        self._searching = verdict is not True
        return at

    def _count_damage(self, at: int, size_bytes: int) -> None:
        if size_bytes == 0:
            return
        offset, damage = self._offset + at, self._damage
        self._counts["malformed_bytes"] += size_bytes
        if 0 < self._counts["malformed"] <= _DAMAGE_KEPT and damage[-1].offset + damage[-1].size_bytes == offset:
            damage[-1] = DamagedRecords(damage[-1].offset, damage[-1].size_bytes + size_bytes)
            return
        if self._counts["malformed"] < _DAMAGE_KEPT:
            damage.append(DamagedRecords(offset, size_bytes))
        self._counts["malformed"] += 1

    def _event(self, cursor: Cursor, word: int | None) -> int:
        if len(self._layouts) == 1:
            return 0
        id_ = None if word is None else cursor.u64_at(word)
        return NOT_RECORDED if id_ is None else self._ids.get(id_, NOT_RECORDED)

    def _take_record(self, type_: int, misc: int, cursor: Cursor) -> bool:
        if type_ == RecordType.SAMPLE:
            return self._take_sample(misc, cursor)
        return self._take_side_band_record(type_, misc, cursor)

    # --- samples

    def _take_sample(self, misc: int, c: Cursor) -> bool:
        event = self._event(c, self._words.sample)
        if event == NOT_RECORDED and self._words.mixed:
            self._counts["unknown_ids"] += 1
            return False
        layout = self._layouts[0 if event == NOT_RECORDED else event]
        has = SampleType(layout.sample_type & (2**25 - 1))
        id_ = c.u64() if SampleType.IDENTIFIER in has else 0
        ip = c.u64() if SampleType.IP in has else 0
        pid, tid = (c.u32(), c.u32()) if SampleType.TID in has else (NOT_RECORDED, NOT_RECORDED)
        time_ns = c.u64() if SampleType.TIME in has else 0
        c.words((has & SampleType.ADDR).bit_count())
        id_ = c.u64() if SampleType.ID in has else id_
        c.words((has & SampleType.STREAM_ID).bit_count())
        cpu = (c.u32(), c.u32())[0] if SampleType.CPU in has else NOT_RECORDED
        period = c.u64() if SampleType.PERIOD in has else layout.fixed_period
        reads = []
        if SampleType.READ in has:
            reads = self._take_reads(layout, c, (time_ns, id_, len(self._rows), pid, tid))
        cpu_mode = misc & MISC_CPUMODE_MASK
        chain = SplitChain(cpu_mode)
        if SampleType.CALLCHAIN in has:
            chain.split(c.words(c.u64()))
        embedded_cgroup = None
        if SampleType.RAW in has:
            raw = c.take(c.u32())
            if layout.embeds_sample:
                pid, tid, period, embedded_cgroup, chain = self._embedded(raw)
        branches = self._take_branches(layout, c) if SampleType.BRANCH_STACK in has else []
        user_pc, cgroup, registers, stack = self._take_tail(has, layout, c)
        if embedded_cgroup is not None:  # around it stands the place of who ran next
            ip = user_pc = 0
            cgroup = embedded_cgroup

        if not chain.user and cpu_mode == MISC_USER and ip:
            chain.user.append(ip)
        if not chain.user and user_pc:
            chain.user.append(user_pc)
        if not chain.kernel and cpu_mode in (MISC_KERNEL, MISC_HYPERVISOR) and ip:
            chain.kernel.append(ip)
        if embedded_cgroup is not None:
            ip = next(iter(chain.user), 0)
        user_chain, kernel_chain = self._intern(chain.user), self._intern(chain.kernel)
        self._rows.append((time_ns, ip, period, cgroup, pid, tid, cpu, event, user_chain, kernel_chain, misc))
        if self._copied_words and layout.has_copies and registers and stack is not None:
            walked = [registers[place] if place >= 0 else 0 for place in layout.walk_places]
            self._copies.append((len(self._rows) - 1, walked, stack))
        self._reads += reads
        self._branches += branches
        self._counts["unknown_ids"] += event == NOT_RECORDED
        self._counts["guest_frames"] += chain.guests
        self._counts["unknown_contexts"] += chain.unknown
        self._counts["deferred_chains"] += chain.deferred
        return True

    def _embedded(self, raw: bytes) -> tuple[int, int, int, int, SplitChain]:
        """Process, thread, period, cgroup and call chain of the sample that raw data is."""
        c = Cursor(memoryview(raw), self._byteorder)
        pid, tid, period = c.u32(), c.u32(), c.u64()
        chain = SplitChain(MISC_USER)
        chain.split(c.words(c.u64()))
        return pid, tid, period, c.u64(), chain

    def _take_reads(
        self, layout: RecordLayout, c: Cursor, common: tuple[int, int, int, int, int]
    ) -> list[tuple[int, ...]]:
        time_ns, record_id, sample, pid, tid = common
        has = ReadFormat(layout.read_format & 31)
        first = c.u64()
        enabled = c.u64() if ReadFormat.TOTAL_TIME_ENABLED in has else 0
        running = c.u64() if ReadFormat.TOTAL_TIME_RUNNING in has else 0
        rows: list[tuple[int, ...]] = []
        for _ in range(first if ReadFormat.GROUP in has else 1):
            value = c.u64() if ReadFormat.GROUP in has else first
            id_ = c.u64() if ReadFormat.ID in has else record_id
            lost = c.u64() if ReadFormat.LOST in has else 0
            event = 0 if len(self._layouts) == 1 else self._ids.get(id_, NOT_RECORDED)
            rows.append((time_ns, id_, value, enabled, running, lost, sample, event, pid, tid, 0))
        return rows

    def _take_branches(self, layout: RecordLayout, c: Cursor) -> list[tuple[int, ...]]:
        count = c.u64()
        c.words(1 if layout.branch_sample_type & BRANCH_HW_INDEX else 0)
        words = c.words(3 * count)
        if layout.branch_sample_type & BRANCH_COUNTERS:
            c.words(count)
        if not self._keep_branches:
            return []
        return [(*words[i : i + 3], len(self._rows)) for i in range(0, len(words), 3)]

    def _take_tail(
        self, has: SampleType, layout: RecordLayout, c: Cursor
    ) -> tuple[int, int, tuple[int, ...], bytes | None]:
        """The fields behind the branch stack.

        Returns:
            The user's program counter (0: not recorded), the cgroup, a 64-bit thread's user registers, its stack.
        """
        registers: tuple[int, ...] = ()
        user_pc, stack = 0, None
        if SampleType.REGS_USER in has and (abi := c.u64()):
            found = c.words(layout.sample_regs_user.bit_count())
            user_pc = found[layout.user_pc] if layout.user_pc >= 0 else 0
            registers = found if abi == _ABI_64 else ()
        if SampleType.STACK_USER in has and (size := c.u64()):
            stack = c.take(size)
            stack = stack[: c.u64()]
        c.words(1 if has & (SampleType.WEIGHT | SampleType.WEIGHT_STRUCT) else 0)
        c.words((has & (SampleType.DATA_SRC | SampleType.TRANSACTION)).bit_count())
        if SampleType.REGS_INTR in has and c.u64():
            c.words(layout.sample_regs_intr.bit_count())
        pages = SampleType.DATA_PAGE_SIZE | SampleType.CODE_PAGE_SIZE
        c.words((has & SampleType.PHYS_ADDR).bit_count())
        cgroup = c.u64() if SampleType.CGROUP in has else 0
        c.words((has & pages).bit_count())
        if SampleType.AUX in has:
            c.take(c.u64())
        return user_pc, cgroup, registers, stack

    def _intern(self, frames: list[int]) -> int:
        if not frames:
            return NO_CHAIN
        return self._chain_numbers.setdefault(tuple(frames), len(self._chain_numbers))

    # --- everything else

    def _take_side_band_record(self, type_: int, misc: int, c: Cursor) -> bool:
        event = self._event(c, self._words.trailer)
        layout = self._layouts[0 if event == NOT_RECORDED else event]
        row = begin_row(type_, misc, event, layout, c)
        if type_ == RecordType.READ:
            pid, tid = c.u32(), c.u32()
            self._reads += self._take_reads(layout, c, (row["time_ns"], row["id"], -1, pid, tid))
            return True
        known, name = fill_row(row, c, asks_build_ids=self._asks_build_ids)
        if not known:
            self._counts["unknown_types"] += 1
            return False
        if name is not None:
            row["name_offset"], row["name_bytes"] = len(self._names), len(name)
            self._names += name
        self._side_band.append(row)
        return True

    # --- results

    def take_samples(self, *, copy: bool = True) -> Samples:  # always new
        columns = zip(*self._rows, strict=True) if self._rows else ([] for _ in SAMPLE_COLUMNS)
        self._rows = []
        return Samples(
            **{
                name: np.array(column, dtype)
                for (name, dtype), column in zip(SAMPLE_COLUMNS.items(), columns, strict=True)
            }
        )

    def take_reads(self) -> Table:
        rows, self._reads = np.array(self._reads, READ), []
        return rows

    def take_branches(self) -> Table:
        rows, self._branches = np.array(self._branches, BRANCH), []
        if self._byteorder == "big":
            rows["flags"] = little_endian_branch_flags(rows["flags"])
        return rows

    def take_copies(self) -> Copies:
        copies, self._copies = self._copies, []
        sizes = np.array([len(stack) for _, _, stack in copies], np.uint64)
        return Copies(
            np.array([sample for sample, _, _ in copies], np.uint64),
            np.array([words for _, words, _ in copies], np.uint64).reshape(len(copies), self._copied_words),
            np.cumsum(sizes) - sizes,
            sizes.astype(np.uint32),
            np.frombuffer(b"".join(stack for _, _, stack in copies), np.uint8),
        )

    def take_side_band(self) -> SideBand:
        rows = np.array([tuple(row.values()) for row in self._side_band], SIDE_BAND)
        names = bytes(self._names)
        self._side_band, self._names = [], bytearray()
        return SideBand(rows, names)

    def chains(self, first: int = 0) -> Chains:
        chains = list(self._chain_numbers)[first:]
        offsets = np.zeros(len(chains) + 1, np.uint64)
        np.cumsum([len(chain) for chain in chains], out=offsets[1:])
        return Chains(np.array([frame for chain in chains for frame in chain], np.uint64), offsets)

    def forget_chains(self) -> None:
        self._chain_numbers: dict[tuple[int, ...], int] = {}

    @property
    def losses(self) -> RecordLosses:
        return RecordLosses(by_type=dict(sorted(self._by_type.items())), damage=tuple(self._damage), **self._counts)
