"""A compiled BPF object: its maps and programs, and how they come into the kernel.

Layouts are those of ``union bpf_attr`` and ``struct bpf_insn`` in the kernel's include/uapi/linux/bpf.h.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

from tdprof.linux.limits import unlimited_locked_memory
from tdprof.recorder.bpf.compiler import INSTRUCTION, PSEUDO_MAP_FD, replace_maps, wide_loads
from tdprof.recorder.bpf.maps import bpf
from tdprof.recorder.bpf.settings import Setting, filled_in, is_setting
from tdprof.recorder.stop_signals import hear_no_signals
from tdprof.values import dataclass

BPF_MAP_CREATE = 0
BPF_PROG_LOAD = 5
BPF_RAW_TRACEPOINT_OPEN = 17
BPF_F_NO_PREALLOC = 1
BPF_PROG_TYPE_KPROBE = 2
BPF_PROG_TYPE_PERF_EVENT = 7
BPF_PROG_TYPE_RAW_TRACEPOINT = 17
BPF_PROG_TYPE_TRACING = 26
_BPF_TRACE_RAW_TP = 23  # enum bpf_attach_type
_BPF_MAP_TYPE_RINGBUF = 27
_LOG_BYTES = 1 << 20
# The verifier gives up with EAGAIN where a signal has come (do_check of kernel/bpf/verifier.c), also one that is none
# of ours, such as a child's end while glibc has all of them blocked in another thread for a moment.
_MORE_ATTEMPTS = 4
_T = TypeVar("_T")

MORE_LOCKED_MEMORY = "more locked memory than is permitted (ulimit -l unlimited)"
"""What a map would take, until Linux 5.11."""


class LoadError(Exception):
    """The kernel refuses a map or a program; the text says which and why."""


class _NotPermittedError(LoadError):
    """EPERM; the verifier's refusals are EACCES and others."""


@dataclass(frozen=True, slots=True)
class MapSpec:
    """What a map is made with. ``type`` and ``flags`` are the kernel's."""

    name: str
    type: int
    key_bytes: int
    value_bytes: int
    entries: int
    flags: int


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions, in which a map stands as its index among the object's maps, and a setting as its place."""

    name: str
    code: bytes


@dataclass(frozen=True, slots=True)
class Compiler:
    """Which bcc made an object, and the file that changes when bcc does."""

    path: str
    version: str
    mtime_ns: int
    size_bytes: int

    def is_unchanged(self) -> bool:
        """Whether that bcc is still the one that is installed."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return (status.st_mtime_ns, status.st_size) == (self.mtime_ns, self.size_bytes)


@dataclass(frozen=True, slots=True)
class BpfObject:
    """What the compiler made of the C source; serves any number of loads.

    Attributes:
        settings: that each program is told when it is loaded, and not before: most are never loaded.
    """

    maps: Sequence[MapSpec]
    programs: Sequence[Program]
    compiler: Compiler
    settings: Mapping[Setting, int] = field(default_factory=dict)

    def instructions(self, program: Program, maps: Mapping[str, int]) -> bytes:
        """A program's instructions with the descriptors of these maps, and with its settings."""
        numbered = {at: maps[spec.name] for at, spec in enumerate(self.maps)}
        return filled_in(replace_maps(program.code, numbered), self.settings)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What ``to_json`` gave, or the compiler's answer.

        Raises:
            ValueError: it is not an object that could be loaded.
        """
        try:
            maps = [_checked(MapSpec, entry) for entry in content["maps"]]
            programs = [Program(str(entry["name"]), bytes.fromhex(entry["code"])) for entry in content["programs"]]
            for program in programs:
                _check_code(program.code, len(maps))
            return cls(maps, programs, _checked(Compiler, content["compiler"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a BPF object: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """For a file; ``from_json`` reads it."""
        return {
            "maps": [{name: getattr(entry, name) for name in MapSpec.__slots__} for entry in self.maps],
            "programs": [{"name": program.name, "code": program.code.hex()} for program in self.programs],
            "compiler": {name: getattr(self.compiler, name) for name in Compiler.__slots__},
        }


def _checked(kind: Any, entry: Mapping[str, Any]) -> Any:
    """An instance whose numbers are numbers that fit the kernel's 32 bits (a time: 64), and whose texts are texts."""
    for name, annotation in kind.__annotations__.items():
        value = entry[name]
        if type(value) is not annotation:
            raise ValueError(f"{name} is {value!r}")
        if annotation is int and not 0 <= value < 1 << (64 if name == "mtime_ns" else 32):
            raise ValueError(f"{name} is {value}")
    return kind(**entry)


