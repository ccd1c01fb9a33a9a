"""What a recording's manifest is told while it goes on."""

from dataclasses import replace

from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung
from tdprof.model.losses import Losses
from tdprof.recorder.totals import RunningCounts, SegmentCounts, with_long_interval


def test_intervals_that_took_too_long_are_told() -> None:
    manifest = Manifest(HOST, [], [], False, [], Rung.BPF_PMU, "", 0, 1000, 1000, Losses(), interval_ns=100)
    for end_ns in (1099, 1298, 1498, 1500):
        manifest = replace(with_long_interval(manifest, end_ns), end_monotonic_ns=end_ns)
    assert manifest.long_intervals == [[1298, 1498]]
    for end_ns in range(2000, 2000 * 300, 300):
        manifest = replace(with_long_interval(manifest, end_ns), end_monotonic_ns=end_ns)
    assert len(manifest.long_intervals) == 1000


def test_notes_of_segments_are_said_once_and_do_not_add_up() -> None:
    first = Manifest(HOST, [], [], False, [], Rung.BPF_PMU, "", 0, 1000, 1000, Losses(), interval_ns=100)
    counts, manifest, said = SegmentCounts(first), first, []
    for number in range(100):
        now = RunningCounts()
        ended = counts.with_totals(manifest, now, ["one has no room", f"of {number} processes"])
        said += ended.notes
        manifest = counts.begin_next(ended, now)
    assert said == ["one has no room", *(f"of {number} processes" for number in range(100))]
    assert len(counts._said) == 2
