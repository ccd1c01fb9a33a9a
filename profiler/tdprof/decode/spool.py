"""A recording's spool into the capture's tables, batch by batch."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tdprof.capture.manifest import Manifest, Rung
from tdprof.capture.schema import SAMPLE_CGROUP, SAMPLES, SPE_SPANS, STACKS
from tdprof.capture.spool import (
    CGROUPS_FILE,
    COPIES_FILE,
    INITIAL_FILE,
    PYTHON_FILE,
    ROWS_FILE,
    SPE_RING_FILE,
    STACKS_FILE,
)
from tdprof.capture.tables import TableWriter
from tdprof.decode.bpf_aggregates import RowBatch, SpoolDamage, StackBatch, read_rows, read_stacks
from tdprof.decode.bpf_copies import walk_spooled
from tdprof.decode.perf.containers import CGROUP_ID_BITS, named_cgroups
from tdprof.decode.perf.layout import NO_CHAIN, Chains, Copies, RecordLayout, RecordStream, Samples, SideBand
from tdprof.decode.perf.records import open_record_stream
from tdprof.decode.perf.used_stacks import stack_identities
from tdprof.decode.perf.walked import FIRST_WALKED, Walk, WalkedStacks, walks_of
from tdprof.decode.python.merged import PythonFrames
from tdprof.decode.side_band import initial_tables, of_processes, side_band_tables, spe_spans
from tdprof.decode.spe.switches import switch_rows, switches_of, switches_table, without_switches
from tdprof.decode.stack_walks import WALK, walk_columns
from tdprof.linux.file_bytes import open_own
from tdprof.model.arrays import U64, distinct
from tdprof.model.events import Unit
from tdprof.model.losses import NEVER_REACHED, Losses
from tdprof.model.stack_ends import StackEnd
from tdprof.text import plural

_CHUNK_BYTES = 16 << 20
_SPE_RING = re.compile(SPE_RING_FILE.format(cpu="[0-9]+", number="([0-9]{1,9})").replace(".", "[.]"))
# Each task that is started costs up to one sample: of so few they matter no more than chance does.
_MOST_STARTED = 0.05


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a spool held.

    Attributes:
        losses: the manifest's, with what only decoding can tell.
        samples: number of samples in the tables.
        kernel_addresses: uint64, distinct and sorted: what kernel symbols are needed for.
        end_ns: time of the last sample or interval, 0 if there is none.
        notes: what the user should know of it, a sentence each.
    """

    losses: Losses
    samples: int
    kernel_addresses: U64
    end_ns: int
    notes: list[str]


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
    damage = SpoolDamage()
    python = PythonFrames(spool, damage) if (spool / PYTHON_FILE).exists() else None
    stacks, samples = _StackWriter(writer, python), _SampleTotals(has_cgroups=manifest.has_cgroups)
    for stack_batch in read_stacks(spool / STACKS_FILE, damage):
        stacks.add_bpf(stack_batch)
    rings = sorted(spool.glob("ring.*.perf"))
    # What samples copied is walked by what had been mapped, which is known once all side-band is read.
    has_copies = any(layout.has_copies for layout in layouts)
    decoder = open_record_stream(layouts, skip_samples=has_copies)
    side_band, switches = [], []
    for ring_samples, ring_side_band, _ in _ring_batches(rings, decoder):
        switches.append(switch_rows(ring_side_band.rows))
        side_band.append(without_switches(ring_side_band))
        if len(ring_samples):
            writer.write("samples", samples.of_ring(ring_samples, len(manifest.events)))
    if not has_copies:
        stacks.add_chains(decoder.chains(), samples)
    spe_decoder = open_record_stream(layouts[-1:])
    spans = [SPE_SPANS.empty_table()]
    for path in sorted(spool.glob("spe.*.perf")):
        if ring := _SPE_RING.fullmatch(path.name):
            batches = (batch for _, batch, _ in _ring_batches([path], spe_decoder))
            spans += [spe_spans(batch, buffer=int(ring[1])) for batch in batches if len(batch.rows)]
    writer.write("spe_spans", pa.concat_tables(spans))
    if found := switches_of(switches):
        writer.write("switches", switches_table(found))
    mappings, processes, damaged_bytes = initial_tables(spool / INITIAL_FILE)
    if manifest.followed:
        side_band = of_processes(side_band, manifest.followed)
    tables = side_band_tables(side_band)
    if manifest.has_cgroups:
        cgroups, damaged_lines = named_cgroups(spool / CGROUPS_FILE, side_band)
        damaged_bytes += damaged_lines
        writer.write("cgroups", cgroups)
    for name, initial, recorded in (
        ("mappings", mappings, tables.mappings),
        ("processes", processes, tables.processes),
    ):
        writer.write(name, initial)
        writer.write(name, recorded)
    if python:
        writer.write("mappings", python.mappings(_joined(mappings, tables.mappings)))
        writer.write("interpreted", python.symbols())
    if has_copies or (spool / COPIES_FILE).exists():
        walk = open_walk(_joined(mappings, tables.mappings), _joined(processes, tables.processes))
        for copied_batch in walk_spooled(spool / COPIES_FILE, damage, walk):
            stacks.add_bpf(copied_batch)
        if has_copies:
            decoder = open_record_stream(layouts, keep_copies=True)
            walked = WalkedStacks(walk)
            for ring_samples, _, copies in _ring_batches(rings, decoder):
                walked.replace(ring_samples, copies)
                writer.write("samples", samples.of_ring(ring_samples, len(manifest.events)))
            stacks.add_chains(decoder.chains(), samples, has_heads=True)
            stacks.add_walked(walked)
    for row_batch in read_rows(spool / ROWS_FILE, damage):
        writer.write("samples", samples.of_rows(row_batch, stacks))

    # The ring-buffer rung's samples share a ring with the side-band, and a record of loss has the id of the event that
    # wrote next, not of those that lost (kernel/events/ring_buffer.c). Nearly all are samples, so all count as such.
    # Where nothing was written after a loss there is no record of it: newer kernels' own count stands in the manifest.
    shares_rings = manifest.rung is Rung.RING_BUFFER
    by_reason = dict(manifest.losses.by_reason)
    if manifest.samples_counted is not None and samples.count < manifest.samples_counted:
        accounted = manifest.losses.samples_map_full + manifest.losses.samples_outside_namespace
        if missing := manifest.samples_counted - samples.count - accounted:
            by_reason[NEVER_REACHED] = missing
    by_reason |= _skipped(manifest, samples)
    if samples.without_sent_stack:
        by_reason["samples whose call stack never reached the capture"] = samples.without_sent_stack
    if damage.stacks:
        by_reason["call stacks that were not whole when they were read"] = damage.stacks
    if decoder.losses.malformed:
        by_reason["stretches of damaged perf records"] = decoder.losses.malformed
    losses = replace(
        manifest.losses,
        samples_ring_full=max(manifest.losses.samples_ring_full, tables.lost_records) if shares_rings else 0,
        side_band_records_lost=0 if shares_rings else tables.lost_records,
        throttled=tables.throttled,
        stack_id_collisions=samples.ambiguous,
        bytes_damaged=damage.bytes + damaged_bytes + decoder.losses.malformed_bytes,
        by_reason=by_reason,
    )
    notes = list(python.notes()) if python else []
    notes += list(_short_lives(manifest, tables.processes, samples.count))
    return Decoded(losses, samples.count, stacks.kernel_addresses(), samples.end_ns, notes)


