"""What the samples of the ring-buffer rung say of their callers, and how perf is asked for it."""

import os
from dataclasses import replace

from tdprof.linux.perf_abi import WALK_REGISTERS, SampleType
from tdprof.recorder.call_graph import LEAST_STACK_BYTES, MOST_STACK_BYTES
from tdprof.recorder.locked_memory import SIDE_BAND_BYTES
from tdprof.recorder.perf_event import PerfEventAttr
from tdprof.values import dataclass

SIDE_BAND_SAMPLE_TYPE = SampleType.IDENTIFIER | SampleType.TID | SampleType.TIME | SampleType.CPU
RING_SAMPLE_TYPE = SIDE_BAND_SAMPLE_TYPE | SampleType.IP | SampleType.PERIOD | SampleType.CALLCHAIN
COPIED_STACK = SampleType.REGS_USER | SampleType.STACK_USER


def ring_sample_type(*, copies_stacks: bool, has_cgroups: bool) -> SampleType:
    """What samples in the ring buffers hold."""
    found = RING_SAMPLE_TYPE | (COPIED_STACK if copies_stacks else SampleType(0))
    return found | (SampleType.CGROUP if has_cgroups else SampleType(0))


@dataclass(frozen=True, slots=True)
class ChainSource:
    """What samples in a ring buffer say of their callers.

    Attributes:
        stack_bytes: so much of the user stack is copied, with the registers that a walk begins with; 0: the kernel
            walks along frame pointers.
        copies_in_ring: for how many a ring should have room; with one that is larger than usual more is copied, with
            a smaller one less. 0: always as much.
        is_leaf_only: nothing is said.
        has_cgroups: the control group is said, too.
    """

    stack_bytes: int = 0
    copies_in_ring: int = 0
    is_leaf_only: bool = False
    has_cgroups: bool = False

    def for_rings(self, ring_bytes: int) -> "ChainSource":
        """The same with as much copied as suits rings of this size.

        What suits the usual one is larger than all of a small one, which no sample would fit into.
        """
        if not self.copies_in_ring:
            return self
        suitable = min(ring_bytes // max(self.copies_in_ring, 2) // 1024 * 1024, MOST_STACK_BYTES)
        as_usual = self.stack_bytes
        if ring_bytes < SIDE_BAND_BYTES:
            as_usual = as_usual * ring_bytes // SIDE_BAND_BYTES // 1024 * 1024
        return replace(self, stack_bytes=max(as_usual, suitable, LEAST_STACK_BYTES))

    def ask_for(self, attr: PerfEventAttr) -> None:
        """Set what an event's samples hold; ``exclude_callchain_kernel`` says already whether it samples the kernel."""
        attr.sample_type = ring_sample_type(copies_stacks=self.stack_bytes > 0, has_cgroups=self.has_cgroups)
        attr.exclude_callchain_user = self.stack_bytes > 0 or self.is_leaf_only
        attr.exclude_callchain_kernel |= self.is_leaf_only
        attr.sample_stack_user = self.stack_bytes
        if self.stack_bytes:
            attr.sample_regs_user = sum(1 << number for number in WALK_REGISTERS[os.uname().machine])


BY_FRAME_POINTERS = ChainSource()
