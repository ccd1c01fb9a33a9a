"""Recordings that are cut into segments: each a whole capture, nothing lost or doubled at a seam, bounds that hold."""

import itertools
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S, wait_until
from live.recording import Capture, run_record, start_record, user_function

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_bpf, pytest.mark.beside_others]

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


def test_each_event_is_in_one_segment_and_none_is_said_to_be_lost_at_a_seam(build: Build, tmp_path: Path) -> None:
    folder, faults = tmp_path / "segments", 0
    words = ("--switch-output=1s", "-e", "page-faults", "-c", 1, "--", build("faults.c"), 1000, 1)
    recorder = start_record(*words, folder=folder)
    try:
        assert recorder.stdin
        assert recorder.stdout
        while not folder.exists() or len(list(folder.glob("*/capture.json"))) < 4:
            recorder.stdin.write("\n")
            recorder.stdin.flush()
            assert recorder.stdout.readline() == "done\n"
            faults += 1000
        _, errors = recorder.communicate(timeout=PATIENCE_S)
        assert recorder.returncode == 0, errors
    finally:
        recorder.kill()
        recorder.communicate()
    found = captures(folder)
    missing = sum(capture.total() - capture.weight() for capture in found)
    said = [pair for capture in found for pair in capture.losses().items()]
    gone = sum(number for reason, number in said if reason == "samples_map_full" or "without asking BPF" in reason)
    assert gone <= missing, said
    # On a loaded machine the kernel may leave the BPF program out now and then.
    assert 0 <= missing <= 0.01 * faults
    held = sum(capture.count(lambda sample: user_function(sample) == "fault")[True] for capture in found)
    assert faults - missing <= held <= faults
    # Each event's count is that of the samples, but for what counted within the cut.
    for capture in found:
        event = capture.manifest["events"][0]
        assert abs(capture.total() - capture.weight()) <= event["counted_at_cuts"] + missing


@pytest.mark.thorough
def test_what_the_command_started_before_a_segment_has_its_names_in_it(build: Build, tmp_path: Path) -> None:
    command = ("sh", "-c", f"{build('split.c')} 4; :")
    run_record("--switch-output=1s", "-F", 199, "--", *command, folder=tmp_path / "segments")
    found = captures(tmp_path / "segments")
    assert len(found) >= 3
    for capture in found:
        busy = [sample for sample in capture.samples if sample.thread == "split"]
        named = sum(sample.count for sample in busy if {"heavy", "light"} & set(sample.frames))
        # What starts or ends it may be all of the first and the last.
        assert capture in (found[0], found[-1]) or named > 0.5 * sum(sample.count for sample in busy)


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


CLOCK = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && getenv("CLOCK_BACK_IF") && access(getenv("CLOCK_BACK_IF"), F_OK) == 0)
        now->tv_sec -= 3600;
    return result;
}
"""


@pytest.mark.thorough
def test_a_clock_that_is_set_back_neither_disturbs_the_order_nor_loses_anything(build: Build, tmp_path: Path) -> None:
    """The clock of the recorder's process alone: another library answers when it asks."""
    (tmp_path / "clock.c").write_text(CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "clock.so", tmp_path / "clock.c"], check=True)
    folder = tmp_path / "segments"
    is_back = tmp_path / "is back"
    back = {"LD_PRELOAD": str(tmp_path / "clock.so"), "CLOCK_BACK_IF": str(is_back)}
    # The recorded program sets it back, so that segments before and after are long enough whatever the start took.
    command = f"{build('split.c')} 2.5; touch '{is_back}'; {build('split.c')} 2.5"
    words = ("--switch-output=1s", "-F", 99, "--", "sh", "-c", command)
    said = run_record(*words, folder=folder, env=os.environ | back).stderr
    found = captures(folder)
    assert len(found) >= 3, said
    manifests = [capture.manifest for capture in found]
    starts = [manifest["start_realtime_ns"] for manifest in manifests]
    assert any(after < before - 3000e9 for before, after in itertools.pairwise(starts)), starts
    for before, after in itertools.pairwise(manifests):
        assert before["end_monotonic_ns"] == after["start_monotonic_ns"]
    for capture in found:
        assert capture.manifest["state"] == "complete"
        assert sum(sample.count for sample in capture.samples) == capture.manifest["samples_counted"]
    # Who records next, before the time of their names has come, keeps the newest ones.
    later = ("--switch-output=1h", "--switch-max-files=3", "--", build("split.c"), 3)
    run_record(*later, folder=folder, env=os.environ | back)
    left = captures(folder)
    assert [capture.folder for capture in left[:-1]] == [capture.folder for capture in found[-2:]]
    assert left[-1].manifest["start_monotonic_ns"] > manifests[-1]["end_monotonic_ns"]
