"""Runs `tdprof record` as users do and reads what it left, for the live tests."""

import functools
import json
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from builders.opened import profile_of
from builders.waiting import PATIENCE_S
from tdprof.capture.manifest import read_manifest
from tdprof.model.profile import Profile

EACH_RUNG = [
    pytest.param([], id="bpf", marks=pytest.mark.needs_bpf),
    pytest.param(["--no-bpf"], id="ring-buffer", marks=pytest.mark.thorough),
]
"""Options of a recording, for ``parametrize``: what others show of the ring buffers, too, is `thorough` there."""

TDPROF = (sys.executable, "-c", "from tdprof.cli.main import main; main()")


@dataclass(frozen=True)
class Sample:
    """One row of a profile with everything looked up.

    Attributes:
        frames: function names, leaf first, inlined frames innermost first. Those of callers that are guesses end with
            ``[guessed]``.
        modules: base name of the file of each frame's function, "?" if none is known.
    """

    event: str
    pid: int
    tid: int
    thread: str
    frames: tuple[str, ...]
    modules: tuple[str, ...]
    count: int
    weight: int


class Capture:
    """A capture's contents in the terms that tests speak of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """capture.json."""
        data: dict[str, Any] = json.loads((self.folder / "capture.json").read_text())
        return data

    @functools.cached_property
    def profile(self) -> Profile:
        """The profile that reports are made of."""
        return profile_of(self.folder)

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """Every row."""
        profile = self.profile
        names, module_of = profile.functions.name, profile.functions.mapped_file.tolist()
        modules = [Path(file.path).name for file in profile.mapped_files]
        starts, locations = profile.stacks.start.tolist(), profile.stacks.location.tolist()
        frame_starts, frame_functions = (
            profile.locations.frame_start.tolist(),
            profile.locations.frame_function.tolist(),
        )
        marks = [" [guessed]" if is_guess else "" for is_guess in profile.locations.is_guess.tolist()]
        rows = profile.samples
        columns = (rows.event, rows.pid, rows.tid, rows.thread_name, rows.stack, rows.count, rows.weight)
        found = []
        for event, pid, tid, thread, stack, count, weight in zip(*(column.tolist() for column in columns), strict=True):
            frames = [
                (function, marks[location])
                for location in locations[starts[stack] : starts[stack + 1]]
                for function in frame_functions[frame_starts[location] : frame_starts[location + 1]]
            ]
            found.append(
                Sample(
                    profile.events[event].name,
                    pid,
                    tid,
                    profile.thread_names[thread],
                    tuple(names[frame] + mark for frame, mark in frames),
                    tuple(modules[module_of[frame]] if module_of[frame] >= 0 else "?" for frame, _ in frames),
                    count,
                    weight,
                )
            )
        return found

    def count(self, key: Callable[[Sample], object], event: str | None = None) -> Counter[Any]:
        """Number of samples by what ``key`` says of each; those of which it says None are left out."""
        counter: Counter[Any] = Counter()
        for sample in self.samples:
            if (event is None or sample.event == event) and (value := key(sample)) is not None:
                counter[value] += sample.count
        return counter

    def self_samples(self, event: str | None = None) -> Counter[str]:
        """Number of samples by the function they were taken in."""
        return self.count(lambda sample: sample.frames[0] if sample.frames else "?", event)

    def user_samples(self) -> Counter[str]:
        """Number of samples by the innermost user-space function: interrupts do not come in between."""
        return self.count(user_function)

    def losses(self) -> dict[str, int]:
        """What went missing, without the zeros.

        Stacks that were cut are left out: a program's start runs code without frame pointers, through which the
        kernel may walk for as long as it is allowed to.
        """
        losses: Mapping[str, Any] = self.manifest["losses"]
        unwanted = ("by_reason", "stacks_truncated")
        found = {name: number for name, number in losses.items() if name not in unwanted and number}
        return found | losses["by_reason"]

    def total(self, event: int = 0) -> int:
        """The event's exact count."""
        value: int = self.manifest["events"][event]["total"]
        return value

    def weight(self, event: int = 0) -> int:
        """What the event's samples stand for."""
        return int(self.profile.total_weight()[event])


