"""From a capture to a profile: attributed, symbolized, with what to doubt in it. The file to read first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.containers import foreign_paths
from tdprof.attribute.stacks import AttributedStacks, attribute_stacks
from tdprof.capture.manifest import Manifest
from tdprof.capture.tables import has_table, read_side_table, read_table
from tdprof.catalog.choose import find_by_name
from tdprof.errors import TdprofError
from tdprof.metrics.attribution import attribute_metrics
from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.arrays import distinct
from tdprof.model.events import EventInfo
from tdprof.model.findings import Findings
from tdprof.model.profile import LocationTable, Profile, SampleTable, StackTable, StackWalks
from tdprof.model.stack_ends import StackEnd
from tdprof.pipeline.finish import tables_of
from tdprof.pipeline.symbols import DEFAULT_SYMBOLS, SymbolOptions, ignore_progress, open_symbolizer
from tdprof.profile.naming import name_locations
from tdprof.profile.reliability import container_doubts, count_doubt, cut_doubt, event_doubts, group_doubt
from tdprof.symbolize import demangle
from tdprof.text import plural, printable


def load_profile(
    folder: Path, symbols: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = ignore_progress
) -> Profile:
    """Read a capture, attribute and symbolize it.

    Args:
        folder: the capture.
        symbols: where symbols come from.
        progress: told in a few words what is being waited for.

    Raises:
        TdprofError: not a capture, of a newer schema, or damaged beyond reading.
    """
    with tables_of(folder) as (tables, manifest):
        samples = read_table(tables, "samples")
        _check_samples(folder, samples, manifest)
        stacks, no_stacks = read_side_table(tables, "stacks", ("end", "guessed_from"))
        placed = _place(tables, samples, stacks)
        del stacks  # their addresses can be most of the memory
        profile = _make_profile(tables, manifest, samples, placed, symbols, progress)
    total = profile.total_samples().tolist()
    doubt_events = group_doubt if profile.topdown else event_doubts
    doubts = [
        *count_doubt(manifest.samples_counted, manifest.losses, sum(total)),
        *doubt_events(profile.events, total, profile.total_weight().tolist(), manifest.losses),
    ]
    if placed.has_mappings:
        # What a walk by tables leaves out has its reason beside it.
        by_kernel = np.isin(placed.attributed.sample_end, [0, StackEnd.FRAME_POINTERS_ONLY])
        doubts += cut_doubt(int(profile.samples.count[placed.attributed.is_cut & by_kernel].sum()), sum(total))
    profile = replace(profile, notes=[*profile.notes, *doubts])
    return profile.without(no_stacks) if no_stacks else profile


def load_other_samples(
    folder: Path,
    events: list[EventInfo],
    samples: pa.Table,
    stacks: pa.Table,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    progress: Callable[[str], None] = ignore_progress,
) -> Profile:
    """A profile of other samples than the capture's own, attributed and symbolized as these are.

    Args:
        folder: the capture.
        events: of the samples.
        samples, stacks: tables as in a capture; the profile's samples stand in their order.
        symbols: where symbols come from.
        progress: told in a few words what is being waited for.
    """
    with tables_of(folder) as (tables, manifest):
        other = replace(manifest, events=events, topdown=None)
        return _make_profile(tables, other, samples, _place(tables, samples, stacks), symbols, progress)


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where the addresses of stacks lie, and sentences on tables that say so and could not be read."""

    attributed: AttributedStacks
    spaces: AddressSpaces
    has_mappings: bool
    unreadable: tuple[str, ...]


def _place(tables: Path, samples: pa.Table, stacks: pa.Table) -> _Placed:
    mappings, no_mappings = read_side_table(tables, "mappings")
    processes, no_processes = read_side_table(tables, "processes")
    spaces = AddressSpaces(mappings, processes)
    attributed = attribute_stacks(samples, stacks, mappings, spaces)
    too_many = []
    if attributed.left_out:
        too_many.append(
            f"{plural(attributed.left_out, 'sample', 's')} without callers here: call chains too many to follow"
        )
    if spaces.is_cut:
        too_many.append("mappings or forks are too many to follow: of some processes functions may have no names")
    unreadable = tuple(filter(None, [no_mappings, no_processes, *too_many]))
    return _Placed(attributed, spaces, not no_mappings, unreadable)


