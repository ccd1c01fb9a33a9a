"""Export to pprof: the gzip-compressed protobuf that `go tool pprof` and many viewers read."""

import gzip
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import BinaryIO

import numpy as np

from tdprof import __version__
from tdprof.export import pprof_pb2 as pb
from tdprof.export.pprof_code import StackIds, StringTable, add_code
from tdprof.export.pprof_findings import Label, function_labels, summary
from tdprof.model.arrays import I64, group_rows
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import NO_ID, Profile, SampleTable
from tdprof.model.spe import RECORDS, SampledOperations
from tdprof.profile.categories import category_events
from tdprof.profile.frames import frame_stacks
from tdprof.profile.guesses import have_guess

COMPRESSION_LEVEL = 6
_MOST_SAMPLES, _MOST_VALUES = 1 << 12, 1 << 20  # that are written at a time

LATENCY = "spe_latency"  # the records' total latency


def write_pprof(
    profile: Profile,
    out: BinaryIO,
    findings: Findings | None = None,
    operations: SampledOperations | None = None,
) -> None:
    """Write all events of a profile, added up over time; see ``build_pprof``."""
    # No name and no time of writing in the header: the same profile gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=COMPRESSION_LEVEL, mtime=0) as file:
        for part in _parts(profile, findings, operations):
            file.write(part)


def build_pprof(
    profile: Profile, findings: Findings | None = None, operations: SampledOperations | None = None
) -> pb.Profile:
    """The message that `write_pprof` writes, whole."""
    return pb.Profile.FromString(b"".join(_parts(profile, findings, operations)))


def _parts(profile: Profile, findings: Findings | None, operations: SampledOperations | None) -> Iterator[bytes]:
    """Serialized messages that one behind the other are the whole.

    Its sample types are ``samples`` (of all events) and each event in its unit.

    Samples are labelled with numbers ``pid`` and ``tid`` and texts ``comm`` (process) and ``thread_comm`` (thread), the
    names that perf_data_converter uses. What fell into one stack of one thread is one pprof sample, whatever its time.
    With findings, a sample also has its innermost function's metrics; see ``pprof_findings``. With operations, each
    distinct one is a sample too, whose stack is its instruction.
    """
    strings = StringTable()
    # A damaged capture's may be no time that the format can say; it takes zero for unknown.
    start_ns, duration_ns = (ns if 0 <= ns < 1 << 63 else 0 for ns in _when(profile))
    message = pb.Profile(time_nanos=start_ns, duration_nanos=duration_ns)
    message.sample_type.add(type=strings["samples"], unit=strings["count"])
    for event in profile.events:
        message.sample_type.add(type=strings[event.name], unit=strings[event.unit.value])
    if operations is not None:
        message.sample_type.add(type=strings[RECORDS], unit=strings["count"])
        message.sample_type.add(type=strings[LATENCY], unit=strings["cycles"])
    if operations is not None and not len(profile.samples.event):
        message.default_sample_type = strings[RECORDS]
    elif profile.events:
        message.default_sample_type = strings[profile.events[0].name]
    if len(profile.events) == 1:
        # The period belongs to the whole file, so only a single event has one.
        message.period_type.CopyFrom(message.sample_type[1])
        message.period = _period(profile.events[0])
    stacks = add_code(message, profile, strings)
    groups = _sample_groups(profile)
    row_of_stack, labels_of_row, left_out = _labels_of_functions(profile, findings, groups, strings)
    yield from _samples(profile, groups, len(message.sample_type), stacks, row_of_stack, labels_of_row, strings)
    comments = [*_comments(profile, findings), *(summary(findings, left_out) if findings else ())]
    if operations is not None:
        _add_operations(message, operations, len(profile.events), strings)
        comments += [f"SPE: {operations.detail}: the file would be too large"] * bool(operations.detail)
    message.comment.extend(strings[comment] for comment in comments)
    message.string_table.extend(strings)
    yield message.SerializeToString(deterministic=True)


def _period(event: EventInfo) -> int:
    if event.unit is Unit.NANOSECONDS and event.frequency_hz:
        return 1_000_000_000 // event.frequency_hz
    return event.period


def _comments(profile: Profile, findings: Findings | None) -> Iterator[str]:
    yield f"tdprof {__version__}"
    if profile.command:
        yield f"command: {shlex.join(profile.command)}"
    yield f"rung: {profile.rung}" + (f" ({profile.rung_reason})" if profile.rung_reason else "")
    if findings is not None and findings.has_topdown:
        yield _counted_together(profile.events, findings)
    else:
        yield from _counted(profile.events)
    for each in fields(profile.losses):
        if each.name != "by_reason" and (count := getattr(profile.losses, each.name)):
            yield f"lost {each.name}: {count}"
    for reason, count in profile.losses.by_reason.items():
        yield f"lost {reason}: {count}"


def _counted(events: Sequence[EventInfo]) -> Iterator[str]:
    for event in events:
        total = "unknown" if event.total is None else event.total
        times = f", enabled {event.enabled_ns} ns, running {event.running_ns} ns" if event.enabled_ns else ""
        yield f"counted {event.name}: {total} {event.unit.value}{times}"


def _counted_together(events: Sequence[EventInfo], findings: Findings) -> str:
    """One line, for there are dozens; without the categories, which are computed."""
    computed = category_events(findings.catalog)
    totals = [
        f"{event.name} {'unknown' if event.total is None else event.total}"
        for event in events
        if event.name not in computed
    ]
    return f"counted: {', '.join(totals)}"


def _sample_groups(profile: Profile) -> tuple[I64, I64]:
    """The samples of each stack of a thread, as `group_rows` has them; each group is a sample of the file."""
    samples = profile.samples
    return group_rows(samples.pid, samples.tid, samples.thread_name, samples.stack)


