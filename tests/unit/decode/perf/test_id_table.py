"""The table by which compiled code finds the event of an id."""

import numpy as np

from builders.hashing import longest_run
from tdprof.decode.perf.layout import RecordLayout, SampleType
from tdprof.decode.perf.records import NOT_RECORDED, _id_table

GOLDEN = 0x9E3779B97F4A7C15


def test_ids_made_to_meet_do_not_meet() -> None:
    inverse = pow(GOLDEN, -1, 2**64)
    ids = tuple(number * inverse % 2**64 for number in range(1000))  # equal when multiplied by a known number
    table = _id_table([RecordLayout(SampleType.IP, ids=ids), RecordLayout(SampleType.IP, ids=(7,))])
    assert longest_run(table["event"] != NOT_RECORDED) < 300  # of 2,048 slots; some thirty are usual
    assert len(np.unique(table["id"][table["event"] == 0])) == 1000
