"""perf.data into a capture folder: the tables, and what this machine can still add to them."""

import functools
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tdprof import __version__
from tdprof.capture.manifest import Manifest, Rung, State, write_manifest
from tdprof.capture.output_folder import OutputFolder
from tdprof.capture.spool import SPE_FOLDER
from tdprof.capture.tables import TableWriter
from tdprof.decode.perf.attr import Attr
from tdprof.decode.perf.auxtrace import ARM_SPE_AUXTRACE
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.groups import EXACT_NS, INTERVAL_NS, WHOLE_RECORDING_NS
from tdprof.decode.perf.imported import (
    Imported,
    KernelMapping,
    host_of,
    import_tables,
    is_system_wide,
    start_realtime_ns,
)
from tdprof.decode.perf.walked import Walk
from tdprof.errors import TdprofError
from tdprof.linux.clocks import file_time_to_monotonic_ns
from tdprof.linux.elf import MACHINES
from tdprof.linux.file_bytes import open_regular
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.perf_abi import SampleType
from tdprof.model.arrays import U64
from tdprof.pipeline.kernel_table import write_kernel_symbols
from tdprof.pipeline.walk_copies import CopyWalker, FileTables
from tdprof.recorder.artefacts import save_run_time_code, save_vdso
from tdprof.recorder.host import KALLSYMS, read_text
from tdprof.recorder.kallsyms import read_code_symbols, symbols_at
from tdprof.symbolize.kernel_symbols import KernelLookup, KernelSymbols

if TYPE_CHECKING:  # few recordings have SPE data, and what reads it is slow to load
    from tdprof.decode.spe.spans import SpeInput

_KERNEL_PATH = "[kernel.kallsyms]"
_NT_GNU_BUILD_ID = 3
# A row for each sample of so much data is as many as other captures have, and tells their order.
_MOST_EXACT_BYTES = 16 << 20
_SPE_LEFT_OUT = "SPE records are left out: reading them takes more memory than there is"


def import_perf_data(
    path: str,
    folder: Path,
    *,
    kallsyms: Path | None = None,
    symfs: Path | None = None,
    keeps_time: bool = True,
    progress: Callable[[int, int], None] = lambda *_: None,
    replaces_older: bool = False,
) -> Manifest:
    """Make a capture of a recording of the perf tool.

    Args:
        path: file, directory of ``perf record --threads``, or ``-`` for standard input.
        folder: the capture to make.
        kallsyms: symbols of the recorded kernel; None: this machine's, if it is still the recorded kernel.
        symfs: a folder with the recorded machine's files under their own paths, for user stacks that have to be walked;
            None: this machine's files, where they are the recorded ones.
        keeps_time: samples keep their times, or are added up within a second where there are very many; False: over the
            whole recording, for a reader of sums alone.
        progress: called with bytes done and bytes in all.
        replaces_older: whether an older capture of that name is moved out of the way, once this one is complete.

    Raises:
        TdprofError: not a perf.data file, or the folder cannot be made. Then, or when interrupted, no folder is left.
    """
    with OutputFolder(folder, replaces_older=replaces_older) as output:
        manifest, _ = _import(path, output, kallsyms, symfs, progress, keeps_time=keeps_time, has_spe=True)
        output.publish()
    return manifest


def import_code(path: str, folder: Path) -> KernelLookup | None:
    """Make a capture of what names the code of a recording's SPE records, which stay where they are.

    Their addresses are not known beforehand, nor which of the kernel's symbols they fall into.

    Args:
        path, folder: as of `import_perf_data`, which says what is raised.

    Returns:
        What names the kernel's; None without symbols that are certain to be of the recorded kernel.
    """
    with OutputFolder(folder) as output:
        _, found = _import(path, output, None, None, lambda *_: None, keeps_time=True, has_spe=False)
        output.publish()
    if found is None:
        return None
    read = functools.cache(functools.partial(read_code_symbols, found))

    def look_up(addresses: U64) -> KernelSymbols:
        symbols = symbols_at(addresses, read())
        return KernelSymbols(symbols.address, symbols.size, symbols.name, [each or "" for each in symbols.module])

    return look_up


