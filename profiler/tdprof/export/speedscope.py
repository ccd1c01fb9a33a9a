"""Export to speedscope's JSON: for each event a profile of weighted samples in time order."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tdprof import __version__
from tdprof.model.arrays import I64
from tdprof.model.events import Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks, function_names, group_rows, merge_stacks, thread_labels
from tdprof.text import printable

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS = {Unit.NANOSECONDS: "nanoseconds", Unit.BYTES: "bytes", Unit.COUNT: "none"}

# speedscope walks every row in the browser's main thread, and a second's rows repeat in the next: a long capture is
# told at a coarser time than its own rather than in a file that no browser opens.
MOST_ROWS = 200_000
MOST_ROWS_IN_ALL = 600_000  # of all profiles: a Topdown recording has dozens
ROWS_A_WRITE = 10_000


def write_speedscope(profile: Profile, out: BinaryIO, findings: Findings | None = None) -> None:
    """Write all events; each stack's root frame is its thread's name, and functions are frames whatever the line.

    A function whose bottleneck is known says so in its name, as in ``work [backend bound 62 %]``: it is of the
    function's own instructions, wherever in the graph it stands.
    """
    texts, stack_of_sample = _stack_texts(profile)
    names = [*function_names(profile), *thread_labels(profile)]
    if findings is not None:
        for function, bottleneck in _bottlenecks(findings).items():
            names[function] += f" [{bottleneck}]"
    files = [printable(file) for file in profile.functions.file]
    frames = [
        {"name": name, "file": file} if file else {"name": name} for name, file in zip(names, files, strict=False)
    ]
    frames += [{"name": name} for name in names[len(files) :]]
    header = {
        "$schema": SCHEMA,
        "exporter": f"tdprof@{__version__}",
        "name": printable(shlex.join(profile.command)) or "tdprof",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
    }
    out.write(_json(header).removesuffix("}").encode() + b',"profiles":[')
    for event in range(len(profile.events)):
        out.write(b",\n" if event else b"\n")
        for piece in _profile(profile, event, texts, stack_of_sample):
            out.write(piece.encode())
    out.write(b"\n]}\n")


def _bottlenecks(findings: Findings) -> dict[int, str]:
    """By function id, such as "backend bound 62 %"."""
    texts = {}
    rows = zip(findings.function.tolist(), findings.diagnoses, strict=True)
    for row, (function, diagnosis) in enumerate(rows):
        name = diagnosis.bottleneck
        if name is not None and function >= 0 and (column := findings.functions.column(name)) is not None:
            value = findings.functions.value[row, column]
            texts[function] = f"{findings.catalog.metrics[name].title.lower()} {value:.0f} %"
    return texts


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _stack_texts(profile: Profile) -> tuple[list[str], I64]:
    """The distinct stacks as text ``root,...,leaf]``, in depth-first order so that neighbours share their callers.

    Returns:
        texts: one for each distinct stack; only the thread's frame is missing.
        stack_of_sample: int64[samples], index into ``texts``.
    """
    stacks = frame_stacks(profile)
    merged, representative = merge_stacks(stacks)
    function = np.where(stacks.function < 0, len(profile.functions.name), stacks.function)
    root_first = [function[stacks.start[i] : stacks.start[i + 1]][::-1].tolist() for i in representative.tolist()]
    order = sorted(range(len(root_first)), key=root_first.__getitem__)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return [_json(root_first[i]).removeprefix("[") for i in order], rank[merged][profile.samples.stack]


def _profile(profile: Profile, event: int, texts: list[str], stack_of_sample: I64) -> Iterator[str]:
    samples = profile.samples
    chosen = samples.event == event
    thread, stack = samples.thread_name[chosen], stack_of_sample[chosen]
    most_rows = min(MOST_ROWS, MOST_ROWS_IN_ALL // len(profile.events))
    order, start = _rows_in_time(samples.time_ns[chosen], thread, stack, most_rows)
    weights = np.add.reduceat(samples.weight[chosen][order], start).tolist()

    info = profile.events[event]
    header = {
        "type": "sampled",
        "name": printable(info.name),
        "unit": UNITS[info.unit],
        "startValue": 0,
        "endValue": sum(weights),
    }
    yield _json(header).removesuffix("}") + ',"samples":['
    first_thread_frame = len(profile.functions.name) + 1
    row_thread = (thread[order][start] + first_thread_frame).tolist()
    row_stack = stack[order][start].tolist()
    for begin in range(0, len(row_stack), ROWS_A_WRITE):
        rows = zip(row_thread[begin : begin + ROWS_A_WRITE], row_stack[begin : begin + ROWS_A_WRITE], strict=True)
        yield ("," if begin else "") + ",".join([f"[{thread},{texts[stack]}" for thread, stack in rows])
    yield '],"weights":' + _json(weights) + "}"


def _rows_in_time(
    time_ns: NDArray[np.uint64], thread: NDArray[np.int32], stack: I64, most_rows: int
) -> tuple[I64, I64]:
    """Group samples by time, thread and stack as ``group_rows`` does, time as fine as ``most_rows`` allows."""
    order, start = group_rows(time_ns, thread, stack)
    step_ns = 125_000_000  # a Topdown recording keeps fifths of a second, others whole ones
    while len(start) > most_rows and step_ns <= int(np.ptp(time_ns)):
        step_ns *= 2
        order, start = group_rows((time_ns - time_ns.min()) // np.uint64(step_ns), thread, stack)
    return order, start
