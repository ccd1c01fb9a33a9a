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


def tell_hidden_loss(ring: PerfRing, cpu: int, file: str, spool: SpoolWriter) -> bool:
    """Write, once nothing more comes, a record of the loss behind a ring's last ones, if it may hide one.

    Args:
        ring: drained.
        cpu: whose it is.
        file: its name in the spool.
        spool: has it.

    Returns:
        Whether it may.

    Raises:
        OSError: the spool cannot be written.
    """
    if not ring.may_hide_loss:
        return False
    identity = pe.event_id(ring.fd)  # how many were lost is not known: 0
    lost = _LOST.pack(RecordType.LOST, 0, _LOST.size, identity, 0, 0, 0, time.monotonic_ns(), cpu, 0, identity)
    write_all(spool.descriptor(file), memoryview(lost))
    return True


def tell_hidden_losses(rings: Mapping[int, PerfRing], spool: SpoolWriter) -> list[str]:
    """The same of side-band's rings; returns what to say of it."""
    full = sum(tell_hidden_loss(ring, cpu, RING_FILE.format(cpu=cpu), spool) for cpu, ring in rings.items())
    if not full:
        return []
    cpus = plural(full, "CPU", "s")
    return [f"the ring buffers of {cpus} were full in the end: what was mapped, and which threads ran, is not all told"]
