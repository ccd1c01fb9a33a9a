"""Writes perf.data files that hold SPE data."""

import struct
from pathlib import Path

from builders.perf_data import AUXTRACE_INFO, TIME_CONV, Event, PerfDataWriter
from builders.perf_records import RecordLayout

CPU_MAGIC = 0x1010101010101010


def perf_data(path: Path, buffers: list[tuple[int, bytes]], midrs: list[int]) -> Path:
    """Buffers by CPU; metadata of version 2 that names each CPU's core."""
    writer = PerfDataWriter([Event(RecordLayout(sample_type=0x10087), name="arm_spe_0//", type=9)])
    words = [2, 4, 9, len(midrs)]
    for cpu, midr in enumerate(midrs):
        words += [CPU_MAGIC, cpu, 4, midr, 9, 1024, 0]
    data = writer.tool_record(TIME_CONV, struct.pack("<5QBB6x", 4, 160, 5, 0, 2**64 - 1, 1, 0))
    data += writer.tool_record(AUXTRACE_INFO, struct.pack(f"<II{len(words)}Q", 4, 0, *words))
    for cpu, payload in buffers:
        padded = payload + b"\0" * (-len(payload) % 8)
        data += writer.auxtrace(padded, cpu=cpu, aux_offset=0x4000 * cpu)
    path.write_bytes(writer.file(data))
    return path
