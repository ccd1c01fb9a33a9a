"""From a capture to a profile: attributed, symbolized, with what to doubt in it. The file to read first."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.addresses import attribute_addresses
from tdprof.attribute.containers import foreign_paths
from tdprof.attribute.stacks import AttributedStacks, attribute_stacks
from tdprof.capture.manifest import Manifest, Rung
from tdprof.capture.tables import has_table, read_side_table, read_table, table_bytes
from tdprof.errors import TdprofError
from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.arrays import I32, U32, U64, distinct, distinct_rows
from tdprof.model.cgroups import Cgroup
from tdprof.model.events import EventInfo
from tdprof.model.findings import Findings, MetricTimes
from tdprof.model.off_cpu import ThreadTimes
from tdprof.model.profile import FunctionTable, LocationTable, Profile, SampleTable, StackTable, StackWalks
from tdprof.model.stack_ends import StackEnd
from tdprof.model.thread_state import ThreadState
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.wakers import read_wakers, with_wakers
from tdprof.profile.frames import number_values
from tdprof.profile.guesses import mark_guesses
from tdprof.profile.idle import mark_idle
from tdprof.profile.intervals import time_bins
from tdprof.profile.languages import without_trampolines
from tdprof.profile.long_waits import spread_waits
from tdprof.profile.naming import limit_inlining, name_locations
from tdprof.profile.reliability import (
    container_doubts,
    count_doubt,
    cut_doubt,
    event_doubts,
    group_doubt,
    masked_doubt,
)
from tdprof.symbolize.demangling import demangle
from tdprof.text import plural, printable
from tdprof.values import dataclass

_MOST_CPUS = 1 << 20
_MOST_METRIC_BINS = 120  # each with enough samples, if the recording has
_LONGEST_INTERVAL_NS = 1 << 60  # of what damage makes of it


def load_profile(capture: OpenCapture) -> Profile:
    """A capture's samples, attributed and symbolized.

    Raises:
        TdprofError: damaged beyond reading.
    """
    manifest = capture.manifest
    samples = read_table(capture.tables, "samples", ("cgroup", "cpu", "state", "waker", "mapped_ns"))
    _check_samples(capture.folder, samples, manifest)
    stacks, no_stacks = read_side_table(capture.tables, "stacks", ("end", "guessed_from"))
    wakers = read_wakers(capture, samples)
    attributed = wakers.without_rows(
        attribute_stacks(wakers.rows, stacks, capture.mapped_files, capture.spaces, capture.replaced_code)
    )
    del stacks  # their addresses can be most of the memory
    functions, locations = name_locations(
        attributed.mapped_files,
        attributed.location_file,
        attributed.location_address,
        capture.symbolizer.locate,
        demangle,
        attributed.markers,
    )
    locations, stack_location = mark_guesses(locations, attributed.stack_location, attributed.is_guess)
    locations, cut_inlining = limit_inlining(locations, stack_location, table_bytes(capture.tables))
    columns = {name: samples[name].to_numpy() for name in ("time_ns", "event", "pid", "tid", "count", "weight")}
    columns["state"] = samples["state"].fill_null(0).to_numpy()
    columns["cpu"] = _cpus(samples["cpu"])
    cgroup, cgroups = _cgroups(capture, samples["cgroup"])
    thread_name, thread_names = name_threads(
        samples["thread_name"].combine_chunks(), columns["tid"], columns["time_ns"], capture.spaces
    )
    profile = make_profile(
        capture,
        manifest.events,
        NamedCode(attributed.mapped_files, attributed.ranges, functions, locations),
        StackTable(attributed.stack_start, stack_location),
        SampleTable(
            thread_name=thread_name, stack=attributed.sample_stack, cgroup=cgroup, waker=wakers.of_sample, **columns
        ),
        thread_names,
        left_out=attributed.left_out,
    )
    profile = mark_idle(without_trampolines(with_wakers(profile, wakers)))
    profile = replace(profile, cgroups=cgroups, topdown=manifest.topdown, walks=_walks(attributed, columns["count"]))
    thread_times, no_times = _thread_times(capture)
    notes = [*profile.notes, *_doubts(capture, profile, attributed), *filter(None, [cut_inlining])]
    profile = replace(profile, notes=notes, thread_times=thread_times)
    for reason in filter(None, (no_times, no_stacks, wakers.unreadable)):
        profile = profile.without(reason)
    return spread_waits(profile)


def _doubts(capture: OpenCapture, profile: Profile, attributed: AttributedStacks) -> Iterator[str]:
    """What there is to doubt in how the samples were counted, and in their stacks."""
    manifest = capture.manifest
    total = profile.total_samples().tolist()
    yield from count_doubt(manifest.samples_counted, manifest.losses, sum(total))
    doubt_events = group_doubt if profile.topdown else event_doubts
    yield from doubt_events(profile.events, total, profile.total_weight().tolist(), manifest.losses)
    yield from masked_doubt(profile, has_pmu_nmi=manifest.host.has_pmu_nmi)
    if capture.has_mappings and attributed.is_cut.any():
        # What a walk by tables leaves out has its reason beside it.
        by_kernel = np.isin(attributed.sample_end, [0, StackEnd.FRAME_POINTERS_ONLY])
        yield from cut_doubt(int(profile.samples.count[attributed.is_cut & by_kernel].sum()), sum(total))


def _thread_times(capture: OpenCapture) -> tuple[ThreadTimes | None, str]:
    """Where threads' time went, if the recording tells, and why that could not be read."""
    if not has_table(capture.tables, "thread_times"):
        return None, ""
    table, reason = read_side_table(capture.tables, "thread_times")
    if reason:
        return None, reason
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "thread_name"}
    times = ThreadTimes(
        columns["pid"],
        columns["tid"],
        columns["end_ns"] - columns["begin_ns"],
        np.stack([columns[f"{state.name.lower()}_ns"] for state in ThreadState], axis=1),
        columns["unsampled_ns"],
    )
    return times, ""


