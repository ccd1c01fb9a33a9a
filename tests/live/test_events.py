"""Which events are sampled, and that samples stand for exactly what was counted."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from live.recording import EACH_RUNG, Capture, assert_share, record, user_function
from tdprof.model.choices import GroupKind
from tdprof.profile.groups import group_samples

pytestmark = pytest.mark.needs_perf

Build = Callable[[str], Path]


def _end_or_caller(frames: Sequence[str]) -> str:
    """Why a stack is not whole, whose callers may be guesses; else who calls its leaf."""
    return next((name for name in frames if name.startswith("[incomplete: ")), frames[1])


@pytest.mark.parametrize("options", EACH_RUNG)
def test_every_page_fault_is_a_sample(build: Build, folder: Path, options: list[str]) -> None:
    command = [build("faults.c"), "5000", "4"]
    capture = record("-e", "page-faults", "-c", "1", *options, "--", *command, folder=folder, input="\n")
    # On a loaded machine the kernel may leave the BPF program out now and then; each such sample is accounted for.
    skipped = sum(capture.losses().values())
    assert capture.weight() + skipped == capture.total() == sum(sample.count for sample in capture.samples) + skipped
    assert skipped <= 0.01 * capture.total()
    leaf = capture.count(lambda sample: user_function(sample) == "fault")
    assert 5000 - skipped <= leaf[True] <= 5000
    # Path i is taken every fourth time: two choices deep, each function of either half of the paths.
    below = capture.count(lambda sample: _end_or_caller(sample.frames) if sample.frames[:1] == ("fault",) else None)
    # The first ones come faster than what the program has mapped can be read.
    incomplete = sum(below.pop(name) for name in list(below) if name.startswith("[incomplete: "))
    assert below.keys() == {"left", "right"}
    assert all(2500 - skipped - incomplete <= count <= 2500 for count in below.values())
    assert incomplete <= 2500


def test_a_period_counts_for_all_its_events(build: Build, folder: Path) -> None:
    command = [build("faults.c"), "20000", "1"]
    capture = record("-e", "page-faults", "-c", "100", "--", *command, folder=folder, input="\n")
    # A CPU's periods go on over whatever runs there: how many end here is a matter of chance, with as small an error as
    # there are switches. Five standard errors of samples that were independent are more than enough.
    assert abs(capture.weight() - capture.total()) <= 5 * 100 * (capture.total() / 100) ** 0.5
    assert {sample.weight // sample.count for sample in capture.samples} == {100}


def test_several_events_at_once(build: Build, folder: Path) -> None:
    events = "cpu-clock,page-faults,context-switches"
    capture = record("-e", events, "-F", "1999", "--", build("split.c"), "0.4", folder=folder)
    assert [event["name"] for event in capture.manifest["events"]] == events.split(",")
    clock = capture.self_samples("cpu-clock")
    assert_share(clock["heavy"], clock["heavy"] + clock["light"], 0.75)
    # At a frequency the kernel adapts the period to what happens on the CPU: so few faults need not have a sample.
    assert capture.total(1) > 0
    assert {sample.event for sample in capture.samples} <= set(events.split(","))


def kernel_share(capture: Capture) -> tuple[int, int]:
    samples = capture.count(lambda sample: sample.modules[0] == "[kernel]" if sample.modules else None)
    return samples[True], samples.total()


COPY = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=6000")


@pytest.mark.needs_root
def test_user_only_and_kernel_only(folder: Path, tmp_path: Path) -> None:
    """A program that lives in the kernel: :k sees all of it there, :u next to nothing, none in the kernel."""
    kernel = record("-e", "cpu-clock:k", "-F", "1999", "--", *COPY, folder=folder)
    in_kernel, samples = kernel_share(kernel)
    assert in_kernel == samples >= 100
    user = record("-e", "cpu-clock:u", "-F", "1999", "--", *COPY, folder=tmp_path / "user")
    in_kernel, samples = kernel_share(user)
    assert in_kernel == 0
    assert samples < 0.3 * sum(sample.count for sample in kernel.samples)
    assert not any("[kernel]" in sample.modules for sample in user.samples)


def test_user_only_sees_user_code(build: Build, folder: Path) -> None:
    capture = record("-e", "cpu-clock:u", "-F", "1999", "--", build("split.c"), "0.4", folder=folder)
    samples = capture.self_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
    assert kernel_share(capture)[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["--sample-cpu"], id="bpf", marks=pytest.mark.needs_bpf),
        pytest.param(["--no-bpf"], id="ring-buffer", marks=pytest.mark.thorough),
    ],
)
def test_samples_say_on_which_cpu_they_were_taken(options: list[str], folder: Path) -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    program = (
        "import os, time\n"
        f"for cpu, seconds in (({first}, 0.45), ({last}, 0.15)):\n"
        "    os.sched_setaffinity(0, [cpu])\n"
        "    end = time.process_time() + seconds\n"
        "    while time.process_time() < end: pass\n"
    )
    capture = record(*options, "-e", "cpu-clock", "-F", "1999", "--", sys.executable, "-c", program, folder=folder)
    groups = group_samples(capture.profile, GroupKind.CPU)
    weight = dict(zip(map(int, groups.name), groups.weight[:, 0].tolist(), strict=True))
    assert set(weight) <= os.sched_getaffinity(0)
    assert sum(weight.values()) == capture.weight(0)
    # Whatever the interpreter does before, and wherever.
    assert weight[first] > 300_000_000
    if first != last:
        assert 60_000_000 < weight[last] < weight[first]
