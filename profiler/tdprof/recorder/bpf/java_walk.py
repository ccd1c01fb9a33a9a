"""Has the BPF programs name Java methods, interpreted and compiled, once a JVM is met. Layouts: bpf/java_frames.h."""

from collections.abc import Mapping

from tdprof.capture.spool import METHODS_FILE, SpoolWriter
from tdprof.recorder.ring import BpfRing

_RING_BYTES = 1 << 20  # drained when half of it is taken
_METHOD_SLOTS = 1 << 14  # METHOD_SLOTS
MAPS = {"methods": _RING_BYTES, "sent_methods": _METHOD_SLOTS}
MAPS_OF_WALK = {"sent_java_codes": _METHOD_SLOTS}
"""Which the walk of compiled code reads, too."""


class JavaWalk:
    """What the programs send of these methods. Close it.

    Args:
        maps: descriptors of ``MAPS``.
    """

    def __init__(self, maps: Mapping[str, int]) -> None:
        self._ring = BpfRing(maps["methods"], _RING_BYTES)

    def is_filling(self) -> bool:
        """Whether half of the ring is taken."""
        return self._ring.pending > self._ring.data_bytes // 2

    @property
    def pending_bytes(self) -> int:
        """What the ring holds."""
        return self._ring.pending

    @property
    def produced(self) -> int:
        """How far the programs have written the ring; once they are done, `drain` may go so far."""
        return self._ring.produced

    def drain(self, spool: SpoolWriter, up_to: int) -> None:
        """Append what the ring holds to the spool, up to where ``produced`` said."""
        if up_to:
            self._ring.drain(spool.descriptor(METHODS_FILE), up_to)

    def close(self) -> None:
        """Give the ring's memory back."""
        self._ring.__exit__()
