"""Recordings that are cut into segments: each a whole capture, nothing lost or doubled at a seam, bounds that hold."""

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from live.recording import Capture, run_record, start_record, wait_until

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_bpf]

Build = Callable[[str], Path]


def captures(folder: Path) -> list[Capture]:
    return [Capture(path) for path in sorted(folder.iterdir())]


def test_segments_add_up_and_each_is_whole(build: Build, tmp_path: Path) -> None:
    seconds = 3
    said = run_record(
        "--switch-output=2s", "-F", 499, "--", build("split.c"), seconds, folder=tmp_path / "segments"
    ).stderr
    found = captures(tmp_path / "segments")
    assert len(found) >= 2, said
    manifests = [capture.manifest for capture in found]
    for before, after in itertools.pairwise(manifests):
        assert before["end_monotonic_ns"] == after["start_monotonic_ns"]
    for capture in found:
        assert capture.manifest["state"] == "complete"
        assert not (capture.folder / "spool").exists()
        held = sum(sample.count for sample in capture.samples)
        lost = capture.losses()
        assert held == capture.manifest["samples_counted"] - lost.get("samples_map_full", 0), lost
    # Each knows the program without the others: its name, its functions and their callers.
    for capture in found[1:]:
        samples = [sample for sample in capture.samples if {"heavy", "light"} & set(sample.frames)]
        assert samples or sum(sample.count for sample in capture.samples) < 20
        assert all(sample.thread == "split" for sample in samples)
        assert all("main" in sample.frames for sample in samples)
    work = sum(
        sample.weight for capture in found for sample in capture.samples if {"heavy", "light"} & set(sample.frames)
    )
    assert 0.9 * seconds < work / 1e9 < 1.05 * seconds
    counted = sum(manifest["events"][0]["total"] for manifest in manifests)
    assert 0.95 * seconds < counted / 1e9 < 1.2 * seconds


def test_what_a_killed_recorder_left_is_finished_by_the_next(build: Build, tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    recorder = start_record("--switch-output=1s", "-F", 99, "--", build("split.c"), 30, folder=folder)
    try:
        wait_until(lambda: folder.exists() and len(list(folder.glob("*/capture.json"))) >= 2)
    finally:
        os.killpg(recorder.pid, signal.SIGKILL)
        recorder.communicate()
    left = [capture for capture in captures(folder) if (capture.folder / "spool").exists()]
    assert left
    run_record("--switch-output=1h", "--", "true", folder=folder)
    for capture in captures(folder):
        assert not (capture.folder / "spool").exists()
        assert (capture.folder / "samples.parquet").exists()
    assert any("main" in sample.frames for capture in captures(folder) for sample in capture.samples)