def user_function(sample: Sample) -> str | None:
    """The innermost function of a sample that is not the kernel's; None if all are."""
    for frame, module in zip(sample.frames, sample.modules, strict=True):
        if module != "[kernel]" and not frame.startswith("[hidden kernel]"):
            return frame
    return None


def run_record(
    *arguments: object, folder: Path, prefix: Sequence[str] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `tdprof record ARGUMENTS -o FOLDER` to its end; ``prefix`` is what starts it, such as another user."""
    return subprocess.run(
        [*prefix, *TDPROF, "record", "-o", str(folder), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        **options,
    )


def record(*arguments: object, folder: Path, status: int = 0, **options: Any) -> Capture:
    """As ``run_record``, for a recording that works."""
    result = run_record(*arguments, folder=folder, **options)
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    return Capture(folder)


def start_record(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    """Start a recording in a process group of its own and go on."""
    return subprocess.Popen(
        [*TDPROF, "record", "-o", str(folder), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def has_bytes(path: Path) -> bool:
    """Whether a file is there and not empty."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def has_spooled(folder: Path) -> bool:
    """Whether a running recording has written enough samples for a share of them to mean something."""
    spool = folder / "spool"
    if has_bytes(spool / "rows.bpf"):
        return (read_manifest(folder).samples_counted or 0) > 1000
    return any(path.stat().st_size > 60_000 for path in spool.glob("ring.*.perf"))


def assert_share(part: int, whole: int, expected: float, *, sigmas: float = 5.0, least: int = 300) -> None:
    """Assert that ``part`` of ``whole`` samples is the expected share within the error of sampling.

    Samples are independent draws, so a share p of n of them has the standard deviation sqrt(p (1 - p) / n). Five of
    them are passed by chance once in 1.7 million times. ``least`` keeps the bound from being met by too few samples.
    """
    assert whole >= least
    sigma = math.sqrt(expected * (1 - expected) / whole)
    assert abs(part / whole - expected) <= sigmas * sigma, (
        f"{part} of {whole} is {part / whole:.4f}, expected {expected:.4f} ± {sigmas * sigma:.4f}"
    )


def assert_same_share(part_a: int, whole_a: int, part_b: int, whole_b: int, *, sigmas: float = 5.0) -> None:
    """Assert that two recordings agree on a share within the error of sampling of both."""
    pooled = (part_a + part_b) / (whole_a + whole_b)
    sigma = math.sqrt(pooled * (1 - pooled) * (1 / whole_a + 1 / whole_b))
    assert abs(part_a / whole_a - part_b / whole_b) <= sigmas * sigma, (
        f"{part_a / whole_a:.4f} of {whole_a} and {part_b / whole_b:.4f} of {whole_b} differ by more than"
        f" {sigmas * sigma:.4f}"
    )


def other_user(repository: Path, home: Path) -> Iterator[tuple[list[str], str]]:
    """What starts a command as an ordinary user, and how that user reaches the repository.

    A repository below a folder that the user may not enter is mounted once more below ``home``.
    """
    if os.geteuid() != 0:
        yield [], str(repository)
        return
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    home.chmod(0o755)
    seen = subprocess.run([*become, "test", "-r", str(repository / "pyproject.toml")], check=False).returncode == 0
    if seen:
        yield become, str(repository)
        return
    mounted = home / "repository"
    mounted.mkdir()
    mount = subprocess.run(["mount", "--bind", str(repository), str(mounted)], check=False, capture_output=True)
    if mount.returncode:
        pytest.skip("an ordinary user may not enter the repository's folder, and it cannot be mounted elsewhere")
    try:
        yield become, str(mounted)
    finally:
        subprocess.run(["umount", str(mounted)], check=True)
