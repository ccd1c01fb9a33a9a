"""What is on for a part of the time only, with events that any machine has in the place of Topdown's."""

import itertools
import os
from pathlib import Path

import pytest

from live.recording import Capture, run_record
from tdprof.capture.output_folder import OutputFolder
from tdprof.model.duty import TOPDOWN
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.pipeline.finish import finish_capture
from tdprof.recorder.duty import Duties, DutyCycle
from tdprof.recorder.events import parse_event
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.pmu import find_arm_pmu
from tdprof.recorder.session import record
from tdprof.recorder.spe_options import find_spe_pmus
from tdprof.recorder.targets import Rate

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_bpf]

MS = 1_000_000


def test_events_count_in_their_turns_alone(tmp_path: Path) -> None:
    options = RecordOptions(
        events=[parse_event("cpu-clock"), parse_event("task-clock")],
        rate=Rate(frequency_hz=99),
        is_system_wide=True,
        duration_s=2.2,
        topdown=TopdownInfo("neoverse-n1", [SampledGroup([1], ["CPU_CYCLES"], [])]),
        duty=Duties(DutyCycle(300 * MS, 1000 * MS), topdown_hz=99, topdown_rows=range(1, 2)),
    )
    with OutputFolder(tmp_path / "capture") as output:
        outcome = record(options, output)
        assert outcome.failure is None
        with outcome.held:
            finish_capture(output.folder, outcome.held)
    manifest = outcome.manifest
    [duty] = manifest.duty
    assert duty.what == TOPDOWN
    assert duty.windows
    for before, after in itertools.pairwise(duty.windows):
        assert before[1] - before[0] >= 0
        # A turn begins a second after the last one did, or later where the machine was busy with other things.
        assert after[0] - before[0] > 100 * MS
    always, by_turns = manifest.events
    cpus = os.cpu_count() or 1
    assert always.enabled_ns is not None
    assert by_turns.enabled_ns is not None
    # Its own time, of all CPUs, as the kernel counted it, lies within what the recorder noted: it switches CPU by CPU.
    assert 0 < by_turns.enabled_ns <= duty.recorded_ns * cpus * 1.1 + 100 * MS
    assert by_turns.enabled_ns < always.enabled_ns
    assert any(note.startswith("Topdown was on for ") for note in manifest.notes)
    capture = Capture(tmp_path / "capture")
    assert {event["name"] for event in capture.manifest["events"]} == {"cpu-clock", "task-clock"}


def test_without_the_hardware_it_is_said_what_is_missing(tmp_path: Path) -> None:
    for duty, is_there, words in (
        ("topdown=1s/10s", find_arm_pmu() is not None, "--duty topdown: no Topdown metrics, which need the PMU"),
        ("spe=1s/10s", bool(find_spe_pmus()), "this machine offers no SPE"),
    ):
        if is_there:
            continue
        done = run_record("-a", "--switch-output=1h", "--duty", duty, folder=tmp_path / "segments")
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr
