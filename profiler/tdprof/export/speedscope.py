"""Export to speedscope's JSON: for each event a profile of weighted samples, in time order where that is known."""

import json
import shlex
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from tdprof import __version__
from tdprof.model.arrays import I32, I64, U64, group_rows
from tdprof.model.events import Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import FrameStacks, Profile
from tdprof.profile.call_tree import call_tree, widest_first, with_roots
from tdprof.profile.frames import frame_stacks, merge_stacks, thread_labels
from tdprof.profile.guesses import marked_names
from tdprof.text import printable
from tdprof.values import dataclass

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
UNITS = {Unit.NANOSECONDS: "nanoseconds", Unit.BYTES: "bytes", Unit.COUNT: "none"}

# speedscope walks every row in the browser's main thread: more samples than this are added up rather than told one by
# one in a file that no browser opens.
MOST_ROWS = 200_000
MOST_ROWS_IN_ALL = 600_000  # of all profiles: a Topdown recording has dozens
# speedscope shows the name above the graph. Of samples that were added up the order is not known.
NOT_IN_ORDER = " (order in time unknown: widest first)"
ROWS_A_WRITE = 10_000


def write_speedscope(profile: Profile, out: BinaryIO, findings: Findings | None = None) -> None:
    """Write all events; each stack's root frame is its thread's name, and functions are frames whatever the line.

    Samples stand in the order in which they were taken where each has a time of its own and there are not too many of
    them. All others are added up by thread and stack and stand widest first, so that even the view in order of time
    shows no phases that there were not; the profile's name says so.

    A function whose bottleneck is known says so in its name, as in ``work [backend bound 62 %]``: it is of the
    function's own instructions, wherever in the graph it stands.
    """
    stacks = _distinct_stacks(profile)
    names = [*marked_names(profile), *thread_labels(profile)]
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
        for piece in _profile(profile, event, stacks):
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


@dataclass(frozen=True, slots=True)
class _Stacks:
    """The distinct stacks of functions.

    Attributes:
        text: each as ``root,...,leaf]``; only the thread's frame is missing.
        of_sample: int64[samples], index into ``text``.
        frames: the profile's stacks.
        representative: int64, one of them for each of ``text``.
    """

    text: list[str]
    of_sample: I64
    frames: FrameStacks
    representative: I64


def _distinct_stacks(profile: Profile) -> _Stacks:
    stacks = frame_stacks(profile)
    merged, representative = merge_stacks(stacks)
    function = np.where(stacks.function < 0, len(profile.functions.name), stacks.function)
    root_first = (function[stacks.start[i] : stacks.start[i + 1]][::-1].tolist() for i in representative.tolist())
    text = [_json(frames).removeprefix("[") for frames in root_first]
    return _Stacks(text, merged[profile.samples.stack], stacks, representative)


def has_order(profile: Profile, event: int) -> bool:
    """Whether the samples of an event are written in the order in which they were taken."""
    most_rows = min(MOST_ROWS, MOST_ROWS_IN_ALL // len(profile.events))
    return profile.has_sample_times and int(np.count_nonzero(profile.samples.event == event)) <= most_rows


def _profile(profile: Profile, event: int, stacks: _Stacks) -> Iterator[str]:
    in_order = has_order(profile, event)
    thread, stack, weight = (_by_time if in_order else _widest_first)(profile, event, stacks)
    info = profile.events[event]
    header = {
        "type": "sampled",
        "name": printable(info.name) + ("" if in_order else NOT_IN_ORDER),
        "unit": UNITS[info.unit],
        "startValue": 0,
        "endValue": int(weight.sum()),
    }
    yield _json(header).removesuffix("}") + ',"samples":['
    row_thread, row_stack = (thread + len(profile.functions.name) + 1).tolist(), stack.tolist()
    for begin in range(0, len(row_stack), ROWS_A_WRITE):
        rows = zip(row_thread[begin : begin + ROWS_A_WRITE], row_stack[begin : begin + ROWS_A_WRITE], strict=True)
        yield ("," if begin else "") + ",".join([f"[{thread},{stacks.text[stack]}" for thread, stack in rows])
    yield '],"weights":' + _json(weight.tolist()) + "}"


def _by_time(profile: Profile, event: int, stacks: _Stacks) -> tuple[I32, I64, U64]:
    """Thread name, stack and weight of each sample of an event, first to last."""
    samples = profile.samples
    chosen = np.flatnonzero(samples.event == event)
    chosen = chosen[np.argsort(samples.time_ns[chosen], kind="stable")]
    return samples.thread_name[chosen], stacks.of_sample[chosen], samples.weight[chosen]


def _widest_first(profile: Profile, event: int, stacks: _Stacks) -> tuple[I32, I64, U64]:
    """An event's samples added up by thread name and stack, at each call the callee of most weight first."""
    samples = profile.samples
    chosen = np.flatnonzero(samples.event == event)
    order, start = group_rows(samples.thread_name[chosen], stacks.of_sample[chosen])
    first = chosen[order][start]
    weight = np.add.reduceat(samples.weight[chosen][order], start) if len(start) else samples.weight[:0]
    thread, stack = samples.thread_name[first], stacks.of_sample[first]
    rooted = with_roots(stacks.frames, stacks.representative[stack], thread + len(profile.functions.name))
    order = widest_first(call_tree(rooted), weight)
    return thread[order], stack[order], weight[order]