def _samples(
    profile: Profile,
    groups: tuple[I64, I64],
    types: int,
    stacks: StackIds,
    row_of_stack: I64,
    labels_of_row: Sequence[bytes],
    strings: StringTable,
) -> Iterator[bytes]:
    """All samples, some at a time: each has a value of every type."""
    samples = profile.samples
    has_guess_of_stack = have_guess(profile)
    labels: dict[tuple[int, int, int, bool], list[pb.Label]] = {}
    for first, values in _values(samples, groups, types):
        batch = pb.Profile()
        of_sample = (column[first] for column in (samples.pid, samples.tid, samples.thread_name, samples.stack))
        for pid, tid, thread, stack, value in zip(*(each.tolist() for each in of_sample), values, strict=True):
            if (key := (pid, tid, thread, bool(has_guess_of_stack[stack]))) not in labels:
                guessed = [pb.Label(key=strings["callers"], str=strings["guessed"])] if key[-1] else []
                labels[key] = [*_labels(profile, pid, tid, thread, strings), *guessed]
            sample = batch.sample.add(location_id=stacks.of(stack), value=value.tolist(), label=labels[key])
            sample.MergeFromString(labels_of_row[row_of_stack[stack]])
        yield batch.SerializeToString(deterministic=True)


def _values(samples: SampleTable, groups: tuple[I64, I64], types: int) -> Iterator[tuple[I64, I64]]:
    """Of some groups at a time the first row of each, and int64[groups, types]: how many samples, and of each event."""
    order, start = groups
    step = max(1, min(_MOST_SAMPLES, _MOST_VALUES // types))
    for begin in range(0, len(start), step):
        bounds = [*start[begin : begin + step + 1].tolist(), len(order)][: step + 1]
        rows, first = order[bounds[0] : bounds[-1]], order[bounds[:-1]]
        values = np.zeros((len(first), types), np.int64)
        group = np.repeat(np.arange(len(first)), np.diff(bounds))
        np.add.at(values[:, 0], group, samples.count[rows].astype(np.int64))
        np.add.at(values, (group, samples.event[rows] + 1), samples.weight[rows].astype(np.int64))
        yield first, values


def _add_operations(message: pb.Profile, operations: SampledOperations, events: int, strings: StringTable) -> None:
    """Add sampled operations. Their values follow those of the events, of which they have none."""
    profile, samples = operations.profile, operations.profile.samples
    stacks = add_code(message, profile, strings)
    of_thread: dict[tuple[int, int, int], list[pb.Label]] = {}
    columns = (samples.pid, samples.tid, samples.thread_name, samples.stack, samples.weight, operations.latency_cycles)
    for row, (pid, tid, thread, stack, records, cycles) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        if (key := (pid, tid, thread)) not in of_thread:
            of_thread[key] = _labels(profile, pid, tid, thread, strings)
        labels = [
            pb.Label(key=strings[name], str=strings[text])
            for name, words in operations.words.items()
            if (text := words[row])
        ]
        labels += [
            pb.Label(key=strings[name], num=int(values[row]), num_unit=strings["cycles"])
            for name, values in operations.latencies.items()
            if values[row] >= 0
        ]
        message.sample.add(
            location_id=stacks.of(stack), value=[*[0] * (1 + events), records, cycles], label=of_thread[key] + labels
        )


def _labels(profile: Profile, pid: int, tid: int, thread: int, strings: StringTable) -> list[pb.Label]:
    texts = {"comm": profile.process_names.get(pid, ""), "thread_comm": profile.thread_names[thread]}
    return [
        *(pb.Label(key=strings[key], num=number) for key, number in (("pid", pid), ("tid", tid)) if number != NO_ID),
        *(pb.Label(key=strings[key], str=strings[text]) for key, text in texts.items() if text),
    ]


def _labels_of_functions(
    profile: Profile, findings: Findings | None, groups: tuple[I64, I64], strings: StringTable
) -> tuple[I64, list[bytes], int]:
    """The row of findings that each stack ends in, the labels of each row, how many have no metrics.

    What has no row has the last one. The labels are those of a serialized sample: objects would take ten times as much.
    """
    if findings is None:
        return np.zeros(len(profile.stacks.start) - 1, np.int64), [b""], 0
    stacks, samples = frame_stacks(profile), profile.samples
    rows = len(findings.function)
    row_of = np.full(len(profile.functions.name) + 1, rows)
    row_of[findings.function] = np.arange(rows)
    row_of_stack = row_of[stacks.function[stacks.start[:-1]]]
    order, start = groups
    written = np.bincount(row_of_stack[samples.stack[order[start]]], minlength=rows)[:rows]
    labels, left_out = function_labels(findings, written)
    of_row = [pb.Sample(label=[_label(label, strings) for label in mine]).SerializeToString() for mine in labels]
    return row_of_stack, of_row, left_out


def _label(label: Label, strings: StringTable) -> pb.Label:
    key, value, unit = label
    if isinstance(value, str):
        return pb.Label(key=strings[key], str=strings[value])
    return pb.Label(key=strings[key], num=value, num_unit=strings[unit])


def _when(profile: Profile) -> tuple[int, int]:
    """By the clock, when the samples' time began (0: not known), and how long it is: of a choice of times theirs."""
    start_ns, duration_ns = profile.start_realtime_ns, profile.duration_ns
    if profile.window is not None and profile.window.covered:
        start_ns += profile.window.covered[0][0] if start_ns else 0
        duration_ns = sum(end - begin for begin, end in profile.window.covered)
    return start_ns, duration_ns
