"""Export to pprof: the gzip-compressed protobuf that `go tool pprof` and many viewers read."""

import gzip
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import PurePath
from typing import BinaryIO

import numpy as np

from tdprof import __version__
from tdprof.export import pprof_pb2 as pb
from tdprof.export.pprof_findings import BOTTLENECK, UNKNOWN, Label, function_labels, summary
from tdprof.findings import Findings
from tdprof.frames import NO_STACK, frame_stacks, group_rows, printable
from tdprof.model import I32, I64, U64, EventInfo, FileKind, Unit
from tdprof.profile import Profile
from tdprof.stage1 import category_events

COMPRESSION_LEVEL = 6


class StringTable:
    """pprof's interned strings; index 0 is the empty one."""

    def __init__(self) -> None:
        self._index = {"": 0}

    def __getitem__(self, text: str) -> int:
        """The index of a text, made printable, added when it is new."""
        return self._index.setdefault(printable(text), len(self._index))

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)


def write_pprof(profile: Profile, out: BinaryIO, findings: Findings | None = None) -> None:
    """Write all events of a profile, added up over time; see ``build_pprof``."""
    # No name and no time of writing in the header: the same profile gives the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=COMPRESSION_LEVEL, mtime=0) as file:
        file.write(build_pprof(profile, findings).SerializeToString(deterministic=True))


def build_pprof(profile: Profile, findings: Findings | None = None) -> pb.Profile:
    """The message: sample types are ``samples`` (of all events) and each event in its unit.

    Samples are labelled with numbers ``pid`` and ``tid`` and texts ``comm`` (process) and ``thread_comm`` (thread), the
    names that perf_data_converter uses. What fell into one stack of one thread is one pprof sample, whatever its time.
    With findings, a sample also has its innermost function's metrics; see ``pprof_findings``.
    """
    strings = StringTable()
    message = pb.Profile(time_nanos=profile.start_realtime_ns, duration_nanos=profile.duration_ns)
    message.sample_type.add(type=strings["samples"], unit=strings["count"])
    for event in profile.events:
        message.sample_type.add(type=strings[event.name], unit=strings[event.unit.value])
    if profile.events:
        message.default_sample_type = strings[profile.events[0].name]
    if len(profile.events) == 1:
        # The period belongs to the whole file, so only a single event has one.
        message.period_type.CopyFrom(message.sample_type[1])
        message.period = _period(profile.events[0])
    _add_code(message, profile, strings)
    left_out = _add_samples(message, profile, findings, strings)
    comments = [*_comments(profile, findings), *(summary(findings, left_out) if findings else ())]
    message.comment.extend(strings[comment] for comment in comments)
    message.string_table.extend(strings)
    return message


def _period(event: EventInfo) -> int:
    if event.unit is Unit.NANOSECONDS and event.frequency_hz:
        return 1_000_000_000 // event.frequency_hz
    return event.period


def _comments(profile: Profile, findings: Findings | None) -> Iterator[str]:
    yield f"tdprof {__version__}"
    if profile.command:
        yield f"command: {shlex.join(profile.command)}"
    yield f"rung: {profile.rung}" + (f" ({profile.rung_reason})" if profile.rung_reason else "")
    for event in profile.events:
        if findings and event.name in category_events(findings.catalog):
            continue  # not counted but computed
        total = "unknown" if event.total is None else event.total
        times = f", enabled {event.enabled_ns} ns, running {event.running_ns} ns" if event.enabled_ns else ""
        yield f"counted {event.name}: {total} {event.unit.value}{times}"
    for each in fields(profile.losses):
        if each.name != "by_reason" and (count := getattr(profile.losses, each.name)):
            yield f"lost {each.name}: {count}"
    for reason, count in profile.losses.by_reason.items():
        yield f"lost {reason}: {count}"


def _add_code(message: pb.Profile, profile: Profile, strings: StringTable) -> None:
    """Mappings, functions and locations; ids are rows plus one, and one past the last stands for ``NO_STACK``."""
    functions, locations = profile.functions, profile.locations
    mapping_id = np.zeros(len(profile.mapped_files) + 1, np.int64)  # the last, for -1, stays 0: no mapping
    for number, row in enumerate(_main_first(profile), 1):
        mapping_id[row] = number
        message.mapping.append(_mapping(profile, row, number, strings))

    for row, (name, linkage_name, file) in enumerate(
        zip(functions.name, functions.linkage_name, functions.file, strict=True)
    ):
        message.function.add(id=row + 1, name=strings[name], system_name=strings[linkage_name], filename=strings[file])

    addresses = _runtime_addresses(profile).tolist()
    lines = [
        pb.Line(function_id=function + 1, line=line)
        for function, line in zip(locations.frame_function.tolist(), locations.frame_line.tolist(), strict=True)
    ]
    bounds = locations.frame_start.tolist()
    of_location = mapping_id[locations.mapped_file].tolist()
    for row, address in enumerate(addresses):
        message.location.add(
            id=row + 1, mapping_id=of_location[row], address=address, line=lines[bounds[row] : bounds[row + 1]]
        )

    if np.any(np.diff(profile.stacks.start.astype(np.int64)) == 0):
        no_stack = len(functions.name) + 1
        message.function.add(id=no_stack, name=strings[NO_STACK], system_name=strings[NO_STACK])
        message.location.add(id=len(addresses) + 1, line=[pb.Line(function_id=no_stack)])


