"""SPE data in a capture: the raw AUX bytes in its ``spe`` folder, and the table that says whose they are."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tdprof.capture.manifest import Manifest, Rung, SpeEventInfo, SpeInfo, State
from tdprof.capture.schema import SPE_SPANS
from tdprof.capture.spool import AUX_FILE, SPE_FOLDER
from tdprof.capture.tables import COPY_AGAIN, TableWriter, has_table, read_side_table, read_table
from tdprof.decode.mapped_files import MappedFiles
from tdprof.decode.perf.auxtrace import TimeConversion
from tdprof.decode.perf.columns import CPU_NUMBERS, NOT_RECORDED
from tdprof.decode.spe.clock import Clock, clock_of, time_ns
from tdprof.decode.spe.losses import AuxLosses
from tdprof.decode.spe.spans import COLLISION, PARTIAL, TRUNCATED, AuxSpan, SpeInput, worth_decoding
from tdprof.decode.spe.switches import SwitchesByCpu, no_switches, switches_of_table, switches_table
from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import appended_bytes, inner_folder, open_inside
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.duty import SPE

# Copied before they are written: to write(2) what is gone of a mapped file is no signal, but a wrong address.
_COPIED_BYTES = 1 << 20
_RUNS_AT_ONCE = 1 << 16  # rows that are Python's numbers at a time
_GAP_BYTES = 8  # SPE padding between stored spans: none continues in the next


def aux_file(cpu: int, buffer: int) -> str:
    """Name of the file with one buffer's AUX bytes; those of a perf.data file may belong to a task on any CPU."""
    return AUX_FILE.format(cpu=cpu, number=buffer) if cpu != NOT_RECORDED else f"task.{buffer}.aux"


def pairs_of(clock: Clock | None) -> list[list[int]]:
    """Two pairs that say what a perf.data file's conversion says; none without one."""
    if clock is None:
        return []
    start = clock.time_cycles if isinstance(clock, TimeConversion) else int(clock.ticks[0])
    ticks = np.array([start, start + (1 << 40)], np.uint64)
    return [list(pair) for pair in zip(ticks.tolist(), time_ns(ticks, clock).tolist(), strict=True)]


@contextlib.contextmanager
def open_spe(folder: Path, manifest: Manifest) -> Iterator[SpeInput]:
    """The SPE data of a capture; its files stay mapped inside the ``with`` block.

    What lies between spans is padding, or what the kernel had no room to tell of: then nobody is said to own it. What
    the table says beyond a file's end counts as a cut buffer.

    Raises:
        TdprofError: the capture has no SPE data, or what says where in it each record lies cannot be read.
    """
    if manifest.spe is None:
        raise TdprofError(f"{folder} holds no SPE data", hint="tdprof record --spe -- CMD")
    if manifest.state is not State.COMPLETE:
        raise TdprofError(
            f"the recording of {folder} was interrupted before it made the table of its SPE records",
            hint=f"tdprof archive {folder} makes it",
        )
    with inner_folder(folder / SPE_FOLDER) as spe:
        if spe is None:
            raise TdprofError(f"cannot read {folder / SPE_FOLDER}: it is missing, or a link", hint=COPY_AGAIN)
    table = read_table(folder, "spe_spans")
    flags = table["flags"].to_numpy()
    losses = AuxLosses(
        truncated=int(((flags & TRUNCATED) != 0).sum()),
        partial=int(((flags & PARTIAL) != 0).sum()),
        collided=int(((flags & COLLISION) != 0).sum()),
    )
    switches = switches_of_table(read_table(folder, "switches")) if has_table(folder, "switches") else no_switches()
    conversion = clock_of(manifest.spe.clock_pairs)
    owned = _cpus_of_owners(folder, manifest, table, switches, conversion)
    files = MappedFiles()
    with files.checked():
        spans = worth_decoding(_spans_of(folder, manifest, _runs(table, owned), files, losses), losses)
        yield SpeInput(
            spans,
            conversion,
            losses,
            switches,
            files,
            contexts_name_threads=manifest.spe.contexts_name_threads,
            page_bytes=manifest.host.page_bytes or None,
            side_band_lost=_lost_beside_switches(manifest),
        )


def _lost_beside_switches(manifest: Manifest) -> int:
    """How many records the kernel had no room for in the rings that tell context switches."""
    is_by_turns = any(each.what == SPE for each in manifest.duty)
    if manifest.rung is Rung.RING_BUFFER and not is_by_turns:
        return 0  # SPE's own rings tell them, of whose losses there is a note
    return manifest.losses.side_band_records_lost or manifest.losses.samples_ring_full


def _spans_of(
    folder: Path, manifest: Manifest, runs: Iterable[_Run], files: MappedFiles, losses: AuxLosses
) -> Iterator[AuxSpan]:
    """The spans; counts what lies beyond a file's end, or in another span."""
    for (cpu, buffer), of_buffer in itertools.groupby(runs, lambda run: (run.cpu, run.buffer)):
        data, written = _mapped(folder / SPE_FOLDER, aux_file(cpu, buffer), files)
        number = cpu if cpu < CPU_NUMBERS else None
        midr = _midr_of(manifest, number)
        read_to = 0
        for run in of_buffer:
            if run.start > read_to and _is_written(untold := data[read_to : min(run.start, written)]):
                yield AuxSpan(untold, read_to, number, None, midr)
            # Spans lie side by side; what damage lays over others is read once.
            start = max(run.start, read_to)
            losses.cut_buffers += run.end > len(data) or start > run.start
            read_to = max(read_to, run.end)
            if start < min(run.end, len(data)):
                yield AuxSpan(data[start : run.end], start, number, run.owner, midr)
        if _is_written(untold := data[read_to:written]):
            yield AuxSpan(untold, read_to, number, None, midr)


