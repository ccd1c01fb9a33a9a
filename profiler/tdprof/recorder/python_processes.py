"""Finds the processes that run CPython, and has the BPF programs walk their frames.

In a thread of its own: the files are others' and may lie in a file system that does not answer.
"""

import contextlib
import functools
import itertools
import json
import os
import queue
import re
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from pathlib import PurePath
from typing import NamedTuple

from tdprof.linux.elf import PF_X, PT_LOAD, Elf, ElfError, parse_elf
from tdprof.linux.file_bytes import FileBytes, reopen_regular
from tdprof.recorder.bpf.python_walk import OWN_EXECUTION, PROCESS_BITS, PythonProgram, PythonRuntime, PythonWalk
from tdprof.recorder.host import read_text
from tdprof.recorder.process_memory import NOT_PERMITTED, NoReaderError, ProcessMemory
from tdprof.recorder.python_layouts import OFFSETS_BYTES, UnknownLayoutError, runtime_of
from tdprof.recorder.split_code import other_parts
from tdprof.recorder.stop_signals import hear_no_signals
from tdprof.recorder.symbol_places import find_symbols
from tdprof.text import printable

# Programs and libraries that hold CPython, by name.
_NAME = re.compile(r"(?:lib)?python3(?:\.(\d+))?[a-z]?(?:\.so[.\d]*)?")
_RUNTIME, _VERSION, _LOOP = b"_PyRuntime", b"Py_Version", b"_PyEval_EvalFrameDefault"
# Gives a thread several native stacks (greenlet, gevent): where its code calls the loop, other frames' stack begins.
_SWITCHER = re.compile(r"_?greenlet[-.\w]*\.so")
_SECTION = ".PyRuntime"  # of its state, from 3.11 on: in programs, too, that have it built in under a name of their own
# Where each instruction is a function of its own (tail calls, from 3.14 on) little is left of the loop; else it has
# tens of kilobytes.
_TAIL_CALLS_FROM, _LEAST_LOOP_BYTES = (3, 14), 8192
_MOST_OTHERS = 1 << 16
_MOST_WAITING = 1024
_MOST_PROGRAMS = 256  # of python_programs
_NOT_READY = "the kernel was still checking the programs that walk them when the recording ended"
_START_CODE = 23  # of /proc/PID/stat, from the state on


_Program = tuple[int, int, int]  # the fields of `PythonProgram`


class PythonMapping(NamedTuple):
    """An executable mapping of a process; ``file`` tells its file from others."""

    start: int
    file_offset: int
    path: str
    file: tuple[str, str]


class _Found(NamedTuple):
    """What a file says of its CPython, as linked."""

    runtime: int
    version: int | None  # where its number stands, from 3.11 on
    loops: tuple[tuple[int, int], ...]  # parts of the evaluation loop: start, end
    code: int  # where its executable segment begins
    bias: int  # what to add to an address of the file's executable segment to have the file offset


class _File(NamedTuple):
    """A file as it is when a process has it mapped; it may be written again."""

    file: tuple[str, str]
    bytes: int
    written_ns: int

    @classmethod
    def of(cls, mapping: PythonMapping, fd: int) -> "_File":
        status = os.fstat(fd)
        return cls(mapping.file, status.st_size, status.st_mtime_ns)


