"""Where SPE's bytes are: spans of AUX data that the hardware wrote without a loss in between."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from tdprof.decode.mapped_files import MappedFiles
from tdprof.decode.perf.auxtrace import ARM_SPE_AUXTRACE, AuxBuffer, AuxtraceInfo
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.layout import Table
from tdprof.decode.spe.clock import Clock
from tdprof.decode.spe.losses import AuxLosses
from tdprof.decode.spe.switches import Switches, switch_rows, switches_of
from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_regular
from tdprof.linux.perf_abi import RecordType
from tdprof.model.arrays import U64, distinct
from tdprof.model.spe import ONE_STAGE, Stages

# PERF_AUX_FLAG_*, include/uapi/linux/perf_event.h
TRUNCATED, PARTIAL, COLLISION = 0x01, 0x04, 0x08
SHORTEST_SPAN_BYTES = 64
"""What a driver hands over at least: the slot of a record that has all packets."""
_MANY_SPANS = 1 << 13  # fewer cost nothing worth mentioning, whatever they hold
MOST_WORKERS = 8
"""Threads that decode spans: they read a gigabyte in a fifth of a second; more would need memory and bring little."""


@dataclass(frozen=True, slots=True)
class AuxSpan:
    """One span.

    Attributes:
        data: its bytes, mapped.
        aux_offset: of the first byte in the stream of its mapping.
        cpu: that wrote it, None if the recording does not tell.
        tid: thread that the mapping belongs to, None for a CPU's.
        midr: MIDR_EL1 of the CPU, None if not known.
    """

    data: memoryview
    aux_offset: int = 0
    cpu: int | None = None
    tid: int | None = None
    midr: int | None = None


@dataclass(frozen=True, slots=True)
class SpeInput:
    """All SPE data of one input.

    Attributes:
        spans: in file order.
        time_conversion: timer ticks to perf's clock; None if the input has none.
        losses: what the kernel said.
        switches: context switches by CPU, in perf's clock; empty if they were not recorded.
        files: where the spans lie; to be checked before what was made of them is shown.
        contexts_name_threads: context packets hold the ids by which the recording knows threads.
        page_bytes: of the recorded machine, None if the input does not tell.
        stages: of the threads, by which records of the same address are told apart; needs ``time_conversion``.
    """

    spans: Sequence[AuxSpan]
    time_conversion: Clock | None = None
    losses: AuxLosses = field(default_factory=AuxLosses)
    switches: Mapping[int, Switches] = field(default_factory=dict)
    files: MappedFiles = field(default_factory=MappedFiles)
    contexts_name_threads: bool = True
    page_bytes: int | None = None
    stages: Stages = ONE_STAGE

    @property
    def total_bytes(self) -> int:
        """Bytes in all spans."""
        return sum(len(span.data) for span in self.spans)


@contextlib.contextmanager
def open_raw(path: str | Path, *, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    """A file of AUX bytes alone as one span; ``-`` is standard input.

    Raises:
        TdprofError: it cannot be read.
    """
    try:
        if str(path) == "-":
            # Put into a nameless file: it is mapped, and must not fill memory.
            file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            file.flush()
        else:
            file = os.fdopen(open_regular(path), "rb")
    except OSError as error:
        raise TdprofError(f"cannot read {path}: {error.strerror}") from error
    with file, open_raw_file(file, str(path), cpu=cpu, midr=midr) as source:
        yield source


@contextlib.contextmanager
def open_raw_file(file: IO[bytes], name: str, *, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    """The same of an open file; ``name`` is for people."""
    files = MappedFiles()
    try:
        data = memoryview(files.add(file, name))
    except OSError as error:
        raise TdprofError(f"cannot read {name}: {error.strerror}") from error
    with files.checked():
        yield SpeInput([AuxSpan(data, cpu=cpu, midr=midr)] if data else [], files=files)


@contextlib.contextmanager
def open_perf_data(path: str | Path) -> Iterator[SpeInput]:
    """The SPE data of a perf.data file.

    Raises:
        TdprofError: it cannot be read, or holds no SPE data.
    """
    with PerfData(path) as data:
        yield spe_input_of(data)


def spe_input_of(data: PerfData) -> SpeInput:
    """The SPE data of an open perf.data file, which has to stay open as long as the spans are used.

    Raises:
        TdprofError: it holds no SPE data.
    """
    rows, switches = [], []
    for batch in data.batches(skip_samples=True):
        side_band = batch.side_band.rows
        rows.append(side_band[side_band["type"] == RecordType.AUX])
        switches.append(switch_rows(side_band))
    # Timer ticks convert to perf's own clock alone, not to one that -k chose.
    has_own_clock = not any(attr.has_flag("use_clockid") for attr in data.attrs)
    info = data.auxtrace_info
    if not data.aux_buffers or info is None:
        raise TdprofError(f"{data.path} holds no AUX data", hint="perf record -e arm_spe// -- CMD")
    if info.type != ARM_SPE_AUXTRACE:
        raise TdprofError(f"the AUX data in {data.path} is not of SPE (its tracer has number {info.type})")
    aux: Table = np.concatenate(rows)
    losses = _losses(aux, data)
    unfinished = _unfinished(aux)
    pieces = (
        _spans_of(buffer, data.aux_data(buffer), unfinished, _midr_of(buffer.cpu, info, data.features.cpuid))
        for buffer in data.aux_buffers
    )
    spans = worth_decoding(itertools.chain.from_iterable(pieces), losses)
    known_switches = switches_of(switches) if has_own_clock else {}
    return SpeInput(spans, data.time_conversion, losses, known_switches, data.files)


def worth_decoding(spans: Iterable[AuxSpan], losses: AuxLosses) -> list[AuxSpan]:
    """The spans; where there are very many, without those that are shorter than any that is handed over.

    Args:
        spans: of an input; taken one by one, and those that are left out are not kept meanwhile.
        losses: counts those that are left out.
    """
    kept, left_out, are_many = list[AuxSpan](), 0, False
    for span in spans:
        if are_many and len(span.data) < SHORTEST_SPAN_BYTES:
            left_out += 1
            continue
        kept.append(span)
        if not are_many and len(kept) > _MANY_SPANS:
            are_many = True
            long = [span for span in kept if len(span.data) >= SHORTEST_SPAN_BYTES]
            left_out, kept = len(kept) - len(long), long
    losses.too_short += left_out
    return kept


def _midr_of(cpu: int | None, info: AuxtraceInfo, cpuid: str) -> int | None:
    """The core of a CPU. Metadata of version 1 names none, and a thread's buffer no CPU: certain if all are alike."""
    if cpu is not None and cpu in info.cpus:
        return info.cpus[cpu].midr or None
    if info.cpus:
        kinds = {spe.midr for spe in info.cpus.values()}
        return (kinds.pop() or None) if cpu is None and len(kinds) == 1 else None
    try:
        return int(cpuid, 16) if cpuid else None  # the CPUID feature of arm64: MIDR_EL1 as hex text
    except ValueError:
        return None


