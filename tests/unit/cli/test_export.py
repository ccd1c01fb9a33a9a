"""`tdprof export` of captures with SPE records, with and without a Topdown recording."""

import base64
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builders import spe
from builders.spe_capture import records, write_spe_capture
from builders.spe_perf_data import perf_data
from tdprof.cli.export import command
from tdprof.errors import TdprofError
from tdprof.export import pprof_pb2


@pytest.fixture(scope="module")
def topdown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("capture") / "topdown", is_topdown=True)


def export(capture: Path, *arguments: str) -> bytes:
    result = CliRunner().invoke(command, [str(capture), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def test_pprof_has_events_categories_records_and_metrics(topdown: Path) -> None:
    message = pprof_pb2.Profile.FromString(gzip.decompress(export(topdown, "--to", "pprof")))
    text = message.string_table
    types = [text[each.type] for each in message.sample_type]
    assert types[:7] == [
        "samples", "CPU_CYCLES", "frontend_bound_slots", "backend_bound_slots", "retiring_slots",
        "bad_speculation_slots", "unknown_slots",
    ]  # fmt: skip
    assert types[-2:] == ["spe_records", "spe_latency"]
    numbers = {text[label.key]: label.num for label in message.sample[0].label if label.num}
    texts = {text[label.key]: text[label.str] for label in message.sample[0].label if label.str}
    # 1,800,000 of 8 * 300,000 slots; 30,000 of 100,000 accesses; SPE saw 80 of 800 loads miss.
    assert (numbers["backend_bound"], texts["bottleneck"]) == (75_000, "backend_bound")
    assert (numbers["l1d_cache_miss_ratio"], numbers["spe_l1d_cache_miss_ratio"]) == (300_000, 100_000)
    assert any("l1d_cache_miss_ratio of work is 0.3 ±" in text[comment] for comment in message.comment)


def test_speedscope_has_a_profile_for_each_category(topdown: Path) -> None:
    document = json.loads(export(topdown, "--to", "speedscope"))
    lost = next(each for each in document["profiles"] if each["name"].startswith("backend_bound_slots"))
    assert lost["endValue"] == 1_800_000 + 40_000
    assert {"name": "work [backend bound 75 %]", "file": "app.c"} in document["shared"]["frames"]


def test_folded_and_event_take_a_category(topdown: Path) -> None:
    assert export(topdown, "--to", "folded", "--event", "frontend_bound_slots").splitlines() == [
        b"app;work 190400",  # 200,000 less four a misprediction, which the formula leaves to bad speculation
        b"app;work;parse 270400",
    ]
    assert export(topdown, "--to", "folded") == b"app;work 300000\napp;work;parse 100000\n"


def test_an_event_that_is_not_there_is_refused_with_those_that_are(topdown: Path) -> None:
    with pytest.raises(TdprofError) as refused:
        export(topdown, "--to", "folded", "--event", "slots")
    assert "backend_bound_slots" in (refused.value.hint or "")


def test_damaged_spe_data_costs_nothing_but_itself(tmp_path: Path) -> None:
    capture = write_spe_capture(tmp_path / "clock")
    (capture / "spe_spans.parquet").write_bytes(b"no table")
    result = CliRunner().invoke(command, [str(capture), "--to", "pprof"], catch_exceptions=False)
    assert result.stderr.startswith("tdprof: SPE records are left out: ")
    message = pprof_pb2.Profile.FromString(gzip.decompress(result.stdout_bytes))
    assert [sum(sample.value) for sample in message.sample] == [300_000_300, 100_000_100]
    quiet = CliRunner().invoke(command, [str(capture), "--to", "folded"], catch_exceptions=False)
    assert (quiet.stdout, quiet.stderr) == ("app;work 300000000\napp;work;parse 100000000\n", "")


def test_perf_data_gives_its_spe_records_without_making_a_capture(tmp_path: Path) -> None:
    stream, _ = spe.write_stream(records(), spe.packed_record)
    source = perf_data(tmp_path / "perf.data", [(0, stream)], [0x410FD400])
    message = pprof_pb2.Profile.FromString(gzip.decompress(export(source, "--to", "pprof")))
    text = message.string_table
    assert text[message.default_sample_type] == "spe_records"
    assert sum(sample.value[-2] for sample in message.sample) == len(records())
    assert sum(sample.value[-1] for sample in message.sample) == sum(record.total for record in records())


def test_the_page_of_a_capture_with_both_is_written(topdown: Path) -> None:
    header = document(export(topdown, "--to", "html").decode())
    assert "backend_bound" in header["findings"]["catalog"]["roots"]
    assert "backend_bound_slots" not in [event["name"] for event in header["events"]]
    assert {level["name"] for level in header["spe"]["levels"] if any(level["count"])} == {"l1", "l2", "dram"}


def test_without_a_topdown_recording_spe_tells_no_bottleneck(tmp_path: Path) -> None:
    message = pprof_pb2.Profile.FromString(
        gzip.decompress(export(write_spe_capture(tmp_path / "clock"), "--to", "pprof"))
    )
    assert "spe_l1d_cache_miss_ratio" in message.string_table
    assert "bottleneck" not in message.string_table
    assert not any(text.startswith("bottleneck") for text in message.string_table)


def test_the_page_takes_an_older_capture_to_compare_with(topdown: Path, tmp_path: Path) -> None:
    older = write_spe_capture(tmp_path / "older", is_topdown=True)
    same, alone = (export(topdown, "--to", "html", *more).decode() for more in (["--diff", str(older)], []))
    assert document(same)["change"]["since"] == str(older)
    assert document(same)["change"]["events"][0] == "CPU_CYCLES"
    assert "change" not in document(alone)


def test_only_the_page_takes_an_older_capture(topdown: Path) -> None:
    with pytest.raises(TdprofError, match="--diff is an option of --to html"):
        export(topdown, "--to", "folded", "--diff", "older.capture")


@pytest.mark.parametrize("words", [["--since", "7d"], ["--until", "2026-01-01"], ["--recordings", "host=a"]])
def test_recordings_are_not_chosen_of_a_capture(topdown: Path, words: list[str]) -> None:
    with pytest.raises(TdprofError, match=f"{words[0]} is an option for stores"):
        export(topdown, "--to", "folded", *words)


def document(page: str) -> dict[str, Any]:
    """The header of the page's data."""
    data = zlib.decompress(base64.b64decode(page.partition('id="data">')[2].partition("<")[0]))
    result: dict[str, Any] = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    return result