def _check_code(code: bytes, maps: int) -> None:
    if not code or len(code) % INSTRUCTION.size:
        raise ValueError(f"{len(code)} bytes are no instructions")
    for _, kind, low, high in wide_loads(code):
        if kind == PSEUDO_MAP_FD and low >= maps:
            raise ValueError(f"there is no map {low}")
        if is_setting(kind, high):
            Setting(low)


class Loaded(NamedTuple):
    """What the kernel took, by name: descriptors of maps and of programs, and why it refused optional ones."""

    maps: dict[str, int]
    programs: dict[str, int]
    refused: dict[str, str]

    def close(self) -> None:
        """Close every descriptor."""
        close_all([*self.maps.values(), *self.programs.values()])


class ObjectLoad:
    """An object on its way into the kernel: its maps are there, and its programs ready to be loaded.

    Args:
        found: what to load.
        entries: how many entries the maps of these names get (a ring buffer: bytes); the others as compiled.
        types: the kernel's type of the programs of these names; the others are of perf events.
        optional: names of programs that are left out where the kernel refuses them.

    Raises:
        LoadError: the kernel refuses a map; nothing stays open.
    """

    def __init__(
        self,
        found: BpfObject,
        entries: Mapping[str, int],
        types: Mapping[str, int] = MappingProxyType({}),
        optional: Collection[str] = (),
    ) -> None:
        self.maps = _with_enough_memory(lambda: _create_all_maps(found, entries))
        self._optional = optional
        self._programs = [
            _Ready(each.name, found.instructions(each, self.maps), types.get(each.name, BPF_PROG_TYPE_PERF_EVENT))
            for each in sorted(found.programs, key=lambda program: len(program.code), reverse=True)
        ]

    def finish(self, on_begun: Callable[[], object] = lambda: None) -> Loaded:
        """Load the programs; the caller closes the descriptors.

        Args:
            on_begun: called once the kernel is about to look at the first ones.

        Raises:
            LoadError: the kernel refuses one; nothing stays open.
        """
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self.close)
            programs, refused = _with_enough_memory(lambda: _load_programs(self._programs, self._optional, on_begun))
            on_failure.pop_all()
        return Loaded(self.maps, programs, refused)

    def close(self) -> None:
        """Close the maps, where nothing is loaded."""
        close_all(self.maps.values())


class _Ready(NamedTuple):
    """A program as the kernel takes it."""

    name: str
    code: bytes
    kind: int


def _with_enough_memory(load: Callable[[], _T]) -> _T:
    """Until Linux 5.11 maps and programs counted as locked memory."""
    try:
        return load()
    except _NotPermittedError:
        with unlimited_locked_memory():
            return load()


def create_maps(found: BpfObject, entries: Mapping[str, int]) -> dict[str, int]:
    """Descriptors of more maps of these names, with so many entries. Raises OSError; then nothing stays open."""
    specs = {spec.name: spec for spec in found.maps}
    made: dict[str, int] = {}
    with contextlib.ExitStack() as on_failure:
        for name, size in entries.items():
            made[name] = create_map(specs[name], size)
            on_failure.callback(os.close, made[name])
        on_failure.pop_all()
    return made


def load_one(
    found: BpfObject, maps: Mapping[str, int], name: str, kind: int = BPF_PROG_TYPE_PERF_EVENT, typedef: int = 0
) -> int:
    """The descriptor of a program of a type of the kernel's, loaded by itself with these maps. Raises LoadError.

    Args:
        typedef: as of `load_program`.
    """
    whole = found.instructions(next(program for program in found.programs if program.name == name), maps)
    return _with_enough_memory(lambda: load_program(name, whole, kind, typedef))


def close_all(descriptors: Iterable[int]) -> None:
    """Close each of them."""
    for fd in descriptors:
        os.close(fd)


def _create_all_maps(found: BpfObject, entries: Mapping[str, int]) -> dict[str, int]:
    """Descriptors by name. Raises LoadError."""
    maps: dict[str, int] = {}
    with contextlib.ExitStack() as on_failure:
        for spec in found.maps:
            try:
                maps[spec.name] = create_map(spec, entries.get(spec.name, spec.entries))
            except OSError as error:
                raise _refusal(error)(f"map {spec.name}: {_why_no_map(error, spec)}") from error
            on_failure.callback(os.close, maps[spec.name])
        on_failure.pop_all()
    return maps