def _cpus(column: pa.ChunkedArray) -> I32:
    """int32[samples], -1 where it is not told; CPUs that no kernel has are damage, and not told."""
    if column.null_count == len(column):
        return np.broadcast_to(np.int32(-1), len(column))
    cpu = column.fill_null(_MOST_CPUS).to_numpy()
    return np.where(cpu < _MOST_CPUS, cpu, -1).astype(np.int32)


def _cgroups(capture: OpenCapture, column: pa.ChunkedArray) -> tuple[I32, list[Cgroup]]:
    """Number of each sample's control group, -1 where it is not told, and the control groups."""
    paths: dict[int, str] = {}
    if has_table(capture.tables, "cgroups"):
        table = read_table(capture.tables, "cgroups")
        paths = dict(zip(table["cgroup"].to_pylist(), table["path"].to_pylist(), strict=True))
    ids = column.fill_null(0).to_numpy()
    known, number = number_values(ids)
    found = [Cgroup(each, paths.get(each)) for each in known.tolist()]
    # One that was removed and made again has another id.
    first: dict[object, Cgroup] = {}
    same = [first.setdefault((each.path, each.is_v1) if each.path else each.id, each) for each in found]
    cgroups = [each for each in first.values() if each.id]
    place = {each.id: at for at, each in enumerate(cgroups)}
    return np.array([place.get(each.id, -1) for each in same], np.int32)[number], cgroups


@dataclass(frozen=True, slots=True)
class NamedCode:
    """Addresses that have their names; the fields are those of `Profile`."""

    mapped_files: Sequence[MappedFile]
    ranges: Sequence[tuple[int, int, int]]
    functions: FunctionTable
    locations: LocationTable


