"""Blocks of memory by physical and data address, as compiled code puts them into keys, against what was written."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_spe import ColumnMemory
from arm_spe.memory_keys import split_memory_keys
from arm_spe.native import load_native
from arm_spe.tallied import Tallied
from arm_spe.tally import NOTHING, Key, Lane, Rules, Tally, operation_lanes
from builders import spe
from tdprof.decode.spe.data_sources import encoding_of, fill_source_rules

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")
NON_SECURE = 1 << 63  # in the packet, above the address
PAGE = 4096
# Of a data address in hexadecimal, a physical page; None: no such packet.
PAGES = [None, 0, 1, 0x7FFFFFFF, 0x80000000, 0xFF_FFFF_FFFF, 0x12_3456_789A]
ADDRESSES = [0x1000, 0xFFFF_FFFF_F038, 0x7F_FFFF_FFFF_FFFF, 0xFF_0000_0000_1040, 0xFF_FFFF_FFFF_FFFF]


@given(
    places=st.lists(
        st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(PAGES), st.sampled_from([0, 8, 1 << 52, NON_SECURE])),
        min_size=1,
        max_size=60,
    ),
    threads=st.lists(st.sampled_from([None, 0, 4242, 2**32 - 1]), min_size=1, max_size=4),
    layout=st.sampled_from(["slots", "wide_slots", "packed", "model", "kunpeng"]),
    block_bytes=st.sampled_from([64, 4096, 16384, 65536]),
)
@settings(max_examples=120, deadline=None)
def test_a_physical_address_that_can_be_the_data_address_s_is_in_the_keys(
    places: list[tuple[int, int | None, int]], threads: list[int | None], layout: str, block_bytes: int
) -> None:
    """``added`` to a physical address makes it one that is none of the data address, or sets what is no part of it."""
    truths, expected = [], Counter[tuple[int, int, int | None]]()
    for number, (address, page, added) in enumerate(places * 20):  # many: slots have a path of their own
        thread = threads[number % len(threads)]
        pa = None if page is None or layout == "kunpeng" else (page * PAGE | address % PAGE) ^ added
        truths.append(
            replace(
                spe.Truth(pc=0x80 << 56 | 0x400000, op_class=1, op=0, events=0x16, total=9, issue=2, timestamp=number),
                va=0xAB << 56 | address,  # the tag of a pointer
                pa=pa,
                context_el2=thread,
            )
        )
        canonical = address | (0xFF << 56 if address >> 55 & 1 else 0)
        is_told = pa is not None and added in (0, NON_SECURE)
        physical = (pa or 0) % NON_SECURE // block_bytes if is_told else None
        expected[canonical // block_bytes, 1 << 32 if thread is None else thread, physical] += 1
    rules = Rules(key=Key.ADDRESS, shift=block_bytes.bit_length() - 1, thread=1 << 32)
    rules.lanes[:] = operation_lanes()
    fill_source_rules(rules, encoding_of(None))
    pairs: list[tuple[int, int]] = []

    def place(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        assert (first != NOTHING).all()
        pairs.extend(zip(first.tolist(), second.tolist(), strict=True))
        return np.arange(len(pairs) - len(first), len(pairs), dtype=np.int32)

    tally = Tally(place)
    tally.add_span(spe.write_stream(truths, spe.LAYOUTS[layout])[0], rules, ColumnMemory(64))
    operations = Tallied.sum(tally.finish()).lanes[:, Lane.OPERATIONS].tolist()
    first, second = np.array(pairs, np.uint64).T
    keys = split_memory_keys(first, second, block_bytes)
    found = Counter[tuple[int, int, int | None]]()
    columns = (keys.block, keys.thread, keys.physical, keys.is_physical)
    for (block, thread, physical, is_physical), count in zip(
        zip(*(column.tolist() for column in columns), strict=True), operations, strict=True
    ):
        found[block, thread, physical if is_physical else None] += count
    assert found == expected
