"""SPE data printed, written as a table or reported, for `tdprof spe` and `tdprof report --spe`."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

from arm_spe import Damage, DecodeCounts, dump_packets
from tdprof.capture.files import MANIFEST_FILE
from tdprof.capture.manifest import read_manifest
from tdprof.cli.form import DEFAULT_LIMIT, Output, print_result
from tdprof.cli.memory import keep_process_small, take_memory_from_the_system
from tdprof.cli.output import result_file, standard_output
from tdprof.cli.standard_error import say
from tdprof.decode.spe.capture import open_spe
from tdprof.decode.spe.csv_rows import CsvWriter
from tdprof.decode.spe.losses import aux_losses, decode_losses
from tdprof.decode.spe.spans import AuxSpan, SpeInput, open_perf_data, open_raw
from tdprof.decode.spe.table import DecodedPiece, decode_spans, spe_schema
from tdprof.errors import TdprofError
from tdprof.export.parquet import ParquetWriter
from tdprof.model.choices import DEFAULT_SYMBOLS, By, SymbolOptions
from tdprof.model.spe import SpeReport
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse, open_code_of
from tdprof.report.spe.csv import render_csv
from tdprof.report.spe.json import render_json
from tdprof.report.spe.text import render_text
from tdprof.text import plural

_PROGRESS_AFTER_S = 2.0
# Addresses and times compress best as differences; dictionaries serve only what is a word already.
_PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    # Of columns by which rows are chosen; of others nobody asks, and they cost a tenth of the time.
    "write_statistics": ["cpu", "pc", "va", "timestamp", "time_ns"],
    "use_dictionary": ["security", "op_class", "op_subclass", "source"],
    "column_encoding": dict.fromkeys(
        ("offset", "pc", "va", "pa", "branch_target", "previous_branch_target", "timestamp", "time_ns"),
        "DELTA_BINARY_PACKED",
    ),
}


def is_capture(path: str) -> bool:
    """Whether a path names a capture's folder, not a perf.data file or directory."""
    return (Path(path) / MANIFEST_FILE).exists()


