"""`tdprof spe` on raw AUX bytes and on perf.data with known content."""

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet
import pytest
from click.testing import CliRunner

from builders import spe
from builders.spe_capture import write_spe_capture
from builders.spe_perf_data import perf_data
from tdprof.cli.main import cli
from tdprof.cli.report import command as report_command
from tdprof.cli.spe import command
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.errors import TdprofError
from tdprof.model.choices import By
from tdprof.pipeline.spe_report import analyse

N1, AMPEREONE = 0x410FD0C0, 0xC00FAC40


def run(*args: object) -> str:
    result = CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def load(source: int | None, **more: int) -> spe.Truth:
    return spe.Truth(
        pc=0x80 << 56 | 0x401000,
        op_class=1,
        op=0,
        events=0x16,
        total=20,
        issue=3,
        va=0xFFFF_0000_1000,
        translation=1,
        source=source,
        context_el2=77,
        **{"timestamp": 1000, **more},
    )


def test_decode_names_sources_by_core(tmp_path: Path) -> None:
    """One value, two cores, two meanings; a store's is none; an unassigned one is shown as unknown."""
    records = [load(8), load(5), load(None)]
    store = spe.Truth(pc=0x80 << 56 | 4, op_class=1, op=1, events=0x16, total=9, va=64, source=8, timestamp=1001)
    stream, _ = spe.write_stream([*records, store], spe.packed_record)
    source = perf_data(tmp_path / "perf.data", [(0, stream), (1, stream)], [N1, AMPEREONE])
    run("decode", source, "-o", tmp_path / "out.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table["cpu"].to_pylist() == [0] * 4 + [1] * 4
    assert table["source"].to_pylist() == [
        "L2", "unknown 0x5", "L1D (by events)", None,
        "L1D", "remote chip", "L1D (by events)", None,
    ]  # fmt: skip
    assert table["data_source"].to_pylist() == [8, 5, None, 8] * 2
    assert table["op_class"].to_pylist()[:4] == ["load", "load", "load", "store"]
    assert table["context"].to_pylist()[:4] == [77, 77, 77, None]
    # (1000 >> 4) * 160 + ((1000 & 15) * 160 >> 4) + 5
    assert table["time_ns"].to_pylist()[0] == 62 * 160 + 80 + 5
    assert table["offset"].to_pylist()[4] == 0x4000


def test_decode_raw_as_csv_keeps_addresses_exact(tmp_path: Path) -> None:
    stream, _ = spe.write_stream([load(0xE)], spe.neoverse_slot)
    (tmp_path / "aux").write_bytes(stream)
    run("decode", tmp_path / "aux", "--raw", "--midr", f"{N1:x}", "--cpu", 5, "--csv", "-o", tmp_path / "out.csv")
    (row,) = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert (row["pc"], row["va"]) == ("0x0000000000401000", "0x0000ffff00001000")
    assert (row["cpu"], row["source"], row["total_latency"], row["pa"]) == ("5", "DRAM", "20", "")


def test_damage_is_said(tmp_path: Path) -> None:
    stream, starts = spe.write_stream(spe.program(50, 1), spe.neoverse_slot)
    data = bytearray(stream)
    data[starts[20] : starts[20] + 8] = b"\x1f" * 8
    (tmp_path / "aux").write_bytes(bytes(data) + b"\xb0\x01")
    result = CliRunner().invoke(command, ["decode", str(tmp_path / "aux"), "--raw", "-o", str(tmp_path / "o.parquet")])
    assert "49 records" in result.stderr
    assert "damaged in 1 place (" in result.stderr
    assert "64 bytes are damaged and left out" in result.stderr
    assert "1 records were cut off by the end of their span" in result.stderr
    assert "---- damaged: 64 bytes" in run("dump", tmp_path / "aux", "--raw")


def test_what_is_no_input_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, this is no recording of any kind, not even a short one")
    with pytest.raises(TdprofError, match=r"not a perf\.data file"):
        run("dump", tmp_path / "text")
    with pytest.raises(TdprofError, match="cannot read"):
        run("dump", "--raw", tmp_path / "missing")
    with pytest.raises(TdprofError, match="hexadecimal"):
        run("decode", "--raw", tmp_path / "text", "--midr", "N1", "-o", "-")


def test_without_a_name_perfs_file_comes_before_our_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TdprofError, match=r"cannot read perf\.data"):
        run("report")
    write_spe_capture(tmp_path / "tdprof.capture")
    found = run("report", "--json")
    assert found == run("report", "--json", "tdprof.capture")
    (tmp_path / "perf.data").write_bytes(b"this is none")
    with pytest.raises(TdprofError, match=r"perf\.data is not a perf\.data file"):
        run("report")