def _is_written(data: memoryview) -> bool:
    """Whether there is more than zeros, SPE's padding."""
    return bool(np.frombuffer(data, np.uint8).any())


def _cpus_of_owners(
    folder: Path,
    manifest: Manifest,
    spans: pa.Table,
    switches: SwitchesByCpu,
    conversion: Clock | None,
) -> Set[int]:
    """CPUs of which each span's records are of the thread that ran when the span ended.

    Not where there may be several: the kernel swaps events that tasks inherited from the same one instead of stopping
    them (`perf_event_context_sched_out`), and a span then goes on with another task's records.
    """
    if manifest.is_system_wide or manifest.spe is None:
        return frozenset()
    cpus = set(pc.unique(spans["cpu"]).to_pylist())
    if manifest.spe.has_switches and conversion is not None:
        return {cpu for cpu in cpus if cpu not in switches}
    processes, unreadable = read_side_table(folder, "processes")
    has_one_thread = not unreadable and pc.count_distinct(processes["tid"]).as_py() <= 1
    return cpus if has_one_thread else cpus & {NOT_RECORDED}  # a buffer of no CPU is one task's, which nobody inherits


def _midr_of(manifest: Manifest, cpu: int | None) -> int | None:
    """The core of a CPU; of bytes from any CPU only if all are alike. None too if the manifest holds nonsense."""
    kinds = set(manifest.host.midr_el1.values())
    text = manifest.host.midr_el1.get(str(cpu), "") if cpu is not None else (kinds.pop() if len(kinds) == 1 else "")
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else None


class _Run(NamedTuple):
    """Adjoining spans of one buffer that belong together; the owner is a thread, None if the table does not tell."""

    cpu: int
    buffer: int
    owner: int | None
    start: int
    end: int


def _runs(table: pa.Table, owned: Set[int]) -> Iterator[_Run]:
    """By buffer, in the order of the offsets.

    Args:
        table: the spans.
        owned: CPUs whose spans are each of the thread that the table names.
    """
    columns = {name: table[name].to_numpy() for name in ("cpu", "buffer", "tid", "offset", "size", "flags")}
    order = np.lexsort((columns["offset"], columns["buffer"], columns["cpu"]))
    current: _Run | None = None
    is_open = False
    for begin in range(0, len(order), _RUNS_AT_ONCE):
        part = order[begin : begin + _RUNS_AT_ONCE]
        for cpu, buffer, tid, offset, size, flags in zip(
            *(column[part].tolist() for column in columns.values()), strict=True
        ):
            owner = tid if cpu in owned and tid != NOT_RECORDED else None
            if is_open and current is not None and current[:3] == (cpu, buffer, owner) and current.end == offset:
                current = current._replace(end=offset + size)
            elif size:
                if current is not None:
                    yield current
                current = _Run(cpu, buffer, owner, offset, offset + size)
            # After a record that was left unfinished a new one begins: the bytes must not be joined.
            is_open = not flags & PARTIAL
    if current is not None:
        yield current


def _mapped(folder: Path, name: str, files: MappedFiles) -> tuple[memoryview, int]:
    """A file's bytes, and how many may hold what no span tells of: behind them a hole may be endless."""
    try:
        with os.fdopen(open_inside(folder, name), "rb") as file:
            return memoryview(files.add(file, str(folder / name))), appended_bytes(file.fileno())
    except OSError:  # not there: the spans of it count as cut
        return memoryview(b""), 0


def store_spe(
    folder: OwnFolder, spe: SpeInput, writer: TableWriter, *, period: int, event: str, caps: dict[str, int]
) -> SpeInfo:
    """Copy SPE data out of a perf.data file into a capture that is being made; returns what its manifest says of it.

    Args:
        folder: the capture.
        spe: the data.
        writer: takes the tables of spans and of context switches.
        period, event: of the SPE event.
        caps: what the file says of the driver's ``caps/``.
    """
    numbers: dict[tuple[int, int], int] = {}
    rows = []
    with folder.subfolder(SPE_FOLDER, make=True) as aux:
        for span in spe.spans:
            cpu = NOT_RECORDED if span.cpu is None else span.cpu
            tid = NOT_RECORDED if span.tid is None else span.tid
            buffer = numbers.setdefault((cpu, tid), len(numbers))
            with aux.append(aux_file(cpu, buffer)) as file:
                offset = file.tell()
                for at in range(0, len(span.data), _COPIED_BYTES):
                    file.write(bytes(span.data[at : at + _COPIED_BYTES]))
                file.write(bytes(_GAP_BYTES))
            rows.append((0, cpu, buffer, NOT_RECORDED, tid, offset, len(span.data), 0))
    if spe.switches:
        writer.write("switches", switches_table(spe.switches))
    columns = zip(*rows, strict=True) if rows else [()] * len(SPE_SPANS)
    writer.write("spe_spans", pa.table(dict(zip(SPE_SPANS.names, columns, strict=True)), SPE_SPANS))
    cpus = sorted({span.cpu for span in spe.spans if span.cpu is not None})
    return SpeInfo(period, [SpeEventInfo("arm_spe", event, cpus, caps)], pairs_of(spe.time_conversion))
