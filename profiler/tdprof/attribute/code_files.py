"""The distinct files that a recording's mappings are of, numbered, and which place of them an address is."""

from collections.abc import Sequence
from functools import cached_property
from typing import overload

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from tdprof.attribute.address_space import AddressSpaces
from tdprof.model.addresses import INTERPRETED_PATHS, JAVA, FileKind, MappedFile
from tdprof.model.arrays import I32, I64, U32, U64, distinct
from tdprof.model.runtimes import JAVA_LANGUAGE
from tdprof.profile.frames import number_values
from tdprof.profile.runtimes import language_of_run_time_code, names_of, runtime_bits

KERNEL = MappedFile("[kernel]", kind=FileKind.KERNEL)
# What is a file to us, and none to the kernel.
_KINDS = {"[vdso]": FileKind.VDSO} | dict.fromkeys(INTERPRETED_PATHS, FileKind.INTERPRETED)
# Paths that the kernel gives to memory that has no file behind it.
_NOT_FILES = ("//", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]")
# Memory without a file that forked processes share: what one of them compiles, all run (PHP's opcache).
_SHARED_MEMORY = "/dev/zero"
# A program may lie there as well as code made at run time: only it has a build-id.
_NAMED_MEMORY = "/memfd:"
_HALF = np.uint64(32)
_NONE = -1
# Files whose code is looked at. Each costs a search for it, whether there is one or not.
_ADDRESSES_A_FILE, _SPARE_FILES = 32, 1 << 14


