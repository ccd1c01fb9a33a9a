"""SPE's bytes in a perf.data file: cut into spans where the kernel says that a record was left unfinished."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tdprof.decode.perf.auxtrace import ARM_SPE_AUXTRACE, AuxBuffer, AuxtraceInfo
from tdprof.decode.perf.columns import Table
from tdprof.decode.perf.data import PerfData
from tdprof.decode.spe.losses import AuxLosses
from tdprof.decode.spe.spans import COLLISION, PARTIAL, TRUNCATED, AuxSpan, SpeInput, worth_decoding
from tdprof.decode.spe.switches import no_switches, switch_rows, switches_of
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import RecordType
from tdprof.model.arrays import U64, distinct


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
    known_switches = switches_of(switches) if has_own_clock else no_switches()
    return SpeInput(spans, data.time_conversion, losses, known_switches, data.files)


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