def _short_lives(manifest: Manifest, processes: pa.Table, samples: int) -> Iterator[str]:
    """What events that follow tasks make of those that end before their first sample."""
    started = pc.sum(pc.equal(processes["kind"], "fork")).as_py() or 0
    if manifest.followed or manifest.is_system_wide or started <= _MOST_STARTED * samples:
        return
    cure = ", recording as root with BPF, too" if manifest.rung is Rung.RING_BUFFER else ""
    yield (
        f"{plural(started, 'process', 'es')} or threads were started, and each begins its sampling interval anew: "
        f"the shorter one lives, the less of it is seen (a higher -F helps{cure})"
    )


def _joined(initial: pa.Table, recorded: pa.Table) -> pa.Table:
    return pa.concat_tables([initial, recorded]).unify_dictionaries()


def _skipped(manifest: Manifest, samples: "_SampleTotals") -> dict[str, int]:
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
            if manifest.followed and event.period > 1:
                unfinished += 5 * math.isqrt(event.total // event.period)
            missing = event.total // event.period - unfinished - samples.of_event[number] - accounted
            if missing > 0:
                skipped[f"samples of {event.name} that the kernel took without asking BPF (at least)"] = missing
    return skipped


def _ring_batches(paths: list[Path], decoder: RecordStream) -> Iterator[tuple[Samples, SideBand, Copies]]:
    for path in paths:
        with open_own(path) as file:
            rest = b""
            while True:
                chunk = file.read(_CHUNK_BYTES)
                data = rest + chunk
                consumed = decoder.feed(data, final=not chunk)
                rest = data[consumed:]
                yield decoder.take_samples(), decoder.take_side_band(), decoder.take_copies()
                if not chunk:
                    break


class _SampleTotals:
    """Rows of samples.parquet, and what is to be known of them all."""

    def __init__(self, *, has_cgroups: bool) -> None:
        self._has_cgroups = has_cgroups
        self.count = 0
        self.end_ns = 0
        self.without_sent_stack = 0
        self.ambiguous = 0
        self.kernel_chains: set[int] = set()
        self.user_chains: set[int] = set()
        self.tids: set[int] = set()
        self.of_event: Counter[int] = Counter()

    def of_rows(self, batch: RowBatch, stacks: "_StackWriter") -> pa.Table:
        """Rows of the BPF rung. A stack that never arrived, or cannot be told from another, becomes null and counts."""
        keys, counts = batch.keys, batch.values["count"]
        self.count += int(counts.sum())
        self.end_ns = max(self.end_ns, int(batch.time_ns.max(initial=0)))
        self.tids.update(distinct(keys["tid"]).tolist())
        for number in distinct(keys["event"]).tolist():
            self.of_event[number] += int(counts[keys["event"] == number].sum())
        missing, ambiguous = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
        columns = {}
        for name in ("user_stack", "kernel_stack"):
            absent, collided = keys[name] == 0, stacks.is_ambiguous(keys[name])
            unsent = ~absent & ~stacks.has(keys[name])
            missing |= unsent
            ambiguous |= collided
            columns[name] = pa.array(keys[name], mask=absent | unsent | collided)
        self.without_sent_stack += int(counts[missing].sum())
        self.ambiguous += int(counts[ambiguous].sum())
        names, which = np.unique(keys["comm"], return_inverse=True)
        text = pa.array([name.decode(errors="replace") for name in names.tolist()], pa.string())
        return self._table(
            keys["cgroup"],
            time_ns=batch.time_ns,
            event=keys["event"],
            pid=keys["pid"],
            tid=keys["tid"],
            thread_name=pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), text),
            count=counts,
            weight=batch.values["weight"],
            **columns,
        )

    def of_ring(self, samples: Samples, events: int) -> pa.Table:
        """Single samples of the ring-buffer rung; a chain's number plus one is its stack's identity."""
        kept = samples.event < events
        self.count += int(kept.sum())
        self.kernel_chains.update(distinct(samples.kernel_chain[kept]).tolist())
        self.user_chains.update(distinct(samples.user_chain[kept]).tolist())
        if kept.any():
            self.end_ns = max(self.end_ns, int(samples.time_ns[kept].max()))
        stacks = {
            name: pa.array(stack_identities(chain[kept]), mask=chain[kept] == NO_CHAIN)
            for name, chain in (("user_stack", samples.user_chain), ("kernel_stack", samples.kernel_chain))
        }
        rows = int(kept.sum())
        return self._table(
            samples.cgroup[kept] & np.uint64(CGROUP_ID_BITS),
            time_ns=samples.time_ns[kept],
            event=samples.event[kept],
            pid=samples.pid[kept],
            tid=samples.tid[kept],
            thread_name=pa.nulls(rows, pa.string()).dictionary_encode(),
            count=np.ones(rows, np.uint64),
            weight=samples.period[kept],
            **stacks,
        )

    def _table(self, cgroup: NDArray[np.integer], **columns: object) -> pa.Table:
        table = pa.table([columns[name] for name in SAMPLES.names], names=SAMPLES.names).cast(SAMPLES)
        if not self._has_cgroups:
            return table
        return table.append_column(SAMPLE_CGROUP, pa.array(cgroup.astype(np.uint64), mask=cgroup == 0))


