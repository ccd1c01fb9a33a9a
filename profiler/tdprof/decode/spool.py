"""A recording's spool into the capture's tables, batch by batch."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tdprof.capture.manifest import Manifest, Rung
from tdprof.capture.named_code import MethodCode
from tdprof.capture.schema import SPE_SPANS
from tdprof.capture.spool import (
    CGROUPS_FILE,
    COPIES_FILE,
    INITIAL_FILE,
    PYTHON_FILE,
    REPLACED_FILE,
    ROWS_FILE,
    SPE_RING_FILE,
    STACKS_FILE,
)
from tdprof.capture.tables import TableWriter
from tdprof.decode.bpf_aggregates import read_rows, read_stacks
from tdprof.decode.bpf_copies import walk_spooled
from tdprof.decode.java_frames import JavaFrames
from tdprof.decode.perf.columns import Copies, RecordLosses, RecordStream, Samples, SideBand, Table
from tdprof.decode.perf.containers import named_cgroups
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.records import open_record_stream
from tdprof.decode.perf.walked import Walk, WalkedStacks
from tdprof.decode.python.merged import PythonFrames
from tdprof.decode.replaced_files import ReplacedFiles
from tdprof.decode.side_band import (
    SideBandTables,
    initial_tables,
    lost_records,
    of_processes,
    side_band_tables,
    spe_spans,
)
from tdprof.decode.spe.switches import is_switch, switch_rows, switches_of, switches_table, without_switches
from tdprof.decode.spooled_files import SpoolDamage, damage_by_sums, spooled_pieces
from tdprof.decode.spooled_rows import SampleRows, StackRows
from tdprof.decode.thread_times import read_thread_times, sampled_off_cpu_ns
from tdprof.decode.wakers import Wakings
from tdprof.model.arrays import U64
from tdprof.model.duty import SPE
from tdprof.model.events import Unit
from tdprof.model.losses import NEVER_REACHED, Losses
from tdprof.text import plural
from tdprof.values import dataclass

_CHUNK_BYTES = 16 << 20
_SPE_RING = re.compile(SPE_RING_FILE.format(cpu="[0-9]+", number="([0-9]{1,9})").replace(".", "[.]"))
# Each task that is started costs up to one sample: of so few they matter no more than chance does.
_MOST_STARTED = 0.05
_MOST_NAMES = 3

_RingBatch: TypeAlias = tuple[Samples, SideBand, Copies]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a spool held.

    Attributes:
        losses: the manifest's, with what only decoding can tell.
        samples: number of samples in the tables.
        kernel_addresses: uint64, distinct and sorted: what kernel symbols are needed for.
        end_ns: time of the last sample or interval, 0 if there is none.
        notes: what the user should know of it, a sentence each.
        off_cpu_ns: time off a CPU that samples stand for, as it was added up exactly; None: none was recorded.
        java_code: by process what a JVM's methods were compiled to, as far as it was sampled.
    """

    losses: Losses
    samples: int
    kernel_addresses: U64
    end_ns: int
    notes: list[str]
    off_cpu_ns: int | None
    java_code: dict[int, list[MethodCode]]


