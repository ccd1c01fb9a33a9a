"""SPE data printed or reported, for `tdprof spe` and `tdprof report --spe`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import tdprof.cli.memory as process_memory
from arm_spe import dump_packets
from tdprof.capture.files import MANIFEST_FILE
from tdprof.capture.manifest import Manifest
from tdprof.cli.form import DEFAULT_LIMIT, Form, Output, print_result
from tdprof.cli.output import standard_output
from tdprof.cli.standard_error import say
from tdprof.decode.spe.perf_input import open_perf_data
from tdprof.decode.spe.spans import AuxSpan, SpeInput, open_raw
from tdprof.model.choices import DEFAULT_SYMBOLS, By, SymbolOptions
from tdprof.model.spe import SpeReport
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse, open_code_of
from tdprof.report.spe.csv import render_csv
from tdprof.report.spe.json import render_json
from tdprof.report.spe.text import render_text


def is_capture(path: str) -> bool:
    """Whether a path names a capture's folder, not a perf.data file or directory."""
    return (Path(path) / MANIFEST_FILE).exists()


@contextlib.contextmanager
def open_records(path: str, *, is_raw: bool, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    """The SPE data of what a user names: a capture, perf.data, or AUX bytes alone."""
    if is_raw:
        opened = open_raw(path, cpu=cpu, midr=midr)
    elif is_capture(path):
        with OpenCapture(Path(path)) as capture:
            for line in capture.altered:
                say(f"tdprof: {line}")
            yield capture.spe_data
        return
    else:
        opened = open_perf_data(path)
    with opened as source:
        yield source


def print_packets(file: str, *, is_raw: bool) -> None:
    """Print the packets of a file, one a line."""
    with open_records(file, is_raw=is_raw) as source, standard_output():
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


def print_report(
    file: str,
    by: By,
    output: Output,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    *,
    is_raw: bool = False,
    midr: int | None = None,
    jobs: int | None = None,
    manifest: Manifest | None = None,
) -> None:
    """Report the sampled operations of a capture, whose manifest may have been read already, or of a file.

    Raises:
        TdprofError: it cannot be read, or has no SPE data.
    """
    if not is_raw and is_capture(file):
        with OpenCapture(Path(file), symbols, manifest=manifest) as opened:
            _report_capture(opened, by, output, jobs=jobs)
        return
    process_memory.keep_process_small(process_memory.KEPT_BYTES)
    with open_records(file, is_raw=is_raw, midr=midr) as source, contextlib.ExitStack() as stack:
        code: OpenCapture | None = None
        if not is_raw and by is not By.SOURCE:
            code = stack.enter_context(open_code_of(file, symbols))
        workers = jobs or len(os.sched_getaffinity(0))
        result = analyse(source, by, code, workers=workers, limit=_rows_of(output))
    _print_report(result, by, output)


def _report_capture(opened: OpenCapture, by: By, output: Output, *, jobs: int | None) -> None:
    process_memory.keep_process_small(process_memory.KEPT_BYTES)
    workers = jobs or opened.workers
    result = analyse(opened.spe_data, by, opened, workers=workers, recorded=opened.recorded.spe, limit=_rows_of(output))
    _print_report(result, by, output)


def _rows_of(output: Output) -> int:
    return output.rows(DEFAULT_LIMIT if output.form is Form.TEXT else 0)


def _print_report(result: SpeReport, by: str, output: Output) -> None:
    if output.form is Form.CSV:  # which has no place for them
        for note in result.notes:
            say(f"tdprof: {note}")
    print_result(
        output,
        json=lambda: render_json(result, limit=output.rows()),
        csv=lambda: render_csv(result, limit=output.rows()),
        text=lambda console: render_text(result, console, limit=_rows_of(output), title=by),
    )
