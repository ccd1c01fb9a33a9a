"""SPE data into the rows of a report."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from builders import spe
from builders.capture_tables import processes, table
from builders.captures import replace_table
from builders.spe_capture import PID, load, write_spe_capture
from tdprof.capture.schema import SPE_SPANS
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.model.choices import By
from tdprof.model.profile import NO_ID
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse
from tdprof.report.spe.csv import render_csv
from tdprof.report.spe.json import render_json
from tdprof.report.spe.text import render_text


@pytest.mark.parametrize(("page_bytes", "pages"), [(4096, 3), (16384, 2), (65536, 1), (0, 3)])
def test_pages_are_as_large_as_the_recorded_machines(tmp_path: Path, page_bytes: int, pages: int) -> None:
    more = [load(0x401000, va=0xFFFF_0000_0000 + place) for place in (0x2000, 0xF000)]
    capture = write_spe_capture(tmp_path / "capture", more=more)
    manifest = json.loads((capture / "capture.json").read_text())
    manifest["host"]["page_bytes"] = page_bytes
    (capture / "capture.json").write_text(json.dumps(manifest))
    with OpenCapture(capture) as opened:
        result = analyse(opened.spe_data, By.PAGE, None, workers=1)
    assert len(result.names) == pages
    assert all(int(name, 16) % (page_bytes or 4096) == 0 for name in result.names)
    whose = "the recorded machine's" if page_bytes else "the input does not tell the machine's"
    assert f"pages are of {page_bytes or 4096} bytes ({whose})" in result.notes


def access(tid: int | None, address: int, *, op: int) -> spe.Truth:
    return replace(load(0x401000, va=address, context_el2=tid), op=op)


LOAD, STORE, ATOMIC_LOAD = 0x00, 0x01, 0x06  # payloads of the operation packet; an atomic's returns what was there
KERNEL = 0xFF_0000_0000_1000  # as a record has it; all processes'


def test_sharing_is_told_within_a_process(tmp_path: Path) -> None:
    """Forked processes have the same addresses and memory of their own; a record of no known thread is nobody's."""
    accesses = [
        access(PID, 0x1000, op=STORE), access(50, 0x1000, op=STORE), access(51, 0x1040, op=STORE),  # two processes
        access(50, 0x2000, op=STORE), access(51, 0x2008, op=LOAD), access(PID, 0x2008, op=LOAD),
        access(50, 0x3000, op=LOAD), access(51, 0x3000, op=ATOMIC_LOAD),
        access(50, 0x4000, op=STORE), access(None, 0x4000, op=STORE),
        access(PID, KERNEL, op=STORE), access(50, KERNEL, op=STORE),
        access(50, 0x5000, op=LOAD), access(51, 0x5000, op=LOAD), access(PID, 0x5000, op=STORE),
    ]  # fmt: skip
    capture = write_spe_capture(tmp_path / "capture", has_samples=False)
    # CPUs 0 and 1: of the kernel's lines the first is touched from both, the second by several threads of one.
    of_cpus = (
        accesses,
        [access(50, KERNEL + 64, op=STORE), access(51, KERNEL + 64, op=STORE), access(51, KERNEL, op=LOAD)],
    )
    spans = []
    for cpu, of_cpu in enumerate(of_cpus):
        stream, _ = spe.write_stream(of_cpu, spe.packed_record)
        (capture / f"spe/cpu{cpu}.0.aux").write_bytes(stream)
        spans.append((5000, cpu, 0, NO_ID, NO_ID, 0, len(stream), 0))
    replace_table(capture, "spe_spans", table(SPE_SPANS, spans))
    started = (10, "fork", 50, 50, PID, PID, None), (11, "fork", 50, 51, 50, 50, None)
    replace_table(capture, "processes", processes(*started))
    with OpenCapture(capture) as opened:
        found = analyse(opened.spe_data, By.ADDRESS, opened, workers=1)
        pages = analyse(opened.spe_data, By.PAGE, opened, workers=1)
    assert found.sharing is not None
    assert found.threads is not None
    assert pages.threads is not None
    how = [sharing.how if sharing else "" for sharing in found.sharing]
    assert dict(zip(found.names, zip(how, found.threads.tolist(), strict=True), strict=True)) == {
        "0x1000": ("", 1),
        "0x1040": ("", 1),
        "0x2000": ("false", 2),
        "0x3000": ("true", 2),
        "0x4000": ("", 1),
        "0xffff000000001000": ("true", 3),
        "0xffff000000001040": ("", 2),
        "0x5000": ("", 2),
    }
    assert dict(zip(pages.names, pages.threads.tolist(), strict=True))["0x1000"] == 2
    told = "3 rows: the sum over processes, in each of which the address is other memory unless they share it"
    assert told in found.notes  # 0x1000, 0x2000, 0x5000