def write_tables(
    spool: Path,
    manifest: Manifest,
    writer: TableWriter,
    layouts: list[RecordLayout],
    open_walk: Callable[[pa.Table, pa.Table], Walk],
) -> Decoded:
    """Decode a capture's spool into ``writer``'s tables.

    Args:
        spool: its folder, whose files are not followed where they are links.
        manifest: its manifest.
        writer: where the rows go.
        layouts: how each event's perf records are laid out, side-band events last.
        open_walk: makes what walks copied user stacks, out of the tables of mappings and processes.

    Memory grows with the distinct stacks and with the side-band, not with the samples.
    """
    damage = damage_by_sums(spool)
    python = PythonFrames(spool, damage) if (spool / PYTHON_FILE).exists() else None
    java = JavaFrames(spool, damage)
    wakings = Wakings(spool, damage) if manifest.has_wakers else None
    replaced = ReplacedFiles(spool / REPLACED_FILE, damage)
    stacks, samples = StackRows(writer, java, python), _sample_rows(manifest, replaced, wakings)
    for stack_batch in read_stacks(spool / STACKS_FILE, damage):
        stacks.add_bpf(stack_batch)
    rings = sorted(spool.glob("ring.*.perf"))
    # What samples copied is walked by what had been mapped, which is known once all side-band is read.
    has_copies = any(layout.has_copies for layout in layouts)
    decoder = open_record_stream(layouts, skip_samples=has_copies)
    spe = _write_spe_rings(spool, writer, layouts[-1:], damage)
    side_band = _write_rings(_ring_batches(rings, decoder, damage), writer, samples, manifest, spe.switches)
    if not has_copies:
        stacks.add_chains(decoder.chains(), samples)
    if manifest.followed:
        side_band = of_processes(side_band, manifest.followed)
    lived = _write_side_band(spool, manifest, writer, side_band, damage)
    _write_interpreted(writer, lived.mappings(), python, java)
    if has_copies or (spool / COPIES_FILE).exists():
        walk = open_walk(lived.mappings(), lived.processes())
        for copied_batch in walk_spooled(spool / COPIES_FILE, damage, walk, replaced):
            stacks.add_bpf(copied_batch)
        if has_copies:
            decoder = open_record_stream(layouts, keep_copies=True)
            batches = _ring_batches(rings, decoder, damage)
            _write_walked(batches, decoder, writer, samples, stacks, WalkedStacks(walk), len(manifest.events))
    off_cpu_ns = None
    if manifest.has_thread_times and (times := read_thread_times(spool, damage)) is not None:
        writer.write("thread_times", times)
        off_cpu_ns = sampled_off_cpu_ns(times)
    if wakings:
        writer.write("wakers", wakings.table(stacks.known))
    for row_batch in read_rows(spool / ROWS_FILE, damage):
        writer.write("samples", samples.of_rows(row_batch, stacks))
    losses = _losses(manifest, samples, lived.recorded, damage, decoder.losses)
    notes = [*damage.notes(), *(python.notes() if python else ()), *java.notes(), *spe.notes()]
    notes += _other_rights(manifest, lived.recorded.of_other_rights)
    notes += list(_short_lives(manifest, lived.recorded.processes, samples.count))
    return Decoded(losses, samples.count, stacks.kernel_addresses(), samples.end_ns, notes, off_cpu_ns, java.compiled())


def _write_rings(
    batches: Iterator[_RingBatch],
    writer: TableWriter,
    samples: SampleRows,
    manifest: Manifest,
    spe_switches: list[Table],
) -> list[SideBand]:
    """Write the samples in the rings, and the context switches; returns the rest of their side-band."""
    side_band, switches = [], []
    for ring_samples, ring_side_band, _ in batches:
        switches.append(switch_rows(ring_side_band.rows))
        side_band.append(without_switches(ring_side_band))
        if len(ring_samples):
            writer.write("samples", samples.of_ring(ring_samples, len(manifest.events)))
    told = next((each.windows for each in manifest.duty if each.what == SPE), None)
    if found := switches_of(spe_switches or switches, told):
        writer.write("switches", switches_table(found))
    return side_band


def _write_walked(
    batches: Iterator[_RingBatch],
    decoder: RecordStream,
    writer: TableWriter,
    samples: SampleRows,
    stacks: StackRows,
    walked: WalkedStacks,
    events: int,
) -> None:
    """Write the samples in the rings with the stacks that a walk of their copies finds."""
    for ring_samples, _, copies in batches:
        walked.replace(ring_samples, copies)
        writer.write("samples", samples.of_ring(ring_samples, events))
    stacks.add_chains(decoder.chains(), samples, has_heads=True)
    stacks.add_walked(walked)


def _sample_rows(manifest: Manifest, replaced: ReplacedFiles, wakings: Wakings | None) -> SampleRows:
    return SampleRows(
        replaced,
        has_cgroups=manifest.has_cgroups,
        has_states=manifest.has_thread_times,
        has_cpus=manifest.has_cpus,
        wakings=wakings,
    )