class PythonProcesses:
    """The processes whose Python frames are walked.

    Args:
        frames: the kernel's side.
    """

    def __init__(self, frames: PythonWalk) -> None:
        self._frames = frames
        self._waiting: queue.Queue[tuple[int, PythonMapping, int] | None] = queue.Queue(_MOST_WAITING)
        # By reason; a process is looked at again whenever it maps a file.
        self._refused: defaultdict[str, set[int]] = defaultdict(set)
        self._others: set[tuple[str, str]] = set()  # files that hold no CPython
        self._known_files: dict[_File, _Found] = {}  # those that do: each process would read them again
        self._programs: dict[_Program, bool] = {}  # with CPython in them, that were executed: are they known?
        self._found: dict[int, dict[str, object]] = {}  # what the spool is told of each process
        self._executions = itertools.count()
        self._switchers: dict[int, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()  # of all these but the files
        self._memory = ProcessMemory()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def look(self, pid: int, mappings: Iterable[tuple[PythonMapping, int | None]]) -> None:
        """See whether a process runs CPython; what it takes to know is done by the thread.

        Args:
            pid: the process.
            mappings: its executable mappings that `may_hold`, each with an ``O_PATH`` descriptor, which is this
                object's from here on; None: this user may not reach the file.
        """
        for mapping, fd in mappings:
            if fd is None:
                if may_hold_python(mapping.path):
                    self._refuse(pid, NOT_PERMITTED)
                continue
            try:
                self._waiting.put_nowait((pid, mapping, fd))
            except queue.Full:
                os.close(fd)
                self._refuse(pid, "too many files were to be looked into")

    def see_switchers(self, pid: int, spans: list[tuple[int, int]]) -> None:
        """Where a process has now mapped (start, end) what `is_switcher`."""
        with self._lock:
            if spans != self._switchers.get(pid, []):
                self._switchers[pid] = spans
                if pid in self._found:
                    self._frames.tell(pid, self._line(pid))

    def may_hold(self, file: tuple[str, str]) -> bool:
        """Whether a file may hold CPython: all that were not looked into may, since programs have it built in."""
        return file not in self._others

    def prepare(self) -> None:
        """Such a process is about to start: have the kernel's side ready, which takes some hundredths of a second."""
        self._frames.start()
        with contextlib.suppress(OSError):  # the first who needs it tries again, and says so
            self._memory.start()

    def wants(self, pid: int) -> bool:
        """Whether anything is to be looked at: not of a process that is known."""
        return not self._frames.has(pid)

    def forget_all_but(self, running: Set[int]) -> None:
        """Other processes have ended, and what was to be said of them is said."""
        with self._lock:
            for known in (self._found, self._switchers):
                for pid in known.keys() - running:
                    del known[pid]
            for pids in self._refused.values():
                pids &= running

    def notes(self) -> Iterator[str]:
        """What the user should know in the end."""
        with self._lock:
            counts = {reason: len(pids) for reason, pids in self._refused.items() if pids}
        for reason, count in counts.items():
            of = f"{count} processes" if count > 1 else "a process"
            yield f"the Python frames of {of} are not walked: {reason}"

    def close(self) -> None:
        """End the thread once it has done what it is at; nobody waits for that."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)

    def _run(self) -> None:
        hear_no_signals()
        with contextlib.closing(self._memory):
            self._look_at_all()

    def _look_at_all(self) -> None:
        while (item := self._waiting.get()) is not None:
            pid, mapping, fd = item
            try:
                file = _File.of(mapping, fd)
                found = self._known_files.get(file)
                if found is None and mapping.file not in self._others:  # as it was when it was asked for
                    found = self._read(mapping, FileBytes(reopen_regular(fd)))
            except (OSError, ElfError, struct.error):
                continue
            finally:
                os.close(fd)
            if found is None:
                continue
            if len(self._known_files) < _MOST_PROGRAMS:
                self._known_files[file] = found
            try:
                self._inspect(pid, mapping, found, file)
            except (TimeoutError, NoReaderError) as error:
                self._refuse(pid, error.strerror or "")
            except PermissionError:
                self._refuse(pid, NOT_PERMITTED)
            except (OSError, struct.error):  # it has ended
                continue
            except UnknownLayoutError as error:
                self._refuse(pid, f"{error} ({printable(PurePath(mapping.path).name)})")

    def _read(self, mapping: PythonMapping, content: FileBytes) -> _Found | None:
        """What a file holds of CPython; None: nothing."""
        elf = parse_elf(content)
        if may_hold_python(mapping.path) or elf.section(_SECTION) is not None:
            return find_python(elf)
        if len(self._others) < _MOST_OTHERS:
            self._others.add(mapping.file)
        return None

    def _refuse(self, pid: int, reason: str) -> None:
        with self._lock:
            if not self._frames.has(pid):  # which it forgets at exec
                self._refused[reason].add(pid)

    def _inspect(self, pid: int, mapping: PythonMapping, found: _Found, file: "_File") -> None:
        shift = mapping.start - mapping.file_offset + found.bias
        version = self._version(pid, found, shift, mapping.path)
        beginning = self._memory.read(pid, shift + found.runtime, OFFSETS_BYTES)
        check_loop(version, found.loops)
        runtime = runtime_of(version, shift + found.runtime, beginning)
        namespace = os.stat(f"/proc/{pid}/ns/pid")
        if _is_in_other_namespace(pid):
            runtime.pidns_device, runtime.pidns_inode = namespace.st_dev, namespace.st_ino
        told: dict[str, object] = {
            "version": version,
            "mapped": mapping.start,
            "time_ns": time.monotonic_ns(),
            "loops": [[shift + start, shift + end] for start, end in found.loops],
        }
        self._refuse(pid, _NOT_READY)
        is_ready = self._frames.start()
        with self._lock:
            self._refused[_NOT_READY].discard(pid)
        if not is_ready:  # who loads them says why
            return
        with self._lock:  # what is told last holds
            runtime.process = pid | next(self._executions) % OWN_EXECUTION << PROCESS_BITS
            self._found[pid] = {"process": runtime.process} | told
            has_room = self._frames.add(pid, runtime, self._line(pid))
            if has_room:
                for pids in self._refused.values():
                    pids.discard(pid)
        if not has_room:
            raise UnknownLayoutError("there are more of them than there is room for")
        code = shift + found.code
        if code == _code_start(pid):
            runtime.pidns_device, runtime.pidns_inode = namespace.st_dev, namespace.st_ino
            self._see_program(program_of(mapping.file, file.bytes), runtime, code, told)

    def _see_program(self, program: _Program, runtime: PythonRuntime, code: int, told: dict[str, object]) -> None:
        """A program was executed whose code begins there; once is no reason to ask how the kernel tells that."""
        if program not in self._programs and len(self._programs) < _MOST_PROGRAMS:
            self._programs[program] = False
        elif self._programs.get(program) is False:
            self._programs[program] = True
            runtime.told, runtime.program = 0, sum(self._programs.values())
            line = json.dumps({"program": runtime.program, "first": runtime.first_interpreter} | told).encode()
            runtime.first_interpreter -= code
            self._frames.know(PythonProgram(*program), runtime, line)

    def _line(self, pid: int) -> bytes:
        return json.dumps(self._found[pid] | {"switchers": self._switchers.get(pid, [])}).encode()

    def _version(self, pid: int, found: _Found, shift: int, path: str) -> tuple[int, int]:
        if found.version is not None:
            number = int.from_bytes(self._memory.read(pid, shift + found.version, 4), "little")
            return number >> 24, number >> 16 & 0xFF
        match = _NAME.fullmatch(PurePath(path).name)
        if match is None or match[1] is None:
            raise UnknownLayoutError("its version is not known")
        return 3, int(match[1])


def program_of(file: tuple[str, str], size: int) -> _Program:
    """Of a file as /proc/PID/maps names it, of so many bytes."""
    major, minor = (int(part, 16) for part in file[0].split(":"))
    return major << 20 | minor, int(file[1]), size  # MKDEV() of include/linux/kdev_t.h


def _code_start(pid: int) -> int:
    """Where the code of the program that a process executes begins; 0 where the kernel does not tell."""
    fields = read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[_START_CODE]) if len(fields) > _START_CODE else 0


def is_switcher(path: str) -> bool:
    """Whether a file's name is that of a library that gives a thread several native stacks."""
    return _SWITCHER.fullmatch(PurePath(path).name) is not None


@functools.lru_cache(1 << 12)
def may_hold_python(path: str) -> bool:
    """Whether a file's name is one that CPython has."""
    return _NAME.fullmatch(PurePath(path).name) is not None


def find_python(elf: Elf) -> _Found | None:
    """Where CPython's state and its evaluation loop are in a file; None if it holds none."""
    symbols = find_symbols(elf, (_RUNTIME, _VERSION, _LOOP, _LOOP + b".cold"))
    code = next((each for each in elf.segments if each.type == PT_LOAD and each.flags & PF_X), None)
    runtime, version = symbols.get(_RUNTIME, set()), symbols.get(_VERSION, set())
    loops = symbols.get(_LOOP, set()) | symbols.get(_LOOP + b".cold", set())
    if code is None or not runtime or not loops:
        return None
    parts = {(start, start + size) for start, size in loops}
    for start, end in tuple(parts):
        parts.update(other_parts(elf, start, end))
    return _Found(
        min(runtime)[0],
        min(version)[0] if version else None,
        tuple(sorted(parts)),
        code.address,
        code.offset - code.address,
    )


def check_loop(version: tuple[int, int], parts: Iterable[tuple[int, int]]) -> None:
    """Raises UnknownLayoutError where an evaluation loop of these (start, end) is not what runs Python's frames."""
    if version >= _TAIL_CALLS_FROM and sum(end - start for start, end in parts) < _LEAST_LOOP_BYTES:
        raise UnknownLayoutError("a build whose evaluation loop is many functions (tail calls)")


def _is_in_other_namespace(pid: int) -> bool:
    """Whether the process numbers its threads otherwise than this one does."""
    numbers = re.search(r"^NSpid:\t(.*)$", read_text(f"/proc/{pid}/status"), re.MULTILINE)
    return numbers is not None and len(numbers[1].split()) > 1
