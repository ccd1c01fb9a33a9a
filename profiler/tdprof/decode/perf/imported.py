"""A perf.data recording into a capture's tables and the facts of its manifest."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from tdprof.capture.manifest import Host
from tdprof.capture.schema import PROCESSES, SAMPLE_CGROUP, SAMPLES
from tdprof.capture.tables import TableWriter
from tdprof.decode.perf.attr import Attr
from tdprof.decode.perf.auxtrace import ARM_SPE_AUXTRACE
from tdprof.decode.perf.branches import BranchTable
from tdprof.decode.perf.columns import NO_CHAIN, NOT_RECORDED, Samples, SideBand, Table
from tdprof.decode.perf.containers import cgroup_table, namespace_table
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.groups import INTERVAL_NS, ProcessChanges, SampleGroups, SampleIntervals, sorted_changes
from tdprof.decode.perf.off_cpu import OffCpuSamples
from tdprof.decode.perf.reads import ReadDeltas
from tdprof.decode.perf.used_stacks import UsedStacks, stack_identities
from tdprof.decode.perf.walked import Walk, WalkedStacks
from tdprof.decode.side_band import side_band_tables
from tdprof.decode.spe.switches import is_loss
from tdprof.linux.perf_abi import RecordType, SampleType
from tdprof.model.arrays import U64, distinct
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.native.library import load_native
from tdprof.values import dataclass

_MISC_MMAP_DATA = 1 << 13
_KEPT_TYPES = (
    RecordType.MMAP,
    RecordType.MMAP2,
    RecordType.COMM,
    RecordType.FORK,
    RecordType.EXIT,
    RecordType.THROTTLE,
    RecordType.NAMESPACES,
    RecordType.CGROUP,
)
_CHANGE_TYPES = (RecordType.MMAP, RecordType.MMAP2, RecordType.COMM)
_PRECISION = re.compile(r":[pPH]+$")  # perf's own default modifiers; the event is the same
_COMM_BYTES = 15  # of a thread's name


@dataclass(frozen=True, slots=True)
class KernelMapping:
    """Where the recorded kernel was: ``path`` is ``[kernel.kallsyms]`` and the symbol that is at ``address``."""

    path: str
    address: int
    build_id: str


@dataclass(slots=True)
class Imported:
    """What an import found.

    Attributes:
        events: those that take samples, in the order that the tables number.
        samples: number of samples in the tables.
        start_ns, end_ns: first and last sample, in the recording's clock.
        kernel_addresses: uint64, distinct and sorted: what kernel symbols are needed for.
        kernel: the recorded kernel's own mapping.
        pids: processes with mappings.
    """

    events: list[EventInfo]
    losses: Losses = field(default_factory=Losses)
    samples: int = 0
    start_ns: int = 0
    end_ns: int = 0
    kernel_addresses: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    kernel: KernelMapping | None = None
    pids: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_tables(
    data: PerfData,
    writer: TableWriter,
    progress: Callable[[int], None],
    interval_ns: int = INTERVAL_NS,
    open_walk: Callable[[pa.Table, pa.Table], Walk] | None = None,
) -> Imported:
    """Decode a recording into ``writer``'s tables.

    Reads the file twice: what processes did decides how samples may be added up, and records of one CPU may stand far
    behind those of another. Memory grows with the distinct stacks and with the side-band, not with the samples.

    Args:
        data: the recording.
        writer: where the rows go.
        progress: called with the bytes of record data done so far, up to twice ``data.size_bytes``.
        interval_ns: within which samples are added up.
        open_walk: makes what walks user stacks that samples carry as memory, out of the tables of mappings and
            processes; None: only their leaf is kept.
    """
    side_band = []
    for batch in data.batches(skip_samples=True):
        progress(data.position)
        if len(batch.side_band):
            side_band.append(_kept_side_band(batch.side_band))
    numbers, events = _numbered_events(data.attrs)
    result = Imported(events)
    mappings, processes = _write_side_band(side_band, data, writer, result)
    walked = WalkedStacks(open_walk(mappings, processes)) if open_walk else None

    deltas = _read_deltas(data)
    changes = _changes(side_band)
    has_cgroups = any(attr.sample_type & SampleType.CGROUP for attr in data.attrs)
    stacks = UsedStacks(walked)
    groups = SampleGroups(SampleIntervals(numbers, changes, interval_ns))
    tables = _SampleTables(groups, stacks, writer, has_cgroups=has_cgroups)
    branches = BranchTable(data.attrs, numbers, changes, writer, data.size_bytes)
    off_cpu = OffCpuSamples(data.attrs, mappings, processes)
    lost = _LostRecords()
    first_ns, last_ns = 2**64 - 1, 0
    for batch in data.batches(copy=False, threads=len(os.sched_getaffinity(0))):
        progress(data.size_bytes + data.position)
        lost.add(batch.side_band)
        branches.add(batch.samples, batch.branches)
        if walked:
            walked.replace(batch.samples, batch.copies)
        off_cpu.correct(batch.samples)
        samples = deltas.expand(batch.samples, batch.reads)
        if len(samples):
            first_ns = min(first_ns, int(samples.time_ns.min()))
            last_ns = max(last_ns, int(samples.time_ns.max()))
        tables.add(samples)
    tables.finish()
    result.samples = tables.samples
    if last_ns:
        result.start_ns, result.end_ns = first_ns, last_ns
    result.kernel_addresses = distinct(np.concatenate([stacks.write(data.chains(), writer), branches.finish()]))
    result.losses = _losses(data, lost, result.losses.throttled, deltas.unknown_ids, branches.unknown_events)
    result.notes += [*branches.notes, *_notes(data, result, lost.filtered)]
    return result


def _read_deltas(data: PerfData) -> ReadDeltas:
    """What makes differences of counter values; of those that the kernel wrote last first it has all beforehand."""
    reads = [attr for attr in data.attrs if attr.sample_type & SampleType.READ]
    is_backward = any(attr.has_flag("write_backward") for attr in reads)
    backward = np.concatenate([batch.reads for batch in data.batches()]) if is_backward else None
    # Of an inherited event it is the count of the sampled thread alone (Linux 6.12).
    return ReadDeltas(per_thread=any(attr.has_flag("inherit") for attr in reads), backward=backward)


def host_of(data: PerfData) -> Host:
    """The recorded machine, as far as the file says."""
    features = data.features
    midr: dict[str, str] = {}
    if data.auxtrace_info is not None:
        midr = {str(cpu): f"{spe.midr:#018x}" for cpu, spe in data.auxtrace_info.cpus.items()}
    if not midr and features.arch in ("aarch64", "arm64") and features.cpuid:
        midr = {"0": features.cpuid}
    return Host(
        hostname=features.hostname,
        machine=features.arch,
        kernel=features.osrelease,
        boot_id="",
        cpu_model=features.cpudesc,
        cpus_online=features.cpus_online,
        page_bytes=0,
        midr_el1=midr,
    )


def is_system_wide(data: PerfData) -> bool:
    """Whether CPUs were recorded. An ``-a`` may be the recorded command's own, whose events begin at its exec."""
    is_of_command = any(attr.has_flag("enable_on_exec") for attr in data.attrs)
    return not is_of_command and bool({"-a", "--all-cpus", "-C", "--cpu"} & set(data.features.cmdline))