@contextlib.contextmanager
def _open(path: str, *, is_raw: bool, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    if is_raw:
        opened = open_raw(path, cpu=cpu, midr=midr)
    elif is_capture(path):
        opened = open_spe(Path(path), read_manifest(Path(path)))
    else:
        opened = open_perf_data(path)
    with opened as source:
        yield source


def print_packets(file: str, *, is_raw: bool) -> None:
    """Print the packets of a file, one a line."""
    with _open(file, is_raw=is_raw) as source, standard_output():
        out = sys.stdout.buffer
        for span in source.spans:
            if not is_raw:
                out.write(_span_title(span).encode())
            for text in dump_packets(span.data, span.aux_offset):
                out.write(text)
        out.flush()


def _span_title(span: AuxSpan) -> str:
    where = f"cpu {span.cpu}" if span.cpu is not None else f"thread {span.tid}"
    core = f", MIDR 0x{span.midr:08x}" if span.midr is not None else ""
    return f"\n. ... ARM SPE data: {len(span.data)} bytes of {where} at 0x{span.aux_offset:x}{core}\n"


def write_records(
    file: str,
    output: str,
    *,
    is_csv: bool,
    is_raw: bool,
    cpu: int | None,
    midr: int | None,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Write one row for each sampled operation of a file, and say what is missing.

    Raises:
        TdprofError: it cannot be read or written, or Ctrl-C ended it early.
    """
    take_memory_from_the_system()
    counts = DecodeCounts()
    with _open(file, is_raw=is_raw, cpu=cpu, midr=midr) as source:
        workers = jobs or len(os.sched_getaffinity(0))
        cut_after = _write(source, counts, output, is_csv=is_csv, workers=workers, quiet=quiet)
        if not quiet:
            if cut_after is None:
                spans = plural(len(source.spans), "span", "s")
                say(f"tdprof: {plural(counts.records, 'record', 's')} of {spans} into {output}")
            _say_what_is_missing(counts, source)
    if cut_after is not None:
        raise TdprofError(f"interrupted: {output} holds the first {cut_after} records", status=130)


def _write(
    source: SpeInput, counts: DecodeCounts, output: str, *, is_csv: bool, workers: int, quiet: bool
) -> int | None:
    """Writes all records. After Ctrl-C what was written stays, and how many records these are is returned."""
    written = 0
    with contextlib.ExitStack() as stack:
        if output == "-":
            stack.enter_context(standard_output())
            sink: Any = stack.enter_context(_whole_writes(sys.stdout.buffer))
        else:
            sink = stack.enter_context(result_file(Path(output)))
        writer = CsvWriter(sink) if is_csv else ParquetWriter(sink, spe_schema(), **_PARQUET)
        stack.enter_context(writer)
        try:
            pieces = decode_spans(source, counts, writer.encode, workers=workers)
            for piece in _with_progress(pieces, source.total_bytes, quiet=quiet):
                with _held_back():
                    writer.append(piece.value)
                    written += piece.records
            source.files.check()
        except KeyboardInterrupt:
            return written
    return None


@contextlib.contextmanager
def _whole_writes(stream: BinaryIO) -> Iterator[BinaryIO]:
    """The stream. Where Python was told not to buffer it, a signal would end a write half way, unnoticed."""
    if not isinstance(stream, io.RawIOBase):
        yield stream
        return
    buffered = io.BufferedWriter(stream)
    try:
        yield buffered
    finally:
        buffered.detach()  # writes the rest


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C within the block counts when it ends, a second one at once."""
    received = False
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, in a background job
        yield
        return

    def note(*_: object) -> None:
        nonlocal received
        if received:
            raise KeyboardInterrupt
        received = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise KeyboardInterrupt


def _with_progress(
    pieces: Iterator[DecodedPiece[pa.Buffer]], total_bytes: int, *, quiet: bool
) -> Iterator[DecodedPiece[pa.Buffer]]:
    console = Console(stderr=True)
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress("decoding", *columns, console=console, transient=True, disable=True) as bar:
        task = bar.add_task("decoding", total=total_bytes)
        began = time.monotonic()
        for piece in pieces:
            if bar.disable and console.is_terminal and not quiet and time.monotonic() - began > _PROGRESS_AFTER_S:
                bar.disable = False
                bar.start()
            bar.update(task, completed=piece.done)
            yield piece


def _say_what_is_missing(counts: DecodeCounts, source: SpeInput) -> None:
    """Everything that was not decoded, of the spans that were read to their end."""
    lines = []
    if counts.damaged_regions:
        reasons = ", ".join(f"{reason.text}: {counts.damage[reason]}" for reason in Damage if counts.damage[reason])
        lines.append(f"damaged in {plural(counts.damaged_regions, 'place', 's')} ({reasons})")
    lines += [f"{count} {text}" for text, count in decode_losses(counts).items()]
    packets = {
        "packets have reserved headers: see the column other_packets": counts.unknown_packets,
        "packets came twice in a record: the first was kept": counts.duplicate_packets,
    }
    lines += [f"{count} {text}" for text, count in packets.items() if count]
    lines += [f"{count} {text}" for text, count in aux_losses(source.losses).items()]
    for line in lines:
        say(f"tdprof: {line}")


def print_report(
    file: str,
    by: By,
    output: Output,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    *,
    is_raw: bool = False,
    midr: int | None = None,
    jobs: int | None = None,
) -> None:
    """Report the sampled operations of a capture or a file.

    Raises:
        TdprofError: it cannot be read, or has no SPE data.
    """
    if not is_raw and is_capture(file):
        _report_capture(Path(file), by, output, symbols, jobs=jobs)
        return
    keep_process_small()
    with _open(file, is_raw=is_raw, midr=midr) as source, contextlib.ExitStack() as stack:
        code: OpenCapture | None = None
        if not is_raw and by in (By.FUNCTION, By.LINE, By.INSTRUCTION):
            code = stack.enter_context(open_code_of(file, symbols))
        result = analyse(source, by, code, workers=jobs or len(os.sched_getaffinity(0)))
    _print_report(result, by, output)


def _report_capture(capture: Path, by: By, output: Output, symbols: SymbolOptions, *, jobs: int | None) -> None:
    keep_process_small()
    with OpenCapture(capture, symbols) as opened:
        result = analyse(opened.spe_data, by, opened, workers=jobs or opened.workers, recorded=opened.recorded.spe)
    _print_report(result, by, output)


def _print_report(result: SpeReport, by: str, output: Output) -> None:
    print_result(
        output,
        json=lambda: [render_json(result, limit=output.rows())],
        csv=lambda: render_csv(result, limit=output.rows()),
        text=lambda console: render_text(result, console, limit=output.rows(DEFAULT_LIMIT), title=by),
    )