def _unfinished(aux: Table) -> dict[tuple[str, int], U64]:
    """Where in its AUX stream the kernel left records unfinished, sorted: by CPU and by thread."""
    partial = aux[(aux["flags"] & PARTIAL) != 0]
    ends = partial["addr"] + partial["len"]
    found = {}
    for owner in ("cpu", "tid"):
        order = np.lexsort((ends, partial[owner]))
        numbers, first = np.unique(partial[owner][order], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(ends[order], first[1:]), strict=bool(len(numbers))):
            found[owner, number] = distinct(part)
    return found


def _spans_of(
    buffer: AuxBuffer, data: memoryview, unfinished: Mapping[tuple[str, int], U64], midr: int | None
) -> Iterator[AuxSpan]:
    """The buffer, cut where the kernel says that a record was left unfinished."""
    owner = ("cpu", buffer.cpu) if buffer.cpu is not None else ("tid", buffer.tid or 0)
    ends = unfinished.get(owner, np.empty(0, np.uint64))
    last = min(buffer.aux_offset + len(data), 2**64 - 1)
    low, high = np.searchsorted(ends, np.array([buffer.aux_offset, last], np.uint64))
    inside = [int(end) - buffer.aux_offset for end in ends[low:high]]
    inside = [end for end in inside if 0 < end < len(data)]
    for start, end in zip([0, *inside], [*inside, len(data)], strict=True):
        yield AuxSpan(data[start:end], buffer.aux_offset + start, buffer.cpu, buffer.tid, midr)


def _losses(aux: Table, data: PerfData) -> AuxLosses:
    flags = aux["flags"]
    return AuxLosses(
        truncated=int(((flags & TRUNCATED) != 0).sum()),
        partial=int(((flags & PARTIAL) != 0).sum()),
        collided=int(((flags & COLLISION) != 0).sum()),
        cut_buffers=data.losses.truncated_aux_buffers,
    )
