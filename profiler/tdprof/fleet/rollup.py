"""One capture reduced to its roll-ups: integers by function and by call path, in an order of their own."""

import functools
import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.capture.manifest import Manifest
from tdprof.errors import TdprofError
from tdprof.fleet.function_names import fleet_name
from tdprof.fleet.identity import Digest, all_bounded, bounded, core_kind, recorded_date, recording_id
from tdprof.fleet.schema import ALL_KINDS, FUNCTIONS, KINDS, OTHERS, PATHS, RECORDINGS, SPE_LATENCY
from tdprof.fleet.spe_rollup import spe_latencies
from tdprof.fleet.store import Stem, make_stem
from tdprof.fleet.totals import totals_once
from tdprof.model.addresses import FileKind
from tdprof.model.arrays import I32, I64
from tdprof.model.duty import TOPDOWN, recorded_ns_of
from tdprof.model.events import EventInfo
from tdprof.model.profile import Profile, SampleTable
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.calibrate import calibrated
from tdprof.profile.frames import NO_STACK, frame_stacks, merge_stacks, number_pairs
from tdprof.profile.hotspots import Hotspots, effective_samples, find_hotspots, unknown_samples
from tdprof.text import plural
from tdprof.values import dataclass

# Rows of one recording's roll-up; what is beyond is one row more, so that sums stay whole.
MOST_FUNCTIONS, MOST_PATHS = 100_000, 200_000
_LARGEST_SUM = 2.0**62
_KERNEL = (FileKind.KERNEL, FileKind.KERNEL_MODULE)


@dataclass(frozen=True, slots=True)
class Rollup:
    """What a store keeps of one capture.

    Attributes:
        tables: by kind, as `tdprof.fleet.schema` has them.
        no_spe: why its SPE data could not be read; "" if it could, or there is none.
        damage: what else of it could not be read; "" if all could.
    """

    stem: Stem
    tables: dict[str, pa.Table]
    no_spe: str = ""
    damage: str = ""

    @property
    def samples(self) -> int:
        """Samples of all events."""
        return int(np.sum(self.tables["recordings"]["samples"].to_numpy()))


def roll_up(capture: OpenCapture, labels: Sequence[str] = ()) -> Rollup:
    """Add a capture up. Where its SPE data cannot be read, the rest is.

    Args:
        labels: NAME=VALUE each, kept beside it.

    Raises:
        TdprofError: damaged beyond reading, or its numbers are none that a recording can have.
    """
    profile = _with_fleet_names(_each_event_once(calibrated(load_profile(capture))))
    manifest = capture.manifest
    _check_sums(profile, manifest)
    effective = [int(effective_samples(profile, event)) for event in range(len(profile.events))]
    profile = _by_stack(profile)
    code, number_of = _number_functions(profile, find_hotspots(profile, with_hottest_lines=False))
    functions = _functions(profile, code)
    paths = _paths(profile, number_of)
    recording = recording_id(
        manifest, lambda: _digest_of(table.drop_columns("recording") for table in (functions, paths)).encode()
    )
    latencies, no_spe = _latencies(capture)
    tables = {
        "recordings": _recordings(profile, manifest, code, effective, labels, lacks_spe=bool(no_spe)),
        "functions": functions,
        "paths": paths,
    }
    if len(latencies):
        tables["spe_latency"] = latencies
    tables = {kind: _with_recording(table, recording) for kind, table in tables.items()}
    host = manifest.host
    stem = make_stem(recorded_date(manifest), core_kind(host), host.hostname, recording, content_of(tables))
    return Rollup(stem, tables, no_spe, _damage(profile))


def _damage(profile: Profile) -> str:
    lost = profile.losses.bytes_damaged
    return "; ".join([*profile.unreadable, *([f"{plural(lost, 'byte', 's')} of it are damaged"] if lost else [])])


def _latencies(capture: OpenCapture) -> tuple[pa.Table, str]:
    """SPE's, no rows where it has none; and why its SPE data cannot be read, "" if it can."""
    try:
        return spe_latencies(capture) if capture.has_spe else SPE_LATENCY.empty_table(), ""
    except TdprofError as error:
        return SPE_LATENCY.empty_table(), error.message


def content_of(tables: Mapping[str, pa.Table]) -> str:
    """What tells one roll-up of a recording from another: a digest of all that is in it, labels as well.

    Each row has its texts to itself then; see `text_bytes` for what that takes.
    """
    kept = {kind: table for kind, table in tables.items() if kind in KINDS or len(table)}
    return _digest_of(kept[kind].cast(ALL_KINDS[kind]) for kind in sorted(kept))