@pytest.mark.parametrize("by", [By.ADDRESS, By.INSTRUCTION, By.SOURCE])
@pytest.mark.parametrize("workers", [1, 3])
def test_what_is_limited_begins_as_what_is_whole(monkeypatch: pytest.MonkeyPatch, by: By, workers: int) -> None:
    """The same rows with the same counts, whatever is left out, in several threads that stop at few rows, too."""
    streams = [spe.write_stream(spe.program(900, seed), spe.packed_record)[0] for seed in range(4)]
    data = SpeInput([AuxSpan(memoryview(stream), midr=0x410FD0C0) for stream in streams])
    whole = analyse(data, by, None, workers=1)
    rows = len(whole.names)
    monkeypatch.setattr("tdprof.decode.spe.row_sums._MOST_ROWS", 30)
    for limit in (1, 2, rows - 1, rows, rows + 1):
        part = analyse(data, by, None, workers=workers, limit=limit)
        kept = whole.order()[:limit]
        assert part.order().tolist() == list(range(len(kept)))
        assert part.names == [whole.names[row] for row in kept]
        assert part.left_out == rows - len(kept)
        assert part.levels_met == whole.levels_met
        for name, counts in whole.counts.items():
            assert part.counts[name].tolist() == counts[kept].tolist()
        for name, quantiles in whole.latencies.items():
            np.testing.assert_array_equal(part.latencies[name], quantiles[kept])
        if whole.sharing is not None and whole.threads is not None and part.threads is not None:
            assert part.sharing is not None
            assert [*part.sharing] == [whole.sharing[row] for row in kept]
            assert part.threads.tolist() == whole.threads[kept].tolist()


@pytest.mark.parametrize("by", [By.ADDRESS, By.INSTRUCTION, By.SOURCE])
def test_many_rows_are_printed_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch, by: By) -> None:
    """The same text, JSON and CSV as from one report, of all rows and of the first ones."""
    streams = [spe.write_stream(spe.program(900, seed), spe.packed_record)[0] for seed in range(2)]
    data = SpeInput([AuxSpan(memoryview(stream), midr=0x410FD0C0) for stream in streams])
    whole = analyse(data, by, None, workers=1)
    assert not [*whole.rest()]
    at_once = min(40, len(whole.names) // 2)
    monkeypatch.setattr("tdprof.pipeline.spe_report._ROWS_AT_ONCE", at_once)
    parts = analyse(data, by, None, workers=1)
    assert len(parts.names) == at_once
    assert parts.following == len(whole.names) - len(parts.names)
    assert [len(part.names) for part in parts.rest()] == [len(part.names) for part in parts.rest()]  # again and again
    for limit in (0, 1, at_once, at_once + 1, 2 * at_once + 1, len(whole.names), len(whole.names) + 1):
        assert "".join(render_json(parts, limit=limit)) == "".join(render_json(whole, limit=limit))
        assert "".join(render_csv(parts, limit=limit)) == "".join(render_csv(whole, limit=limit))
        for width in (80, 200):
            text, expected = (
                [*render_text(report, Console(width=width), limit=limit, title="x")] for report in (parts, whole)
            )
            assert text == expected