def start_realtime_ns(data: PerfData, start_ns: int) -> int:
    """Wall clock at a time of the recording; 0 = unknown (perf stores it for ``perf record -k`` only)."""
    clock = data.features.clock_data
    if clock is None or not any(attr.clockid == clock.clockid for attr in data.attrs):
        return 0
    return max(0, clock.wall_clock_ns + start_ns - clock.clockid_time_ns)


def _numbered_events(attrs: list[Attr]) -> tuple[list[int], list[EventInfo]]:
    """The capture's number of each event of the file, and its events; dummies only carry side-band."""
    numbers: list[int] = []
    events: list[EventInfo] = []
    for attr in attrs:
        if attr.is_dummy and len(attrs) > 1:
            numbers.append(NOT_RECORDED)
            continue
        numbers.append(len(events))
        rate = {"frequency_hz" if attr.is_frequency else "period": 0 if attr.is_off_cpu else attr.sample_period}
        name = _PRECISION.sub("", attr.name)
        events.append(EventInfo(name, Unit.NANOSECONDS if attr.is_clock else Unit.COUNT, **rate))
    return numbers, events


def _kept_side_band(batch: SideBand) -> SideBand:
    """Without what a capture has no table for: context switches alone can outnumber the samples."""
    rows = batch.rows[np.isin(batch.rows["type"], _KEPT_TYPES)]
    is_mapping = np.isin(rows["type"], (RecordType.MMAP, RecordType.MMAP2))
    return SideBand(rows[~(is_mapping & (rows["misc"] & _MISC_MMAP_DATA != 0))], batch.names if len(rows) else b"")