@dataclass(frozen=True, slots=True)
class _Code:
    """The functions of a recording in the order of their ids.

    Attributes:
        keys: module, name, source file, build-id of each.
        row: the row of each in the hotspots.
        function: int32, function id in the profile; -1 for samples without a stack.
    """

    hotspots: Hotspots
    keys: Sequence[tuple[str, str, str, str]]
    row: I64
    function: I32


def _each_event_once(profile: Profile) -> Profile:
    """Events of one name are one event to a fleet."""
    names = [bounded(event.name) for event in profile.events]
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    kept = sorted(first.values())
    number = np.array([kept.index(first[name]) for name in names], np.uint32)
    events = [replace(profile.events[row], name=names[row]) for row in kept]
    return replace(profile, events=events, samples=replace(profile.samples, event=number[profile.samples.event]))


def _check_sums(profile: Profile, manifest: Manifest) -> None:
    """Raises TdprofError for numbers that cannot be added up."""
    if not profile.events:
        raise TdprofError("it has no events", hint="tdprof record makes captures with some")
    for column in (profile.samples.count, profile.samples.weight):
        if not column.sum(dtype=np.float64) < _LARGEST_SUM:
            raise TdprofError("its samples add up to more than any recording has")
    if not 0 < manifest.duration_ns < 1 << 62:
        raise TdprofError("the times of its start and end are none that a recording has")


def _with_fleet_names(profile: Profile) -> Profile:
    """The profile with functions named as `fleet_name` has it."""
    files, functions = [*profile.mapped_files, None], profile.functions
    file_of = functions.mapped_file.tolist()
    name, linkage_name = (
        [fleet_name(text, files[row]) for text, row in zip(column, file_of, strict=True)]
        for column in (functions.name, functions.linkage_name)
    )
    return replace(profile, functions=replace(functions, name=name, linkage_name=linkage_name))


def _by_stack(profile: Profile) -> Profile:
    """The profile with a row of samples for each event and stack: when, where and in which thread is not kept."""
    samples = profile.samples
    event, stack, row = number_pairs(samples.event.astype(np.int64), samples.stack.astype(np.int64))
    count, weight = np.zeros(len(event), np.uint64), np.zeros(len(event), np.uint64)
    np.add.at(count, row, samples.count)
    np.add.at(weight, row, samples.weight)
    columns = {each.name: np.zeros(len(event), getattr(samples, each.name).dtype) for each in fields(samples)}
    columns |= {"event": event.astype(np.uint32), "stack": stack.astype(np.int32)}
    return replace(profile, samples=SampleTable(**{**columns, "count": count, "weight": weight}))


def _number_functions(profile: Profile, hotspots: Hotspots) -> tuple[_Code, I32]:
    """The functions in the order of their names, and int32[function ids + 1]: each one's number, last without a stack.

    Beyond ``MOST_FUNCTIONS`` those with the least share have the number behind the last.
    """
    chosen = np.arange(min(len(hotspots), MOST_FUNCTIONS))  # highest self value first
    table, paths = profile.functions, [*(bounded(file.path) for file in profile.mapped_files), ""]
    shown = functools.cache(bounded)  # most functions of a file share their source files
    builds = [*(bounded(file.build_id) for file in profile.mapped_files), ""]
    functions, file_of = hotspots.function[chosen].tolist(), table.mapped_file.tolist()
    names = all_bounded([table.name[each] if each >= 0 else NO_STACK for each in functions])
    keys = [
        (paths[file_of[each]], name, shown(table.file[each]), builds[file_of[each]])
        if each >= 0
        else ("", name, "", "")
        for each, name in zip(functions, names, strict=True)
    ]
    order = sorted(range(len(keys)), key=lambda row: (keys[row], functions[row]))
    row = chosen[order].astype(np.int64)
    function = hotspots.function[row]
    number = np.full(len(table.name) + 1, len(row), np.int32)
    number[function] = np.arange(len(row), dtype=np.int32)
    return _Code(hotspots, [keys[each] for each in order], row, function), number


