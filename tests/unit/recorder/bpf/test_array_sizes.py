"""Room for tables: as much as the files will need, then what is asked for and more, up to a bound."""

import sys
from pathlib import Path

import pytest

from tdprof.linux.user_cache import cache_folder
from tdprof.native.unwind_api import read_header
from tdprof.recorder.bpf import array_sizes
from tdprof.recorder.bpf.array_sizes import MOST_RULES, OF_A_MACHINE, PAGE_WORDS, ArraySizes, sizes_for_files
from tdprof.recorder.first_files import files_of_command
from tdprof.unwind.tables import TableCache, build_file_table, identity_of


def test_what_is_kept_says_how_much_room_files_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = TableCache(cache_folder("unwind"))
    files = files_of_command([sys.executable])
    tables = [table for table in map(build_file_table, files) if table]
    headers = [read_header(table) for table in tables]
    foreseen = sizes_for_files(files, cache)
    for table in tables:
        cache.store(identity_of(table), table)
    known = sizes_for_files(files, cache)
    spare = ArraySizes()
    rows, buckets = sum(header.rows for header in headers), sum(header.buckets for header in headers)
    for sizes in (foreseen, known):
        assert sizes.fit(rows, buckets, sum(header.rules for header in headers))
        assert sizes.bucket_pages == max(-(-buckets // PAGE_WORDS) + spare.bucket_pages // 2, spare.bucket_pages)
    assert known.row_pages <= max(1.1 * rows / PAGE_WORDS + 1 + spare.row_pages // 2, spare.row_pages)


def test_what_is_kept_may_be_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Large(TableCache):
        def rows(self, identity: bytes) -> int:
            return 2**32 - 1

    assert sizes_for_files([Path(sys.executable)], Large()).row_pages == OF_A_MACHINE.row_pages
    assert sizes_for_files([tmp_path, tmp_path / "nothing"], Large()) == ArraySizes()


def test_only_what_is_short_grows() -> None:
    sizes = ArraySizes(row_pages=1000, bucket_pages=300, rule_pages=16)
    rows, buckets, rules = 1000 * PAGE_WORDS, 300 * PAGE_WORDS, 8192
    assert sizes.fit(rows, buckets, rules)
    assert sizes.grown(rows, buckets, rules + 1) == ArraySizes(row_pages=1000, bucket_pages=300, rule_pages=32)
    assert sizes.grown(rows + 1, buckets, rules) == ArraySizes(row_pages=2000, bucket_pages=600, rule_pages=16)
    more = sizes.grown(rows, 1000 * PAGE_WORDS, MOST_RULES + 400)
    assert more == ArraySizes(row_pages=2000, bucket_pages=1000, rule_pages=128)
    # There are no more rules than these; the rows that would have others end stacks, and say so.
    assert more.fit(rows, buckets, MOST_RULES + 400)
    most = array_sizes.MOST_TABLE_BYTES // 4
    assert sizes.grown(most, 0, 0) is None
    large = ArraySizes(row_pages=20_000, bucket_pages=4_000, rule_pages=16)
    assert large.grown(20_001 * PAGE_WORDS, 0, 0) == ArraySizes(row_pages=20_001, bucket_pages=4_000, rule_pages=16)
    small = ArraySizes(row_pages=1, bucket_pages=1, rule_pages=1).grown(PAGE_WORDS + 1, 0, 0)
    assert small
    assert small.row_pages > ArraySizes().row_pages
