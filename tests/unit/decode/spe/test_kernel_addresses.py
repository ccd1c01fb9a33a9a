"""Kernel addresses in SPE data, and the names that they get."""

import struct
from pathlib import Path

from builders import spe
from builders.perf_data import AUXTRACE_INFO, Event, PerfDataWriter
from builders.perf_records import RecordLayout
from tdprof.capture.tables import read_table
from tdprof.decode.spe.kernel_addresses import kernel_addresses_of_folder
from tdprof.model.choices import By
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse

BASE = 0xFFFF_8000_0800_0000
KALLSYMS = [
    (BASE, "T", "_text"),
    (BASE + 0x100, "t", "first"),
    (BASE + 0x200, "T", "second"),
    (BASE + 0x300, "T", "_end"),
]


def stream(*addresses: int) -> bytes:
    """EL2, non-secure; or user code."""
    records = [
        spe.Truth(
            pc=address & (1 << 56) - 1 | (0xC0 if address >> 63 else 0x80) << 56,
            op_class=0,
            op=0,
            events=2,
            total=9,
            timestamp=5,
        )
        for address in addresses
    ]
    return spe.write_stream(records, spe.packed_record)[0]


def test_addresses_are_distinct_over_files_and_batches(tmp_path: Path) -> None:
    many = [BASE + 4 * (number % 700) for number in range(40_000)]
    (tmp_path / "a.aux").write_bytes(stream(0x1000, *many))
    (tmp_path / "b.aux").write_bytes(stream(BASE, BASE + 0x9000)[:-1])  # the last one is cut
    (tmp_path / "c.aux").write_bytes(b"")
    found = kernel_addresses_of_folder(tmp_path)
    assert found.tolist() == [BASE + 4 * number for number in range(700)]


def test_kernel_functions_that_only_spe_saw_have_names(tmp_path: Path) -> None:
    event = Event(RecordLayout(sample_type=0x10087, sample_id_all=True), name="arm_spe_0//", type=9)
    writer = PerfDataWriter([event])
    words = [2, 4, 9, 1, 0x1010101010101010, 0, 4, 0x410FD0C0, 9, 1024, 0]
    data = writer.tool_record(AUXTRACE_INFO, struct.pack(f"<II{len(words)}Q", 4, 0, *words))
    trailer = writer.records.sample_id()
    data += writer.records.mmap(0xFFFFFFFF, BASE, 1 << 20, BASE, b"[kernel.kallsyms]_text", misc=1, trailer=trailer)
    payload = stream(BASE + 0x110, BASE + 0x204, BASE + 0x208)
    data += writer.auxtrace(payload + b"\0" * (-len(payload) % 8), cpu=0)
    (tmp_path / "perf.data").write_bytes(writer.file(data))
    (tmp_path / "kallsyms").write_text("".join(f"{address:016x} {kind} {name}\n" for address, kind, name in KALLSYMS))
    folder = tmp_path / "capture"
    import_perf_data(str(tmp_path / "perf.data"), folder, kallsyms=tmp_path / "kallsyms")
    assert read_table(folder, "kernel_symbols")["name"].to_pylist() == ["first", "second"]
    with OpenCapture(folder) as capture:
        report = analyse(capture.spe_data, By.FUNCTION, capture, workers=1)
    operations = report.counts["OPERATIONS"].tolist()
    assert dict(zip(report.names, operations, strict=True)) == {"first": 1, "second": 2}
