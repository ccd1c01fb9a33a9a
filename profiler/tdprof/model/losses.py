"""What a capture does not hold: samples and records that were lost, by how. Loads no NumPy, for a recorder's sake."""

from dataclasses import field

from tdprof.values import dataclass

# Of `Losses.by_reason`: what the BPF programs counted beyond what was drained, and no other loss accounts for.
NEVER_REACHED = "samples counted in the kernel that never reached the capture"

NOT_FOLLOWED = "threads that were started when too many ran, of which and of whose children nothing was sampled"

NOT_TIMED = "threads of which it is not known where their time went, for want of room"
WAITS_NOT_SAMPLED = "samples of time that new threads waited for their first CPU"
WAKERS_NOT_KEPT = "sleeps of which it is not known who ended them, for want of room"


@dataclass(frozen=True, slots=True)
class Losses:
    """Samples and records that a capture does not hold, by the way they went missing. Each is a count."""

    samples_map_full: int = 0  # the kernel-side table had no room
    # PERF_RECORD_LOST(_SAMPLES) on a sampling ring buffer; side-band records that shared it are counted with them
    samples_ring_full: int = 0
    samples_outside_namespace: int = 0  # the process is not in the recorder's pid namespace
    user_stacks_unreadable: int = 0  # the sample is counted, with no user call chain
    kernel_stacks_unreadable: int = 0
    stack_id_collisions: int = 0  # two stacks with one hash: the sample is counted, with no call chain
    stacks_truncated: int = 0  # of the kernel's walk along frame pointers, which may also go in circles
    side_band_records_lost: int = 0
    throttled: int = 0  # times the kernel stopped an event for interrupting too often
    bytes_damaged: int = 0  # of the capture's own files, when read
    by_reason: dict[str, int] = field(default_factory=dict)  # others, named by their source