def name_addresses(capture: OpenCapture, addresses: U64, pids: U32, time_ns: U64) -> tuple[NamedCode, I32]:
    """Attribute and symbolize addresses that were recorded without call stacks.

    Args:
        capture: where they were recorded.
        addresses, pids, time_ns: uint64[n], uint32[n], uint64[n]: what was executed, by whom, and when.

    Returns:
        The code, each location once, and int32[n]: the location of each address.
    """
    file, offset = attribute_addresses(addresses, pids, time_ns, capture.mapped_files, capture.spaces)
    first, location = distinct_rows(file, offset)
    mapped_files, ranges, location_file = capture.mapped_files.only(file[first])
    offset = offset[first]  # not both while they are named: there may be millions
    named = name_locations(mapped_files, location_file, offset, capture.symbolizer.locate, demangle)
    return NamedCode(mapped_files, ranges, *named), location


def make_profile(
    capture: OpenCapture,
    events: Sequence[EventInfo],
    code: NamedCode,
    stacks: StackTable,
    samples: SampleTable,
    thread_names: Sequence[str],
    *,
    left_out: int = 0,
) -> Profile:
    """The profile of some samples of a capture; ``left_out`` is how many have no callers, since these are too many."""
    manifest = capture.manifest
    namespaces, no_namespaces = None, ""
    if has_table(capture.tables, "namespaces"):
        namespaces, no_namespaces = read_side_table(capture.tables, "namespaces")
    unreadable = [*capture.unreadable, *filter(None, [no_namespaces])]
    if left_out:
        unreadable.append(f"{plural(left_out, 'sample', 's')} without callers here: call chains too many to follow")
    notes = capture.symbolizer.notes()
    if namespaces is not None:
        notes += _container_doubts(capture.mappings, namespaces, code.mapped_files, code.locations)
    return Profile(
        events=[replace(event, name=printable(event.name)) for event in events],
        mapped_files=code.mapped_files,
        mapped_file_ranges=code.ranges,
        functions=code.functions,
        locations=code.locations,
        stacks=stacks,
        samples=samples,
        thread_names=thread_names,
        process_names=capture.spaces.process_names(number_values(samples.pid.astype(np.uint64))[0].astype(np.uint32)),
        command=manifest.command,
        target=printable(_target_of(manifest)),
        rung=manifest.rung,
        rung_reason=printable(manifest.rung_reason),
        losses=replace(
            manifest.losses, by_reason={printable(why): count for why, count in manifest.losses.by_reason.items()}
        ),
        start_realtime_ns=manifest.start_realtime_ns,
        start_monotonic_ns=manifest.start_monotonic_ns,
        interval_ns=min(max(manifest.interval_ns, 1), _LONGEST_INTERVAL_NS),
        long_intervals={pair[1]: pair[0] for pair in manifest.long_intervals if len(pair) == 2},
        duration_ns=manifest.duration_ns,
        notes=[*map(printable, [*unreadable, *manifest.notes, *notes])],
        unreadable=[*map(printable, unreadable)],
        is_whole_run=manifest.ran_to_end,
        runtimes=capture.mapped_files.runtimes,
        has_sample_times=manifest.rung is Rung.RING_BUFFER or manifest.has_sample_times,
        boot_id=manifest.host.boot_id,
    )


def _target_of(manifest: Manifest) -> str:
    target = _others_of(manifest)
    return f"{target}, while {shlex.join(manifest.meanwhile)} ran" if target and manifest.meanwhile else target


def _others_of(manifest: Manifest) -> str:
    """What was recorded other than a command."""
    if manifest.cgroups:
        return f"control group{'s' * (len(manifest.cgroups) > 1)} {', '.join(manifest.cgroups)}"
    if manifest.is_system_wide:
        return "all CPUs"
    if manifest.pids:
        return f"process{'es' * (len(manifest.pids) > 1)} {', '.join(map(str, manifest.pids))}"
    return ""