def _write_side_band(
    batches: list[SideBand], data: PerfData, writer: TableWriter, result: Imported
) -> tuple[pa.Table, pa.Table]:
    """Write what processes did; returns the tables of mappings and processes."""
    tables = side_band_tables(batches)
    result.losses = replace(result.losses, throttled=tables.throttled)
    is_kernel = pa.compute.equal(tables.mappings["pid"], NOT_RECORDED)
    for row in tables.mappings.filter(is_kernel).to_pylist():
        if row["path"].startswith("[kernel.kallsyms]") and result.kernel is None:
            # The file offset is the symbol's address; the mapping itself may be cut to begin at 0.
            result.kernel = KernelMapping(row["path"], row["file_offset"], row["build_id"] or "")
    mappings = tables.mappings.filter(pa.compute.invert(is_kernel))
    result.pids = pa.compute.unique(mappings["pid"]).to_pylist()
    mappings = _with_build_ids(mappings, data)
    writer.write("mappings", mappings)
    # The idle task of every CPU is never announced; perf, too, knows its name.
    idle = {"time_ns": 0, "kind": "name", "pid": 0, "tid": 0, "name": "swapper"}
    writer.write("processes", pa.Table.from_pylist([idle], PROCESSES))
    writer.write("processes", tables.processes)
    cgroups = cgroup_table(batches)
    if len(cgroups):
        writer.write("cgroups", cgroups)
    namespaces = namespace_table(batches, _recorders(tables.processes, data.features.cmdline))
    if len(namespaces):
        writer.write("namespaces", namespaces)
    return mappings, tables.processes


def _recorders(processes: pa.Table, command: Sequence[str]) -> set[int]:
    """Processes that were perf before the recording began: itself, or its child that was to become the command."""
    names = {"perf", "perf-exec", *(word.rpartition("/")[2][:_COMM_BYTES] for word in command[:1])}
    before = processes.filter(pa.compute.equal(processes["time_ns"], pa.scalar(0, pa.uint64())))
    return {row["pid"] for row in before.select(["pid", "name"]).to_pylist() if row["name"] in names}


def _with_build_ids(mappings: pa.Table, data: PerfData) -> pa.Table:
    """Build-ids from the file's own list, where the kernel did not send them with the mapping."""
    build_ids = data.features.build_ids
    if not build_ids:
        return mappings
    paths = mappings["path"].combine_chunks()
    of_path = pa.array([build_ids.get(path) for path in paths.dictionary.to_pylist()], pa.string())
    known = pa.compute.coalesce(mappings["build_id"].cast(pa.string()), of_path.take(paths.indices))
    return mappings.set_column(
        mappings.column_names.index("build_id"), "build_id", pa.chunked_array(known).dictionary_encode()
    )


def _changes(batches: list[SideBand]) -> ProcessChanges:
    rows = [batch.rows[np.isin(batch.rows["type"], _CHANGE_TYPES)] for batch in batches]
    pid = np.concatenate([row["pid"] for row in rows]) if rows else np.empty(0, np.uint32)
    time_ns = np.concatenate([row["time_ns"] for row in rows]) if rows else np.empty(0, np.uint64)
    return sorted_changes(pid, time_ns)