class CodeFiles(Sequence[MappedFile]):
    """Distinct mapped files, numbered as they come; the last is the kernel. They are columns: there may be as many as
    a capture has bytes.

    Args:
        mappings: a capture's table.
        spaces: of the same.

    Attributes:
        kernel: number of the kernel.
    """

    def __init__(self, mappings: pa.Table, spaces: AddressSpaces) -> None:
        self._spaces = spaces
        self._start = mappings["address"].to_numpy()
        self._offset = mappings["file_offset"].to_numpy()
        self._length = mappings["length"].to_numpy()
        self._pid = mappings["pid"].to_numpy().copy()
        paths, builds = (mappings[name].combine_chunks() for name in ("path", "build_id"))
        self._paths, self._builds = paths.dictionary, builds.dictionary
        is_file, is_nameless, is_memory = _kinds_of_paths(self._paths)
        is_shared = pa.compute.starts_with(self._paths, _SHARED_MEMORY).to_numpy(zero_copy_only=False)
        self._path = paths.indices.to_numpy()
        has_build = builds.indices.is_valid().to_numpy(zero_copy_only=False)
        is_anonymous = ~np.append(is_file, False)[self._path] | (np.append(is_memory, False)[self._path] & ~has_build)
        # Code without a file is its process's own; without a name it is all one.
        self._path = np.where(np.append(is_nameless, False)[self._path], _NONE, self._path)
        self._build = np.where(is_anonymous, _NONE, builds.indices.fill_null(_NONE).to_numpy())
        _, text = number_values((self._path.astype(np.int64) + 1 << 32 | self._build + 1).view(np.uint64))
        shared = np.flatnonzero(np.append(is_shared, False)[self._path])
        self._pid[shared] = spaces.first_owners(shared)
        owner = np.where(is_anonymous, self._pid, 0).astype(np.uint64)
        _, number = number_values(text.astype(np.uint64) << _HALF | owner)
        _, first = np.unique(number, return_index=True)
        by_appearance = np.argsort(first)
        self._first = first[by_appearance]  # the first mapping of each file
        rank = np.empty(len(first), np.int32)
        rank[by_appearance] = np.arange(len(first))
        self._of_row = rank[number]
        self._is_anonymous = np.append(is_anonymous[self._first], False)
        self.kernel = len(first)
        self._is_wanted, self._is_taken = np.zeros(len(first), bool), np.zeros(len(first), bool)
        self._room = _SPARE_FILES

    @property
    def left_out(self) -> int:
        """How many files ``place`` found no room for."""
        return int((self._is_wanted & ~self._is_taken).sum())

    def __len__(self) -> int:
        return self.kernel + 1

    @overload
    def __getitem__(self, number: int) -> MappedFile: ...

    @overload
    def __getitem__(self, number: slice) -> list[MappedFile]: ...

    def __getitem__(self, number: int | slice) -> MappedFile | list[MappedFile]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        if number == self.kernel:
            return KERNEL
        row, pid = self._first[number], int(self._pid[self._first[number]])
        if self._path[row] == _NONE:
            # A method is one function, whether it was interpreted or compiled as it was sampled.
            path = JAVA if pid in self._jvms else "[anon]"
        else:
            path = self._paths[self._path[row]].as_py()
        if self._is_anonymous[number]:
            return MappedFile(path, "", FileKind.ANONYMOUS, pid)
        build_id = "" if self._build[row] == _NONE else self._builds[self._build[row]].as_py()
        return MappedFile(path, build_id, _KINDS.get(path, FileKind.ELF))

    @cached_property
    def _jvms(self) -> set[int]:
        """The processes of which a JVM makes all code made at run time."""
        return {pid for pid, names in self.runtimes.items() if language_of_run_time_code(names) == JAVA_LANGUAGE}

    @cached_property
    def runtimes(self) -> dict[int, list[str]]:
        """What the runtimes that each process had are called, in the order of ``RUNTIMES``; those without are left out.

        Of a process that executed several programs after each other, those of the programs that made code.
        """
        pids, bits = self._spaces.bits(np.append(runtime_bits(self._paths.to_pylist()), np.uint64(0))[self._path])
        makes_code = np.zeros(len(pids), bool)
        makes_code[self._spaces.of_mappings[self._is_anonymous[self._of_row]]] = True
        is_meant = makes_code | ~np.isin(pids, pids[makes_code])
        found: dict[int, int] = {}
        for pid, of_space in zip(pids[is_meant].tolist(), bits[is_meant].tolist(), strict=True):
            found[pid] = found.get(pid, 0) | of_space
        return {pid: names_of(found[pid]) for pid in sorted(found) if found[pid]}

    def owners(self, file: I32) -> U32:
        """The process of each of some files that are one's own code made at run time; 0: no such, or no file (-1)."""
        owners = np.append(self._pid[self._first], np.zeros(2, np.uint32))
        owners[~np.append(self._is_anonymous, False)] = 0
        found: U32 = owners[file]
        return found

    def of_mappings(self, rows: I64) -> I32:
        """File number of each row of the mapping table."""
        return self._of_row[rows]

    def place(self, rows: I64, addresses: U64) -> tuple[I32, U64]:
        """File number and address within it, of addresses in mappings (-1: in none, or in more files than there is
        room for)."""
        file = np.full(len(rows), -1, np.int32)
        place = addresses.copy()
        known = np.flatnonzero(rows >= 0)
        self._room += len(rows) // _ADDRESSES_A_FILE
        number = self._of_row[rows[known]]
        known = known[self._take(number)]
        at = rows[known]
        file[known] = self._of_row[at]
        in_file = known[~self._is_anonymous[file[known]]]
        at = rows[in_file]
        place[in_file] = addresses[in_file] - self._start[at] + self._offset[at]
        return file, place

    def _take(self, number: I32) -> NDArray[np.bool_]:
        """Whether there is room for each of some files; once taken, a file stays."""
        is_asked = np.zeros(self.kernel, bool)
        is_asked[number] = True
        self._is_wanted |= is_asked
        new = np.flatnonzero(is_asked & ~self._is_taken)
        self._is_taken[new[: self._room]] = True
        self._room -= min(len(new), self._room)
        return self._is_taken[number]

    def only(self, file: I32) -> tuple[list[MappedFile], list[tuple[int, int, int]], I32]:
        """Those of the files that are among ``file`` (-1: none), for each of them one mapping (address, length, file
        offset), and ``file`` renumbered to fit."""
        used = distinct(file[file >= 0])
        renumber = np.full(len(self) + 1, -1, np.int32)
        renumber[used] = np.arange(len(used))
        numbers = used.tolist()
        return [self[each] for each in numbers], [self._range(each) for each in numbers], renumber[file]

    def _range(self, number: int) -> tuple[int, int, int]:
        if number == self.kernel:
            return 0, 0, 0
        row = self._first[number]
        return int(self._start[row]), int(self._length[row]), int(self._offset[row])


def _kinds_of_paths(paths: pa.Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each path leads to what counts as a file, else to memory of one process; whether that has no name; and
    whether it is memory that may hold a file."""
    starts_with, either = pa.compute.starts_with, pa.compute.or_
    no_file = pa.repeat(False, len(paths))
    for start in _NOT_FILES:
        no_file = either(no_file, starts_with(paths, start))
    is_special = pa.compute.is_in(paths, pa.array(list(_KINDS)))
    is_file = either(pa.compute.and_not(starts_with(paths, "/"), no_file), is_special)
    is_nameless = either(starts_with(paths, "//"), pa.compute.equal(paths, ""))
    is_file, is_nameless, is_memory = (
        kind.to_numpy(zero_copy_only=False) for kind in (is_file, is_nameless, starts_with(paths, _NAMED_MEMORY))
    )
    return is_file, is_nameless, is_memory
