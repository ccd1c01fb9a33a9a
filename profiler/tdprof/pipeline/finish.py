"""Connects the stages at the end of a recording: its spool into a capture's tables.

Apart from `load`, so that a recording ends without loading all that reads symbols.
"""

import contextlib
import errno
import functools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tdprof.capture.manifest import Manifest, Rung, State, read_manifest, write_manifest
from tdprof.capture.named_code import add_named_code
from tdprof.capture.spool import COPIES_FILE, SPE_FOLDER, SPOOL_FOLDER
from tdprof.capture.tables import TableWriter, read_table
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.walked import Walk
from tdprof.decode.spool import write_tables
from tdprof.errors import TdprofError
from tdprof.linux.elf import MACHINES, read_build_id
from tdprof.linux.file_bytes import inner_folder
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.perf_abi import PC_REGISTER, WALK_REGISTERS
from tdprof.model.addresses import DELETED
from tdprof.model.events import EventInfo
from tdprof.pipeline.kernel_table import write_kernel_symbols
from tdprof.recorder.artefacts import (
    MappedProgram,
    save_files,
    save_run_time_code,
    save_vdso,
    sees_other_files,
)
from tdprof.recorder.chain_source import SIDE_BAND_SAMPLE_TYPE, ring_sample_type
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.host import read_text
from tdprof.recorder.kallsyms import CodeSymbols, read_code_symbols, read_kernel_symbols
from tdprof.recorder.python_processes import may_hold_python
from tdprof.text import printable

_NO_CHARACTER = "\N{REPLACEMENT CHARACTER}"


def finish_capture(
    folder: OwnFolder,
    held: HeldPrograms | None = None,
    kernel: CodeSymbols | None = None,
    read_kernel: Callable[[], CodeSymbols] = read_code_symbols,
) -> Manifest:
    """Make a recording's tables out of its spool and remove the spool; where another process is at it, wait for that.

    Args:
        folder: the capture.
        held: what its recorder holds of the programs that were mapped.
        kernel: this kernel's symbols, read while it recorded.
        read_kernel: reads them now, or since it has recorded.

    Raises:
        TdprofError: the disk is full or the folder is not writable; the spool stays and ``load_profile`` reads it.
    """
    # Who makes tables goes on where its recorder is killed, and the next recorder in that folder wants them, too.
    with folder.locked(), folder.named_in_errors():
        manifest = read_manifest(folder.path)
        try:
            if manifest.state is not State.COMPLETE:  # else who made its tables was killed before the spool was gone
                manifest = make_tables(folder.path, folder, manifest, held, kernel, read_kernel)
                write_manifest(folder, manifest)
        except OSError as error:
            cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
            raise TdprofError(
                f"cannot write the tables of {folder.shown}: {cause}; the raw recording is kept",
                hint=f"free some space, then tdprof report {folder.shown}",
            ) from error
        folder.remove_tree(SPOOL_FOLDER)
    return manifest


