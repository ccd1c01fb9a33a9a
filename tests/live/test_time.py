"""The time of samples, live: intervals as long as they were asked for, and a stretch of a program with two phases."""

import time
from pathlib import Path

import numpy as np
import pytest

from live.recording import record
from tdprof.cli.loading import load_with_findings
from tdprof.model.choices import Selection
from tdprof.model.time_range import parse_time_ranges
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.intervals import find_intervals
from tdprof.profile.selection import select

# Half of the processor's time in one command, then the other half in another.
PHASES = "awk 'BEGIN { for (i = 0; i < 3e6; i++) a += i }'; exec sha1sum /dev/zero & sleep 1; kill $!"


@pytest.mark.needs_bpf
def test_short_intervals_tell_phases_apart(folder: Path) -> None:
    # As long as one process begins after the other has ended, whatever the machine does meanwhile, time separates them.
    capture = record("--interval", "0.1s", "--", "sh", "-c", PHASES, folder=folder)
    assert capture.manifest["interval_ns"] == 100_000_000
    with OpenCapture(capture.folder) as opened:
        profile, _ = load_with_findings(opened, capture.folder)
    found = find_intervals(profile)
    assert len(found.end) >= 5
    middle = found.middle[found.number]
    of = {
        name: np.isin(profile.samples.pid, [p for p, n in profile.process_names.items() if n == name])
        for name in ("awk", "sha1sum")
    }
    assert all(chosen.any() for chosen in of.values())
    assert middle[of["awk"]].max() <= middle[of["sha1sum"]].min()
    cut_s = found.end[found.number[of["awk"]].max()] / 1e9
    late = select(profile, Selection(times=tuple(parse_time_ranges(f"{cut_s:.9f}s-"))))
    assert {late.process_names[pid] for pid in np.unique(late.samples.pid).tolist()} >= {"sha1sum"}
    assert "awk" not in {late.process_names[pid] for pid in np.unique(late.samples.pid).tolist()}


def test_without_bpf_the_option_says_that_it_means_nothing(folder: Path) -> None:
    capture = record("--no-bpf", "--interval", "5s", "--", "true", folder=folder)
    assert any("--interval has no meaning here" in note for note in capture.manifest["notes"])


@pytest.mark.needs_bpf
def test_a_recording_begins_at_one_moment_on_both_clocks(tmp_path: Path) -> None:
    # Before events count the kernel looks at programs that walk stacks, which takes long. Clocks are read one after
    # the other, here and there, so that of several recordings the one counts that was least interrupted.
    apart_ns = []
    for number in range(3):
        manifest = record("--", "true", folder=tmp_path / str(number)).manifest
        of_clocks = time.time_ns() - time.monotonic_ns()
        apart_ns.append(abs(manifest["start_realtime_ns"] - manifest["start_monotonic_ns"] - of_clocks))
    assert min(apart_ns) < 30e6
