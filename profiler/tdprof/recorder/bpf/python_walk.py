"""Has the BPF programs walk CPython's own frames, once a process is met that has some. Layouts: bpf/python_frames.h."""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Mapping

from tdprof.capture.spool import CODES_FILE, PYTHON_FILE, PYTHON_STACKS_FILE, SpoolWriter
from tdprof.recorder.bpf.exec_places import ExecPlaces
from tdprof.recorder.bpf.maps import BPF_MAP_LOOKUP_ELEM, BPF_MAP_UPDATE_ELEM, map_element
from tdprof.recorder.ring import BpfRing, write_all

RINGS = {"python_stacks": 1 << 20, "codes": 1 << 20}  # bytes; drained when half of one is taken
_CODE_SLOTS = 1 << 14  # CODE_SLOTS
NONE = 0xFFFF  # PYTHON_NONE
PROCESS_BITS, OWN_EXECUTION = 22, 0x200  # PYTHON_PROCESS_BITS, PYTHON_OWN_EXECUTION
_TOLD = 2  # PYTHON_TOLD


class PythonRuntime(ctypes.Structure):
    """``struct python_runtime``."""

    _fields_ = [
        *[(name, ctypes.c_uint64) for name in ("first_interpreter", "pidns_device", "pidns_inode")],
        ("process", ctypes.c_uint32),
        *[
            (name, ctypes.c_uint16)
            for name in (
                "next_interpreter",
                "first_thread",
                "next_thread",
                "thread_id",
                "pthread_id",
                "thread_frame",
                "inner_frame",
                "frame_code",
                "frame_previous",
                "frame_instruction",
            )
        ],
        *[(name, ctypes.c_uint8) for name in ("frame_entry", "frame_top")],
        *[
            (name, ctypes.c_uint16)
            for name in (
                "code_names",
                "code_line",
                "code_instructions",
            )
        ],
        *[(name, ctypes.c_uint8) for name in ("entry", "instruction", "has_qualified_names", "told")],
        *[(name, ctypes.c_uint32) for name in ("program", "forked_by", "reserved")],
    ]


class PythonProgram(ctypes.Structure):
    """``struct python_program``."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("device", "inode", "bytes")]


class PythonWalk:
    """The kernel side of walking Python's frames; loaded when the first process asks for it.

    Args:
        maps: descriptors by name.
        load: creates the rings and loads the programs that use them; returns the rings' descriptors, None where the
            kernel refuses.
        places: are found when a program was executed twice.
    """

    def __init__(
        self,
        maps: Mapping[str, int],
        load: Callable[[Mapping[str, int]], Mapping[str, int] | None],
        places: ExecPlaces,
    ) -> None:
        self._maps = maps
        self._places = places
        self._load = load
        self._rings: dict[str, BpfRing] | None = None
        self._is_over = False  # the kernel has refused it, or it is closed
        self._lock = threading.Lock()  # threads start it, the recording's own drains and closes it
        self._lines: list[bytes] = []
        self._told: dict[int, bytes] = {}
        self._programs: list[bytes] = []
        # A process is known and told of at once, for those who forget or tell of all that are known. Not the lock
        # above, which is held while programs are loaded.
        self._telling = threading.Lock()

    def start(self) -> bool:
        """Have the programs ready; False where the kernel refuses them, or at the end. May take a tenth of a second."""
        with self._lock:
            if self._rings is None and not self._is_over:
                made = self._load(RINGS | {"sent_codes": _CODE_SLOTS})
                self._is_over = made is None
                if made is not None:
                    self._rings = {name: BpfRing(made[name], size) for name, size in RINGS.items()}
            return self._rings is not None

    def add(self, pid: int, runtime: PythonRuntime, line: bytes) -> bool:
        """Walk the frames of a process from now on; False if there are too many. ``line`` tells the spool of it."""
        key = ctypes.c_uint64(pid)
        runtime.told = _TOLD
        with self._telling:
            with self._lock:
                try:
                    if not self._is_over:
                        map_element(BPF_MAP_UPDATE_ELEM, self._maps["python_runtimes"], key, runtime)
                except OSError:
                    return False
            self._tell(pid, line)
        return True

    def know(self, program: PythonProgram, runtime: PythonRuntime, line: bytes) -> None:
        """Walk the frames of whatever executes a program, from then on.

        ``runtime`` is as `python_programs` has it, and ``line`` tells the spool of the program.
        """
        with self._telling:
            self._lines.append(line)
            self._programs.append(line)
        self._places.find()
        with self._lock:
            if self._is_over:
                return
            with contextlib.suppress(OSError):  # there are too many
                map_element(BPF_MAP_UPDATE_ELEM, self._maps["python_programs"], program, runtime)

    def tell(self, pid: int, line: bytes) -> None:
        """Tell the spool of a process, in place of what it was told before."""
        with self._telling:
            self._tell(pid, line)

    def _tell(self, pid: int, line: bytes) -> None:
        self._lines.append(line)
        self._told[pid] = line

    def has(self, pid: int) -> bool:
        """Whether it was told of a process; it forgets those that execute another program, or end."""
        runtime = PythonRuntime()
        try:
            map_element(BPF_MAP_LOOKUP_ELEM, self._maps["python_runtimes"], ctypes.c_uint64(pid), runtime)
        except OSError:
            return False
        return bool(runtime.told == _TOLD)

    def tell_again(self, spool: SpoolWriter) -> None:
        """Write the lines of all programs, and processes that are still known, into a spool that has none of them."""
        with self._telling:
            self._told = {pid: line for pid, line in self._told.items() if self.has(pid)}
            lines = b"".join(line + b"\n" for line in (*self._programs, *self._told.values()))
        write_all(spool.descriptor(PYTHON_FILE), memoryview(lines))

    def is_filling(self) -> bool:
        """Whether half of a ring is taken."""
        return any(ring.pending > ring.data_bytes // 2 for ring in (self._rings or {}).values())

    @property
    def pending_bytes(self) -> int:
        """What the rings hold."""
        return sum(ring.pending for ring in (self._rings or {}).values())

    def produced(self) -> dict[str, int]:
        """How far the programs have written each ring; once they are done, `drain` may go so far."""
        return {name: ring.produced for name, ring in (self._rings or {}).items()}

    def drain(self, spool: SpoolWriter, up_to: Mapping[str, int]) -> None:
        """Append what the rings hold to the spool, up to where ``produced`` said."""
        with self._telling:  # those whose stacks are drained are told of
            lines = b"".join(line + b"\n" for line in self._lines)
            self._lines.clear()
        if lines:
            write_all(spool.descriptor(PYTHON_FILE), memoryview(lines))
        files = {"python_stacks": PYTHON_STACKS_FILE, "codes": CODES_FILE}
        for name, end in up_to.items():
            assert self._rings
            if end:
                self._rings[name].drain(spool.descriptor(files[name]), end)

    def close(self) -> None:
        """Give the rings' memory back, once a thread has loaded what it is at: that replaces what is closed next."""
        with self._lock:
            self._is_over = True
            for ring in (self._rings or {}).values():
                ring.__exit__()
