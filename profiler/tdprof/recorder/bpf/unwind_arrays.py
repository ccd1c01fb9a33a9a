"""The arrays by which the BPF programs unwind: tables of files, and what each process has mapped.

Layouts are those of ``bpf/unwind.h``, ``bpf/sample.h`` and ``profiler/native/unwind_api.h``.
"""

import bisect
import contextlib
import ctypes
import mmap
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from tdprof.native import unwind_api
from tdprof.recorder.bpf import maps as bpf_map
from tdprof.recorder.bpf.array_sizes import MOST_RULES, PAGE_BYTES, PAGE_RULES, PAGE_WORDS, ArraySizes
from tdprof.recorder.bpf.exec_places import ExecPlaces
from tdprof.recorder.bpf.kernel import wait_for_running_programs
from tdprof.recorder.ring import BpfRing

_BUCKET_BYTES = 256  # of text
_OF_V8 = 0xFFFFFFFF  # OF_V8 of bpf/sample.h
OF_TRAMPOLINES = 0xFFFFFFFE  # of generated code where stacks are walked outside the kernel
_RETAKEN_SLOTS = 1024
_MAPPING = struct.Struct("<QQII")  # struct sample_mapping
_SPACE = struct.Struct("<IIIIII")  # struct address_space
_QUESTION = struct.Struct("<IIII")  # the ring's header, struct missing_mapping
MOST_MAPPINGS = 4096  # of one process that a search finds, as `find_mapping` in bpf/walk.h
# struct unwind_header and as many segments as there may be: all that `covered` reads.
TABLE_BEGINNING_BYTES = unwind_api.HEADER_BYTES + 16 * ctypes.sizeof(unwind_api.Segment)
_TABLE_COUNTS, _TABLE_COUNTS_AT = struct.Struct("<III"), 24  # rules, buckets, rows of struct unwind_header
# A program that has read where a process's mappings are may still read them for that long; it needs microseconds.
_GRACE_S = 0.5
_MANY_RUNS = 256
_COPIED_BYTES = 256 << 10  # at a time; of whole pages of any size
_BPF_EXIST = 2  # of an update: only what is there
# Stacks of a process that the programs copy for want of a table or mapping: what MOST_COPIES of bpf/sample.h says, and
# where nothing new was found a few, since then there may never be any.
MOST_COPIES, _COPIES_AFTER_NOTHING_NEW = 1024, 8


def copies_after_nothing_new(*, is_waiting: bool) -> int:
    """Stacks of a process to copy until it is looked at again; ``is_waiting``: a table of it may be on its way."""
    return MOST_COPIES if is_waiting else _COPIES_AFTER_NOTHING_NEW


class Extent(NamedTuple):
    """Executable memory of a process: with a table (``otherwise`` is 0), or how a stack ends that is lost there."""

    start: int
    size: int
    place: int  # of its rules, as the walker counts: in the arrays the first bucket
    otherwise: int
    file_offset: int = 0

    def of_v8(self) -> "Extent":
        """Likewise, of a process that has V8 in it."""
        return self._replace(place=_OF_V8)

    def of_trampolines(self) -> "Extent":
        """Likewise, filled with CPython's trampolines."""
        return self._replace(place=OF_TRAMPOLINES)


def covered(table: bytes, start: int, end: int, file_offset: int) -> tuple[int, int, int] | None:
    """The part of a mapping that a table covers: (first address, end, bucket counted from the table's first)."""
    found = unwind_api.UnwindExtent()
    if unwind_api.library().tdprof_unwind_extent(table, start, end, file_offset, ctypes.byref(found)):
        return None
    return found.start, found.end, found.bucket


def are_replaced(before: Sequence[Extent], now: Sequence[Extent]) -> bool:
    """Whether an address that had a table has another now, or none; both sorted, without overlap."""
    starts = [extent.start for extent in now]
    for old in before:
        first = max(bisect.bisect_right(starts, old.start) - 1, 0)
        for new in now[first : bisect.bisect_left(starts, old.start + old.size)]:
            is_same = (
                not new.otherwise and new.start - _BUCKET_BYTES * new.place == old.start - _BUCKET_BYTES * old.place
            )
            if not old.otherwise and new.start + new.size > old.start and not is_same:
                return True
    return False