class _SampleTables:
    """Adds samples up and writes the rows.

    Attributes:
        samples: how many were written.
    """

    def __init__(self, groups: SampleGroups, stacks: UsedStacks, writer: TableWriter, *, has_cgroups: bool) -> None:
        self.samples = 0
        self._stacks = stacks
        self._groups = groups
        self._writer = writer
        self._schema = SAMPLES.append(SAMPLE_CGROUP) if has_cgroups else SAMPLES

    def add(self, samples: Samples) -> None:
        for rows in self._groups.add(samples):
            self._write(rows)

    def finish(self) -> None:
        for rows in self._groups.flush():
            self._write(rows)

    def _write(self, rows: Table) -> None:
        self._stacks.use(rows)
        self.samples += int(rows["count"].sum())
        names = ("time_ns", "event", "pid", "tid", "count", "weight")
        columns = {name: np.ascontiguousarray(rows[name]) for name in names}
        for name, chain in (("user_stack", "user_chain"), ("kernel_stack", "kernel_chain")):
            numbers = np.ascontiguousarray(rows[chain])
            columns[name] = pa.array(stack_identities(numbers), mask=numbers == NO_CHAIN)
        columns["thread_name"] = pa.nulls(len(rows), pa.string()).dictionary_encode()
        if SAMPLE_CGROUP in self._schema:
            columns["cgroup"] = pa.array(np.ascontiguousarray(rows["cgroup"]), mask=rows["cgroup"] == 0)
        table = pa.table([columns[name] for name in self._schema.names], names=self._schema.names)
        self._writer.write("samples", table.cast(self._schema))


class _LostRecords:
    """What the kernel says a full buffer cost. LOST and LOST_SAMPLES count the same losses in two ways.

    Attributes:
        filtered: samples that were not wanted, which perf counts in the same records.
    """

    def __init__(self) -> None:
        self.filtered = 0
        self._by_type = dict.fromkeys((RecordType.LOST, RecordType.LOST_SAMPLES), 0)

    def add(self, batch: SideBand) -> None:
        if not len(batch):
            return
        rows = batch.rows[np.isin(batch.rows["type"], tuple(self._by_type))]
        is_lost = is_loss(rows)
        self.filtered += int(rows["value"][~is_lost].sum())
        for type_ in self._by_type:
            self._by_type[type_] += int(rows["value"][is_lost & (rows["type"] == type_)].sum())

    @property
    def count(self) -> int:
        return max(self._by_type.values())


def _losses(data: PerfData, lost: _LostRecords, throttled: int, unknown_read_ids: int, unknown_branches: int) -> Losses:
    records, file = data.record_losses, data.losses
    reasons = {
        "stretches of damaged perf records": records.malformed,
        "perf records of unknown type": records.unknown_types + sum(file.unknown_tool_records.values()),
        "samples of an event that the file does not describe": records.unknown_ids,
        "counter values of an event that the file does not describe": unknown_read_ids,
        "branch stack entries of an event that the file does not describe": unknown_branches,
        "frames of virtual machine guests": records.guest_frames,
        "frames in a context that is not known": records.unknown_contexts,
        "user call chains that the kernel put off": records.deferred_chains,
        "compressed bytes that do not decompress": file.compressed_bytes,
        "AUX buffers cut off by the end of the file": file.truncated_aux_buffers,
        "bytes missing at the end of the file": file.cut_bytes,
    }
    return Losses(
        samples_ring_full=lost.count,
        throttled=throttled,
        bytes_damaged=records.malformed_bytes + file.unreadable_bytes,
        by_reason={reason: count for reason, count in reasons.items() if count},
    )


def _notes(data: PerfData, result: Imported, filtered: int) -> Iterator[str]:
    """What a user should know before trusting the numbers."""
    if filtered:
        yield f"{filtered:,} samples were left out as they were recorded (perf record --filter)"
    if any(not attr.sample_type & SampleType.PERIOD and attr.is_frequency and not attr.is_dummy for attr in data.attrs):
        yield "samples carry no period and were taken at a frequency: their weights are unknown and count as 0"
    if any(attr.sample_type & SampleType.STACK_USER for attr in data.attrs) and not data.has_copies:
        yield "user stacks were recorded as raw memory (--call-graph dwarf): only their leaf is imported, " + (
            "since the compiled library was not built"
            if load_native() is None
            else "since such a machine's stacks are not walked, or their registers were not recorded"
        )
    if data.features.unreadable:
        yield f"header sections that are damaged or cut off were left out: {', '.join(data.features.unreadable)}"
    is_spe = data.auxtrace_info is not None and data.auxtrace_info.type == ARM_SPE_AUXTRACE
    if data.aux_buffers and not is_spe:
        yield f"the file holds {len(data.aux_buffers)} AUX buffers of a tracer other than SPE: they are left out"
    if not all(attr.sample_type & SampleType.TIME for attr in data.attrs):
        yield "samples carry no time: mappings that changed while recording cannot be told apart"
    if not result.samples:
        yield "the file holds no samples"