def _content_hash(batch: StackBatch) -> U64:
    """A hash of each stack that has nothing in common with the BPF program's, to notice when that one collides."""
    lengths = np.diff(batch.start).astype(np.int64)
    position = np.arange(len(batch.address)) - np.repeat(batch.start[:-1].astype(np.int64), lengths)
    terms = (batch.address ^ (batch.address >> np.uint64(29))) * (2 * position.astype(np.uint64) + np.uint64(3))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    sums: U64 = total[batch.start[1:]] - total[batch.start[:-1]]
    walk = np.ascontiguousarray(batch.walk).view(np.uint64).reshape(-1, 2)  # its depth, too
    sums += walk[:, 0] * np.uint64(0x9E3779B97F4A7C15) + walk[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return sums


class _StackWriter:
    """Writes each distinct stack once."""

    def __init__(self, writer: TableWriter, python: PythonFrames | None = None) -> None:
        self._writer = writer
        self._python = python
        self._known = np.empty(0, np.uint64)  # sorted
        self._content = np.empty(0, np.uint64)  # a second hash of each known stack
        self._collided = np.empty(0, np.uint64)
        self._kernel: list[U64] = []

    def has(self, identities: U64) -> NDArray[np.bool_]:
        """bool[n]: which stacks are written."""
        if not len(self._known):
            return np.zeros(len(identities), bool)
        at = np.minimum(np.searchsorted(self._known, identities), len(self._known) - 1)
        found: NDArray[np.bool_] = self._known[at] == identities
        return found

    def is_ambiguous(self, identities: U64) -> NDArray[np.bool_]:
        """bool[n]: which identities two different stacks share, so that neither can be told."""
        return np.isin(identities, self._collided)

    def add_bpf(self, batch: StackBatch) -> None:
        """Write the stacks of a batch that are new."""
        content = _content_hash(batch)
        identities, first, which = np.unique(batch.hash, return_index=True, return_inverse=True)
        known = self.has(identities)
        expected = content[first]
        expected[known] = self._content[np.searchsorted(self._known, identities[known])]
        self._collided = np.union1d(self._collided, batch.hash[content != expected[which]])
        fresh = np.sort(first[~known])
        at = np.searchsorted(self._known, identities[~known])
        self._known = np.insert(self._known, at, identities[~known])
        self._content = np.insert(self._content, at, expected[~known])
        batch = self._python.merge(batch) if self._python else batch
        self._write(batch.hash[fresh], batch.walk[fresh], batch.start[fresh], batch.start[fresh + 1], batch.address)

    def add_chains(self, chains: Chains, samples: _SampleTotals, *, has_heads: bool = False) -> None:
        """Write the call chains of perf records that samples have.

        ``has_heads``: user chains begin with a word that says how they were found, but for those of one address: then
        there were no registers to begin with.
        """
        used = samples.user_chains | samples.kernel_chains
        numbers = np.array(sorted(number for number in used if number >= 0), np.int64)
        walk = np.zeros(len(numbers), WALK)
        walk["is_kernel"] = np.isin(numbers, list(samples.kernel_chains))
        leaf_or_whole = StackEnd.NO_REGISTERS if has_heads else StackEnd.FRAME_POINTERS_ONLY
        walk["end"] = np.where(walk["is_kernel"], 0, leaf_or_whole)
        is_headed = np.zeros(len(numbers), bool)
        if has_heads:
            is_headed = (walk["is_kernel"] == 0) & (np.diff(chains.offsets)[numbers] > 1)
            walk[is_headed] = walks_of(chains, numbers[is_headed])[0]
        start = chains.offsets[numbers] + is_headed.astype(np.uint64)
        self._write(numbers.astype(np.uint64) + 1, walk, start, chains.offsets[numbers + 1], chains.frames)

    def add_walked(self, walked: WalkedStacks) -> None:
        """Write the stacks that were walked only now."""
        numbers = np.arange(walked.count)
        walk, _, chains = walked.rows(numbers)
        identities = stack_identities((FIRST_WALKED - numbers).astype(np.int32))
        self._write(identities, walk, chains.offsets[:-1] + np.uint64(1), chains.offsets[1:], chains.frames)

    def _write(self, identities: U64, walk: NDArray[np.void], start: U64, end: U64, address: U64) -> None:
        """Write stacks ``address[start[i]:end[i]]``."""
        if not len(identities):
            return
        is_kernel = walk["is_kernel"] != 0
        lengths = (end - start).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        gathered = address[np.repeat(start.astype(np.int64) - offsets[:-1], lengths) + np.arange(offsets[-1])]
        self._kernel.append(distinct(gathered[np.repeat(is_kernel, lengths)]))
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(gathered))
        stacks = pa.table([identities, is_kernel, lists], names=STACKS.names)
        for name, column in walk_columns(walk, lengths):
            stacks = stacks.append_column(name, column)
        self._writer.write("stacks", stacks)

    def kernel_addresses(self) -> U64:
        """Every distinct kernel address of the stacks written."""
        return distinct(np.concatenate(self._kernel)) if self._kernel else np.empty(0, np.uint64)