@dataclass(frozen=True, slots=True)
class _SpeRings:
    """What else is told beside SPE's buffers than what lies in them.

    Attributes:
        switches: `switch_rows`, where switches are told there.
        lost: how many records the kernel had no room for.
    """

    switches: list[Table]
    lost: int

    def notes(self) -> Iterator[str]:
        """What to say of what was lost."""
        if self.lost:
            yield (
                f"{plural(self.lost, 'record', 's')} beside SPE's buffers were lost: what SPE wrote is here, but not "
                "all that is told of it (truncated, collided, whose it is)"
            )


def _write_spe_rings(spool: Path, writer: TableWriter, layouts: list[RecordLayout], damage: SpoolDamage) -> _SpeRings:
    """Write ``spe_spans``."""
    decoder = open_record_stream(layouts)
    spans, switches, lost = [SPE_SPANS.empty_table()], list[Table](), 0
    for path in sorted(spool.glob("spe.*.perf")):
        if ring := _SPE_RING.fullmatch(path.name):
            for _, batch, _ in _ring_batches([path], decoder, damage):
                spans += [spe_spans(batch, buffer=int(ring[1]))] if len(batch) else []
                switches.append(switch_rows(batch.rows))
                lost += lost_records(batch)
    has_switches = any(is_switch(rows).any() for rows in switches)
    writer.write("spe_spans", pa.concat_tables(spans))
    return _SpeRings(switches if has_switches else [], lost)


@dataclass(frozen=True, slots=True)
class _Lived:
    """The processes of a recording and what they had mapped: before it, then while it ran."""

    initial_mappings: pa.Table
    initial_processes: pa.Table
    recorded: SideBandTables

    def mappings(self) -> pa.Table:
        """All of them."""
        return _joined(self.initial_mappings, self.recorded.mappings)

    def processes(self) -> pa.Table:
        """All of them."""
        return _joined(self.initial_processes, self.recorded.processes)


def _write_interpreted(writer: TableWriter, mappings: pa.Table, *walked: PythonFrames | JavaFrames | None) -> None:
    """Write where interpreted code is in the source, and where its processes have it.

    Args:
        mappings: of what is mapped, so far.
    """
    for frames in walked:
        if frames:
            writer.write("mappings", frames.mappings(mappings))
            writer.write("interpreted", frames.symbols())


def _write_side_band(
    spool: Path, manifest: Manifest, writer: TableWriter, side_band: list[SideBand], damage: SpoolDamage
) -> _Lived:
    """Write mappings, processes and control groups."""
    mappings, processes = initial_tables(spool / INITIAL_FILE, damage)
    tables = side_band_tables(side_band)
    if manifest.has_cgroups:
        writer.write("cgroups", named_cgroups(spool / CGROUPS_FILE, side_band, damage))
    for name, initial, recorded in (
        ("mappings", mappings, tables.mappings),
        ("processes", processes, tables.processes),
    ):
        writer.write(name, initial)
        writer.write(name, recorded)
    return _Lived(mappings, processes, tables)


def _losses(
    manifest: Manifest, samples: SampleRows, tables: SideBandTables, damage: SpoolDamage, records: RecordLosses
) -> Losses:
    """The manifest's losses, and those that only decoding can tell."""
    # The ring-buffer rung's samples share a ring with the side-band, and a record of loss has the id of the event that
    # wrote next, not of those that lost (kernel/events/ring_buffer.c). Nearly all are samples, so all count as such.
    # Where nothing was written after a loss there is no record of it: newer kernels' own count stands in the manifest.
    shares_rings = manifest.rung is Rung.RING_BUFFER
    counted = manifest.losses.samples_ring_full if shares_rings else 0  # by their events
    by_reason = dict(manifest.losses.by_reason)
    if manifest.samples_counted is not None and samples.count < manifest.samples_counted:
        accounted = manifest.losses.samples_map_full + manifest.losses.samples_outside_namespace
        if missing := manifest.samples_counted - samples.count - accounted:
            by_reason[NEVER_REACHED] = missing
    by_reason |= _skipped(manifest, samples)
    if samples.without_sent_stack:
        by_reason["samples whose call stack never reached the capture"] = samples.without_sent_stack
    if samples.uncertain:
        by_reason["samples whose user stack led, maybe, through a file that another was just mapped over"] = (
            samples.uncertain
        )
    if damage.stacks:
        by_reason["call stacks that were not whole when they were read"] = damage.stacks
    if records.malformed:
        by_reason["stretches of damaged perf records"] = records.malformed
    return replace(
        manifest.losses,
        samples_ring_full=counted or (tables.lost_records if shares_rings else 0),
        side_band_records_lost=max(0, tables.lost_records - counted) if counted or not shares_rings else 0,
        throttled=tables.throttled,
        stacks_truncated=manifest.losses.stacks_truncated + samples.truncated,
        stack_id_collisions=samples.ambiguous,
        bytes_damaged=damage.bytes + records.malformed_bytes,
        by_reason=by_reason,
    )


