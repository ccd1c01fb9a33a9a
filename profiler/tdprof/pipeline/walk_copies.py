"""Walking user stacks that a recording carries as memory: with the mappings of that time, and the programs' tables."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.decode.perf.columns import Copies
from tdprof.linux.elf import ElfError, open_elf
from tdprof.model.addresses import DELETED, FileKind, MappedFile
from tdprof.model.arrays import I64, U32, U64, distinct
from tdprof.profile.frames import number_pairs, number_values
from tdprof.recorder.host import own_vdso
from tdprof.symbolize.debug_files import PERF_STORE, programs_by_build_id, under
from tdprof.unwind.tables import (
    TableCache,
    TableDamage,
    TableWorker,
    damage_notes,
    damage_of,
    is_mapped_as_laid_out,
    read_identity,
)
from tdprof.unwind.walk import MAPPING, CopiedStacks, MappingKind, Walked, World, walk_stacks, words_of

_NO_INFORMATION = 0xFFFFFFFF  # the number of no table: nothing is known of the file's code
# Of all tables together; those of a machine with 1,400 files have 56 MB.
_MOST_TABLE_BYTES = 512 << 20
# Mappings of all (space, time) that are listed. Made-up side-band could change at each sample what is mapped.
_SPARE_MAPPINGS, _MAPPINGS_EACH = 1 << 20, 64
_Space = NDArray[np.void]


class FileTables:
    """Unwind tables of mapped files, found once each.

    Args:
        symfs: a folder with the recorded machine's files under their own paths; None: this machine's.
        is_here: whether this is the recorded machine, running the recorded kernel: then a file whose build-id was not
            recorded is taken for the one that is there now.

    Attributes:
        tables: those found; ``number`` numbers them.
        missing: paths of files that cannot be read here, or are others than the recorded.
    """

    def __init__(self, symfs: Path | None, *, is_here: bool) -> None:
        self.tables: list[bytes] = []
        self.missing: list[str] = []
        self._symfs = symfs
        self._is_here = is_here
        self._cache = TableCache()
        self._known: dict[MappedFile, tuple[int, MappingKind]] = {}
        self._unseen: dict[MappedFile, bytes] = {}  # tables of files that are not here
        self._missed: set[MappedFile] = set()
        self._damaged: dict[str, TableDamage] = {}
        self._bytes = 0

    def number(self, file: MappedFile, file_offset: U64, length: U64) -> tuple[int, MappingKind]:
        """The number of a file's table, after ``find``; none for who mapped it otherwise than the table has it.

        The whole file and the stripped one have one build-id and other layouts: of a file that is not here itself only
        the mappings tell which it was. Each process is judged by its own, in whatever order they come.

        Args:
            file_offset, length: uint64[n], of its mappings in one address space.
        """
        if file in self._unseen:
            places = zip(file_offset.tolist(), length.tolist(), strict=True)
            if not all(is_mapped_as_laid_out(self._unseen[file], *place) for place in places):
                self._note_missing(file)
                return _NO_INFORMATION, MappingKind.NO_TABLE
        return self._known[file]

    def find(self, files: Iterable[MappedFile]) -> None:
        """Find the tables of files, from the cache or built by a child now."""
        to_build: list[tuple[MappedFile, Path]] = []
        with tempfile.NamedTemporaryFile() as vdso:
            for file in files:
                if file in self._known:
                    continue
                self._known[file] = _NO_INFORMATION, MappingKind.TABLE
                if file.kind is FileKind.ANONYMOUS:
                    self._known[file] = _NO_INFORMATION, MappingKind.JIT
                elif (path := self._place(file, Path(vdso.name))) is None:
                    if table := self._cache.load_by_build_id(file.build_id) if file.build_id else None:
                        if self._keep(file, table):
                            self._unseen[file] = table
                    else:
                        self._miss(file)
                elif (identity := read_identity(path)) and (table := self._cache.load(identity)):
                    self._keep(file, table)
                else:
                    to_build.append((file, path))
            while to_build:
                to_build = to_build[self._build(to_build) :]

    def notes(self) -> Iterator[str]:
        """What the user should know in the end."""
        yield from damage_notes(self._damaged)
        if self.missing:
            yield (
                f"{len(self.missing):,} mapped files are not here, or are not the recorded ones (the first is "
                f"{self.missing[0]}): user stacks end in them (--symfs names a folder with the recorded ones)"
            )

    def _build(self, files: Sequence[tuple[MappedFile, Path]]) -> int:
        """Build the tables of files; returns how many are done, with that at which the worker died: it has no table."""
        done = 0
        with TableWorker([path for _, path in files], self._cache) as worker:
            for number, table in worker.results():
                done = number + 1
                if table:
                    self._keep(files[number][0], table)
        return done + 1

    def _keep(self, file: MappedFile, table: bytes) -> bool:
        self._bytes += len(table)
        if self._bytes > _MOST_TABLE_BYTES:
            self._miss(file)
            return False
        if (damage := damage_of(table)) is not TableDamage.NONE:
            self._damaged[file.path] = damage
        self._known[file] = len(self.tables), MappingKind.TABLE
        self.tables.append(table)
        return True

    def _miss(self, file: MappedFile) -> None:
        self._known[file] = _NO_INFORMATION, MappingKind.NO_TABLE
        self._note_missing(file)

    def _note_missing(self, file: MappedFile) -> None:
        if file not in self._missed:
            self._missed.add(file)
            self.missing.append(file.path)

    def _place(self, file: MappedFile, vdso: Path) -> Path | None:
        """Where the very file that was mapped is, or None."""
        if file.kind is FileKind.VDSO:
            vdso.write_bytes(own_vdso())
            places = [vdso]
        else:
            roots = [] if self._symfs else [PERF_STORE.expanduser()]
            kept = [place for root in roots for place in programs_by_build_id(root, file.build_id)]
            places = [under(self._symfs, file.path.removesuffix(DELETED)), *kept]
        return next((place for place in places if self._is_recorded(place, file)), None)

    def _is_recorded(self, path: Path, file: MappedFile) -> bool:
        try:
            build_id = open_elf(path).build_id
        except (OSError, ElfError):
            return False
        if file.build_id:
            return build_id == file.build_id
        return (self._is_here or self._symfs is not None) and not file.path.endswith(DELETED)


class CopyWalker:
    """Walks the user stacks of samples.

    Args:
        mappings, processes: the capture's tables.
        machine: ``e_machine``.
        is_leaf_known: whether all general registers of x86-64 were recorded.
        files: where tables come from.
    """

    def __init__(
        self, mappings: pa.Table, processes: pa.Table, machine: int, files: FileTables, *, is_leaf_known: bool
    ) -> None:
        self._spaces = AddressSpaces(mappings, processes)
        self._machine = machine
        self._is_leaf_known = is_leaf_known
        self._files = files
        self._start = mappings["address"].to_numpy()
        self._offset = mappings["file_offset"].to_numpy()
        self._length = mappings["length"].to_numpy()
        self._code = CodeFiles(mappings, self._spaces)
        self._changes: dict[int, U64] = {}
        self._listed: dict[tuple[int, int], _Space] = {}
        self._room = _SPARE_MAPPINGS + _MAPPINGS_EACH * len(mappings)

    def walk(self, pid: U32, time_ns: U64, copies: Copies) -> Walked:
        """Walk each sample's stack.

        Args:
            pid: uint32[n].
            time_ns: uint64[n].
            copies: the n stacks.
        """
        space = self._spaces.space_of_samples(pid, time_ns, None).astype(np.int64)
        # One more, as -1 is no space.
        number, moment, which = number_pairs(space + 1, self._moments(space, time_ns))
        spaces = [self._space(*pair) for pair in zip((number - 1).tolist(), moment.tolist(), strict=True)]
        return walk_stacks(
            CopiedStacks(
                self._machine,
                copies.registers[:, : words_of(self._machine)],
                which.astype(np.uint32),
                copies.stack_start,
                copies.stack_bytes,
                copies.stack,
                self._is_leaf_known,
                copies.stack_pages,
            ),
            World(spaces, self._files.tables),
        )

    def _moments(self, space: I64, time_ns: U64) -> I64:
        """int64[n]: how often what addresses mean in the sample's space may have changed up to it."""
        moments = np.zeros(len(space), np.int64)
        for number in distinct(space[space >= 0]).tolist():
            if number not in self._changes:
                self._changes[number] = self._spaces.changes(number)
            if len(changes := self._changes[number]):
                mine = np.flatnonzero(space == number)
                moments[mine] = np.searchsorted(changes, time_ns[mine], side="right")
        return moments

    def _space(self, number: int, moment: int) -> _Space:
        """The executable mappings of a space at one of its moments."""
        if number < 0:
            return np.empty(0, MAPPING)
        if (number, moment) not in self._listed:
            changes = self._changes[number]
            # The earliest time is that of what was there before; find() takes what came later where nothing was.
            time_ns = int(changes[max(moment - 1, 0)]) if len(changes) else 2**64 - 1
            listed = self._list(number, time_ns) if self._room > 0 else np.empty(0, MAPPING)
            self._room -= max(len(listed), 1)
            self._listed[number, moment] = listed
        return self._listed[number, moment]

    def _list(self, number: int, time_ns: int) -> _Space:
        start, end, rows = self._spaces.mapped_at(number, time_ns)
        numbers, which = number_values(self._code.of_mappings(rows).astype(np.uint64))
        files = [self._code[number] for number in numbers.tolist()]
        self._files.find(files)
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(files)), side="right")
        parts = [rows[part] for part in np.split(order, ends[:-1])[: len(files)]]
        tables = [
            self._files.number(file, self._offset[mine], self._length[mine])
            for file, mine in zip(files, parts, strict=True)
        ]
        found = np.array(tables, np.uint32).reshape(-1, 2)[which]
        space = np.empty(len(rows), MAPPING)
        space["start"], space["end"] = start, end
        space["file_offset"] = start - self._start[rows] + self._offset[rows]
        space["table"], space["kind"] = found[:, 0], found[:, 1]
        return space
