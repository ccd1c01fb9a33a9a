"""From mapped files and offsets to functions, inlined frames and lines: finds the source that knows."""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from tdprof.linux.elf import Elf, ElfError, NotElfError, is_build_id, open_elf, open_elf_inside
from tdprof.linux.file_bytes import inner_folder
from tdprof.model.addresses import DELETED, FileKind, Locations, MappedFile, Unknown
from tdprof.model.arrays import U64
from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.code_index import EMPTY_INDEX
from tdprof.symbolize.compiled_names import place_of
from tdprof.symbolize.debug_files import PERF_STORE, DebugDirs, programs_by_build_id, under
from tdprof.symbolize.elf_symbols import NOT_COMPILED, ElfSymbols
from tdprof.symbolize.kernel_symbols import KernelLookup, KernelSymbols, make_kernel_table
from tdprof.symbolize.locations import combine_locations, find_locations, unknown_locations, with_places
from tdprof.symbolize.symbol_table import SymbolTable

if TYPE_CHECKING:  # slow to load, and few need them
    from tdprof.symbolize.code_versions import CodeVersions, RunTimeCode
    from tdprof.symbolize.debuginfod import Debuginfod
    from tdprof.symbolize.saved import SavedSymbols

_LATE_NS = 600_000_000_000  # a dump may have grown on until it was saved
_RUN_TIME_CODE = re.compile(r"perf-([0-9]{1,10})\.map|jit-([0-9]{1,10})\.dump")


