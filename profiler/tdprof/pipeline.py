"""Connects the stages: a recording into a capture's tables, and a capture into a profile."""

import contextlib
import errno
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.stacks import attribute_stacks
from tdprof.capture.manifest import Manifest, Rung, State, read_manifest, write_manifest
from tdprof.capture.spool import SPOOL_FOLDER
from tdprof.capture.tables import TableWriter, read_table
from tdprof.decode.perf_layout import RecordLayout
from tdprof.decode.spool import write_tables
from tdprof.errors import TdprofError
from tdprof.naming import name_locations
from tdprof.profile import Profile, SampleTable, StackTable
from tdprof.recorder.artefacts import PERF_MAP_FOLDER, VDSO_FILE, save_perf_maps, save_vdso
from tdprof.recorder.attach import RING_SAMPLE_TYPE, SIDE_BAND_SAMPLE_TYPE
from tdprof.recorder.host import read_text
from tdprof.recorder.kallsyms import read_kernel_symbols
from tdprof.symbolize import KernelSymbols, Symbolizer, demangle


def finish_capture(folder: Path) -> Manifest:
    """Make a recording's tables out of its spool and remove the spool.

    Raises:
        TdprofError: the disk is full or the folder is not writable; the spool stays and ``load_profile`` reads it.
    """
    manifest = read_manifest(folder)
    try:
        manifest = _make_tables(folder, folder, manifest)
        write_manifest(folder, manifest)
    except OSError as error:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        raise TdprofError(
            f"cannot write the tables of {folder}: {cause}; the raw recording is kept",
            hint=f"free some space, then tdprof report {folder}",
        ) from error
    shutil.rmtree(folder / SPOOL_FOLDER, ignore_errors=True)
    return manifest


def _make_tables(source: Path, target: Path, manifest: Manifest) -> Manifest:
    """Decode ``source``'s spool into tables in ``target``; returns the complete manifest.

    Kernel symbols, the vDSO and perf maps are added where this still is the boot that was recorded.
    """
    sample_type = RING_SAMPLE_TYPE if manifest.rung is Rung.RING_BUFFER else SIDE_BAND_SAMPLE_TYPE
    layouts = [RecordLayout(sample_type, ids=tuple(ids)) for ids in manifest.record_ids]
    with TableWriter(target) as writer:
        decoded = write_tables(source, manifest, writer, [*layouts, RecordLayout(SIDE_BAND_SAMPLE_TYPE)])
        if manifest.host.boot_id == read_text("/proc/sys/kernel/random/boot_id"):
            symbols = read_kernel_symbols(decoded.kernel_addresses)
            columns = [symbols.address, symbols.size, symbols.name, pa.array(symbols.module, pa.string())]
            writer.write("kernel_symbols", pa.table(columns, names=["address", "size", "name", "module"]))
            save_vdso(target)
    if manifest.host.boot_id == read_text("/proc/sys/kernel/random/boot_id"):
        mappings = read_table(target, "mappings")
        save_perf_maps(target, np.unique(mappings["pid"].to_numpy()).tolist())
    return replace(
        manifest,
        losses=decoded.losses,
        end_monotonic_ns=max(manifest.end_monotonic_ns, decoded.end_ns),
        state=State.COMPLETE,
    )


@contextlib.contextmanager
def _tables_of(folder: Path) -> Iterator[tuple[Path, Manifest]]:
    """The folder that holds a capture's tables: itself, or for an interrupted recording a temporary one."""
    manifest = read_manifest(folder)
    if manifest.state is State.COMPLETE:
        yield folder, manifest
        return
    if not (folder / SPOOL_FOLDER).is_dir():
        raise TdprofError(f"{folder} has neither its tables nor a spool: nothing of the recording is left")
    with tempfile.TemporaryDirectory(prefix="tdprof-") as temporary:
        manifest = _make_tables(folder, Path(temporary), manifest)
        interrupted = "the recording was interrupted; losses in the kernel's tables since the last drain are not known"
        yield Path(temporary), replace(manifest, notes=[*manifest.notes, interrupted])


def load_profile(folder: Path) -> Profile:
    """Read a capture, attribute and symbolize it.

    Raises:
        TdprofError: not a capture, of a newer schema, or damaged beyond reading.
    """
    with _tables_of(folder) as (tables, manifest):
        samples, stacks = read_table(tables, "samples"), read_table(tables, "stacks")
        if len(samples) and pa.compute.max(samples["event"]).as_py() >= len(manifest.events):
            raise TdprofError(f"{folder} is damaged: it has samples of an event that capture.json does not list")
        mappings = read_table(tables, "mappings")
        spaces = AddressSpaces(mappings, read_table(tables, "processes"))
        attributed = attribute_stacks(samples, stacks, mappings, spaces)
        kernel = read_table(tables, "kernel_symbols")
        with Symbolizer(
            kernel=KernelSymbols(
                kernel["address"].to_numpy(),
                kernel["size"].to_numpy(),
                kernel["name"].to_pylist(),
                [module or "" for module in kernel["module"].to_pylist()],
            ),
            perf_map_dir=tables / PERF_MAP_FOLDER,
            vdso=tables / VDSO_FILE,
        ) as symbolizer:
            functions, locations = name_locations(
                attributed.mapped_files,
                attributed.location_file,
                attributed.location_address,
                symbolizer.locate,
                demangle,
            )
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
        notes=manifest.notes,
    )


def _thread_names(samples: pa.Table, spaces: AddressSpaces) -> tuple[np.ndarray, list[str]]:
    """Number of each sample's thread name, and the names."""
    names = samples["thread_name"].cast(pa.string())
    if names.null_count:
        by_side_band = spaces.thread_names(samples["tid"].to_numpy(), samples["time_ns"].to_numpy())
        names = pa.compute.coalesce(names, pa.array(by_side_band, pa.string()), "?")
    encoded = pa.chunked_array(names).combine_chunks().dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int32), encoded.dictionary.to_pylist()
