# SPDX-License-Identifier: Apache-2.0
"""A program's call stacks at moments at which it was stopped: as tdprof has them, beside a judge's."""

import itertools
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT
from typing import TypeVar

from tdprof.model.profile import FunctionTable
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.frames import frame_stacks

F = TypeVar("F")  # a frame, as a judge tells it


@contextmanager
def recorded_switches(command: list[str], capture: Path, begun_s: float, env: dict[str, str] | None) -> Iterator[int]:
    """A program that runs, by its number, while each of its threads' leaving the CPU is sampled.

    Args:
        begun_s: how long it is waited until the recorder has looked at the program.

    Raises:
        SystemExit: the program has ended by itself.
    """
    record = [sys.executable, "-m", "tdprof", "record", "-q", "-e", "context-switches", "-c", "1", "-o", str(capture)]
    with (
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as program,
        subprocess.Popen([*record, "-p", str(program.pid)]) as recorder,
    ):
        try:
            while not (capture / "capture.json").exists() and recorder.poll() is None:
                time.sleep(0.1)
            time.sleep(begun_s)
            yield program.pid
            if program.poll() is not None:
                sys.exit("the program has ended")
            recorder.send_signal(SIGINT)
            recorder.wait()
        finally:
            program.kill()


def recorded(
    folder: Path, language: str, frame_of: Callable[[FunctionTable, int, int], F | None]
) -> Counter[tuple[int, tuple[F, ...]]]:
    """(thread, frames of a language, innermost first) of each sample.

    Args:
        language: the path of its code, of `tdprof.model.addresses`.
        frame_of: what a judge says of a function, by its row, and a line; None: nothing.
    """
    with OpenCapture(folder) as capture:
        profile = load_profile(capture)
    stacks, functions = frame_stacks(profile), profile.functions
    is_of_language = [row >= 0 and profile.mapped_files[row].path == language for row in functions.mapped_file.tolist()]
    function, line = stacks.function.tolist(), stacks.line.tolist()
    of_stack = [
        tuple(
            frame
            for at in range(start, end)
            if function[at] >= 0
            and is_of_language[function[at]]
            and (frame := frame_of(functions, function[at], line[at])) is not None
        )
        for start, end in itertools.pairwise(stacks.start.tolist())
    ]
    samples = profile.samples
    found: Counter[tuple[int, tuple[F, ...]]] = Counter()
    for tid, stack, count in zip(samples.tid.tolist(), samples.stack.tolist(), samples.count.tolist(), strict=True):
        found[tid, of_stack[stack]] += count
    return found


def by_thread(samples: Counter[tuple[int, tuple[F, ...]]]) -> defaultdict[int, list[tuple[F, ...]]]:
    """The different stacks of each thread."""
    found: defaultdict[int, list[tuple[F, ...]]] = defaultdict(list)
    for tid, stack in samples:
        found[tid].append(stack)
    return found


def difference(judged: tuple[F, ...], of_thread: list[tuple[F, ...]]) -> tuple[int, tuple[F, ...], tuple[F, ...]]:
    """How a stack differs from the one recorded of its thread with most outermost frames in common.

    Returns: so many in common, and what each of the two has within these.
    """
    nearest = max(of_thread, key=lambda stack: (_common(judged, stack), -len(stack)), default=())
    same = _common(judged, nearest)
    return same, judged[: len(judged) - same], nearest[: len(nearest) - same]


def _common(one: tuple[F, ...], other: tuple[F, ...]) -> int:
    """How many frames are the same, outermost first."""
    same = (a == b for a, b in zip(reversed(one), reversed(other), strict=False))
    return sum(1 for _ in itertools.takewhile(bool, same))
