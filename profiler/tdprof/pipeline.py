"""Connects the stages: a capture into a profile, symbolized."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.addresses import branch_ends
from tdprof.attribute.containers import foreign_paths
from tdprof.attribute.stacks import AttributedStacks, attribute_stacks
from tdprof.capture.files import FILES_FOLDER, PERF_MAP_FOLDER, VDSO_FILE
from tdprof.capture.manifest import Manifest, State, read_manifest
from tdprof.capture.tables import has_table, read_side_table, read_table, replace_table
from tdprof.catalog.choose import find_by_name
from tdprof.errors import TdprofError
from tdprof.finishing import finish_capture, tables_of
from tdprof.metrics.attribution import attribute_metrics
from tdprof.model.addresses import FileKind, Locations, MappedFile, Unknown
from tdprof.model.arrays import U64, distinct
from tdprof.model.events import EventInfo
from tdprof.model.findings import Findings
from tdprof.model.profile import LocationTable, Profile, SampleTable, StackTable
from tdprof.profile.naming import name_locations
from tdprof.profile.reliability import container_doubts, count_doubt, cut_doubt, event_doubts, group_doubt
from tdprof.symbolize import KernelSymbols, SymbolCache, Symbolizer, demangle
from tdprof.symbolize.debuginfod import Debuginfod
from tdprof.symbolize.saved import SavedSymbols, make_symbol_table


@dataclass(frozen=True, slots=True)
class SymbolOptions:
    """Where symbols come from, as the user wants it.

    Attributes:
        symfs: a folder with the recorded machine's files under their own paths; None: this machine's files.
        debug_dirs: folders with separate debug data, searched before ``/usr/lib/debug``.
        use_cache: whether what is read of debug data is kept for the next time.
    """

    symfs: Path | None = None
    debug_dirs: tuple[Path, ...] = ()
    use_cache: bool = True


DEFAULT_SYMBOLS = SymbolOptions()


def _ignore(text: str) -> None:
    pass


def open_symbolizer(
    tables: Path, options: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = _ignore
) -> Symbolizer:
    """The symbol sources of a capture whose tables stand in ``tables``; to be closed by its ``with`` block."""
    kernel, no_kernel = read_side_table(tables, "kernel_symbols")
    carried, not_carried = None, ""
    if has_table(tables, "symbols"):
        carried, not_carried = read_side_table(tables, "symbols")
    return Symbolizer(
        symfs=options.symfs,
        debug_dirs=options.debug_dirs,
        kernel=KernelSymbols(
            kernel["address"].to_numpy(),
            kernel["size"].to_numpy(),
            kernel["name"].to_pylist(),
            [module or "" for module in kernel["module"].to_pylist()],
        ),
        perf_map_dir=tables / PERF_MAP_FOLDER,
        vdso=tables / VDSO_FILE,
        carried_files=tables / FILES_FOLDER,
        saved=SavedSymbols(carried) if carried is not None and not not_carried else None,
        cache=SymbolCache.default() if options.use_cache else None,
        debuginfod=Debuginfod.from_environment(progress=progress),
        progress=progress,
        unreadable=[*filter(None, [no_kernel, not_carried])],
    )


def archive_symbols(
    folder: Path, options: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = _ignore
) -> list[tuple[MappedFile, Locations]]:
    """Put the symbols of all that a capture saw into it, so that it can be read where the binaries are not.

    Returns:
        What was found in each file.

    Raises:
        TdprofError: as ``load_profile``; or the capture cannot be written to.
    """
    if read_manifest(folder).state is not State.COMPLETE:
        finish_capture(folder)
    mappings = read_table(folder, "mappings")
    spaces = AddressSpaces(mappings, read_table(folder, "processes"))
    recorded = [(read_table(folder, "samples"), read_table(folder, "stacks"))]
    if has_table(folder, "branches"):
        recorded.append(branch_ends(read_table(folder, "branches"))[1:])
    wanted: dict[MappedFile, list[U64]] = {}
    for samples, stacks in recorded:
        attributed = attribute_stacks(samples, stacks, mappings, spaces)
        for number, file in enumerate(attributed.mapped_files):
            if file.kind is FileKind.ELF:  # the capture has the others' sources already
                addresses = attributed.location_address[attributed.location_file == number]
                wanted.setdefault(file, []).append(addresses)
    found = []
    with open_symbolizer(folder, options, progress) as symbolizer:
        for file, parts in wanted.items():
            addresses = distinct(np.concatenate(parts))
            found.append((file, addresses, symbolizer.locate(file, addresses)))
    try:
        replace_table(folder, "symbols", make_symbol_table(found))
    except OSError as error:
        raise TdprofError(
            f"cannot write the symbols into {folder}: {error.strerror}", hint="check its permissions and the disk"
        ) from error
    return [(file, locations) for file, _, locations in found]


def load_profile(
    folder: Path, symbols: SymbolOptions = DEFAULT_SYMBOLS, progress: Callable[[str], None] = _ignore
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
        stacks, no_stacks = read_side_table(tables, "stacks")
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
        doubts += cut_doubt(int(profile.samples.count[placed.attributed.is_cut].sum()), sum(total))
    profile = replace(profile, notes=[*profile.notes, *doubts])
    return profile.without(no_stacks) if no_stacks else profile


def load_other_samples(
    folder: Path,
    events: list[EventInfo],
    samples: pa.Table,
    stacks: pa.Table,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    progress: Callable[[str], None] = _ignore,
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
    return _Placed(attributed, spaces, not no_mappings, tuple(filter(None, [no_mappings, no_processes])))


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
        events=manifest.events,
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
        rung_reason=manifest.rung_reason,
        losses=manifest.losses,
        start_realtime_ns=manifest.start_realtime_ns,
        duration_ns=manifest.duration_ns,
        notes=[*unreadable, *manifest.notes, *notes],
        unreadable=unreadable,
        is_whole_run=manifest.ran_to_end,
        topdown=manifest.topdown,
    )


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
