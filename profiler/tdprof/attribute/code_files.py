"""The distinct files that a recording's mappings are of, numbered, and which place of them an address is."""

import numpy as np
import pyarrow as pa

from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.arrays import I32, I64, U64, distinct

KERNEL = MappedFile("[kernel]", kind=FileKind.KERNEL)
# Paths that the kernel gives to memory that has no file behind it.
_NOT_FILES = ("//", "/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]")


class CodeFiles:
    """Distinct mapped files; the last is the kernel.

    Args:
        mappings: a capture's table.

    Attributes:
        distinct: the files.
        ranges: for each of them one mapping: (address, length, file offset).
        kernel: number of the kernel.
    """

    def __init__(self, mappings: pa.Table) -> None:
        self._start = mappings["address"].to_numpy()
        self._offset = mappings["file_offset"].to_numpy()
        self.distinct: list[MappedFile] = []
        self.ranges: list[tuple[int, int, int]] = []
        numbers: dict[MappedFile, int] = {}
        of_row = []
        columns = (
            mappings[name].to_pylist() for name in ("path", "build_id", "pid", "address", "length", "file_offset")
        )
        for path, build_id, pid, address, length, offset in zip(*columns, strict=True):
            file = mapped_file(path, build_id or "", pid)
            if file not in numbers:
                numbers[file] = len(self.distinct)
                self.distinct.append(file)
                self.ranges.append((address, length, offset))
            of_row.append(numbers[file])
        self.kernel = len(self.distinct)
        self.distinct.append(KERNEL)
        self.ranges.append((0, 0, 0))
        self._of_row = np.array(of_row, np.int32)
        self._is_anonymous = np.array([file.kind is FileKind.ANONYMOUS for file in self.distinct])

    def place(self, rows: I64, addresses: U64) -> tuple[I32, U64]:
        """File number and address within it, of addresses in mappings (-1: in none)."""
        file = np.full(len(rows), -1, np.int32)
        place = addresses.copy()
        known = np.flatnonzero(rows >= 0)
        at = rows[known]
        file[known] = self._of_row[at]
        in_file = known[~self._is_anonymous[file[known]]]
        at = rows[in_file]
        place[in_file] = addresses[in_file] - self._start[at] + self._offset[at]
        return file, place

    def only(self, file: I32) -> tuple[list[MappedFile], list[tuple[int, int, int]], I32]:
        """Those of the files that are among ``file`` (-1: none), their ranges, and ``file`` renumbered to fit."""
        used = distinct(file[file >= 0])
        renumber = np.full(len(self.distinct) + 1, -1, np.int32)
        renumber[used] = np.arange(len(used))
        numbers = used.tolist()
        return [self.distinct[each] for each in numbers], [self.ranges[each] for each in numbers], renumber[file]


def mapped_file(path: str, build_id: str, pid: int) -> MappedFile:
    """What a mapping of a process holds, by the path that the kernel gives it."""
    if path.startswith("/") and not path.startswith(_NOT_FILES):
        return MappedFile(path, build_id)
    if path == "[vdso]":
        return MappedFile(path, build_id, FileKind.VDSO)
    return MappedFile("[anon]" if path.startswith("//") or not path else path, "", FileKind.ANONYMOUS, pid)
