"""How large the kernel's ring buffers may be: one budget for all of a recording's, on all of its CPUs.

``perf_mmap`` (kernel/events/core.c) lets each user lock ``kernel.perf_event_mlock_kb`` for every CPU that is up, then
what ``ulimit -l`` allows each process, and refuses the next buffer after that.
"""

import mmap
import resource
from dataclasses import fields, replace

from tdprof.errors import TdprofError
from tdprof.recorder.capabilities import CAP_IPC_LOCK, effective_capabilities
from tdprof.recorder.host import perf_event_paranoid, read_setting
from tdprof.text import plural
from tdprof.values import dataclass

MLOCK_KB = "/proc/sys/kernel/perf_event_mlock_kb"
SIDE_BAND_BYTES = 512 << 10  # of a CPU's ring, as far as that may be locked
# What a CPU's ring takes of samples; of those with the largest copies of stacks, in an eighth of a second at 2,000 a
# second; and what all of them may lock.
_MOST_SAMPLES_BYTES, _MOST_COPIES_BYTES, _MOST_BYTES_IN_ALL = 8 << 20, 16 << 20, 64 << 20


class RingRefusedError(TdprofError):
    """The kernel lets us lock no more memory for ring buffers."""


@dataclass(frozen=True, slots=True)
class RingSizes:
    """Bytes of data of one CPU's buffers, powers of two of pages; 0: there is no such buffer.

    Attributes:
        aux: what SPE writes into.
        side_band: side-band records, and samples on the ring-buffer rung.
        spe: records of what SPE wrote, one for each time it hands some over; on the ring-buffer rung of switches, too.
    """

    # In the order in which they are shrunk where they are equally large.
    aux: int
    side_band: int
    spe: int

    @classmethod
    def wanted(cls, *, has_spe: bool) -> "RingSizes":
        """What loses nothing on a busy machine: SPE's is enough for a tenth of a second of dense sampling."""
        return cls(aux=4 << 20 if has_spe else 0, side_band=SIDE_BAND_BYTES, spe=128 << 10 if has_spe else 0)

    @property
    def wakeup_bytes(self) -> int:
        """How much of a ring of samples is filled when it is drained; the rest is for a reader who comes late."""
        return min(self.side_band, SIDE_BAND_BYTES) // 4

    @property
    def locked_bytes(self) -> int:
        """What a CPU's buffers lock; each ring of records has a header page."""
        return self.aux + sum(size + mmap.PAGESIZE for size in (self.side_band, self.spe) if size)

    def with_room_for_switches(self, cpus: int, budget: int | None) -> "RingSizes":
        """With as much in SPE's rings of records as side-band has, if the buffers of so many CPUs fit then."""
        larger = replace(self, spe=max(self.spe, SIDE_BAND_BYTES))
        return self if budget is not None and larger.locked_bytes * cpus > budget else larger

    def with_room_for_samples(self, cpus: int, budget: int | None, *, has_copies: bool) -> "RingSizes":
        """With more of the side-band ring, as far as the buffers of so many CPUs fit.

        A copied stack is some kilobytes: what is plenty for side-band holds a few dozen, and a reader that waits for a
        processor as long as those take loses the next.
        """
        sizes = self
        most = _MOST_COPIES_BYTES if has_copies else _MOST_SAMPLES_BYTES
        while sizes.side_band < min(most, _MOST_BYTES_IN_ALL // cpus):
            larger = replace(sizes, side_band=2 * sizes.side_band)
            if budget is not None and larger.locked_bytes * cpus > budget:
                break
            sizes = larger
        return sizes

    def smaller(self) -> "RingSizes | None":
        """With the largest of them halved; None if all are as small as can be."""
        least = {"aux": 2 * mmap.PAGESIZE, "side_band": mmap.PAGESIZE, "spe": mmap.PAGESIZE}
        sizes = {field.name: getattr(self, field.name) for field in fields(self)}
        can = [name for name, size in sizes.items() if size > least[name]]
        if not can:
            return None
        largest = max(can, key=lambda name: sizes[name])
        return replace(self, **{largest: sizes[largest] // 2})


def budget_bytes(cpus_online: int, mlock_kb: int | None, memlock_bytes: int, *, is_free: bool) -> int | None:
    """What this user's ring buffers may lock in all; None for no limit.

    Args:
        cpus_online: CPUs that are up.
        mlock_kb: kernel.perf_event_mlock_kb; None if it cannot be read.
        memlock_bytes: the soft RLIMIT_MEMLOCK; resource.RLIM_INFINITY for none.
        is_free: CAP_IPC_LOCK, or a kernel.perf_event_paranoid below 0.
    """
    if is_free or memlock_bytes == resource.RLIM_INFINITY or mlock_kb is None:
        return None
    pages = (mlock_kb << 10) // mmap.PAGESIZE * cpus_online + memlock_bytes // mmap.PAGESIZE
    return pages * mmap.PAGESIZE


def locked_memory_budget(cpus_online: int) -> int | None:
    """`budget_bytes` of this process on this machine."""
    paranoid = perf_event_paranoid()
    is_free = bool(effective_capabilities() >> CAP_IPC_LOCK & 1) or (paranoid is not None and paranoid < 0)
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return budget_bytes(cpus_online, read_setting(MLOCK_KB), limit, is_free=is_free)


def fit(sizes: RingSizes, cpus: int, budget: int | None) -> RingSizes:
    """The sizes, shrunk until the buffers of so many CPUs fit; the smallest possible if nothing fits."""
    while budget is not None and sizes.locked_bytes * cpus > budget:
        less = sizes.smaller()
        if less is None:
            break
        sizes = less
    return sizes


def shrunk_note(wanted: RingSizes, got: RingSizes, cpus: int) -> str:
    """What to say of buffers that are smaller than wanted; empty if none is."""
    if all(getattr(got, field.name) >= getattr(wanted, field.name) for field in fields(wanted)):
        return ""
    return (
        f"locked memory is short: {got.locked_bytes >> 10} kB of ring buffers on each of {plural(cpus, 'CPU', 's')} "
        f"instead of {wanted.locked_bytes >> 10}, which lose records sooner ({more_memory(wanted)})"
    )


def more_memory(wanted: RingSizes) -> str:
    """How to be allowed that much."""
    allowed_kb, wanted_kb = read_setting(MLOCK_KB) or 0, wanted.locked_bytes >> 10
    if allowed_kb >= wanted_kb:  # this user's other programs have it
        wanted_kb += allowed_kb
    return f"sudo sysctl kernel.perf_event_mlock_kb={wanted_kb}, or raise ulimit -l"
