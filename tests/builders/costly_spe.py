"""SPE data of captures of which each part once cost more than it weighs; see `costly_files`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from builders import spe
from builders.captures import write_manifest
from builders.cost import tdprof
from builders.costly_files import builder
from builders.spe_capture import PID, load, write_spe_capture
from tdprof.capture.manifest import read_manifest
from tdprof.capture.schema import SPE_SPANS, SWITCHES
from tdprof.decode.spe.spans import PARTIAL, SHORTEST_SPAN_BYTES


def _write_table(folder: Path, name: str, table: pa.Table) -> None:
    pq.write_table(table, folder / f"{name}.parquet", compression="zstd", row_group_size=1 << 26)


def write_spans(folder: Path, aux: bytes, offset: np.ndarray, size: np.ndarray, **more: np.ndarray) -> None:
    """A capture with these bytes and these spans of them; other columns are as of the one CPU."""
    write_spe_capture(folder / "capture")
    (folder / "capture/spe/cpu0.0.aux").write_bytes(aux)
    count = len(offset)
    plain = {name: np.zeros(count, np.uint64) for name in ("time_ns", "cpu", "buffer", "flags")}
    plain |= {name: np.full(count, PID, np.uint64) for name in ("pid", "tid")}
    table = pa.table({name: (plain | {"offset": offset, "size": size} | more)[name] for name in SPE_SPANS.names})
    _write_table(folder / "capture", "spe_spans", table.cast(SPE_SPANS))


def _report(folder: Path, *options: str) -> list[str]:
    return tdprof("spe", "report", folder / "capture", *options)


def _stream(size: int) -> bytes:
    stream, _ = spe.write_stream([load(0x401000 + 4 * (i % 16)) for i in range(max(1, size // 70))], spe.packed_record)
    return stream


def _spans_of(folder: Path, aux: bytes, span_bytes: int) -> None:
    offset = np.arange(0, len(aux), span_bytes, dtype=np.uint64)
    # After each there is a gap, so none is joined to the next.
    gaps = np.full(len(offset), PARTIAL, np.uint64)
    write_spans(folder, aux, offset, np.full(len(offset), span_bytes, np.uint64), flags=gaps)


@builder
def spe_spans_of_a_byte(folder: Path, size: int) -> list[str]:
    """As many spans as there are bytes."""
    _spans_of(folder, _stream(size), 1)
    return _report(folder)


@builder
def spe_spans_as_short_as_any(folder: Path, size: int) -> list[str]:
    """As many spans as are decoded, each into a table of its own."""
    _spans_of(folder, bytes([0xB0, *bytes(8), 0x01, *bytes(54)]) * (size // 64), SHORTEST_SPAN_BYTES)
    return tdprof("spe", "decode", folder / "capture", "-o", folder.parent / "out.parquet")


@builder
def spe_spans_of_the_same_bytes(folder: Path, size: int) -> list[str]:
    """Spans that all cover the whole file."""
    aux = _stream(size)
    count = 4 * size
    write_spans(folder, aux, np.zeros(count, np.uint64), np.full(count, len(aux), np.uint64))
    return _report(folder)


@builder
def spe_buffers_that_are_missing(folder: Path, size: int) -> list[str]:
    """Spans of a buffer each, none of which is there."""
    count = size // 4
    numbers = np.arange(count, dtype=np.uint64)
    write_spans(folder, _stream(100), numbers, np.full(count, 64, np.uint64), buffer=numbers)
    return _report(folder)


@builder
def spe_switches_of_many_cpus(folder: Path, size: int) -> list[str]:
    """A context switch on each of very many CPUs."""
    aux = _stream(size // 2)
    write_spans(folder, aux, np.zeros(1, np.uint64), np.full(1, len(aux), np.uint64))
    cpu = np.arange(size // 8, dtype=np.uint32)
    columns = [np.ones(len(cpu), np.uint64), cpu, np.full(len(cpu), PID, np.uint32)]
    _write_table(folder / "capture", "switches", pa.table(columns, names=SWITCHES.names).cast(SWITCHES))
    manifest = read_manifest(folder / "capture")
    assert manifest.spe is not None
    write_manifest(folder / "capture", replace(manifest, spe=replace(manifest.spe, has_switches=True)))
    return _report(folder)


@builder
def spe_records_of_own_addresses(folder: Path, size: int) -> list[str]:
    """Records, each of an instruction, a thread and a line of memory of its own."""
    count = size // 50
    truths = [load(0x401000 + 4 * i, va=64 * i, context_el2=i) for i in range(count)]
    stream, _ = spe.write_stream(truths, spe.packed_record)
    write_spans(folder, stream, np.zeros(1, np.uint64), np.full(1, len(stream), np.uint64))
    return _report(folder)


@builder
def spe_lines_of_memory(folder: Path, size: int) -> list[str]:
    """The same, by lines of memory."""
    spe_records_of_own_addresses(folder, size)
    return _report(folder, "--by", "address")


@builder
def spe_records_beside_samples(folder: Path, size: int) -> list[str]:
    """The same as a page with what SPE measured."""
    spe_records_of_own_addresses(folder, size)
    return tdprof("export", folder / "capture", "--to", "html", "-o", folder.parent / "out.html")


@builder
def spe_records_as_pprof(folder: Path, size: int) -> list[str]:
    """The same as pprof, where each is a sample."""
    spe_records_of_own_addresses(folder, size)
    return tdprof("export", folder / "capture", "--to", "pprof", "-o", folder.parent / "out.pb.gz")


@builder
def spe_bytes_of_two(folder: Path, size: int) -> list[str]:
    """Packets of two bytes: as many records and as much damage as fit."""
    aux = (bytes([0x01, 0x00]) * size)[:size]
    write_spans(folder, aux, np.zeros(1, np.uint64), np.full(1, size, np.uint64))
    return tdprof("spe", "decode", folder / "capture", "-o", folder.parent / "out.parquet")


@builder
def spe_packets_shown(folder: Path, size: int) -> list[str]:
    """Packets as text."""
    (folder / "aux").write_bytes(_stream(size))
    return tdprof("spe", "dump", folder / "aux", "--raw")


@builder
def spe_short_spans_counted(folder: Path, size: int) -> list[str]:
    """The same, counted."""
    spe_spans_as_short_as_any(folder, size)
    return _report(folder)


@builder
def spe_short_spans_as_pprof(folder: Path, size: int) -> list[str]:
    """The same, each a sample."""
    spe_spans_as_short_as_any(folder, size)
    return tdprof("export", folder / "capture", "--to", "pprof", "-o", folder.parent / "out.pb.gz")


@builder
def spe_short_spans_as_page(folder: Path, size: int) -> list[str]:
    """The same, beside samples."""
    spe_spans_as_short_as_any(folder, size)
    return tdprof("export", folder / "capture", "--to", "html", "-o", folder.parent / "out.html")


@builder
def spe_short_spans_by_address(folder: Path, size: int) -> list[str]:
    """The same, by lines of memory."""
    spe_spans_as_short_as_any(folder, size)
    return _report(folder, "--by", "address")
