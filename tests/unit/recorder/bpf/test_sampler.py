"""How much room the kernel's tables have."""

import pytest

from tdprof.recorder.bpf.sampler import CopiesLimit
from tdprof.recorder.bpf.table_sizes import TableSizes

MOST_ROWS = 1 << 18


@pytest.mark.parametrize("waits_s", [2, 8])
@pytest.mark.parametrize("per_second", [1, 1000, 1999, 2048, 2049, 4000, 64_000, 10_000_000])
def test_rows_hold_what_comes_while_the_recorder_has_to_wait(per_second: int, waits_s: int) -> None:
    sizes = TableSizes.for_rate(per_second, waits_s=waits_s)
    wanted = waits_s * per_second
    assert sizes.rows == MOST_ROWS or wanted <= sizes.rows < max(2 * wanted, 1 << 13)
    assert sizes.rows.bit_count() == sizes.ring_bytes.bit_count() == sizes.copies_bytes.bit_count() == 1
    # What is mapped by the recorder counts as its memory: not more than before there was so much room.
    assert sizes.ring_bytes <= max(1 << 20, 4 * per_second * 256)


def test_of_each_segment_so_much_is_copied_and_that_no_more_is_told_once() -> None:
    limit = CopiesLimit(100)
    assert [limit.is_reached_now(copied) for copied in (0, 100, 101, 150)] == [False, False, True, False]
    assert limit.begin_segment(150)
    assert [limit.is_reached_now(copied) for copied in (200, 250)] == [False, False]
    assert not limit.begin_segment(250)
    assert limit.is_reached_now(351)