def make_tables(
    source: Path,
    target: OwnFolder,
    manifest: Manifest,
    held: HeldPrograms | None = None,
    kernel: CodeSymbols | None = None,
    read_kernel: Callable[[], CodeSymbols] = read_code_symbols,
) -> Manifest:
    """Decode ``source``'s spool into tables in ``target``; returns the complete manifest.

    Kernel symbols, the vDSO and perf maps are added where this still is the boot that was recorded.
    """
    is_same_boot = manifest.host.boot_id == read_text("/proc/sys/kernel/random/boot_id")
    machine = manifest.host.machine
    if machine not in WALK_REGISTERS and (manifest.stack_bytes or (source / SPOOL_FOLDER / COPIES_FILE).exists()):
        raise TdprofError(f"{source} copies stacks of a machine that is not known: '{printable(machine)}'")
    layouts = [_layout(manifest, ids) for ids in manifest.record_ids]
    notes: list[str] = []
    with TableWriter(target) as writer:
        layouts.append(RecordLayout(SIDE_BAND_SAMPLE_TYPE))
        with inner_folder(source / SPOOL_FOLDER) as spool:
            if spool is None:
                raise TdprofError("nothing of the recording is left: the capture has neither its tables nor a spool")
            decoded = write_tables(spool, manifest, writer, layouts, _open_walk(manifest, is_here=is_same_boot))
        if is_same_boot:
            addresses = decoded.kernel_addresses
            if manifest.spe is not None:
                from tdprof.decode.spe.kernel_addresses import kernel_addresses_of_folder  # only SPE needs the decoder

                try:
                    addresses = np.union1d(addresses, kernel_addresses_of_folder(source / SPE_FOLDER))
                except MemoryError:
                    notes.append("kernel functions that SPE alone sampled have no names: there was too little memory")
            write_kernel_symbols(writer, read_kernel_symbols(addresses, read_kernel, kernel))
            save_vdso(target)
    end_ns = max(manifest.end_monotonic_ns, decoded.end_ns)
    mapped: list[MappedProgram] = []
    if is_same_boot:
        mappings = read_table(target.path, "mappings")
        lists = (mappings[name].to_pylist() for name in MappedProgram._fields)
        mapped = [MappedProgram(*row) for row in zip(*lists, strict=True)]
        notes += _save_code(target, manifest, mappings, mapped, end_ns, held)
    for pid, codes in decoded.java_code.items():
        notes += filter(None, [add_named_code(target, pid, codes, end_ns)])
    return replace(
        manifest,
        tables=writer.names(),
        losses=decoded.losses,
        # A recorder that was killed has drained samples that it could not note any more.
        events=_with_off_cpu(manifest.events, decoded.off_cpu_ns),
        samples_counted=None if manifest.samples_counted is None else max(manifest.samples_counted, decoded.samples),
        end_monotonic_ns=end_ns,
        state=State.COMPLETE,
        notes=[*manifest.notes, *decoded.notes, *notes, *_no_python(manifest, mapped)],
    )


def _save_code(
    target: OwnFolder,
    manifest: Manifest,
    mappings: pa.Table,
    mapped: list[MappedProgram],
    end_ns: int,
    held: HeldPrograms | None,
) -> list[str]:
    """Save run-time code, and programs that no path leads to; returns what is not kept though it is there."""
    pids = {program.pid for program in mapped}
    dumps = ((program.pid, program.path) for program in mapped)
    notes = save_run_time_code(target, pids, dumps, end_ns, began_ns=_began_ns(target))
    elsewhere = set(filter(sees_other_files, pids))
    build_id_here = functools.cache(read_build_id)

    def is_unseen(program: MappedProgram) -> bool:
        # A path that is no UTF-8 leads nowhere as the tables have it.
        if program.pid in elsewhere or program.path.endswith(DELETED) or _NO_CHARACTER in program.path:
            return True
        is_held = held is not None and program.build_id is not None and program.build_id in held
        return is_held and build_id_here(program.path) != program.build_id

    unseen = list(filter(is_unseen, mapped))
    return notes + (_save_files(target, manifest, mappings, mapped, unseen, held) if unseen else [])


def _began_ns(target: OwnFolder) -> dict[int, int]:
    """When each process began of those that did in the recording; of several of one number, the first."""
    table = read_table(target.path, "processes")
    forks = table.filter(pc.and_(pc.equal(table["kind"], "fork"), pc.equal(table["pid"], table["tid"])))
    return dict(zip(forks["pid"].to_pylist()[::-1], forks["time_ns"].to_pylist()[::-1], strict=True))


def _with_off_cpu(events: list[EventInfo], total_ns: int | None) -> list[EventInfo]:
    """The events with the exact total of the last one, if that is time off a CPU."""
    return events if total_ns is None else [*events[:-1], replace(events[-1], total=total_ns)]


def _no_python(manifest: Manifest, mapped: Iterable[MappedProgram]) -> Iterator[str]:
    """What to say of Python programs where nothing walks their frames."""
    if manifest.rung is Rung.RING_BUFFER and any(may_hold_python(program.path) for program in mapped):
        yield "no Python functions in call stacks: only the BPF programs walk them (tdprof doctor says what they need)"


