"""Who ended the sleeps that have samples, as the BPF programs tell it. Layout: struct waking of bpf/sample.h."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.capture.schema import WAKERS
from tdprof.capture.spool import WAKINGS_FILE
from tdprof.decode.bpf_aggregates import read_ring_file, ring_records
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.model.arrays import U64

WAKER = np.dtype(
    [
        ("identity", "<u8"),
        ("user_stack", "<u8"),
        ("kernel_stack", "<u8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("comm", "S16"),
    ]
)
RECORD = np.dtype([("identity", "<u8"), ("kernel_stack", "<u8"), ("waker", WAKER)])


class Wakings:
    """What rows have as their kernel's stack, where that is of a sleep of which it is known who ended it.

    Memory grows with the distinct pairs of a wait's kernel stack and a waker.
    """

    def __init__(self, spool: Path, damage: SpoolDamage) -> None:
        own = SpoolDamage()
        parts = list(read_ring_file(spool / WAKINGS_FILE, own, _decode, 8 << 20))
        damage.add_records(own, RECORD.itemsize)
        records = np.concatenate([np.empty(0, RECORD), *parts])
        first = np.unique(records["identity"], return_index=True)[1]
        self._records = records[first]

    def split(self, kernel_stack: U64) -> tuple[U64, U64]:
        """The kernel's stacks of some waits as they are, and who ended each: uint64[n] both, 0 where nobody did."""
        known = self._records["identity"]
        if not len(known):
            return kernel_stack, np.zeros(len(kernel_stack), np.uint64)
        at = np.minimum(np.searchsorted(known, kernel_stack), len(known) - 1)
        is_waking = known[at] == kernel_stack
        found = self._records[at]
        return (
            np.where(is_waking, found["kernel_stack"], kernel_stack),
            np.where(is_waking, found["waker"]["identity"], np.uint64(0)),
        )

    def table(self, known_stacks: NDArray[np.uint64]) -> pa.Table:
        """Each waker once; stacks that are none of the known ones never arrived, and are null."""
        first = np.unique(self._records["waker"]["identity"], return_index=True)[1]
        wakers = self._records["waker"][first]
        names, which = np.unique(wakers["comm"], return_inverse=True)
        text = pa.array([name.decode(errors="replace") for name in names.tolist()], pa.string())
        stacks = {
            name: pa.array(wakers[name], mask=~np.isin(wakers[name], known_stacks))
            for name in ("user_stack", "kernel_stack")
        }
        columns = {
            "waker": wakers["identity"],
            "pid": wakers["pid"],
            "tid": wakers["tid"],
            "thread_name": pa.DictionaryArray.from_arrays(pa.array(which.reshape(-1).astype(np.int32)), text),
            **stacks,
        }
        return pa.table([columns[name] for name in WAKERS.names], names=WAKERS.names).cast(WAKERS)


def _decode(data: bytes) -> tuple[NDArray[np.void], int, int]:
    records, consumed, damaged = ring_records(data)
    whole = [record for record in records if len(record) == RECORD.itemsize]
    return np.frombuffer(b"".join(whole), RECORD), consumed, damaged + len(records) - len(whole)