def _make_profile(
    tables: Path,
    manifest: Manifest,
    samples: pa.Table,
    placed: _Placed,
    symbols: SymbolOptions,
    progress: Callable[[str], None],
) -> Profile:
    """The profile of these samples."""
    attributed, spaces = placed.attributed, placed.spaces
    with open_symbolizer(tables, symbols, progress) as symbolizer:
        functions, locations = name_locations(
            attributed.mapped_files,
            attributed.location_file,
            attributed.location_address,
            symbolizer.locate,
            demangle,
            attributed.markers,
        )
        namespaces, no_namespaces = None, ""
        if has_table(tables, "namespaces"):
            namespaces, no_namespaces = read_side_table(tables, "namespaces")
        unreadable = [*placed.unreadable, *symbolizer.unreadable, *filter(None, [no_namespaces])]
        notes = symbolizer.notes()
        if namespaces is not None:
            notes += _container_doubts(tables, namespaces, attributed.mapped_files, locations)
    thread_name, thread_names = _thread_names(samples, spaces)
    return Profile(
        events=[replace(event, name=printable(event.name)) for event in manifest.events],
        mapped_files=attributed.mapped_files,
        mapped_file_ranges=attributed.ranges,
        functions=functions,
        locations=locations,
        stacks=StackTable(attributed.stack_start, attributed.stack_location),
        samples=SampleTable(
            time_ns=samples["time_ns"].to_numpy(),
            event=samples["event"].to_numpy(),
            pid=samples["pid"].to_numpy(),
            tid=samples["tid"].to_numpy(),
            thread_name=thread_name,
            stack=attributed.sample_stack,
            count=samples["count"].to_numpy(),
            weight=samples["weight"].to_numpy(),
        ),
        thread_names=thread_names,
        process_names=spaces.process_names,
        command=manifest.command,
        rung=manifest.rung,
        rung_reason=printable(manifest.rung_reason),
        losses=replace(
            manifest.losses, by_reason={printable(why): count for why, count in manifest.losses.by_reason.items()}
        ),
        start_realtime_ns=manifest.start_realtime_ns,
        duration_ns=manifest.duration_ns,
        notes=[*map(printable, [*unreadable, *manifest.notes, *notes])],
        unreadable=[*map(printable, unreadable)],
        is_whole_run=manifest.ran_to_end,
        topdown=manifest.topdown,
        walks=_walks(attributed, samples),
    )


def _walks(attributed: AttributedStacks, samples: pa.Table) -> StackWalks | None:
    count = samples["count"].to_numpy()
    by_end = np.bincount(attributed.sample_end, count, len(StackEnd) + 1).astype(np.int64)[1:]
    if not by_end.any():
        return None
    ends = {end: number for end, number in zip(StackEnd, by_end.tolist(), strict=True) if number}
    ends = dict(sorted(ends.items(), key=lambda item: -item[1]))
    return StackWalks(ends, int(count[attributed.is_guessed].sum()))


def _container_doubts(
    tables: Path, namespaces: pa.Table, mapped_files: Sequence[MappedFile], locations: LocationTable
) -> Iterator[str]:
    """What to say of files of processes that saw another file system than the recorder."""
    lacks_file = locations.reason == Unknown.NO_FILE
    missing = {mapped_files[number].path for number in distinct(locations.mapped_file[lacks_file]).tolist()}
    unsure = {file.path for file in mapped_files if file.kind is FileKind.ELF and not file.build_id} - missing
    mappings, _ = read_side_table(tables, "mappings")
    yield from container_doubts(
        foreign_paths(missing, mappings, namespaces), foreign_paths(unsure, mappings, namespaces)
    )


def find_findings(profile: Profile) -> Findings | None:
    """Metrics of a Topdown profile, as `load_profile` gives it; None for any other.

    Raises:
        TdprofError: the recording names a core that this version has no catalog for.
    """
    if profile.topdown is None:
        return None
    return attribute_metrics(profile, find_by_name(profile.topdown.core))


def _check_samples(folder: Path, samples: pa.Table, manifest: Manifest) -> None:
    """Raises TdprofError for samples that no recording of these events can have."""
    if not len(samples):
        return
    if pa.compute.max(samples["event"]).as_py() >= len(manifest.events):
        raise TdprofError(f"{folder} is damaged: it has samples of an event that capture.json does not list")
    for column in ("count", "weight"):
        if samples[column].to_numpy().sum(dtype=np.float64) >= 2.0**63:
            raise TdprofError(f"{folder} is damaged: the column {column} of its samples adds up to more than can be")


def _thread_names(samples: pa.Table, spaces: AddressSpaces) -> tuple[np.ndarray, list[str]]:
    """Number of each sample's thread name, and the names."""
    names = samples["thread_name"].cast(pa.string())
    if names.null_count:
        by_side_band = spaces.thread_names(samples["tid"].to_numpy(), samples["time_ns"].to_numpy())
        names = pa.compute.coalesce(names, pa.array(by_side_band, pa.string()), "?")
    encoded = pa.chunked_array(names).combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int32), encoded.dictionary.to_pylist()
