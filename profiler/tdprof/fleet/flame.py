"""The call paths of a store as one profile, for the page, pprof and all other exports."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tdprof.errors import TdprofError
from tdprof.fleet.counts import FUNCTION_KEYS, number_keys
from tdprof.fleet.read import fleet_functions
from tdprof.fleet.recordings import only, recording_rows
from tdprof.fleet.report import Found
from tdprof.fleet.schema import OTHERS
from tdprof.fleet.shared_texts import is_any_of
from tdprof.fleet.store import Stem, Store
from tdprof.model.addresses import INTERPRETED_PATHS, FileKind, MappedFile, Unknown
from tdprof.model.arrays import F64, I32, I64
from tdprof.model.events import EventInfo, Unit
from tdprof.model.fleet import FleetFunction, Stratum
from tdprof.model.losses import Losses
from tdprof.model.profile import (
    NO_ID,
    FrameStacks,
    FunctionTable,
    LocationTable,
    Profile,
    SampleTable,
    StackTable,
)
from tdprof.profile.frames import merge_stacks
from tdprof.text import few, plural
from tdprof.values import dataclass

_FILES_AT_ONCE = 64  # whose paths are merged together
_ID_BITS = 32
_MAPPING_BYTES = 1 << 32
_OTHERS = FleetFunction("", OTHERS)


@dataclass(frozen=True, slots=True)
class _Paths:
    """Call paths with what they took: ``rate`` in events a second of all hosts together, float64, ``samples`` int64."""

    start: I64
    function: I32
    rate: F64
    samples: I64


def fleet_profile(store: Store, found: Found) -> Profile:
    """One event of a store's hosts as a profile, as if each host had been recorded equally long.

    Raises:
        TdprofError: there are several kinds of core, or a roll-up is missing or damaged.
    """
    if len(found.strata) > 1:
        kinds = [stratum.core for stratum in found.strata]
        raise TdprofError(
            f"{store.place} has {few(kinds)}: what different kinds of core do is not put together",
            hint=f"--recordings {shlex.quote(f'core={kinds[0]}')}",
            status=2,
        )
    (stratum,) = found.strata
    mine: dict[Stem, list[str]] = {}
    for each in found.parts.recordings:
        if any(row["event"] == stratum.event for row in each.events):
            mine.setdefault(each.stem, []).append(each.recording)
    functions, number = _number_functions(store, mine, stratum.event)
    return _profile(store, found, stratum, functions, _read_paths(store, mine, stratum, number))


@dataclass(frozen=True, slots=True)
class _Numbering:
    """The numbers of a file's functions, by recording and the recording's own number of each.

    Attributes:
        codes: int64: recording << 32 | id, in order.
        number: int32: of each of these.
        largest: int64[recordings]: the largest id of each.
        others: what stands for functions that a recording has not.
    """

    codes: I64
    number: I32
    largest: I64
    others: int

    def of(self, recording: I64, frames: I32) -> I32:
        """The numbers of frames of these recordings. Raises ValueError for what cannot be an id."""
        if np.any(frames < 0) or np.any(frames > self.largest[recording]):
            raise ValueError
        if not len(frames):
            return np.zeros(0, np.int32)
        codes = recording << _ID_BITS | frames
        at = np.searchsorted(self.codes, codes)
        return np.where(self.codes[at] == codes, self.number[at], np.int32(self.others))


def _number_functions(
    store: Store, recordings: Mapping[Stem, Sequence[str]], event: str
) -> tuple[list[FleetFunction], dict[Stem, _Numbering]]:
    """The functions of all recordings, and for each file their numbers."""
    keys, rows = [], []
    for stem, names in recordings.items():
        table = _of_event(store, "functions", stem, names, event, ["id", *FUNCTION_KEYS])
        own_keys, key = number_keys(table)
        keys.append(own_keys)
        rows.append((recording_rows(table, names), table["id"].to_numpy(), key))
    named = fleet_functions([key for each in keys for key in each])
    distinct = sorted({*named, _OTHERS}, key=lambda each: (each.module, each.name, each.file, each.is_kernel))
    number = {function: row for row, function in enumerate(distinct)}
    numbers, at = {}, 0
    for (stem, names), own_keys, (recording, ids, key) in zip(recordings.items(), keys, rows, strict=True):
        own = np.array([number[each] for each in named[at : at + len(own_keys)]], np.int32)[key]
        at += len(own_keys)
        order = np.lexsort((ids, recording))
        largest = np.full(len(names), -1, np.int64)
        np.maximum.at(largest, recording, ids)
        codes = recording[order] << _ID_BITS | ids[order]
        numbers[stem] = _Numbering(codes, own[order], largest, number[_OTHERS])
    return distinct, numbers


def _of_event(
    store: Store, kind: str, stem: Stem, recordings: Sequence[str], event: str, columns: Sequence[str]
) -> pa.Table:
    table = only(store.read(kind, stem, ["recording", "event", *columns]), recordings)
    return table.filter(is_any_of(table["event"], {event}))


def _read_paths(
    store: Store, recordings: Mapping[Stem, Sequence[str]], stratum: Stratum, numbers: Mapping[Stem, _Numbering]
) -> _Paths:
    seconds = dict(zip(stratum.hosts, stratum.seconds.tolist(), strict=True))
    parts: list[_Paths] = []
    for stem, names in recordings.items():
        table = _of_event(store, "paths", stem, names, stratum.event, ["frames", "samples", "weight"])
        frames = table["frames"].combine_chunks()
        flat, lengths = frames.flatten().to_numpy(), pa.compute.list_value_length(frames).to_numpy()
        try:
            function = numbers[stem].of(np.repeat(recording_rows(table, names), lengths), flat)
        except ValueError as error:
            raise TdprofError(
                f"the call paths of {stem.host_name} name functions that it has not",
                hint=f"tdprof fleet check {shlex.quote(store.place)}",
            ) from error
        parts.append(
            _Paths(
                np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                function,
                table["weight"].to_numpy() / seconds[stem.host_name],
                table["samples"].to_numpy(),
            )
        )
        if len(parts) == _FILES_AT_ONCE:
            parts = [_merged(parts)]
    return _sorted(_merged(parts))


def _merged(parts: Iterable[_Paths]) -> _Paths:
    """The same paths of several recordings as one."""
    given = list(parts)
    lengths = np.concatenate([np.diff(part.start) for part in given])
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    function = np.concatenate([part.function for part in given])
    merged, first = merge_stacks(FrameStacks(start, function, np.zeros(len(function), np.uint32)))
    samples = np.zeros(len(first), np.int64)
    np.add.at(samples, merged, np.concatenate([part.samples for part in given]))
    rate = np.bincount(merged, np.concatenate([part.rate for part in given]), minlength=len(first))
    return _chosen(start, function, first, rate.astype(np.float64), samples)


def _sorted(paths: _Paths) -> _Paths:
    """In an order that does not depend on which recording was read first."""
    texts = [
        paths.function[begin:end].astype(">i4").tobytes()
        for begin, end in zip(paths.start[:-1].tolist(), paths.start[1:].tolist(), strict=True)
    ]
    order = np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
    return _chosen(paths.start, paths.function, order, paths.rate[order], paths.samples[order])


def _chosen(start: I64, function: I32, rows: I64, rate: F64, samples: I64) -> _Paths:
    begin, lengths = start[:-1][rows], np.diff(start)[rows]
    ends = np.cumsum(lengths)
    flat = np.repeat(begin - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return _Paths(np.concatenate([[0], ends]).astype(np.int64), function[flat], rate, samples)


def _profile(
    store: Store, found: Found, stratum: Stratum, functions: Sequence[FleetFunction], paths: _Paths
) -> Profile:
    rows = len(paths.rate)
    mapped_files, function_table, locations = _code(functions)
    seconds = float(stratum.seconds.mean())
    hosts = plural(len(stratum.hosts), "host", "s")
    return Profile(
        events=[EventInfo(stratum.event, Unit(stratum.unit))],
        mapped_files=mapped_files,
        mapped_file_ranges=[((row + 1) * _MAPPING_BYTES, _MAPPING_BYTES, 0) for row in range(len(mapped_files))],
        functions=function_table,
        locations=locations,
        stacks=_stacks(paths, functions.index(_OTHERS)),
        samples=SampleTable(
            time_ns=np.zeros(rows, np.uint64),
            event=np.zeros(rows, np.uint32),
            pid=np.full(rows, NO_ID, np.uint32),
            tid=np.full(rows, NO_ID, np.uint32),
            thread_name=np.zeros(rows, np.int32),
            stack=np.arange(rows, dtype=np.int32),
            count=paths.samples.astype(np.uint64),
            weight=np.rint(paths.rate * seconds).astype(np.uint64),
            cgroup=np.full(rows, -1, np.int32),
            state=np.zeros(rows, np.uint8),
            cpu=np.full(rows, -1, np.int32),
            waker=np.full(rows, -1, np.int32),
        ),
        thread_names=[hosts],
        process_names={},
        command=[],
        target=f"{hosts} of {stratum.core}: {plural(stratum.recordings, 'recording', 's')}",
        rung="fleet",
        rung_reason="",
        losses=Losses(),
        start_realtime_ns=min(int(each.events[0]["start_ns"]) for each in found.parts.recordings),  # type: ignore[call-overload]
        duration_ns=round(seconds * 1e9),
        notes=[
            *found.set_aside.notes,
            "each host counts as if all had been recorded equally long; intervals over hosts are in "
            f"tdprof fleet report {shlex.quote(store.place)}",
        ],
        is_of_hosts=True,
    )


def _code(functions: Sequence[FleetFunction]) -> tuple[list[MappedFile], FunctionTable, LocationTable]:
    """The files of some functions, the functions, and a location for each: addresses mean nothing over hosts."""
    count = len(functions)
    modules = sorted({(each.module, each.is_kernel) for each in functions if each.module})
    row_of = {module: row for row, module in enumerate(modules)}
    module = np.array([row_of.get((each.module, each.is_kernel), -1) for each in functions], np.int32)
    is_known = np.array([not each.name.startswith("[") for each in functions], bool)
    return (
        [MappedFile(name, kind=_kind(name, is_kernel=in_kernel)) for name, in_kernel in modules],
        FunctionTable(
            name=[each.name for each in functions],
            linkage_name=[each.name for each in functions],
            file=[each.file for each in functions],
            mapped_file=module,
            is_inlined=np.zeros(count, np.uint8),
        ),
        LocationTable(
            mapped_file=module,
            address=np.arange(count, dtype=np.uint64),
            reason=np.where(is_known, Unknown.KNOWN, Unknown.NO_SYMBOL).astype(np.uint8),
            frame_start=np.arange(count + 1, dtype=np.uint32),
            frame_function=np.arange(count, dtype=np.int32),
            frame_line=np.zeros(count, np.uint32),
            is_guess=np.zeros(count, bool),
        ),
    )


def _stacks(paths: _Paths, others: int) -> StackTable:
    """The paths as stacks of locations, which have the numbers of their functions."""
    # A path that has no frames of its own is all that was beyond the most that a recording keeps.
    bare = np.flatnonzero(np.diff(paths.start) == 0)
    start = paths.start + np.searchsorted(bare, np.arange(len(paths.rate) + 1))
    return StackTable(start.astype(np.uint32), np.insert(paths.function, paths.start[bare], others).astype(np.int32))


def _kind(module: str, *, is_kernel: bool) -> FileKind:
    if is_kernel:
        return FileKind.KERNEL if module.startswith("[kernel") else FileKind.KERNEL_MODULE
    return _SPECIAL.get(module, FileKind.ELF)


_SPECIAL: Mapping[str, FileKind] = {
    "[vdso]": FileKind.VDSO,
    "[anon]": FileKind.ANONYMOUS,
} | dict.fromkeys(INTERPRETED_PATHS, FileKind.INTERPRETED)