def test_an_empty_input_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "aux").write_bytes(b"")
    assert run("dump", "--raw", tmp_path / "aux") == ""
    run("decode", "--raw", tmp_path / "aux", "-o", tmp_path / "o.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "o.parquet").num_rows == 0


def access(tid: int, address: int, *, is_store: bool, source: int = 0) -> spe.Truth:
    return spe.Truth(
        pc=0x80 << 56 | 0x401000,
        op_class=1,
        op=int(is_store),
        events=0x16,
        total=10,
        va=address,
        context_el2=tid,
        source=None if is_store else source,
        timestamp=5,
    )


def test_false_sharing_is_told_from_true(tmp_path: Path) -> None:
    accesses = [
        access(1, 0x1000, is_store=True), access(2, 0x1008, is_store=False, source=9),  # two words of a line
        access(1, 0x2000, is_store=True), access(2, 0x2000, is_store=False, source=9),  # one word
        access(1, 0x3000, is_store=False), access(2, 0x3008, is_store=False),  # nobody stores
        access(1, 0x4000, is_store=True), access(1, 0x4008, is_store=False),  # one thread
    ]  # fmt: skip
    stream, _ = spe.write_stream(accesses, spe.packed_record)
    (tmp_path / "aux").write_bytes(stream)
    report = json.loads(
        run("report", "--raw", tmp_path / "aux", "--midr", f"{N1:x}", "--by", "address", "--json", "-j", 1)
    )
    rows = {row["name"]: row for row in report["rows"]}
    assert {name: row["sharing"] for name, row in rows.items()} == {
        "0x1000": "false", "0x2000": "true", "0x3000": None, "0x4000": None,
    }  # fmt: skip
    assert {name: row["threads"] for name, row in rows.items()} == {
        "0x1000": 2, "0x2000": 2, "0x3000": 2, "0x4000": 1,
    }  # fmt: skip
    assert rows["0x1000"]["loads_by_level"]["peer"] == 1
    assert rows["0x1000"]["counts"]["snooped"] == 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_report_by_source_adds_up(tmp_path: Path, jobs: int) -> None:
    truths = list(spe.program(4000, 9))
    stream, starts = spe.write_stream(truths, spe.neoverse_slot)
    half = starts[2000]
    source = perf_data(tmp_path / "perf.data", [(0, stream[:half]), (1, stream[half:])], [N1, N1])
    report = json.loads(run("report", source, "--by", "source", "--json", "-j", jobs))
    table = list(csv.DictReader(io.StringIO(run("report", source, "--by", "source", "--csv", "-j", jobs))))
    assert [row["name"] for row in table] == [row["name"] for row in report["rows"]]
    for row, same in zip(table, report["rows"], strict=True):
        assert int(row["operations"]) == same["counts"]["operations"]
        assert float(row["total_latency_p50"]) == same["latency_cycles"]["total_latency"]["p50"]
        assert float(row["l1d_cache_miss_ratio_high"]) == same["ratios"]["l1d_cache_miss_ratio"]["high"]
    loads = [truth for truth in truths if truth.op_class == 1 and not truth.op & 1]
    names = {0: "L1D", 8: "L2", 0xB: "system cache", 0xE: "DRAM"}
    assert report["operations"] == 4000
    assert {row["name"]: row["counts"]["operations"] for row in report["rows"]} == {
        name: sum(truth.source == value for truth in loads) for value, name in names.items()
    }
    for row in report["rows"]:
        mine = sorted(truth.total for truth in loads if names[truth.source or 0] == row["name"])
        assert row["latency_cycles"]["total_latency"]["mean"] == pytest.approx(sum(mine) / len(mine))
        assert row["latency_cycles"]["total_latency"]["p50"] == mine[-(-len(mine) // 2) - 1]
        refills = sum(truth.events >> 3 & 1 for truth in loads if names[truth.source or 0] == row["name"])
        assert row["ratios"]["l1d_cache_miss_ratio"]["value"] == pytest.approx(refills / len(mine))


def test_rows_without_room_are_one_and_said() -> None:
    accesses = [access(1, 0x1000 * line, is_store=bool(line & 1)) for line in (1, 2, 3, 4, 4, 1)]
    stream, _ = spe.write_stream(accesses, spe.packed_record)
    report = analyse(SpeInput([AuxSpan(memoryview(stream))]), By.ADDRESS, None, workers=1, max_rows=2)
    assert report.threads is not None
    columns = (report.names, report.counts["OPERATIONS"].tolist(), report.threads.tolist())
    assert list(zip(*columns, strict=True)) == [("(others)", 3, 1), ("0x1000", 2, 1), ("0x2000", 1, 1)]
    assert "there was room for 2 rows, and what came after them is in the row (others)" in report.notes


def test_report_shows_the_spe_records_of_a_perf_data_file(tmp_path: Path) -> None:
    stream, _ = spe.write_stream([load(8), load(5)], spe.packed_record)
    source = perf_data(tmp_path / "perf.data", [(0, stream)], [N1])
    for by in ("function", "source"):
        shown = CliRunner().invoke(report_command, [str(source), "--spe", "--by", by, "--json"], catch_exceptions=False)
        assert json.loads(shown.stdout) == json.loads(run("report", source, "--by", by, "--json"))
        assert json.loads(shown.stdout)["operations"] == 2
    plain = perf_data(tmp_path / "plain.data", [], [N1])
    with pytest.raises(TdprofError, match=r"plain\.data holds no AUX data"):
        CliRunner().invoke(report_command, [str(plain), "--spe"], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["spe", "report", "perf.data", "--by", by.value] for by in By),
        ["spe", "report", "perf.data", "--raw"],
        ["report", "capture", "--spe"],
        ["report", "capture"],
        ["annotate", "capture", "work"],
        ["diff", "capture", "capture"],
        ["export", "capture", "--to", "pprof"],
    ],
)
def test_without_the_compiled_code_a_line_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    stream, _ = spe.write_stream([load(8)], spe.packed_record)
    perf_data(tmp_path / "perf.data", [(0, stream)], [N1])
    write_spe_capture(tmp_path / "capture")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("arm_spe.native.load_native", lambda: None)
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    error = result.exception
    assert error is None or isinstance(error, TdprofError)  # what shows more than SPE goes on without it
    said = f"{error.message} ({error.hint})" if error else result.output
    assert "without its compiled code" in said
    assert "pip install . or, in a checkout, tools/setup" in said