def _layout(manifest: Manifest, ids: list[int]) -> RecordLayout:
    """What an event's records look like."""
    if manifest.rung is not Rung.RING_BUFFER:
        return RecordLayout(SIDE_BAND_SAMPLE_TYPE, ids=tuple(ids))
    held = ring_sample_type(copies_stacks=manifest.stack_bytes > 0, has_cgroups=manifest.has_cgroups)
    if not manifest.stack_bytes:
        return RecordLayout(held, ids=tuple(ids))
    registers = WALK_REGISTERS[manifest.host.machine]
    return RecordLayout(
        held,
        sample_regs_user=sum(1 << number for number in registers),
        user_pc_register=PC_REGISTER[manifest.host.machine],
        walk_registers=registers,
        ids=tuple(ids),
    )


def _open_walk(manifest: Manifest, *, is_here: bool) -> Callable[[pa.Table, pa.Table], Walk]:
    def open_walk(mappings: pa.Table, processes: pa.Table) -> Walk:
        from tdprof.pipeline.walk_copies import CopyWalker, FileTables  # slow to load, and few need it

        files = FileTables(None, is_here=is_here)
        return CopyWalker(mappings, processes, MACHINES[manifest.host.machine], files, is_leaf_known=True).walk

    return open_walk


def _save_files(
    target: OwnFolder,
    manifest: Manifest,
    mappings: pa.Table,
    mapped: list[MappedProgram],
    unseen: list[MappedProgram],
    held: HeldPrograms | None,
) -> list[str]:
    """Save the programs and libraries that were sampled and no path leads to here: of containers, and deleted ones.

    Args:
        target: with the other tables.
        manifest: of the recording.
        mappings, mapped: its mappings.
        unseen: those of them whose path may mean something else here.
        held: programs whose processes may have ended.

    Returns:
        What is not kept though it is there, a sentence each.
    """
    from tdprof.attribute.address_space import AddressSpaces  # few recordings need them
    from tdprof.attribute.code_files import CodeFiles
    from tdprof.attribute.stacks import attribute_stacks

    samples = read_table(target.path, "samples", ("mapped_ns",))
    stacks, processes = (read_table(target.path, name) for name in ("stacks", "processes"))
    spaces = AddressSpaces(mappings, processes)
    attributed = attribute_stacks(samples, stacks, CodeFiles(mappings, spaces), spaces)
    sampled = {(file.path, file.build_id) for file in attributed.mapped_files}
    # Where SPE sampled is not known before its records are decoded.
    wanted = [each for each in unseen if manifest.spe or (each.path, each.build_id) in sampled]
    claimed = {each.build_id for each in wanted}
    seen = {each for each in mapped if each.build_id in claimed}.difference(unseen)
    return save_files(target, wanted, held, seen)


@contextlib.contextmanager
def tables_of_interrupted(folder: Path, manifest: Manifest) -> Iterator[tuple[Path, Manifest]]:
    """A temporary folder with the tables of a recording that was interrupted, or its own if it has them by then."""
    with tempfile.TemporaryDirectory(prefix="tdprof-") as temporary:
        failure: TdprofError | None = None
        try:
            with OwnFolder.open(Path(temporary)) as target:
                manifest = make_tables(folder, target, manifest)
        except TdprofError as error:
            failure = error
        except OSError as error:
            failure = TdprofError(f"cannot make tables of the interrupted recording {folder}: {error.strerror}")
        now = read_manifest(folder)
        if now.state is State.COMPLETE:  # the spool may have gone while it was read
            yield folder, now
            return
        if failure:
            raise failure
        interrupted = "the recording was interrupted"
        if manifest.rung is not Rung.RING_BUFFER:
            interrupted += "; losses in the kernel's tables since the last drain are not known"
        yield Path(temporary), replace(manifest, notes=[*manifest.notes, interrupted])
