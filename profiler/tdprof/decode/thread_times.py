"""Where threads' time went, as the BPF programs added it up. Layout: struct thread_times of bpf/sample.h."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tdprof.capture.schema import THREAD_TIMES
from tdprof.capture.spool import ALIVE_FILE, ENDED_FILE
from tdprof.decode.bpf_aggregates import read_ring_file, ring_records
from tdprof.decode.spooled_files import SpoolDamage, spooled_beginning
from tdprof.model.thread_state import ThreadState

RECORD = np.dtype(
    [
        ("first_ns", "<u8"),
        ("since_ns", "<u8"),
        ("left_ns", "<u8"),
        ("spent_ns", "<u8", (len(ThreadState),)),
        ("queued_ns", "<u8"),
        ("pid", "<u4"),
        ("tid", "<u4"),
        ("state", "<u4"),
        ("position_ns", "<u4"),
        ("point_ns", "<u4"),
        ("due", "<u4", (len(ThreadState),)),
        ("waits", "<u4"),
        ("comm", "S16"),
    ]
)
_END_BYTES = 8
# Of threads that still are the kernel's table has that many at most; others are told by /proc.
_MOST_ALIVE_BYTES = (1 << 22) * RECORD.itemsize


def read_thread_times(spool: Path, damage: SpoolDamage) -> pa.Table | None:
    """One row for each thread that was recorded: those that ended, then those that still were.

    None if the recorder was killed before it told of these: the others alone are no account of where time went.
    """
    if not (spool / ALIVE_FILE).exists():
        return None
    own = SpoolDamage()
    parts = list(read_ring_file(spool / ENDED_FILE, own, _decode, 8 << 20))
    damage.add_records(own, RECORD.itemsize)
    parts.append(_alive(spool / ALIVE_FILE, damage))
    rows = np.concatenate(parts)
    return _table(rows[rows["pid"] > 0])


def sampled_off_cpu_ns(times: pa.Table) -> int:
    """The time off a CPU of all threads, without waits that the recording did not see the end of."""
    off_cpu = ("runnable_ns", "interruptible_ns", "uninterruptible_ns")
    return sum(_sum(times[name]) for name in off_cpu) - _sum(times["unsampled_ns"])


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _decode(data: bytes) -> tuple[NDArray[np.void], int, int]:
    records, consumed, damaged = ring_records(data)
    whole = [record for record in records if len(record) == RECORD.itemsize]
    return np.frombuffer(b"".join(whole), RECORD), consumed, damaged + len(records) - len(whole)


def _alive(path: Path, damage: SpoolDamage) -> NDArray[np.void]:
    """With what passed until the end in the state that each was in."""
    data = spooled_beginning(path, damage, _MOST_ALIVE_BYTES)
    rest = max(len(data) - _END_BYTES, 0) % RECORD.itemsize
    damage.bytes += rest
    rows = np.frombuffer(data[_END_BYTES : len(data) - rest], RECORD).copy()
    end_ns = np.full(len(rows), int.from_bytes(data[:_END_BYTES], "little"), np.uint64)
    passed_ns = np.maximum(end_ns, rows["since_ns"]) - rows["since_ns"]
    state = np.minimum(rows["state"], len(ThreadState) - 1)
    rows["spent_ns"][np.arange(len(rows)), state] += passed_ns
    rows["since_ns"] += passed_ns
    return rows


def _table(rows: NDArray[np.void]) -> pa.Table:
    is_waiting = rows["state"] != ThreadState.RUNNING
    end_ns = rows["since_ns"]
    names, which = np.unique(rows["comm"], return_inverse=True)
    text = pa.array([name.decode(errors="replace") for name in names.tolist()], pa.string())
    spent = {f"{state.name.lower()}_ns": rows["spent_ns"][:, state] for state in ThreadState}
    columns = {
        "pid": rows["pid"],
        "tid": rows["tid"],
        "thread_name": pa.DictionaryArray.from_arrays(pa.array(which.reshape(-1).astype(np.int32)), text),
        "begin_ns": rows["first_ns"],
        "end_ns": end_ns,
        **spent,
        "unsampled_ns": np.where(is_waiting, end_ns - np.minimum(rows["left_ns"], end_ns), 0),
        "waits": rows["waits"],
    }
    return pa.table([columns[name] for name in THREAD_TIMES.names], names=THREAD_TIMES.names).cast(THREAD_TIMES)