def _import(
    path: str,
    output: OutputFolder,
    kallsyms: Path | None,
    symfs: Path | None,
    progress: Callable[[int, int], None],
    *,
    keeps_time: bool,
    has_spe: bool,
) -> tuple[Manifest, Path | None]:
    """The capture's files, and where the symbols of the recorded kernel are; all of them without SPE's records."""
    made = output.make()
    with PerfData(path, keep_branches=True, keep_copies=True) as data, TableWriter(made) as writer:
        interval_ns = _interval_ns(data) if keeps_time else WHOLE_RECORDING_NS
        files = FileTables(symfs, is_here=_is_recorded_machine(data))
        imported = import_tables(
            data,
            writer,
            lambda done: progress(done, 2 * data.size_bytes),
            interval_ns,
            _open_walk(data, files) if data.has_copies else None,
        )
        imported.notes += files.notes()
        spe = _read_spe(data, imported) if has_spe else None
        if has_spe:
            symbols_from = _write_kernel_symbols(writer, imported, data, kallsyms)
        else:
            symbols_from = _symbols_of(imported.kernel, _kallsyms_candidates(data, imported.kernel))
        manifest = _manifest(path, data, imported, symbols_from)
        manifest = replace(manifest, has_sample_times=interval_ns == EXACT_NS)
        if spe is not None:
            manifest = _with_spe(manifest, made, data, spe, writer)
    if symbols_from == KALLSYMS:
        save_vdso(made)
        unused = save_run_time_code(made, imported.pids, until_ns=_ended_ns(path))
        manifest = replace(manifest, notes=[*manifest.notes, *unused])
    manifest = replace(manifest, tables=writer.names())
    write_manifest(made, manifest)
    return manifest, symbols_from


def _ended_ns(path: str) -> int | None:
    """The latest that a recording can have ended: when its file was written last. None: it came through a pipe."""
    try:
        return None if path == "-" else file_time_to_monotonic_ns(os.stat(path).st_mtime_ns)
    except OSError:
        return None


def _interval_ns(data: PerfData) -> int:
    """Over what samples are added up."""
    has_times = all(attr.sample_type & SampleType.TIME for attr in data.attrs)
    return EXACT_NS if has_times and 0 < data.size_bytes <= _MOST_EXACT_BYTES else INTERVAL_NS


def _open_walk(data: PerfData, files: FileTables) -> Callable[[pa.Table, pa.Table], Walk]:
    layouts = [attr.layout(data.features.arch) for attr in data.attrs]
    is_leaf_known = all(-1 not in layout.walk_places for layout in layouts if layout.has_copies)

    def open_walk(mappings: pa.Table, processes: pa.Table) -> Walk:
        machine = MACHINES[data.features.arch]
        return CopyWalker(mappings, processes, machine, files, is_leaf_known=is_leaf_known).walk

    return open_walk


def _is_recorded_machine(data: PerfData) -> bool:
    """Whether the recording is of this machine and its running kernel, as far as names tell."""
    names = ((data.features.hostname, "hostname"), (data.features.osrelease, "osrelease"))
    return all(name == read_text(f"/proc/sys/kernel/{file}") != "" for name, file in names)


def _manifest(path: str, data: PerfData, imported: Imported, symbols_from: Path | None) -> Manifest:
    features = data.features
    notes = list(imported.notes)
    if len(imported.kernel_addresses) and symbols_from is None:
        notes.append(
            f"{_why_no_kernel_symbols(data, imported)}, so its functions have no names: give the recorded machine's "
            "/proc/kallsyms, saved as root, with tdprof import --kallsyms"
        )
    # Both stand at the file's end, which a truncated one has lost.
    recorder = ["recorded by perf", features.version, f"on {features.hostname}" if features.hostname else ""]
    return Manifest(
        host=host_of(data),
        command=list(features.cmdline),
        pids=[],
        is_system_wide=is_system_wide(data),
        events=imported.events,
        rung=Rung.PERF_DATA,
        rung_reason=" ".join(filter(None, recorder)),
        start_realtime_ns=start_realtime_ns(data, imported.start_ns),
        start_monotonic_ns=imported.start_ns,
        end_monotonic_ns=imported.end_ns,
        losses=imported.losses,
        samples_counted=None,
        notes=notes,
        state=State.COMPLETE,
        tdprof_version=__version__,
    )


def _why_no_kernel_symbols(data: PerfData, imported: Imported) -> str:
    """Why no symbols are certain to be the recorded kernel's, though nobody gave wrong ones."""
    if not data.features.osrelease:
        return "the file does not say which kernel was recorded (perf writes that last)"
    if KALLSYMS in _kallsyms_candidates(data, imported.kernel):
        return "this machine was started again since the recording, or hides its kernel's addresses (kptr_restrict)"
    return "this machine does not run the recorded kernel"


def _read_spe(data: PerfData, imported: Imported) -> "SpeInput | None":
    """The file's SPE data, whose kernel addresses join the others; None where it has none or they are too large."""
    try:
        spe = _spe_of(data)
        # A file that does not name its PMUs does not tell either which event is SPE's.
        events = _spe_events(data) or data.attrs
        if spe is not None and not all(attr.has_flag("exclude_kernel") for attr in events):
            from tdprof.decode.spe.kernel_addresses import kernel_addresses

            imported.kernel_addresses = np.union1d(imported.kernel_addresses, kernel_addresses(spe))
    except MemoryError:
        imported.notes.append(_SPE_LEFT_OUT)
        return None
    return spe


def _spe_of(data: PerfData) -> "SpeInput | None":
    auxtrace = data.auxtrace_info
    if auxtrace is None or auxtrace.type != ARM_SPE_AUXTRACE or not data.aux_buffers:
        return None
    from tdprof.decode.spe.perf_input import spe_input_of

    return spe_input_of(data)


