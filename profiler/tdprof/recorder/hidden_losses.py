"""Losses that no record tells, since none came after them.

The kernel writes how many records it had no room for with the next one that it has room for. Without that, who ran when
a ring became full would seem to have run until the end.
"""

import struct
import time
from collections.abc import Mapping

from tdprof.capture.spool import RING_FILE, SpoolWriter
from tdprof.linux.perf_abi import RecordType
from tdprof.recorder import perf_event as pe
from tdprof.recorder.ring import PerfRing, write_all
from tdprof.text import plural

# PERF_RECORD_LOST (linux/perf_event.h) of an event of `SIDE_BAND_SAMPLE_TYPE`: header, id, lost; then of its
# `struct sample_id` pid, tid, time, CPU, reserved, identifier.
_LOST = struct.Struct("=IHHQQIIQIIQ")


def tell_hidden_losses(rings: Mapping[int, PerfRing], spool: SpoolWriter) -> list[str]:
    """Write, once nothing more comes, a record of the loss behind the last ones of each ring that may hide one.

    Args:
        rings: of each CPU, drained.
        spool: has their files.

    Returns:
        What to say of it.

    Raises:
        OSError: the spool cannot be written.
    """
    full = [cpu for cpu, ring in rings.items() if ring.may_hide_loss]
    for cpu in full:
        identity = pe.event_id(rings[cpu].fd)  # how many were lost is not known: 0
        lost = _LOST.pack(RecordType.LOST, 0, _LOST.size, identity, 0, 0, 0, time.monotonic_ns(), cpu, 0, identity)
        write_all(spool.descriptor(RING_FILE.format(cpu=cpu)), memoryview(lost))
    if not full:
        return []
    cpus = plural(len(full), "CPU", "s")
    return [f"the ring buffers of {cpus} were full in the end: what was mapped, and which threads ran, is not all told"]
