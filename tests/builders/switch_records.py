"""Records of context switches, as decoding perf's records has them."""

import numpy as np

from tdprof.decode.perf.columns import SIDE_BAND
from tdprof.decode.spe.switches import switch_rows
from tdprof.linux.perf_abi import RecordType


def rows(*records: tuple[int, int, int, int, int, RecordType]) -> np.ndarray:
    """(time, cpu, misc, tid, ptid, type) each."""
    table = np.zeros(len(records), SIDE_BAND)
    for name, column in zip(("time_ns", "cpu", "misc", "tid", "ptid", "type"), zip(*records, strict=True), strict=True):
        table[name] = column
    return switch_rows(table)