class Symbolizer:
    """Looks addresses up; opens each file once, and holds what it opened until the ``with`` block ends.

    Args:
        symfs: a folder that holds the recorded machine's files under their own paths (as perf's ``--symfs``);
            nothing outside it is opened then.
        debug_dirs: folders searched for separate debug data before ``/usr/lib/debug``.
        kernel: the recorded machine's kernel symbols, or what looks them up; None if they could not be read.
        perf_map_dir: folder of the ``perf-PID.map`` and ``jit-PID.dump`` files of the recorded processes.
        vdso: the recorded machine's vDSO as a file.
        carried_files: folder of files that the capture carries, named by their build-id.
        saved: symbols that the capture carries; what they do not have is looked for in files.
        interpreted: the functions of interpreted languages.
        debuginfod: servers to fetch debug data and executables from; None contacts nobody.
        progress: told in a few words what is being waited for.
        unreadable: sentences on symbols of the recording that could not be read, for whoever shows the results.
        cache: where what is read of debug data is kept; None keeps nothing.
    """

    def __init__(  # noqa: PLR0913  the sources of names, each of them optional
        self,
        *,
        symfs: Path | None = None,
        debug_dirs: Sequence[Path] = (),
        kernel: KernelSymbols | KernelLookup | None = None,
        perf_map_dir: Path | None = None,
        vdso: Path | None = None,
        carried_files: Path | None = None,
        saved: "SavedSymbols | None" = None,
        interpreted: "SavedSymbols | None" = None,
        cache: SymbolCache | None = None,
        debuginfod: "Debuginfod | None" = None,
        progress: Callable[[str], None] = lambda text: None,
        unreadable: Sequence[str] = (),
    ) -> None:
        self._symfs = symfs
        self._debug_dirs = DebugDirs.make(debug_dirs, symfs, debuginfod)
        self._kernel = kernel
        self._kernel_table: SymbolTable | None = None
        self._perf_map_dir = perf_map_dir
        self._run_time_code: dict[int, RunTimeCode | None] = {}
        self._vdso = vdso
        self._carried_files = carried_files
        self._saved = saved
        self._interpreted = interpreted
        self._cache = cache
        self._debuginfod = debuginfod
        self._progress = progress
        self.unreadable = unreadable
        self._notes: list[str] = []
        self._files: dict[MappedFile, ElfSymbols | Unknown] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.clear()
        self._run_time_code.clear()
        self._kernel_table = None

    def locate(self, file: MappedFile, file_offsets: U64) -> Locations:
        """What stands at some places of a mapped file.

        Args:
            file: where the code came from.
            file_offsets: uint64[n], distinct. Offsets in the file for ``ELF`` and ``VDSO``, run-time addresses for
                all other kinds. For a return address of a call chain pass the address minus one, so that it falls
                into the call.

        Returns:
            One entry for each offset, in the same order. What is not known has a reason instead of frames.

        Raises:
            OSError: this process may open no more files.
        """
        try:
            return self._locate(file, file_offsets)
        except MemoryError:
            self._notes.append(f"{file.path}: reading its symbols takes more memory than there is")
            return unknown_locations(len(file_offsets), Unknown.NO_SYMBOL)

    def _locate(self, file: MappedFile, file_offsets: U64) -> Locations:
        if file.kind in (FileKind.KERNEL, FileKind.KERNEL_MODULE):
            return self._locate_kernel(file_offsets)
        if file.kind is FileKind.ANONYMOUS:
            return self._locate_run_time_code(file.pid, file_offsets)
        if file.kind is FileKind.INTERPRETED:
            return self._locate_interpreted(file, file_offsets)
        if self._saved is None:
            return self._locate_in_files(file, file_offsets)
        found = self._saved.locate(file, file_offsets)
        missing = np.flatnonzero(found.reason != Unknown.KNOWN)
        if not len(missing):
            return found
        tried = self._locate_in_files(file, file_offsets[missing])
        better = np.flatnonzero((tried.reason == Unknown.KNOWN) | (found.reason[missing] == Unknown.NO_FILE))
        return combine_locations(found, missing[better], tried, better)

    def file_of(self, file: MappedFile) -> ElfSymbols | Unknown:
        """The file itself, where it is read from ELF; or why it is not."""
        if file.kind not in (FileKind.ELF, FileKind.VDSO):
            return Unknown.NO_FILE
        symbols = self._files.get(file)
        if symbols is None:
            symbols = self._files[file] = self._open(file)
        return symbols

    def is_carried(self, path: Path) -> bool:
        """Whether a file is one that the capture brings along, and not this machine's."""
        return path == self._vdso or path.parent == self._carried_files

    def owner_of(self, file: MappedFile) -> int | None:
        """The user on whose word names and lines of the file rest: its owner; None: whoever made the capture."""
        symbols = self.file_of(file)
        if self._saved is not None or not isinstance(symbols, ElfSymbols) or self.is_carried(symbols.path):
            return None
        return symbols.owner

    def _locate_in_files(self, file: MappedFile, file_offsets: U64) -> Locations:
        symbols = self.file_of(file)
        if isinstance(symbols, Unknown):
            return unknown_locations(len(file_offsets), symbols)
        return symbols.locate(file_offsets)

    def _locate_kernel(self, addresses: U64) -> Locations:
        if callable(self._kernel):
            return find_locations(make_kernel_table(self._kernel(addresses)), EMPTY_INDEX, addresses, Unknown.NO_SYMBOL)
        if self._kernel_table is None:
            self._kernel_table = make_kernel_table(self._kernel)
        missing = Unknown.NO_SYMBOL if len(self._kernel_table) else Unknown.HIDDEN_KERNEL
        return find_locations(self._kernel_table, EMPTY_INDEX, addresses, missing)

    def code_versions(self, until_ns: int) -> "dict[int, CodeVersions]":
        """Of processes that replaced run-time code and told when, what stood where.

        Args:
            until_ns: when the recording ended (CLOCK_MONOTONIC). A dump with times far beyond has another clock.
        """
        found = {pid: code.versions for pid in self._pids_with_code if (code := self._run_time_code_of(pid))}
        latest_ns = until_ns + _LATE_NS
        return {pid: each for pid, each in found.items() if each and each.latest_ns <= latest_ns}

    def tells_lines(self, pid: int) -> bool:
        """Whether a process left lines of its run-time code, and not only where each function begins."""
        code = self._run_time_code_of(pid)
        return code is not None and (len(code.index.range_start) > 0 or code.java is not None)

    def _run_time_code_of(self, pid: int) -> "RunTimeCode | None":
        if pid not in self._run_time_code:
            self._run_time_code[pid] = self._read_run_time_code(pid)
        return self._run_time_code[pid]

    def _locate_run_time_code(self, pid: int, addresses: U64) -> Locations:
        code = self._run_time_code_of(pid)
        if code is None:
            return unknown_locations(len(addresses), Unknown.NO_PERF_MAP)
        found = find_locations(code.table, code.index, addresses, Unknown.NO_SYMBOL)
        found = with_places(found, place_of)
        return code.java.improve(found, addresses) if code.java else found

    def _locate_interpreted(self, file: MappedFile, numbers: U64) -> Locations:
        """Each place has two numbers, so that that of a caller, which is one less, is the same place's."""
        if self._interpreted is None:
            return unknown_locations(len(numbers), Unknown.NO_SYMBOL)
        return self._interpreted.locate(file, numbers >> np.uint64(1))

    @cached_property
    def _pids_with_code(self) -> frozenset[int]:
        """The processes that left a map or a dump of their run-time code."""
        if self._perf_map_dir is None:
            return frozenset()
        with inner_folder(self._perf_map_dir) as folder:
            found = [_RUN_TIME_CODE.fullmatch(name) for name in os.listdir(folder)] if folder else []
        return frozenset(int(match[1] or match[2]) for match in found if match)

    def _read_run_time_code(self, pid: int) -> "RunTimeCode | None":
        """What a process left of its run-time code; a dump says more than a map, unless nothing is in it."""
        if pid not in self._pids_with_code:
            return None
        assert self._perf_map_dir is not None
        from tdprof.symbolize.java_code import read_java_code
        from tdprof.symbolize.jitdump import read_jitdump
        from tdprof.symbolize.perf_map import read_perf_map

        dump = read_jitdump(self._perf_map_dir, pid)
        if dump is not None and dump.note:
            self._notes.append(f"run-time code of process {pid}: {dump.note}")
        if dump is not None and len(dump.table):
            return dump
        code = read_perf_map(self._perf_map_dir, pid) or dump
        if code is None:
            self._notes.append(f"run-time code of process {pid}: its file cannot be read, or is too large")
            return None
        java = read_java_code(self._perf_map_dir, pid)
        return replace(code, java=java) if java else code

    def notes(self) -> list[str]:
        """What a reader of the results should know, a sentence each: files that were replaced, damaged debug data."""
        notes = list(self._notes)
        for file, symbols in self._files.items():
            if isinstance(symbols, ElfSymbols):
                notes += [note if note is NOT_COMPILED else f"{file.path}: {note}" for note in symbols.notes]
        if self._debuginfod:
            notes += [f"debuginfod server {url}: {why}" for url, why in self._debuginfod.failures.items()]
        return list(dict.fromkeys(notes))

    def _open(self, file: MappedFile) -> ElfSymbols | Unknown:
        """The file's symbols, or why it has none. A file with another build-id than the recorded is never used."""
        self._progress(f"reading symbols of {file.path}")
        reason, detail = Unknown.NO_FILE, ""
        for path in self._places(file):
            try:
                elf = open_elf_inside(path.parent, path.name) if self.is_carried(path) else open_elf(path)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # it is there, and has its names
                continue
            except ElfError as error:
                reason, detail = Unknown.DAMAGED, f"cannot be read: {error}"
                if isinstance(error, NotElfError) and not file.build_id:  # nor was it one when it was recorded
                    reason, detail = Unknown.STRIPPED, ""
                continue
            if _is_recorded_one(elf, file):
                return ElfSymbols(elf, path, self._debug_dirs, self._cache)
            reason = Unknown.WRONG_BUILD_ID
            detail = (
                f"is another file than the recorded one (build-id {file.build_id or 'of a deleted file'}, here "
                f"{elf.build_id or 'none'}): replaced since, or its process had another root; "
                "--symfs names a folder with the recorded one"
            )
        fetched = self._debuginfod.find(file.build_id, "executable") if self._debuginfod else None
        if fetched:
            with contextlib.suppress(OSError, ElfError):
                elf = open_elf(fetched)
                if elf.build_id == file.build_id:
                    return ElfSymbols(elf, fetched, self._debug_dirs, self._cache)
        if detail:
            self._notes.append(f"{file.path}: {detail}")
        return reason

    def _places(self, file: MappedFile) -> list[Path]:
        if file.kind is FileKind.VDSO:
            return [self._vdso] if self._vdso else []
        path = file.path.removesuffix(DELETED)
        carried = [self._carried_files / file.build_id] if self._carried_files and is_build_id(file.build_id) else []
        roots = list(self._debug_dirs.roots)
        if not self._symfs:
            roots.append(PERF_STORE.expanduser())
        kept = [place for root in roots for place in programs_by_build_id(root, file.build_id)]
        # A capture carries what no path led to. Who had a file with the build-id of another's recorded has no say here.
        return [under(self._symfs, path), *carried, *kept]


def _is_recorded_one(elf: Elf, file: MappedFile) -> bool:
    if not file.build_id:
        return not file.path.endswith(DELETED)  # what has the name now is another file
    return elf.build_id == file.build_id
