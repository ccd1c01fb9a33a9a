"""SPE records written as a table, for `tdprof spe decode`."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from arm_spe import Damage, DecodeCounts
from tdprof.cli.output import progress_bar, result_file, standard_output
from tdprof.cli.spe_data import open_records
from tdprof.cli.standard_error import say
from tdprof.decode.spe.csv_rows import CsvWriter
from tdprof.decode.spe.losses import aux_losses, decode_losses
from tdprof.decode.spe.spans import SpeInput
from tdprof.decode.spe.table import DecodedPiece, decode_spans, spe_schema
from tdprof.errors import TdprofError
from tdprof.export.parquet import ParquetWriter
from tdprof.text import plural

_CHOSEN_BY = ("cpu", "pc", "va", "timestamp", "time_ns")  # rows are; of other columns nobody asks for the least


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
    counts = DecodeCounts()
    with open_records(file, is_raw=is_raw, cpu=cpu, midr=midr) as source:
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
        writer = CsvWriter(sink) if is_csv else ParquetWriter(sink, spe_schema(), _CHOSEN_BY)
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
    with progress_bar("decoding", quiet=quiet) as show:
        for piece in pieces:
            show(piece.done, total_bytes)
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