def _functions(profile: Profile, code: _Code) -> pa.Table:
    """The functions' roll-up; its recording is filled in later."""
    kernel = {number for number, file in enumerate(profile.mapped_files) if file.kind in _KERNEL}
    table, ids = profile.functions, code.function.tolist()
    file_of = table.mapped_file.tolist()
    is_kernel = np.array([each >= 0 and file_of[each] in kernel for each in ids], bool)
    linkage = [NO_STACK] * len(ids)
    for row, each in enumerate(ids):
        if each >= 0:
            is_shown = table.linkage_name[each] == table.name[each]
            linkage[row] = code.keys[row][1] if is_shown else bounded(table.linkage_name[each])
    base = {module: posixpath.basename(module) for module in {key[0] for key in code.keys}}
    files = Counter((base[module], name) for module, name, _, _ in code.keys)
    is_ambiguous = np.array([files[base[module], name] > 1 for module, name, _, _ in code.keys], bool)
    texts = {
        "module": [key[0] for key in code.keys],
        "build_id": [key[3] for key in code.keys],
        "function": [key[1] for key in code.keys],
        "linkage_name": linkage,
        "file": [key[2] for key in code.keys],
    }
    alike: dict[tuple[str, str, str, bool], list[int]] = {}
    for (module, name, file, _), row, inside in zip(code.keys, code.row.tolist(), is_kernel.tolist(), strict=True):
        alike.setdefault((base[module], name, posixpath.basename(file), inside), []).append(row)
    hot, parts = code.hotspots, []
    total_weight, total_samples = totals_once(profile, hot, [rows for rows in alike.values() if len(rows) > 1])
    left = np.setdiff1d(np.arange(len(hot)), code.row)
    for event, info in enumerate(profile.events):
        values = {
            "self_samples": hot.self_samples,
            "self_weight": hot.self_weight,
            "total_samples": total_samples,
            "total_weight": total_weight,
        }
        columns = {name: each[code.row, event].astype(np.int64) for name, each in values.items()}
        seen = np.flatnonzero(hot.inclusive_samples[code.row, event])
        part = {
            "event": pa.repeat(info.name, len(seen)),
            "id": seen.astype(np.int32),
            **{name: pa.array(each, pa.string()).take(pa.array(seen)) for name, each in texts.items()},
            "is_kernel": is_kernel[seen],
            "is_ambiguous": is_ambiguous[seen],
            **{name: each[seen] for name, each in columns.items()},
        }
        parts.append(_table(FUNCTIONS, part))
        if len(left):
            parts.append(_others(info.name, len(code.row), hot, left, event))
    return pa.concat_tables(parts).combine_chunks()


def _others(event: str, number: int, hot: Hotspots, left: I64, row: int) -> pa.Table:
    """One row for all functions that have none of their own; what they and theirs took together is not known."""
    samples, weight = (int(column[left, row].sum()) for column in (hot.self_samples, hot.self_weight))
    texts = {"event": event, "module": "", "build_id": "", "function": OTHERS, "linkage_name": OTHERS, "file": ""}
    numbers = {"self_samples": samples, "self_weight": weight, "total_samples": samples, "total_weight": weight}
    flags = {"is_kernel": False, "is_ambiguous": False}
    return _table(FUNCTIONS, {name: [value] for name, value in ({**texts, "id": number, **flags, **numbers}).items()})


def _paths(profile: Profile, number_of: I32) -> pa.Table:
    """The call paths' roll-up; its recording is filled in later."""
    stacks = frame_stacks(profile)
    merged, representative = merge_stacks(stacks)
    numbers = number_of.take(stacks.function).astype(np.int32, copy=False)
    paths = pa.ListArray.from_arrays(pa.array(stacks.start.astype(np.int32)), pa.array(numbers))
    rank = _ranks(stacks.start, numbers, representative)
    samples = profile.samples
    path_of = merged.take(samples.stack)
    parts = []
    for event, info in enumerate(profile.events):
        mine = samples.event == event
        count, weight = np.zeros(len(representative), np.uint64), np.zeros(len(representative), np.uint64)
        np.add.at(count, path_of[mine], samples.count[mine])
        np.add.at(weight, path_of[mine], samples.weight[mine])
        seen = np.flatnonzero(count)
        if len(seen) > MOST_PATHS:
            seen = seen[np.lexsort((rank[seen], np.iinfo(np.uint64).max - weight[seen]))]
        kept, left = seen[:MOST_PATHS], seen[MOST_PATHS:]
        chosen = kept[np.argsort(rank[kept])]
        counts, weights = count[chosen].astype(np.int64), weight[chosen].astype(np.int64)
        frames = paths.take(pa.array(representative[chosen]))
        if len(left):  # without frames: of many paths
            frames = pa.concat_arrays([frames, pa.array([[]], frames.type)])
            counts, weights = np.append(counts, count[left].sum()), np.append(weights, weight[left].sum())
        parts.append(
            _table(
                PATHS,
                {
                    "event": pa.repeat(info.name, len(counts)),
                    "frames": frames,
                    "samples": counts.astype(np.int64),
                    "weight": weights.astype(np.int64),
                },
            )
        )
    return pa.concat_tables(parts).combine_chunks()