def _load_programs(
    ready: Sequence[_Ready], optional: Collection[str], on_begun: Callable[[], object]
) -> tuple[dict[str, int], dict[str, str]]:
    """Descriptors by name, and why optional programs were refused. Raises LoadError for others."""
    programs: dict[str, int] = {}
    errors: dict[str, LoadError] = {}
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(lambda: close_all(programs.values()))
        _load_two_at_a_time(ready, programs, errors, on_begun)
        for name, refusal in errors.items():
            if name not in optional or isinstance(refusal, _NotPermittedError):
                raise refusal
        on_failure.pop_all()
    return programs, {name: str(refusal) for name, refusal in errors.items()}


def _load_two_at_a_time(
    ready: Sequence[_Ready], loaded: dict[str, int], errors: dict[str, LoadError], on_begun: Callable[[], object]
) -> None:
    """Fill in each program's descriptor, or its refusal. The longest come first: they take the verifier longest."""
    left = iter(ready)

    def load() -> None:
        for name, code, kind in left:
            try:
                loaded[name] = load_program(name, code, kind)
            except LoadError as error:
                errors[name] = error

    def help_out() -> None:
        hear_no_signals()
        load()

    helper = threading.Thread(target=help_out)
    helper.start()
    try:
        on_begun()
        load()
    finally:
        helper.join()


def _refusal(error: OSError) -> type[LoadError]:
    return _NotPermittedError if error.errno == errno.EPERM else LoadError


def _why_no_map(error: OSError, spec: MapSpec) -> str:
    """The kernel's word, or that only its size is not permitted: as locked memory, until Linux 5.11."""
    if error.errno == errno.EPERM:
        with contextlib.suppress(OSError):
            os.close(create_map(spec, mmap.PAGESIZE if spec.type == _BPF_MAP_TYPE_RINGBUF else 1))
            return MORE_LOCKED_MEMORY
    return error.strerror or str(error)


def create_map(spec: MapSpec, entries: int) -> int:
    """The descriptor of a new map. Raises OSError."""
    sizes = (spec.type, spec.key_bytes, spec.value_bytes, entries, spec.flags, 0, 0)
    return bpf(BPF_MAP_CREATE, bytearray(struct.pack("=7I16s", *sizes, spec.name.encode()[:15])))


def attach_tracepoint(name: str | None, program_fd: int) -> int:
    """Run a program at each of the kernel's tracepoints of a name, until the descriptor is closed. Raises OSError.

    Args:
        name: None: that which the program was loaded for.
    """
    text = name and ctypes.create_string_buffer(name.encode())
    at = ctypes.addressof(text) if text else 0
    return bpf(BPF_RAW_TRACEPOINT_OPEN, bytearray(struct.pack("=QII", at, program_fd, 0)))


def load_program(name: str, code: bytes, kind: int = BPF_PROG_TYPE_PERF_EVENT, typedef: int = 0) -> int:
    """The descriptor of a program.

    Args:
        typedef: of BPF_PROG_TYPE_TRACING: the number of the kernel's type of the tracepoint that the program is for.

    Raises:
        LoadError: with the verifier's last word.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    log = ctypes.create_string_buffer(0)

    def attempt(level: int) -> int:
        attr = struct.pack(
            "=IIQQIIQII16s2I36xI",
            kind,
            len(code) // INSTRUCTION.size,
            ctypes.addressof(instructions),
            ctypes.addressof(licence),
            level,
            len(log) if level else 0,
            ctypes.addressof(log) if level else 0,
            0,
            0,
            name.encode()[:15],
            0,
            _BPF_TRACE_RAW_TP if typedef else 0,
            typedef,
        )
        for _ in range(_MORE_ATTEMPTS):
            with contextlib.suppress(BlockingIOError):
                return bpf(BPF_PROG_LOAD, bytearray(attr))
        return bpf(BPF_PROG_LOAD, bytearray(attr))

    try:
        return attempt(0)
    except OSError as error:
        log = ctypes.create_string_buffer(_LOG_BYTES)
        with contextlib.suppress(OSError):
            return attempt(1)
        lines = log.value.decode(errors="replace").strip().splitlines()
        said = [line for line in lines if not line.startswith(("processed ", "verification time"))]
        raise _refusal(error)(f"{name}: {said[-1] if said else error.strerror}") from error