def _walks(attributed: AttributedStacks, count: U64) -> StackWalks | None:
    if not attributed.sample_end.any():
        return None
    by_end = np.bincount(attributed.sample_end, count, len(StackEnd) + 1).astype(np.int64)[1:]
    ends = {end: number for end, number in zip(StackEnd, by_end.tolist(), strict=True) if number}
    ends = dict(sorted(ends.items(), key=lambda item: -item[1]))
    return StackWalks(ends, int(count[attributed.is_guessed].sum()))


def _container_doubts(
    mappings: pa.Table, namespaces: pa.Table, mapped_files: Sequence[MappedFile], locations: LocationTable
) -> Iterator[str]:
    """What to say of files of processes that saw another file system than the recorder."""
    lacks_file = locations.reason == Unknown.NO_FILE
    missing = {mapped_files[number].path for number in distinct(locations.mapped_file[lacks_file]).tolist()}
    unsure = {file.path for file in mapped_files if file.kind is FileKind.ELF and not file.build_id} - missing
    yield from container_doubts(
        foreign_paths(missing, mappings, namespaces), foreign_paths(unsure, mappings, namespaces)
    )


def find_findings(profile: Profile, *, part: Profile | None = None, by_time: bool = False) -> Findings | None:
    """Metrics of a Topdown profile, as `load_profile` gives it; None for any other.

    Args:
        profile: of a whole recording.
        part: some of its samples, if the metrics are to be of these.
        by_time: also of stretches of its time.

    Raises:
        TdprofError: the recording names a core that this version has no catalog for, or its own catalog is damaged.
    """
    if profile.topdown is None:
        return None
    # Only now: most recordings are of one event.
    from tdprof.catalog.choose import find_by_name
    from tdprof.catalog.load import parse_catalog
    from tdprof.metrics.attribution import attribute_metrics, metrics_over_time

    if part is not None and len(part.samples.count) == len(profile.samples.count):
        part = None  # of all samples everything is known that is known of the recording
    own = profile.topdown.catalog
    catalog = parse_catalog(own, Path("of the capture")) if own else find_by_name(profile.topdown.core)
    findings = attribute_metrics(profile, catalog, part)
    bins = time_bins(part or profile, _MOST_METRIC_BINS)
    if not by_time or len(bins.end) < 2:
        return findings
    times = MetricTimes(bins.begin, bins.end, metrics_over_time(profile, catalog, bins, part))
    return replace(findings, times=times)


def _check_samples(folder: Path, samples: pa.Table, manifest: Manifest) -> None:
    """Raises TdprofError for samples that no recording of these events can have."""
    if not len(samples):
        return
    if pa.compute.max(samples["event"]).as_py() >= len(manifest.events):
        raise TdprofError(f"{folder} is damaged: it has samples of an event that capture.json does not list")
    for column in ("count", "weight"):
        if samples[column].to_numpy().sum(dtype=np.float64) >= 2.0**63:
            raise TdprofError(f"{folder} is damaged: the column {column} of its samples adds up to more than can be")


def name_threads(names: pa.DictionaryArray, tids: U32, time_ns: U64, spaces: AddressSpaces) -> tuple[I32, list[str]]:
    """Number of each sample's thread name, and the names; where the samples have none, side-band says it."""
    number, texts = names.indices.fill_null(-1).to_numpy(), names.dictionary.to_pylist()
    if (number < 0).any():
        by_side_band, known = spaces.thread_names(tids, time_ns)
        number = np.where(number >= 0, number, np.where(by_side_band >= 0, by_side_band + len(texts), -1))
        texts = [*texts, *known, "?"]  # the last: nobody said
    used, which = number_values((number + 1).astype(np.uint64))
    first: dict[str, int] = {}
    numbers = [first.setdefault(texts[at - 1], len(first)) for at in used.tolist()]
    return np.array(numbers, np.int32)[which], list(first)
