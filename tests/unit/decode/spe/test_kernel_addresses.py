"""Kernel addresses in SPE data, and the names that they get."""

import struct
from pathlib import Path

import numpy as np
import pytest

from builders import spe
from builders.perf_data import AUXTRACE_INFO, Event, PerfDataWriter
from builders.perf_records import RecordLayout
from tdprof.capture.tables import read_table
from tdprof.decode.spe.kernel_addresses import kernel_addresses_of_folder
from tdprof.decode.spe.perf_input import open_perf_data
from tdprof.model.choices import By
from tdprof.model.spe import NO_TID
from tdprof.pipeline import import_perf
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse, open_code_of
from tdprof.pipeline.spe_rows import CodeDetail, SymbolizedRows

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


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """SPE records of the kernel alone, and the list of its symbols beside it."""
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
    return tmp_path / "perf.data"


EXPECTED = {"first": 1, "second": 2}


def test_kernel_functions_that_only_spe_saw_have_names(tmp_path: Path, recording: Path) -> None:
    folder = tmp_path / "capture"
    import_perf_data(str(recording), folder, kallsyms=tmp_path / "kallsyms")
    assert read_table(folder, "kernel_symbols")["name"].to_pylist() == ["first", "second"]
    with OpenCapture(folder) as capture:
        report = analyse(capture.spe_data, By.FUNCTION, capture, workers=1)
    assert dict(zip(report.names, report.counts["OPERATIONS"].tolist(), strict=True)) == EXPECTED


@pytest.mark.parametrize("batch", [1, 1 << 18])
def test_a_report_of_the_file_names_them_too_in_one_pass(
    tmp_path: Path, recording: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Looking for the kernel's addresses first was as much work as the report, and one thread's."""
    monkeypatch.setattr("tdprof.decode.spe.kernel_addresses.kernel_addresses", None)
    monkeypatch.setattr(import_perf, "_kallsyms_candidates", lambda *_: [tmp_path / "none", tmp_path / "kallsyms"])
    with open_perf_data(recording) as source, open_code_of(str(recording)) as capture:
        report = analyse(source, By.FUNCTION, capture, workers=1)
        assert dict(zip(report.names, report.counts["OPERATIONS"].tolist(), strict=True)) == EXPECTED
        rows = SymbolizedRows(capture, CodeDetail.LINE)
        addresses = np.array([BASE + 0x300, BASE + 0x104, BASE + 0x90000, BASE + 0x200], np.uint64)
        for at in range(0, len(addresses), batch):
            rows.place(addresses[at : at + batch], np.full(len(addresses[at : at + batch]), NO_TID, np.uint64))
    names = sorted(each.name.split("+")[0] for each in rows.functions)
    assert names == ["[no symbol] [kernel]", "_end", "first", "second"]