def _spe_events(data: PerfData) -> list[Attr]:
    return [attr for attr in data.attrs if attr.name.startswith("arm_spe")]


def _with_spe(manifest: Manifest, folder: OwnFolder, data: PerfData, spe: "SpeInput", writer: TableWriter) -> Manifest:
    """Copy the file's SPE data into the capture; what the kernel said was lost of it joins the losses."""
    from tdprof.decode.spe.capture import store_spe
    from tdprof.decode.spe.losses import aux_losses

    event = next(iter(_spe_events(data)), None)
    period, name = (event.sample_period, event.name) if event else (0, "arm_spe")
    least = max((cpu.min_interval for cpu in data.auxtrace_info.cpus.values()), default=0) if data.auxtrace_info else 0
    try:
        info = store_spe(folder, spe, writer, period=period, event=name, caps={"min_interval": least} if least else {})
    except MemoryError:
        folder.remove_tree(SPE_FOLDER)
        return replace(manifest, notes=[*manifest.notes, _SPE_LEFT_OUT])
    # Metadata of version 1 names no core for each CPU; the spans know it all the same.
    midr = {str(span.cpu): f"{span.midr:#018x}" for span in spe.spans if span.cpu is not None and span.midr is not None}
    host = replace(manifest.host, midr_el1=manifest.host.midr_el1 | midr)
    by_reason = manifest.losses.by_reason | {f"SPE: {words}": count for words, count in aux_losses(spe.losses).items()}
    return replace(manifest, host=host, spe=info, losses=replace(manifest.losses, by_reason=by_reason))


def _write_kernel_symbols(
    writer: TableWriter, imported: Imported, data: PerfData, kallsyms: Path | None
) -> Path | None:
    """Write the kernel symbols that are certain to be the recorded kernel's; returns the file they are from."""
    if not len(imported.kernel_addresses):
        return None
    if kallsyms is not None and not _is_of_recorded_kernel(kallsyms, imported.kernel):
        raise TdprofError(
            f"{kallsyms} does not belong to the recorded kernel: its symbols are at other addresses",
            hint="save /proc/kallsyms as root on the recorded machine, before it restarts",
        )
    candidates = [kallsyms] if kallsyms is not None else _kallsyms_candidates(data, imported.kernel)
    found = _symbols_of(imported.kernel, candidates)
    if found is not None:
        write_kernel_symbols(writer, symbols_at(imported.kernel_addresses, read_code_symbols(found)))
    return found


def _symbols_of(kernel: KernelMapping | None, candidates: Sequence[Path]) -> Path | None:
    """The first that has the recorded kernel's symbols."""
    return next((path for path in candidates if _is_of_recorded_kernel(path, kernel)), None)


def _kallsyms_candidates(data: PerfData, kernel: KernelMapping | None) -> list[Path]:
    """This machine's symbols if its kernel has the recorded build-id, and the copies that perf record leaves."""
    features = data.features
    recorded = (kernel.build_id if kernel else "") or features.build_ids.get(_KERNEL_PATH, "")
    candidates = [data.path / "kcore_dir" / "kallsyms"]
    if recorded:
        candidates.append(Path.home() / ".debug" / _KERNEL_PATH / recorded / "kallsyms")
    is_here = features.hostname == read_text("/proc/sys/kernel/hostname")
    is_release = features.osrelease == read_text("/proc/sys/kernel/osrelease")
    if is_release and (recorded == _running_build_id() if recorded else is_here):
        candidates.insert(0, KALLSYMS)
    return candidates


def _running_build_id() -> str:
    """Build-id of the running kernel in hex, out of its ELF notes; "" where they cannot be read."""
    try:
        notes = Path("/sys/kernel/notes").read_bytes()
    except OSError:
        return ""
    at = notes.find(b"GNU\0")
    while at >= 12:
        _, size, kind = struct.unpack_from("=III", notes, at - 12)
        if kind == _NT_GNU_BUILD_ID:
            return notes[at + 4 : at + 4 + size].hex()
        at = notes.find(b"GNU\0", at + 4)
    return ""


def _is_of_recorded_kernel(kallsyms: Path, kernel: KernelMapping | None) -> bool:
    """Whether the file has the recording's reference symbol at its address.

    perf names the kernel's mapping after that symbol, as in ``[kernel.kallsyms]_text``. Address randomization puts it
    elsewhere at every boot; where ``kptr_restrict`` hides addresses all are 0, and nothing matches.
    """
    if kernel is None:
        return False
    wanted = f"{kernel.address:016x} "
    symbol = kernel.path.removeprefix(_KERNEL_PATH)
    try:
        with os.fdopen(open_regular(kallsyms), errors="replace") as file:
            return any(line.startswith(wanted) and line.split()[2] == symbol for line in file)
    except (OSError, IndexError):
        return False
