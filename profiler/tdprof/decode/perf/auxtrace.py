"""The AUX area of perf.data: where its bytes lie in the file, and what the recording says about them.

Record layouts: the perf tool's ``lib/perf/include/perf/event.h``; the private words of SPE: its ``util/arm-spe.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import field

from tdprof.decode.perf.columns import CPU_NUMBERS
from tdprof.values import dataclass

ARM_SPE_AUXTRACE = 4  # PERF_AUXTRACE_ARM_SPE
_CPU_MAGIC = 0x1010101010101010
_NO_PMU = 2**64 - 1
_ANY = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class AuxBuffer:
    """One ``PERF_RECORD_AUXTRACE``: a stretch of AUX data that stays in the file.

    Attributes:
        file: 0, or the number of a thread's file in a directory.
        file_offset, size_bytes: where its bytes stand; up to 7 zero bytes of padding may end it.
        aux_offset: its position in the AUX stream of its mapping, comparable to ``addr`` of AUX side-band rows.
        cpu, tid: None where the mapping belongs to no single one.
        idx: number of the mapping.
        is_cut: the file ends before the buffer does.
    """

    file: int
    file_offset: int
    size_bytes: int
    aux_offset: int
    reference: int
    idx: int
    tid: int | None
    cpu: int | None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class TimeConversion:
    """``PERF_RECORD_TIME_CONV``: a hardware counter's value to perf's clock.

    ``ns = time_zero + (cyc >> shift) * mult + (((cyc & (2**shift - 1)) * mult) >> shift)`` modulo 2^64, after
    ``cyc = time_cycles + ((cyc - time_cycles) & time_mask)`` where ``is_short`` (linux/perf_event.h).
    """

    time_shift: int
    time_mult: int
    time_zero: int
    time_cycles: int = 0
    time_mask: int = 2**64 - 1
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class SpeCpu:
    """What the recording says about SPE on one CPU.

    Attributes:
        pmu_type: number of its SPE PMU, None if it has none.
        min_interval, event_filter: 0 if an older perf did not store them.
    """

    midr: int
    pmu_type: int | None
    min_interval: int = 0
    event_filter: int = 0


@dataclass(frozen=True, slots=True)
class AuxtraceInfo:
    """``PERF_RECORD_AUXTRACE_INFO``.

    Attributes:
        type: ``ARM_SPE_AUXTRACE`` or another tracer's number.
        version: of the SPE metadata; 0 for other tracers.
        pmu_type: number of the SPE PMU.
        cpus: by CPU number; empty with version 1, which leaves MIDR to the CPUID feature.
    """

    type: int
    version: int = 0
    pmu_type: int = 0
    cpus: Mapping[int, SpeCpu] = field(default_factory=dict)


def parse_auxtrace(body: bytes, byteorder: str, file: int, payload_offset: int, available_bytes: int) -> AuxBuffer:
    """The body (40 bytes) of an AUXTRACE record whose payload stands at ``payload_offset`` of ``file``."""
    order = "<" if byteorder == "little" else ">"
    size, aux_offset, reference, idx, tid, cpu, _ = struct.unpack_from(f"{order}QQQIIII", body)
    return AuxBuffer(
        file=file,
        file_offset=payload_offset,
        size_bytes=min(size, available_bytes),
        aux_offset=aux_offset,
        reference=reference,
        idx=idx,
        tid=None if tid == _ANY else tid,
        cpu=cpu if cpu < CPU_NUMBERS else None,
        is_cut=size > available_bytes,
    )


def parse_time_conversion(body: bytes, byteorder: str) -> TimeConversion | None:
    """The body of a TIME_CONV record, long or short (perf before 5.9); None if it is shorter than either."""
    order = "<" if byteorder == "little" else ">"
    if len(body) < 24:
        return None
    shift, mult, zero = struct.unpack_from(f"{order}3Q", body)
    if len(body) < 42:
        return TimeConversion(shift, mult, zero)
    cycles, mask, has_zero, is_short = struct.unpack_from(f"{order}QQBB", body, 24)
    if not has_zero:
        return None
    return TimeConversion(shift, mult, zero, cycles, mask, bool(is_short))


def parse_auxtrace_info(body: bytes, byteorder: str) -> AuxtraceInfo | None:
    """The body of an AUXTRACE_INFO record; None if it is too short. Damaged per-CPU words end the list of CPUs."""
    order = "<" if byteorder == "little" else ">"
    if len(body) < 8:
        return None
    (type_,) = struct.unpack_from(f"{order}I", body)
    words = struct.unpack(f"{order}{(len(body) - 8) // 8}Q", body[8 : len(body) - len(body) % 8])
    if type_ != ARM_SPE_AUXTRACE or len(words) < 2:
        return AuxtraceInfo(type_)
    if len(words) < 4:  # version 1 has two words and no number that says so
        return AuxtraceInfo(type_, version=1, pmu_type=words[0])
    version, header_words, pmu_type, cpu_count = words[:4]
    cpus: dict[int, SpeCpu] = {}
    at = header_words
    while len(cpus) < cpu_count and at + 3 <= len(words) and words[at] == _CPU_MAGIC:
        cpu, parameters = words[at + 1], words[at + 2]
        given = words[at + 3 : at + 3 + parameters]
        midr, spe_pmu, min_interval, event_filter = (*given, 0, 0, 0, 0)[:4]
        has_pmu = len(given) > 1 and spe_pmu != _NO_PMU
        cpus[cpu] = SpeCpu(midr, spe_pmu if has_pmu else None, min_interval, event_filter)
        at += 3 + parameters
    return AuxtraceInfo(type_, version, pmu_type, cpus)