def _other_rights(manifest: Manifest, names: Sequence[str]) -> Iterator[str]:
    """What to say of programs that the kernel took the events off: of whole CPUs they go on."""
    if names and not (_is_of_cpus(manifest) or manifest.is_system_wide):
        known = sorted(set(names))
        shown = ", ".join([*known[:_MOST_NAMES], *(["…"] if len(known) > _MOST_NAMES else [])])
        yield (
            f"{plural(len(names), 'program', 's')} ran with other rights than the recorder's, or may not be read "
            f"({shown}): the kernel takes the events off such and off what they start (record as root, where BPF works)"
        )


def _is_of_cpus(manifest: Manifest) -> bool:
    """Whether events of CPUs sampled some processes; counter groups follow tasks, though their side-band does not."""
    return bool(manifest.followed) and manifest.topdown is None


def _short_lives(manifest: Manifest, processes: pa.Table, samples: int) -> Iterator[str]:
    """What events that follow tasks make of those that end before their first sample."""
    started = pc.sum(pc.equal(processes["kind"], "fork")).as_py() or 0
    if _is_of_cpus(manifest) or manifest.is_system_wide or started <= _MOST_STARTED * samples:
        return
    cure = ", recording as root with BPF, too" if manifest.rung is Rung.RING_BUFFER else ""
    what = "1 process or thread was" if started == 1 else f"{started:,} processes or threads were"
    yield (
        f"{what} started, and each begins its sampling interval anew: "
        f"the shorter one lives, the less of it is seen (a higher -F helps{cure})"
    )


def _joined(initial: pa.Table, recorded: pa.Table) -> pa.Table:
    return pa.concat_tables([initial, recorded]).unify_dictionaries()


def _skipped(manifest: Manifest, samples: SampleRows) -> dict[str, int]:
    """Overflows that no BPF program saw, where the exact total tells: by event.

    The kernel leaves a program out while another runs, or is interrupted, on its CPU (bpf_prog_active), and counts it
    nowhere. With a fixed period each task may end within one; that many are not missing. Events of CPUs go on with who
    runs next, so that how many samples a task has is a matter of chance: up to five standard errors are not missing.
    """
    if manifest.rung is Rung.RING_BUFFER:
        return {}
    accounted = manifest.losses.samples_map_full + manifest.losses.samples_outside_namespace
    skipped = {}
    for number, event in enumerate(manifest.events):
        if event.period and event.total is not None and event.unit is Unit.COUNT:
            unfinished = 0 if event.period == 1 else len(samples.tids) * manifest.host.cpus_online
            if _is_of_cpus(manifest) and event.period > 1:
                unfinished += 5 * math.isqrt(event.total // event.period)
            counted = event.total - event.counted_at_cuts
            missing = counted // event.period - unfinished - samples.of_event[number] - accounted
            if missing > 0:
                skipped[f"samples of {event.name} that the kernel took without asking BPF (at least)"] = missing
    return skipped


def _ring_batches(paths: list[Path], decoder: RecordStream, damage: SpoolDamage) -> Iterator[_RingBatch]:
    for path in paths:
        rest = b""
        for chunk in itertools.chain(spooled_pieces(path, damage, _CHUNK_BYTES), [b""]):
            data = rest + chunk
            consumed = decoder.feed(data, final=not chunk)
            rest = data[consumed:]
            yield decoder.take_samples(), decoder.take_side_band(), decoder.take_copies()