def _ranks(start: I64, numbers: I32, paths: I64) -> I64:
    """int64[paths]: the place of each among all, in the order of the lists ``numbers[start[i]:start[i + 1]]``."""
    as_bytes = pa.py_buffer(numbers.astype(">i4"))  # sorted like the lists
    lists = pa.Array.from_buffers(pa.large_binary(), len(start) - 1, [None, pa.py_buffer(4 * start), as_bytes])
    rank = np.empty(len(paths), np.int64)
    rank[pa.compute.sort_indices(lists.take(pa.array(paths))).to_numpy()] = np.arange(len(paths))
    return rank


def _recordings(
    profile: Profile,
    manifest: Manifest,
    code: _Code,
    effective: Sequence[int],
    labels: Sequence[str],
    *,
    lacks_spe: bool,
) -> pa.Table:
    """A row for each event; the recording is filled in later."""
    host, losses, events = manifest.host, manifest.losses, len(profile.events)
    samples, weight = profile.total_samples().astype(np.int64), profile.total_weight().astype(np.int64)
    unknown = np.zeros(events, np.int64)
    for event in range(events):
        unknown[event] = sum(each.samples for each in unknown_samples(profile.only_event(event)))
    lost = losses.samples_map_full + losses.samples_ring_full + losses.samples_outside_namespace
    builds = sorted({key[3] for key in code.keys} - {""})
    same = {
        "lost_samples": min(lost, 1 << 62),
        "start_ns": manifest.start_realtime_ns,
        "cpus": host.cpus_online,
        "machine": bounded(host.machine),
        "cpu_model": bounded(host.cpu_model),
        "kernel": bounded(host.kernel),
        "boot_id": bounded(host.boot_id),
        "catalog": "" if manifest.topdown is None or manifest.topdown.catalog else bounded(manifest.topdown.core),
        "builds": builds,
        "labels": sorted(labels),
        "lacks_spe": lacks_spe,
    }
    return _table(
        RECORDINGS,
        {
            "event": [event.name for event in profile.events],
            "unit": [str(event.unit) for event in profile.events],
            "samples": samples,
            "weight": weight,
            "counted": [_counted(event, is_scaled=profile.topdown is not None) for event in profile.events],
            "effective_samples": effective,
            "known_samples": samples - unknown,
            "duration_ns": _durations_ns(profile, manifest),
            **{name: [value] * events for name, value in same.items()},
        },
    )


def _durations_ns(profile: Profile, manifest: Manifest) -> list[int]:
    """For how long each event was on: what has its turns counts by these alone."""
    groups = manifest.topdown.groups if manifest.topdown else []
    of_topdown = {bounded(name) for group in groups for name in group.names}
    on_ns = max(recorded_ns_of(TOPDOWN, manifest.duty, manifest.duration_ns), 1)
    return [on_ns if event.name in of_topdown else manifest.duration_ns for event in profile.events]


def _counted(event: EventInfo, *, is_scaled: bool) -> int | None:
    """What the counters say of an event; None where it had them for a part of the time, and nobody scaled it."""
    if event.total is None or not (is_scaled or event.enabled_ns == event.running_ns):
        return None
    return event.total if event.total < _LARGEST_SUM else None


def _table(schema: pa.Schema, columns: dict[str, object]) -> pa.Table:
    """A table of a schema whose recording is not known yet."""
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]  # arrays or lists
    filled = {"recording": pa.repeat("", rows), **columns}
    return pa.table([pa.array(filled[field.name], field.type) for field in schema], schema=schema)


def _with_recording(table: pa.Table, recording: str) -> pa.Table:
    return table.set_column(0, table.schema.field(0), pa.repeat(recording, len(table)))


def _digest_of(tables: Iterable[pa.Table]) -> str:
    """A digest of some tables' rows, none of which is copied for it."""
    told = Digest()
    for table in tables:
        whole, size = table.combine_chunks(), pa.MockOutputStream()
        _write_stream(whole, size)
        told.begin(size.size())
        _write_stream(whole, pa.PythonFile(told))
    return told.digits()


def _write_stream(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
