"""Which moment's mappings a row of the BPF programs is of, where files took each other's addresses."""

from pathlib import Path

import numpy as np

from tdprof.capture.spool import REPLACED, UNCERTAIN
from tdprof.decode.bpf_aggregates import KEY, VALUE, RowBatch
from tdprof.decode.replaced_files import ReplacedFiles
from tdprof.decode.spooled_files import SpoolDamage


def batch(*rows: tuple[int, int, int]) -> RowBatch:
    """Rows of (end of the interval, process, stack)."""
    keys = np.zeros(len(rows), KEY)
    keys["pid"], keys["user_stack"] = [row[1] for row in rows], [row[2] for row in rows]
    return RowBatch(np.array([row[0] for row in rows], np.uint64), keys, np.ones(len(rows), VALUE))


def test_rows_are_of_what_was_mapped_when_their_interval_began(tmp_path: Path) -> None:
    path, damage = tmp_path / "replaced.bpf", SpoolDamage()
    path.write_bytes(b"".join(REPLACED.pack(*each) for each in [(7, 200), (9, 150), (7, 300)]) + b"cut")
    found = ReplacedFiles(path, damage)
    assert found
    assert damage.bytes == 3
    found.add_copies(np.array([77], np.uint64), np.array([250], np.uint64))
    rows = [(200, 7, 1), (250, 7, 1), (300, 7, 1), (301, 7, 1), (900, 7, 1), (300, 7, 77), (150, 9, 1), (160, 9, 1)]
    assert found.mapped_ns(batch(*rows, (900, 8, 1))).to_pylist() == [0, 200, 200, 300, 300, 250, 0, 150, None]


def test_stacks_walked_by_what_was_mapped_over_are_uncertain_in_one_interval(tmp_path: Path) -> None:
    path = tmp_path / "replaced.bpf"
    path.write_bytes(b"".join(REPLACED.pack(*each) for each in [(7, 300), (7 | UNCERTAIN, 300), (9 | UNCERTAIN, 200)]))
    found = ReplacedFiles(path, SpoolDamage())
    found.add_copies(np.array([77], np.uint64), np.array([250], np.uint64))
    rows = [(200, 7, 1), (300, 7, 1), (300, 7, 77), (400, 7, 1), (200, 9, 1), (300, 9, 1), (300, 8, 1)]
    assert found.are_uncertain(batch(*rows)).tolist() == [False, True, False, False, True, False, False]
    assert found.mapped_ns(batch(*rows)).to_pylist() == [0, 0, 250, 300, None, None, None]


def test_nothing_is_told_of_most_recordings(tmp_path: Path) -> None:
    damage = SpoolDamage()
    assert not ReplacedFiles(tmp_path / "replaced.bpf", damage)
    assert damage.bytes == 0
