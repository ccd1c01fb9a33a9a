"""How large the arrays are by which the BPF programs unwind: as a recording will need them, if that can be foreseen."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tdprof.linux.elf import PF_X, PT_GNU_EH_FRAME, PT_LOAD, ElfError, open_elf
from tdprof.unwind.sections import file_identity
from tdprof.unwind.tables import TableCache
from tdprof.values import dataclass

PAGE_BYTES = 4096  # of an element of the arrays of tables
PAGE_WORDS = PAGE_BYTES // 4
PAGE_RULES = PAGE_BYTES // 8
MOST_RULES = 65536  # of all tables of a session
# All tables of a session: those of a whole machine with 2,600 ELF files take 118 MB.
MOST_TABLE_BYTES = 128 << 20
_BUCKET_BYTES = 256  # of text


@dataclass(frozen=True, slots=True)
class ArraySizes:
    """How much fits. By default what a few small programs need, in 1.6 MB; ``OF_A_MACHINE`` takes 46 MB.

    Attributes:
        row_pages, bucket_pages, rule_pages: of ``PAGE_BYTES``.
        mappings: of all processes together.
        spaces: processes.
    """

    row_pages: int = 160
    bucket_pages: int = 48
    rule_pages: int = 16
    mappings: int = 1 << 14
    spaces: int = 1 << 12

    def entries(self) -> dict[str, int]:
        """How many elements each map has."""
        return self.of_tables() | {"mappings": self.mappings, "spaces": self.spaces}

    def of_tables(self) -> dict[str, int]:
        """The same of those that hold tables."""
        return {"unwind_rows": self.row_pages, "unwind_buckets": self.bucket_pages, "unwind_rules": self.rule_pages}

    def fit(self, rows: int, buckets: int, rules: int) -> bool:
        """Whether so many have room; more rules than there can be are left out."""
        return self._fit_rows(rows, buckets) and min(rules, MOST_RULES) <= self.rule_pages * PAGE_RULES

    def _fit_rows(self, rows: int, buckets: int) -> bool:
        return rows <= self.row_pages * PAGE_WORDS and buckets <= self.bucket_pages * PAGE_WORDS

    def grown(self, rows: int, buckets: int, rules: int) -> "ArraySizes | None":
        """Sizes in which so many have room, None if that is too much.

        At least twice what there is, where that can be, and what a compiler or a database needs: growing takes a tenth
        of a second.
        """
        sizes = self
        if not self._fit_rows(rows, buckets):
            least = max(self.row_pages, -(-rows // PAGE_WORDS)), max(self.bucket_pages, -(-buckets // PAGE_WORDS))
            if sum(least) * PAGE_BYTES > MOST_TABLE_BYTES:
                return None
            row_pages = max(2 * self.row_pages, least[0], _GROWN_ROW_PAGES)
            bucket_pages = max(2 * self.bucket_pages, least[1], _GROWN_BUCKET_PAGES)
            if (row_pages + bucket_pages) * PAGE_BYTES > MOST_TABLE_BYTES:
                row_pages, bucket_pages = least
            sizes = replace(sizes, row_pages=row_pages, bucket_pages=bucket_pages)
        if not sizes.fit(rows, buckets, rules):
            most = MOST_RULES // PAGE_RULES
            sizes = replace(sizes, rule_pages=min(max(2 * self.rule_pages, -(-rules // PAGE_RULES)), most))
        return sizes


_GROWN_ROW_PAGES, _GROWN_BUCKET_PAGES = 640, 160
OF_A_MACHINE = ArraySizes(
    row_pages=8192, bucket_pages=2048, rule_pages=MOST_RULES // PAGE_RULES, mappings=1 << 17, spaces=1 << 15
)


def sizes_for_files(paths: Iterable[Path], cache: TableCache) -> ArraySizes:
    """Room for the tables of files that will be mapped, and for a few libraries more."""
    rows = buckets = 0
    for path in paths:
        with contextlib.suppress(OSError, ElfError):
            of_file = _rows_and_buckets(path, cache)
            rows, buckets = rows + of_file[0], buckets + of_file[1]
    spare = ArraySizes()
    row_pages = -(-rows // PAGE_WORDS) + spare.row_pages // 2
    bucket_pages = -(-buckets // PAGE_WORDS) + spare.bucket_pages // 2
    return replace(
        spare,
        row_pages=min(max(row_pages, spare.row_pages), OF_A_MACHINE.row_pages),
        bucket_pages=min(max(bucket_pages, spare.bucket_pages), OF_A_MACHINE.bucket_pages),
    )


def _rows_and_buckets(path: Path, cache: TableCache) -> tuple[int, int]:
    """As the file's table has them, or what it will have about."""
    elf = open_elf(path)
    code = [segment for segment in elf.segments if segment.type == PT_LOAD and segment.flags & PF_X]
    buckets = sum(segment.file_size // _BUCKET_BYTES + 2 for segment in code)
    if rows := cache.rows(file_identity(elf, os.stat(path))):
        return rows, buckets
    # That segment has 8 bytes for each FDE, and of an FDE there are 8 rows.
    return sum(segment.file_size for segment in elf.segments if segment.type == PT_GNU_EH_FRAME), buckets