def _main_first(profile: Profile) -> list[int]:
    """Rows of the mapped files, the command's own file first: pprof takes the first for the program."""
    program = PurePath(profile.command[0]).name if profile.command else ""
    return sorted(
        range(len(profile.mapped_files)), key=lambda row: PurePath(profile.mapped_files[row].path).name != program
    )


def _mapping(profile: Profile, row: int, number: int, strings: StringTable) -> pb.Mapping:
    """One mapping that covers every sampled address of a file, though the file may be mapped in several pieces."""
    file = profile.mapped_files[row]
    memory_start, length, file_offset = profile.mapped_file_ranges[row]
    sampled = profile.locations.address[profile.locations.mapped_file == row]
    if file.kind is FileKind.ANONYMOUS:
        file_offset = memory_start  # its locations carry run-time addresses
    first = min(file_offset, int(sampled.min(initial=file_offset)))
    end = max(file_offset + length, int(sampled.max(initial=0)) + 1)
    return pb.Mapping(
        id=number,
        memory_start=(memory_start + first - file_offset) % 2**64,
        memory_limit=(memory_start + end - file_offset) % 2**64,
        file_offset=0 if file.kind is FileKind.ANONYMOUS else first,
        filename=strings[file.path],
        build_id=strings[file.build_id],
        # All that can be known is in the file: pprof must not look for symbols in a file of another machine.
        has_functions=True,
        has_filenames=True,
        has_line_numbers=True,
        has_inline_frames=True,
    )


def _runtime_addresses(profile: Profile) -> U64:
    """uint64[locations]: addresses as in the one mapping of each file that ``_mapping`` describes."""
    shift = [
        0 if file.kind is FileKind.ANONYMOUS else (start - offset) % 2**64
        for file, (start, _, offset) in zip(profile.mapped_files, profile.mapped_file_ranges, strict=True)
    ]
    # uint64 wraps around as the addresses do; the last entry serves -1, where the address is a run-time one already.
    return profile.locations.address + np.array([*shift, 0], np.uint64)[profile.locations.mapped_file]


def _add_samples(message: pb.Profile, profile: Profile, findings: Findings | None, strings: StringTable) -> int:
    """Add all samples; returns how many functions were left without their metrics."""
    samples, stacks = profile.samples, profile.stacks
    order, start = group_rows(samples.pid, samples.tid, samples.thread_name, samples.stack)
    group = np.repeat(np.arange(len(start)), np.diff(np.append(start, len(order))))
    values = np.zeros((len(start), 1 + len(profile.events)), np.int64)
    np.add.at(values[:, 0], group, samples.count[order].astype(np.int64))
    np.add.at(values[:, 1:], (group, samples.event[order]), samples.weight[order].astype(np.int64))

    location_id = (stacks.location.astype(np.int64) + 1).tolist()
    bounds = stacks.start.tolist()
    no_stack = [len(profile.locations.address) + 1]
    labels: dict[tuple[int, int, int, int], list[pb.Label]] = {}
    first = order[start]
    row, of_row, left_out = _labels_of_functions(profile, findings, samples.stack[first], strings)
    columns = (samples.pid[first], samples.tid[first], samples.thread_name[first], samples.stack[first], row, values)
    for pid, tid, thread, stack, function, value in zip(*(column.tolist() for column in columns), strict=True):
        if (key := (pid, tid, thread, function)) not in labels:
            labels[key] = [*_labels(profile, pid, tid, thread, strings), *of_row[function]]
        message.sample.add(
            location_id=location_id[bounds[stack] : bounds[stack + 1]] or no_stack, value=value, label=labels[key]
        )
    return left_out


def _labels(profile: Profile, pid: int, tid: int, thread: int, strings: StringTable) -> list[pb.Label]:
    texts = {"comm": profile.process_names.get(pid, ""), "thread_comm": profile.thread_names[thread]}
    return [
        pb.Label(key=strings["pid"], num=pid),
        pb.Label(key=strings["tid"], num=tid),
        *(pb.Label(key=strings[key], str=strings[text]) for key, text in texts.items() if text),
    ]


def _labels_of_functions(
    profile: Profile, findings: Findings | None, stack: I32, strings: StringTable
) -> tuple[I64, list[list[pb.Label]], int]:
    """The row of findings that each pprof sample's stack ends in, the labels of each row, how many have no metrics.

    What has no row has the last one.
    """
    if findings is None:
        return np.zeros(len(stack), np.int64), [[]], 0
    stacks = frame_stacks(profile)
    rows = len(findings.function)
    row_of = np.full(len(profile.functions.name) + 1, rows)
    row_of[findings.function] = np.arange(rows)
    row = row_of[stacks.function[stacks.start[stack]]]
    labels, left_out = function_labels(findings, np.bincount(row, minlength=rows)[:rows])
    of_row = [[_label(label, strings) for label in mine] for mine in (*labels, [(BOTTLENECK, UNKNOWN, "")])]
    return row, of_row, left_out


def _label(label: Label, strings: StringTable) -> pb.Label:
    key, value, unit = label
    if isinstance(value, str):
        return pb.Label(key=strings[key], str=strings[value])
    return pb.Label(key=strings[key], num=value, num_unit=strings[unit])
