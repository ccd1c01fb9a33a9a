"""Lines of an annotated function with what SPE and the PMU know of them."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from builders.captures import replace_table
from builders.spe_capture import load, write_spe_capture
from tdprof.capture.tables import read_table
from tdprof.model.annotation import Annotation, SourceLine
from tdprof.model.machine_code import CodePart
from tdprof.pipeline.annotate.function import annotate
from tdprof.pipeline.annotate.listing import _near_samples
from tdprof.pipeline.annotate.source_files import SourceFiles
from tdprof.pipeline.load import find_findings, load_profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_columns import join_spe
from tdprof.profile.calibrate import calibrated
from tdprof.profile.choice import choose_function
from tdprof.symbolize.disassembly import disassemble


def annotated(capture: Path, function: str, *, has_code: bool = False) -> Annotation:
    with OpenCapture(capture) as opened:
        profile = load_profile(opened)
        findings = join_spe(find_findings(profile), opened, profile)
        profile = calibrated(profile)
        chosen = choose_function(profile, function)
        return annotate(opened, profile, findings, chosen, SourceFiles(), has_code=has_code)


def lines_of(annotation: Annotation) -> dict[int, SourceLine]:
    return {line.line: line for source in annotation.sources for line in source.lines}


@pytest.fixture(scope="module")
def of_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("annotate") / "capture")


def test_latencies_stand_at_their_lines(of_clock: Path) -> None:
    line = lines_of(annotated(of_clock, "work"))[10]
    assert line.latency is not None
    # 60 loads of 200 cycles, 540 of 8
    assert line.latency.operations == 600
    assert line.latency.mean == pytest.approx((60 * 200 + 540 * 8) / 600)
    assert (line.latency.p50, line.latency.p99) == (8, 200)
    parse = lines_of(annotated(of_clock, "parse"))[30]
    assert parse.latency is not None
    assert parse.latency.operations == 100


def test_latencies_of_all_code_of_a_line_are_added(tmp_path: Path) -> None:
    """The compiler put the unlikely half of line 10 elsewhere."""
    slow = [load(0x401300, total=1000)] * 100
    capture = write_spe_capture(tmp_path / "capture", more=slow, more_code=[(0x401300, "work.cold", 10)])
    latency = lines_of(annotated(capture, "work"))[10].latency
    assert latency is not None
    assert latency.operations == 700
    assert latency.mean == pytest.approx((60 * 200 + 540 * 8 + 100 * 1000) / 700)
    assert (latency.p50, latency.p90, latency.p99) == (8, 1000, 1000)


def test_a_line_has_the_metrics_that_spe_measured(of_clock: Path) -> None:
    metrics = dict(lines_of(annotated(of_clock, "work"))[10].metrics)
    assert metrics["l1d_cache_miss_ratio"].value == 60 / 600
    assert metrics["l1d_cache_miss_ratio"].source == "spe"


def test_a_line_has_the_metrics_of_a_topdown_recording(tmp_path: Path) -> None:
    capture = write_spe_capture(tmp_path / "capture", is_topdown=True)
    annotation = annotated(capture, "work")
    found = {(name, value.source) for name, value in lines_of(annotation)[10].metrics}
    assert {("backend_bound", "pmu"), ("l1d_cache_miss_ratio", "pmu"), ("l1d_cache_miss_ratio", "spe")} <= found


def test_code_that_is_not_here_is_shown_by_address(of_clock: Path) -> None:
    annotation = annotated(of_clock, "work", has_code=True)
    (part,) = annotation.code
    assert part.name == ""
    assert [line.instruction.text for line in part.lines] == [""]
    assert [line.cost.samples[0] for line in part.lines if line.cost] == [300]
    assert any("1 sampled address in /bin/app: their code is not at hand" in note for note in annotation.notes)
    assert any("/bin/app: the mapped file cannot be read here" in note for note in annotation.notes)


def test_a_function_without_samples_of_its_own_names_what_it_calls(tmp_path: Path) -> None:
    capture = write_spe_capture(tmp_path / "capture")
    # ``work`` has only the samples in ``parse``, which it calls.
    rows = read_table(capture, "samples")
    replace_table(capture, "samples", rows.filter(pc.equal(rows["user_stack"], 2)))
    (note,) = [note for note in annotated(capture, "work").notes if "no sample fell" in note]
    assert note.startswith("no sample fell into its own code; 100.0% of all are in what it calls: parse 100.0% (tdprof")
    assert not any("no sample fell" in note for note in annotated(capture, "parse").notes)


def test_of_very_much_code_what_is_near_samples_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.pipeline.annotate.listing._MOST_INSTRUCTIONS", 500)
    for size, expected in ((500, [*range(500)]), (2000, [*range(128), *range(872, 1128)])):
        part = CodePart("f", 0x1000, 0, b"\x90" * size, 62)
        kept, left_out = _near_samples(disassemble(part), part, [0, 1000] if size > 1000 else [])
        assert [each.address - 0x1000 for each in kept] == expected
        assert left_out == size - len(expected)