class _Said(NamedTuple):
    """What the programs were told of a process."""

    first: int  # of its mappings
    mappings: int
    retaken: int = -1  # its slot, while they hold; -1: they are not confirmed


class Enlarge(Protocol):
    """Puts larger maps in the place of those that hold tables."""

    def __call__(self, entries: Mapping[str, int], fill: Callable[[Mapping[str, int]], None]) -> bool:
        """Make maps of these names with so many entries; once ``fill`` has filled them, the programs read them.

        Returns:
            Whether the kernel let it; else all is as before.
        """


class UnwindArrays:
    """User space's side of the arrays. Owns no descriptor.

    Args:
        maps: descriptors by name; those of tables change with `enlarge`.
        sizes: with which the maps were created.
        enlarge: makes room for more tables.
        questions: the ring in which the programs ask for mappings.
        exec_places: are looked for when they ask again, as of a process that has executed something.

    Attributes:
        is_walk_whole: whether the programs walk the deepest stacks, too; where not, they copy these.
    """

    has_trampolines = False  # the programs walk Python's own frames

    def __init__(
        self,
        maps: Mapping[str, int],
        sizes: ArraySizes,
        enlarge: Enlarge,
        questions: BpfRing,
        exec_places: ExecPlaces,
    ) -> None:
        self.is_walk_whole = True
        self._questions = questions
        self._exec_places = exec_places
        self._has_asked = False
        self._maps = maps
        self._enlarge = enlarge
        self._rule_slots = (ctypes.c_uint32 * (2 * MOST_RULES))()
        self._session = unwind_api.UnwindSession(
            rule_slots=ctypes.addressof(self._rule_slots),
        )
        self._use(sizes)
        self._extents = _Extents(sizes.mappings)
        self._of_process: dict[int, _Said] = {}
        self._looked = -1, 0  # the process of which mappings are read, and its slot of `retaken` before that
        self._generation = 0

    def _use(self, sizes: ArraySizes) -> None:
        self._sizes = sizes
        self._session.rule_capacity = min(sizes.rule_pages * PAGE_RULES, MOST_RULES)
        self._session.bucket_capacity = sizes.bucket_pages * PAGE_WORDS
        self._session.row_capacity = sizes.row_pages * PAGE_WORDS

    def make_room(self, rows: int, buckets: int, rules: int = 0) -> bool:
        """Whether there is room for so many more, if need be in larger arrays."""
        session = self._session
        # Of the rules most are there already, but which ones only placing them tells.
        needed = session.row_count + rows, session.bucket_count + buckets, max(session.rule_count, 2) + rules
        if not self._sizes.fit(*needed):
            sizes = self._sizes.grown(*needed)
            if not sizes or not self._enlarge(sizes.of_tables(), self._copy_tables):
                return False
            self._use(sizes)
        return True

    def place(self, table: bytes) -> int | None:
        """Append a checked table; returns the number of its first bucket, None if there can be no room."""
        session = self._session
        rules, buckets, rows = _TABLE_COUNTS.unpack_from(table, _TABLE_COUNTS_AT)
        if not self.make_room(rows, buckets, rules):
            return None
        first = ctypes.c_uint32()
        with (
            self._mapped("unwind_rules", 0, self._sizes.rule_pages * PAGE_BYTES) as session.rules,
            self._mapped("unwind_buckets", 4 * session.bucket_count, 4 * buckets) as session.buckets,
            self._mapped("unwind_rows", 4 * session.row_count, 4 * rows) as session.rows,
        ):
            failed = unwind_api.library().tdprof_unwind_place(ctypes.byref(session), table, ctypes.byref(first))
        return None if failed else first.value

    def forget_tables(self) -> bool:
        """Put empty arrays in the place of those of tables; False if the kernel does not let it.

        The programs are told of no process any more, and ask for those that they meet.
        """
        for pid in list(self._of_process):
            with contextlib.suppress(OSError):  # it has executed something else
                bpf_map.map_element(bpf_map.BPF_MAP_DELETE_ELEM, self._maps["spaces"], ctypes.c_uint32(pid))
        self.release(list(self._of_process))
        wait_for_running_programs()  # that know where a process's tables lie
        if not self._enlarge(self._sizes.of_tables(), lambda _: None):
            return False
        session = self._session
        session.rule_count = session.bucket_count = session.row_count = 0
        ctypes.memset(self._rule_slots, 0, ctypes.sizeof(self._rule_slots))
        return True

    def extent(self, table: bytes, place: int, start: int, end: int, file_offset: int) -> Extent | None:
        """The part of a mapping that a table covers, of which the beginning is given."""
        if part := covered(table, start, end, file_offset):
            start, end, bucket = part
            return Extent(start, end - start, place + bucket, 0)
        return None

    def take_questions(self) -> set[int]:
        """Processes of which the programs have met an address that they do not know."""
        pids = {pid for _, _, pid, _ in _QUESTION.iter_unpack(self._questions.take())}
        if self._has_asked:
            self._exec_places.begin()
        self._has_asked |= bool(pids)
        return pids

    def _copy_tables(self, maps: Mapping[str, int]) -> None:
        session = self._session
        used = {
            "unwind_rows": 4 * session.row_count,
            "unwind_buckets": 4 * session.bucket_count,
            "unwind_rules": 8 * session.rule_count,
        }
        for name, fd in maps.items():
            size = -(-used[name] // PAGE_BYTES) * PAGE_BYTES
            # What is mapped counts as our memory, and of a machine's tables it is tens of megabytes.
            for begin in range(0, size, _COPIED_BYTES):
                length = min(_COPIED_BYTES, size - begin)
                with (
                    mmap.mmap(self._maps[name], length, offset=begin) as old,
                    mmap.mmap(fd, length, offset=begin) as new,
                ):
                    new[:] = old[:]

    @contextlib.contextmanager
    def _mapped(self, name: str, start: int, size: int) -> Iterator[int]:
        """Where the map would begin, with these of its bytes there, and meanwhile only.

        The kernel maps each page at once, which for all of an array takes milliseconds, and counts as our memory.
        """
        begin = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = -(-(start + max(size, 1) - begin) // mmap.PAGESIZE) * mmap.PAGESIZE
        with mmap.mmap(self._maps[name], length, offset=begin) as area:
            first = ctypes.c_char.from_buffer(area)
            try:
                yield ctypes.addressof(first) - begin
            finally:
                del first  # else the area cannot be unmapped

    def look(self, pid: int) -> bool:
        """Before its mappings are read: whether it has taken memory where it was said to have mapped something."""
        self._looked = pid, self._retaken(pid)
        return self._of_process.get(pid, _Said(0, 0)).retaken not in (-1, self._looked[1])

    def _retaken(self, pid: int) -> int:
        return bpf_map.read_u32(self._maps["retaken"], pid % _RETAKEN_SLOTS)

    def publish(self, pid: int, extents: Sequence[Extent]) -> bool:
        """Say what a process has mapped; False if there is no room for it.

        The programs watch over that from now on, and use it once it is confirmed.

        Args:
            pid: as the programs number it.
            extents: sorted, without overlap.
        """
        extents = extents[:MOST_MAPPINGS]
        first = self._extents.take(len(extents))
        if first is None:
            return False
        data = b"".join(_MAPPING.pack(*extent[:4]) for extent in extents)
        at = first * _MAPPING.size
        with self._mapped("mappings", at, len(data)) as mappings:
            ctypes.memmove(mappings + at, data, len(data))
        said = _Said(first, len(extents))
        try:
            self._update(pid, said, copies_left=MOST_COPIES)
        except OSError:
            self._extents.give_back(said.first, said.mappings)
            return False
        self.release([pid])
        self._of_process[pid] = said
        return True

    def confirm(self, pid: int) -> None:
        """What was published was found mapped once more, after the last look at the process."""
        if pid in self._of_process and self._looked[0] == pid:
            said = self._of_process[pid]._replace(retaken=self._looked[1])
            with contextlib.suppress(OSError):  # it has executed something else
                self._update(pid, said, copies_left=MOST_COPIES, flags=_BPF_EXIST)
                self._of_process[pid] = said

    def answer(self, pid: int, *, is_waiting: bool) -> None:
        """Let the programs ask again about a process of which nothing new was found."""
        said = self._of_process.get(pid, _Said(0, 0))
        copies = copies_after_nothing_new(is_waiting=is_waiting or not self.is_walk_whole)
        with contextlib.suppress(OSError):
            self._update(pid, said, copies_left=copies)

    def has(self, pid: int) -> bool:
        """Whether the programs know mappings of a process; they forget it at exec."""
        key, value = ctypes.c_uint32(pid), ctypes.create_string_buffer(_SPACE.size)
        attr = struct.pack("=IIQQQ", self._maps["spaces"], 0, ctypes.addressof(key), ctypes.addressof(value), 0)
        try:
            bpf_map.bpf(bpf_map.BPF_MAP_LOOKUP_ELEM, bytearray(attr))
        except OSError:
            return False
        space = _SPACE.unpack(value)
        return bool(space[1]) and space[5] == self._retaken(pid)

    def release(self, pids: Collection[int]) -> None:
        """Processes have ended, or have other mappings now: what told of the old ones is free."""
        for pid in pids:
            if pid in self._of_process:
                said = self._of_process.pop(pid)
                self._extents.give_back(said.first, said.mappings)

    def _update(self, pid: int, said: "_Said", *, copies_left: int, flags: int = 0) -> None:
        key = ctypes.c_uint32(pid)
        # What the programs remember of addresses holds for one generation; 0 is none.
        self._generation = self._generation % 0xFFFFFFFF + 1
        # Of what is not confirmed: as it was before, so that it is not used.
        retaken = said.retaken if said.retaken >= 0 else self._retaken(pid) - 1 & 0xFFFFFFFF
        numbers = (said.first, said.mappings, 0, copies_left, self._generation, retaken)
        value = ctypes.create_string_buffer(_SPACE.pack(*numbers), _SPACE.size)
        attr = struct.pack("=IIQQQ", self._maps["spaces"], 0, ctypes.addressof(key), ctypes.addressof(value), flags)
        bpf_map.bpf(bpf_map.BPF_MAP_UPDATE_ELEM, bytearray(attr))


class _Extents:
    """Runs of elements of an array: taken, given back, and taken again when nobody reads them any more."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._free: list[tuple[float, int, int]] = []  # since when, first, count
        self._most_free = _MANY_RUNS  # before they are joined: else they are ever more, and each is looked at

    def take(self, count: int) -> int | None:
        """The first of ``count`` elements; None if there are no more."""
        now = time.monotonic()
        first = self._take_again(count, now)
        if first is None and self._size - self._used < count:
            self._join(now)
            return self._take_again(count, now)
        if first is None:
            self._used += count
            return self._used - count
        return first

    def _take_again(self, count: int, now: float) -> int | None:
        for at, (since, first, free) in enumerate(self._free):
            if now - since < _GRACE_S:
                break
            if free >= count:
                del self._free[at]
                if free > count:
                    self._free.insert(0, (since, first + count, free - count))
                return first
        return None

    def _join(self, now: float) -> None:
        """Make one of runs that lie side by side; of many processes they become too short for any other."""
        joined: list[tuple[float, int, int]] = []
        for since, first, count in sorted(self._free, key=lambda run: run[1]):
            if joined and now - since >= _GRACE_S:
                before, begin, length = joined[-1]
                if now - before >= _GRACE_S and begin + length == first:
                    joined[-1] = max(before, since), begin, length + count
                    continue
            joined.append((since, first, count))
        self._free = sorted(joined)
        self._most_free = max(_MANY_RUNS, 2 * len(joined))

    def give_back(self, first: int, count: int) -> None:
        if count:
            now = time.monotonic()
            self._free.append((now, first, count))
            if len(self._free) > self._most_free:
                self._join(now)
