import resource
import subprocess
import sys

import numpy as np
import pytest

from arm_spe.growing import GrowingTable

PAIR = np.dtype([("first", "u4"), ("second", "u8")])


def test_rows_stay_where_a_table_grows_and_zeros_are_behind_them() -> None:
    table = GrowingTable(3, PAIR)
    table.array()["second"] = [7, 8, 9]
    for rows in (5, 1_000_000, 3_000_000):  # in its pages, and beyond them
        before = len(table)
        table.grow(rows)
        assert len(table) == len(table.array()) == rows
        assert table.array()["second"][:3].tolist() == [7, 8, 9]
        assert not table.array()["second"][before:].any()
    assert table.address == table.array().ctypes.data


def test_rows_that_somebody_holds_do_not_move() -> None:
    table = GrowingTable(3, PAIR)
    held = table.array()
    with pytest.raises(BufferError):
        table.grow(1_000_000)
    held["first"] = 1
    assert table.array()["first"].tolist() == [1, 1, 1]


def test_what_has_no_room_is_a_lack_of_memory() -> None:
    code = (
        "import resource, numpy as np\n"
        "from arm_spe.growing import GrowingTable\n"
        "table = GrowingTable(1, np.dtype([('a', 'u8')]))\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, (1 << 20, {resource.RLIM_INFINITY}))\n"
        "for make in (lambda: table.grow(1 << 30), lambda: GrowingTable(1 << 30, np.dtype([('a', 'u8')]))):\n"
        "    try:\n"
        "        make()\n"
        "    except MemoryError:\n"
        "        print('none')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["none", "none"], done.stderr
