"""The columns that perf's records become, and what makes them: the vocabulary shared by both decoders."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tdprof.model.arrays import I32, U16, U32, U64
from tdprof.values import dataclass

Table = npt.NDArray[np.void]
Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

NOT_RECORDED = 0xFFFFFFFF  # pid, tid, cpu of an event that does not record them; event of a record with an unknown id
CPU_NUMBERS = 1 << 31  # the kernel's are ints: what is not below is no CPU's
NO_CHAIN = -1


@dataclass(frozen=True, slots=True)
class Samples:
    """``PERF_RECORD_SAMPLE`` as columns of equal length, in file order.

    Attributes:
        time_ns: in the event's clock; 0 if the event does not record it.
        ip: sampled address; 0 if not recorded.
        period: events the sample stands for; 0 = unknown.
        cgroup: id of the thread's control group; 0 = not recorded.
        pid, tid, cpu: ``NOT_RECORDED`` where the event does not record them.
        event: index of the layout; ``NOT_RECORDED`` for an id of no layout.
        user_chain, kernel_chain: index into ``Chains``, ``NO_CHAIN`` = none. Below that: see ``walked``.
        misc: ``perf_event_header.misc`` (CPU mode and exact-ip flag).
    """

    time_ns: U64
    ip: U64
    period: U64
    cgroup: U64
    pid: U32
    tid: U32
    cpu: U32
    event: U32
    user_chain: I32
    kernel_chain: I32
    misc: U16

    def __len__(self) -> int:
        return len(self.time_ns)


SAMPLE_COLUMNS: dict[str, type[np.generic]] = {
    "time_ns": np.uint64,
    "ip": np.uint64,
    "period": np.uint64,
    "cgroup": np.uint64,
    "pid": np.uint32,
    "tid": np.uint32,
    "cpu": np.uint32,
    "event": np.uint32,
    "user_chain": np.int32,
    "kernel_chain": np.int32,
    "misc": np.uint16,
}


@dataclass(frozen=True, slots=True)
class Copies:
    """User stacks that samples carry as memory, with the registers that a walk begins with; columns of n.

    Attributes:
        sample: uint64[n], row of the sample.
        registers: uint64[n, words], in the order of ``unwind.walk.CopiedStacks``; 0 where not recorded.
        stack_start: uint64[n], where in ``stack`` the copy lies.
        stack_bytes: uint32[n], how much the kernel could read.
        stack: uint8, all copies.
        stack_pages: as of ``unwind.walk.CopiedStacks``.
    """

    sample: U64
    registers: U64
    stack_start: U64
    stack_bytes: U32
    stack: npt.NDArray[np.uint8]
    stack_pages: U64 | None = None

    def __len__(self) -> int:
        return len(self.sample)


@dataclass(frozen=True, slots=True)
class Chains:
    """Distinct call chains, leaf first: chain ``i`` is ``frames[offsets[i]:offsets[i + 1]]``."""

    frames: U64
    offsets: U64

    def __len__(self) -> int:
        return len(self.offsets) - 1


# Counter values out of PERF_SAMPLE_READ (sample >= 0: its row in the batch) and PERF_RECORD_READ (sample = -1).
READ = np.dtype(
    [
        ("time_ns", "u8"),
        ("id", "u8"),
        ("value", "u8"),
        ("enabled_ns", "u8"),
        ("running_ns", "u8"),
        ("lost", "u8"),
        ("sample", "i8"),
        ("event", "u4"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("pad", "u4"),
    ]
)

# Branch stack entries, newest first per sample; `flags` in the bit order of a little-endian struct perf_branch_entry.
BRANCH = np.dtype([("from", "u8"), ("to", "u8"), ("flags", "u8"), ("sample", "u8")])


def little_endian_branch_flags(flags: U64) -> U64:
    """The bitfield of ``struct perf_branch_entry`` written by a big-endian machine, whose fields start at the top bit.

    From the lowest bit: mispred 1, predicted 1, in_tx 1, abort 1, cycles 16, type 4, spec 2, new_type 4, priv 3.
    """
    moved = np.zeros_like(flags)
    low = 0
    for width in (1, 1, 1, 1, 16, 4, 2, 4, 3):
        field_value = (flags >> np.uint64(64 - low - width)) & np.uint64((1 << width) - 1)
        moved |= field_value << np.uint64(low)
        low += width
    return moved


# All other records. Unused numbers are 0; pid, tid, ppid, ptid, cpu unused are NOT_RECORDED. `name_*` is a slice of the
# names. time_ns is 0 in what the perf tool makes up about programs that ran before.
#   MMAP, MMAP2        pid tid addr len pgoff (ino... or build_id) prot flags name; misc: MMAP_DATA, MMAP_BUILD_ID
#   COMM               pid tid name; misc: COMM_EXEC
#   FORK, EXIT         pid ppid tid ptid
#   LOST, LOST_SAMPLES value = lost; LOST: id
#   THROTTLE...        id
#   SWITCH             pid tid; misc: SWITCH_OUT
#   SWITCH_CPU_WIDE    also ppid, ptid = next (going out) or previous (coming in)
#   AUX                addr = aux_offset, len = aux_size, flags
#   ITRACE_START       pid tid
#   NAMESPACES         pid tid value = count; name: that many (u64 dev, u64 inode), native order
#   KSYMBOL            addr len value = ksym_type, flags, name
#   BPF_EVENT          flags = perf_bpf_event_type, value = program id, name: 8-byte tag
#   CGROUP             value = cgroup id, name = path
#   TEXT_POKE          addr value = old bytes, len = new bytes, name: both
#   AUX_OUTPUT_HW_ID   value = hardware id
SIDE_BAND = np.dtype(
    [
        ("time_ns", "u8"),
        ("addr", "u8"),
        ("len", "u8"),
        ("pgoff", "u8"),
        ("ino", "u8"),
        ("ino_generation", "u8"),
        ("id", "u8"),
        ("value", "u8"),
        ("flags", "u8"),
        ("name_offset", "u8"),
        ("name_bytes", "u4"),
        ("type", "u4"),
        ("pid", "u4"),
        ("tid", "u4"),
        ("ppid", "u4"),
        ("ptid", "u4"),
        ("cpu", "u4"),
        ("maj", "u4"),
        ("min", "u4"),
        ("prot", "u4"),
        ("event", "u4"),
        ("misc", "u2"),
        ("build_id_bytes", "u1"),
        ("pad", "u1"),
        ("build_id", "u1", (20,)),
        ("pad2", "u1", (4,)),
    ]
)


@dataclass(frozen=True, slots=True)
class SideBand:
    """Side-band records in file order and the bytes that their names are slices of."""

    rows: Table
    names: bytes

    def name(self, row: Table) -> bytes:
        """The name, path or raw bytes of one of ``rows``."""
        start = int(row["name_offset"])
        return self.names[start : start + int(row["name_bytes"])]

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class DamagedRecords:
    """A stretch that is no valid record: its offset in the stream and how many bytes were given up."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RecordLosses:
    """What a stream held that did not become rows; every count starts at the decoder's creation.

    Attributes:
        by_type: records seen of each type, also of unknown types.
        unknown_types: records of a type that is not known, skipped.
        malformed, malformed_bytes: stretches that are no valid record, and their size.
        unknown_ids: samples of no known event.
        guest_frames: frames of a virtual machine's guest, left out of the chains.
        unknown_contexts: frames after a marker that is not known, left out.
        deferred_chains: user chains that the kernel put off until the return to user space.
        damage: the first of ``malformed``.
    """

    by_type: dict[int, int]
    unknown_types: int = 0
    malformed: int = 0
    malformed_bytes: int = 0
    unknown_ids: int = 0
    guest_frames: int = 0
    unknown_contexts: int = 0
    deferred_chains: int = 0
    damage: tuple[DamagedRecords, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Batch:
    """What one stretch of the file became. Row numbers in the others refer to ``samples``.

    ``copies`` are to be used until the next batch is asked for.
    """

    samples: Samples
    reads: Table
    branches: Table
    copies: Copies
    side_band: SideBand


class RecordStream(Protocol):
    """A decoder of one stream of records: ``feed`` bytes, then take what they became."""

    def feed(self, data: Buffer, *, final: bool = False) -> int:
        """Decode records and return how many bytes are done with; feed the rest again, with more behind it.

        Stops in front of a record of the perf tool (type 64 and higher, only in perf.data): then at least a header is
        left over and ``tool_record`` is true. ``final``: no more data follows.
        """
        ...

    @property
    def tool_record(self) -> bool:
        """Whether the last ``feed`` stopped in front of a record of the perf tool."""
        ...

    def skip(self, size_bytes: int) -> None:
        """Count bytes that the caller dealt with itself, so that offsets stay right."""
        ...

    def take_samples(self, *, copy: bool = True) -> Samples:
        """The samples since the last call. Take reads and branches at the same time: they number the same batch.

        Args:
            copy: False where the columns need to stay only until the samples after the next are taken.
        """
        ...

    def take_reads(self) -> Table:
        """Rows of ``READ`` since the last call."""
        ...

    def take_branches(self) -> Table:
        """Rows of ``BRANCH`` since the last call."""
        ...

    def take_copies(self) -> Copies:
        """The user stacks that samples carried since the last call, to be used until more is fed."""
        ...

    def take_side_band(self) -> SideBand:
        """The side-band records since the last call."""
        ...

    def chains(self, first: int = 0) -> Chains:
        """The distinct call chains from number ``first`` on; do not write to them."""
        ...

    def forget_chains(self) -> None:
        """Start a new table of chains, numbered from 0; take the samples of the old one before."""
        ...

    @property
    def losses(self) -> RecordLosses:
        """What did not become rows so far."""
        ...


def take_batch(stream: RecordStream, *, copy: bool) -> Batch:
    """All that was decoded since the last time; ``copy`` as of `RecordStream.take_samples`."""
    return Batch(
        stream.take_samples(copy=copy),
        stream.take_reads(),
        stream.take_branches(),
        stream.take_copies(),
        stream.take_side_band(),
    )
