"""Cache lines and pages by physical address: what processes share, and what only looks like it."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from builders import spe
from builders.capture_tables import processes, table
from builders.captures import replace_table
from builders.spe_capture import PID, load, write_spe_capture
from tdprof.capture.schema import SPE_SPANS
from tdprof.decode.spe import line_uses
from tdprof.model.choices import By
from tdprof.model.profile import NO_ID
from tdprof.model.spe import SpeReport
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse
from tdprof.report.spe.csv import render_csv
from tdprof.report.spe.json import render_json
from tdprof.report.spe.text import render_text

LOAD, STORE, ATOMIC_LOAD = 0x00, 0x01, 0x06  # payloads of the operation packet; an atomic's returns what was there
WRITER, READER, SIBLING = 50, 60, 51  # two processes, and a second thread of the first
KERNEL = 0xFF_0000_0000_0000  # its linear map, as a record has addresses
LINE = 0x8_0000_0040  # a physical one
A, B = 0x7F00_0000_1040, 0x7E00_0000_2040  # where two processes map it


def access(
    tid: int | None, address: int, pa: int | None, *, op: int = LOAD, at: int | None = 1, pc: int = 0x401000
) -> spe.Truth:
    return replace(load(pc, va=address, context_el2=tid, pa=None if pa is None else 1 << 63 | pa, timestamp=at), op=op)


def in_turns(*each: spe.Truth, times: int = 3, start: int = 100) -> list[spe.Truth]:
    """These accesses, one after the other, so many times."""
    return [replace(truth, timestamp=start + number) for number, truth in enumerate(each * times)]


def write_capture(folder: Path, *of_cpus: Iterable[spe.Truth]) -> Path:
    capture = write_spe_capture(folder / "capture", has_samples=False)
    spans = []
    for cpu, accesses in enumerate(of_cpus):
        stream, _ = spe.write_stream(accesses, spe.packed_record)
        (capture / f"spe/cpu{cpu}.0.aux").write_bytes(stream)
        spans.append((5000, cpu, 0, NO_ID, NO_ID, 0, len(stream), 0))
    replace_table(capture, "spe_spans", table(SPE_SPANS, spans))
    started = (
        (10, "fork", WRITER, WRITER, PID, PID, None),
        (11, "fork", WRITER, SIBLING, WRITER, WRITER, None),
        (12, "fork", READER, READER, PID, PID, None),
        (13, "name", READER, READER, None, None, "reader"),
    )
    replace_table(capture, "processes", processes((0, "name", PID, PID, None, None, "app"), *started))
    return capture


def report_of(capture: Path, by: By = By.ADDRESS, *, workers: int = 1) -> SpeReport:
    with OpenCapture(capture) as opened:
        return analyse(opened.spe_data, by, opened, workers=workers)


def rows_of(report: SpeReport) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads("".join(render_json(report)))["rows"]}


def test_a_line_at_two_addresses_is_shared_and_one_address_of_two_lines_is_not(tmp_path: Path) -> None:
    writer, reader = access(WRITER, A, LINE, op=STORE, pc=0x401100), access(READER, B + 8, LINE + 8, pc=0x401200)
    same_word = access(READER, B + 64, LINE + 64), access(WRITER, A + 64, LINE + 64, op=ATOMIC_LOAD)
    apart = access(WRITER, 0x5000, 0x1_0000, op=STORE), access(READER, 0x5000, 0x2_0000, op=STORE)
    capture = write_capture(tmp_path, in_turns(writer, reader), in_turns(*same_word), in_turns(*apart))
    for workers in (1, 3):
        report = report_of(capture, workers=workers)
        rows = rows_of(report)
        assert {name: (row["counts"]["operations"], row["threads"], row["sharing"]) for name, row in rows.items()} == {
            "pa 0x800000040": (6, 2, "false"),
            "pa 0x800000080": (6, 2, "true"),
            "pa 0x10000": (3, 1, None),
            "pa 0x20000": (3, 1, None),
        }
        knows = {"pid": WRITER, "command": "app", "address": "0x7f0000001040", "threads": 1}
        knows_too = {"pid": READER, "command": "reader", "address": "0x7e0000002040", "threads": 1}
        assert rows["pa 0x800000040"]["processes"] == [knows, knows_too]
        assert rows["pa 0x800000040"]["shared_by"] == {
            "order": {"changes": 5, "accesses": 6},
            "accesses": [
                {**knows, "offset": 0, "function": "parse", "loads": 0, "stores": 3},
                {**knows_too, "offset": 8, "function": "unseen", "loads": 3, "stores": 0},
            ],
        }
        assert rows["pa 0x10000"]["shared_by"] is None
        assert not any("sum over processes" in note for note in report.notes)


def test_text_and_csv_say_whose_lines_they_are(tmp_path: Path) -> None:
    each = access(WRITER, A, LINE, op=STORE, pc=0x401100), access(READER, B + 8, LINE + 8, pc=0x401200)
    report = report_of(write_capture(tmp_path, in_turns(*each)))
    text = "".join(render_text(report, Console(width=200), limit=0, title="cache line"))
    assert "pa 0x800000040: app[50] 0x7f0000001040, reader[60] 0x7e0000002040" in text
    lines = [line.split() for line in text.partition("pa 0x800000040, false sharing")[2].splitlines()]
    assert lines == [
        [":", "5", "of", "6", "accesses", "came", "after", "another's"],
        ["offset", "loads", "stores", "threads", "process", "function"],
        ["0", "0", "3", "1", "app[50]", "0x7f0000001040", "parse"],
        ["8", "3", "0", "1", "reader[60]", "0x7e0000002040", "unseen"],
    ]
    (row,) = csv.DictReader(io.StringIO("".join(render_csv(report))))
    assert (row["sharing"], row["threads"]) == ("false", "2")
    assert row["processes"] == "app[50] 0x7f0000001040; reader[60] 0x7e0000002040"


def test_a_fork_shares_no_page_that_it_copies_on_write(tmp_path: Path) -> None:
    """Parent and child read a page in turns; who stores to it has a copy from then on, or has it alone."""
    parent, child, copy = A, A, 0x9_0000_0040
    stores = [access(WRITER, parent, LINE, op=STORE, at=at) for at in (1, 2, 3)]
    both = in_turns(access(READER, child, LINE), access(WRITER, parent, LINE), times=5, start=10)
    childs = [access(READER, child, copy, op=STORE, at=at) for at in (30, 31)]
    after = [access(WRITER, parent, LINE, op=STORE, at=at) for at in (40, 41)]
    rows = rows_of(report_of(write_capture(tmp_path, [*stores, *both, *childs, *after])))
    assert {name: (row["sharing"], row["threads"]) for name, row in rows.items()} == {
        "pa 0x800000040": (None, 2),
        "pa 0x900000040": (None, 1),
    }


@pytest.mark.parametrize("returns", [False, True])
def test_a_page_that_comes_to_another_process_is_not_shared(tmp_path: Path, returns: bool) -> None:
    def owned(tid: int, at: int) -> list[spe.Truth]:
        return [access(tid, A, LINE, op=STORE, at=at + number) for number in range(4)]

    accesses = [*owned(WRITER, 10), *owned(READER, 20), *(owned(WRITER, 30) if returns else [])]
    rows = rows_of(report_of(write_capture(tmp_path, accesses)))
    assert rows["pa 0x800000040"]["sharing"] is None
    assert [user["pid"] for user in rows["pa 0x800000040"]["processes"]] == [WRITER, READER]


def test_without_an_order_processes_are_not_said_to_share(tmp_path: Path) -> None:
    """No timestamps, or ones of one tick; threads of a process need none."""
    each = access(WRITER, A, LINE, op=STORE), access(READER, B, LINE)
    threads = access(WRITER, A + 64, LINE + 64, op=STORE), access(SIBLING, A + 64, LINE + 64)
    for number, at in enumerate((None, 7)):
        accesses = [replace(truth, timestamp=at) for truth in each * 5 + threads]
        rows = rows_of(report_of(write_capture(tmp_path / str(number), accesses)))
        assert {name: row["sharing"] for name, row in rows.items()} == {
            "pa 0x800000040": None,
            "pa 0x800000080": "true",
        }
        assert rows["pa 0x800000080"]["shared_by"]["order"] is None


def test_records_without_a_physical_address_stay_by_data_address(tmp_path: Path) -> None:
    """Neither are they added to a physical line, nor do two processes meet in one."""
    with_one = in_turns(access(WRITER, A, LINE, op=STORE), access(READER, B, LINE))
    without = [access(WRITER, A, None, op=STORE), access(SIBLING, A, None), access(READER, A, None)]
    wrong = [access(WRITER, A, LINE ^ 0x40, op=STORE), access(READER, A, 1 << 52 | LINE)]  # not that address's
    report = report_of(write_capture(tmp_path, [*with_one, *without, *wrong]))
    rows = rows_of(report)
    found = {
        name: (row["counts"]["operations"], row["threads"], row["sharing"], len(row["processes"]))
        for name, row in rows.items()
    }
    assert found == {"pa 0x800000040": (6, 2, "true", 2), "0x7f0000001040": (5, 2, "true", 2)}
    assert rows["0x7f0000001040"]["shared_by"]["accesses"][0]["pid"] == WRITER
    assert "5 operations with a data address but no physical one: in rows by data address" in report.notes
    summed = "1 row: the sum over processes, in each of which the address is other memory unless they share it"
    assert summed in report.notes
    pages = rows_of(report_of(write_capture(tmp_path / "pages", [*with_one, *without]), By.PAGE))
    assert {name: (row["threads"], len(row["processes"])) for name, row in pages.items()} == {
        "pa 0x800000000": (2, 2),
        "0x7f0000001000": (2, 2),
    }


def test_the_kernels_own_address_of_a_process_s_page_is_one_of_its_users(tmp_path: Path) -> None:
    """It clears a page by its linear map before the process has it; that is no sharing, whoever is running."""
    cleared = [access(tid, KERNEL + 0x40, LINE, op=STORE, at=at) for tid, at in ((WRITER, 1), (READER, 2))]
    used = [access(WRITER, A, LINE, op=STORE, at=at) for at in (5, 6)]
    rows = rows_of(report_of(write_capture(tmp_path, [*cleared, *used])))
    assert rows["pa 0x800000040"]["sharing"] is None  # both on one CPU
    kernel = {"pid": None, "command": "kernel", "address": "0xffff000000000040", "threads": 2}
    assert rows["pa 0x800000040"]["processes"][0] == kernel


def test_of_a_line_with_very_many_accesses_a_share_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_uses, "_MOST_KEPT", 1000)
    monkeypatch.setattr(line_uses, "_BATCH_RECORDS", 128)

    def pair(line: int) -> Sequence[spe.Truth]:
        return access(WRITER, A + 64 * line, LINE + 64 * line, op=STORE), access(
            READER, B + 64 * line, LINE + 64 * line
        )

    hot = in_turns(*pair(0), times=3000)
    rare = [truth for line in range(1, 20) for truth in in_turns(*pair(line))]
    rows = rows_of(report_of(write_capture(tmp_path, hot, rare)))
    assert len(rows) == 20
    assert {row["sharing"] for row in rows.values()} == {"true"}
    order = rows["pa 0x800000040"]["shared_by"]["order"]
    assert 8 <= order["accesses"] <= 256
    # Of accesses in turns, of which chance keeps a share, every second one is another's than the one before.
    assert 0.3 < order["changes"] / order["accesses"] < 0.7
    counts = rows["pa 0x800000040"]["shared_by"]["accesses"]
    assert [each["loads"] + each["stores"] for each in counts] == [3000, 3000]
    assert rows["pa 0x8000000c0"]["shared_by"]["order"] == {"changes": 5, "accesses": 6}


def test_one_process_with_two_addresses_of_a_line_shares_it_with_itself(tmp_path: Path) -> None:
    """Its threads contend, by whichever of the two mappings."""
    each = access(WRITER, A, LINE, op=STORE), access(SIBLING, B, LINE)
    rows = rows_of(report_of(write_capture(tmp_path, in_turns(*each))))
    assert rows["pa 0x800000040"]["sharing"] == "true"
    assert {user["pid"] for user in rows["pa 0x800000040"]["processes"]} == {WRITER}
