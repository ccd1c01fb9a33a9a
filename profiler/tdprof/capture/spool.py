"""The spool: what a running recording appends to, before tables are made of it.

A recording writes raw bytes and nothing else, so that it needs little memory and so that whatever was written stays
readable when it is interrupted. ``tdprof.decode`` reads the files; once the tables are made, the spool is removed.

    spool/ring.CPU.perf   perf records as the kernel wrote them (side-band; samples on the ring-buffer rung)
    spool/spe.CPU.N.perf  perf records of an SPE event: where its AUX bytes belong
    spool/stacks.bpf      BPF ring-buffer records, each a ``struct stack_record`` of bpf/sample.h
    spool/copies.bpf      the same, each a ``struct stack_copy``
    spool/python_stacks.bpf  the same, each a ``struct python_stack`` of bpf/python_frames.h
    spool/codes.bpf       the same, each a ``struct python_code``
    spool/methods.bpf     the same, each a ``struct java_method`` of bpf/java_frames.h
    spool/ended.bpf       the same, each a ``struct thread_times`` of bpf/sample.h
    spool/alive.bpf       when the recording ended, 64 bits, and a ``struct thread_times`` of each thread that still was
    spool/wakings.bpf     the same, each a ``struct waking``
    spool/python.jsonl    one JSON object for each process, and program, that was found to run CPython
    spool/initial.jsonl   one JSON object for each process that ran before the recording began
    spool/cgroups.jsonl   one JSON object for each control group: its id, as samples name it, and its path
    spool/replaced.bpf    a process and a time, 64 bits each: rows of later intervals are of what it had mapped then;
                          with UNCERTAIN: stacks in rows of that interval may be wrong
    spool/rows.bpf        frames: FRAME_HEADER, then zlib of keys and values as arrays
    spool/limit           what files of the recorded processes may take in the capture, bytes in decimal digits, where
                          that is less than usual
    spool/sums.json       how long each of these was at the last drain, and the CRC-32 of all that; null: not known
"""

import contextlib
import json
import os
import struct
import zlib

from tdprof.linux.own_folder import OwnFolder

SPOOL_FOLDER = "spool"
SPE_FOLDER = "spe"  # of the capture, not of the spool: raw AUX bytes are kept
STACKS_FILE = "stacks.bpf"
COPIES_FILE = "copies.bpf"
REPLACED_FILE = "replaced.bpf"
PYTHON_STACKS_FILE = "python_stacks.bpf"
CODES_FILE = "codes.bpf"
METHODS_FILE = "methods.bpf"
ENDED_FILE = "ended.bpf"
ALIVE_FILE = "alive.bpf"
WAKINGS_FILE = "wakings.bpf"
PYTHON_FILE = "python.jsonl"
ROWS_FILE = "rows.bpf"
SUMS_FILE = "sums.json"
_MOST_SUMMED_BYTES = 16 << 20  # of a file between two drains: of what is faster than that no sum is made
INITIAL_FILE = "initial.jsonl"
CGROUPS_FILE = "cgroups.jsonl"
RING_FILE = "ring.{cpu}.perf"
AUX_FILE = "cpu{cpu}.{number}.aux"  # `number` tells apart the tasks of -p on one CPU
# Space for the last manifest, which has the exact totals and says that the disk was full.
RESERVE_FILE = "reserve"
RESERVE_BYTES = 64 << 10
_COPIED_BYTES = 1 << 20  # at a time
_LIMIT_BYTES = 20
LIMIT_FILE = "limit"
SPE_RING_FILE = "spe.{cpu}.{number}.perf"

# magic, rows, end of the interval (CLOCK_MONOTONIC, ns), bytes that follow; then CRC-32 of the header up to it and of
# what follows.
FRAME_HEADER = struct.Struct("<4sIQII")
FRAME_MAGIC = b"TDR1"
CRC_OFFSET = 20
REPLACED = struct.Struct("<QQ")  # pid, CLOCK_MONOTONIC ns
UNCERTAIN = 1 << 32  # beside the pid: the rows of the interval that ended then
MAX_FRAME_ROWS = 1 << 16  # a writer never comes near; a reader need not believe more


def frame_checksum(header: bytes, payload: bytes) -> int:
    """CRC-32 over a frame's header up to its checksum and over its payload."""
    return zlib.crc32(payload, zlib.crc32(header[:CRC_OFFSET]))


def _sum_on(fd: int, start: int, crc: int | None) -> tuple[int, int | None]:
    """The size of a file, and the CRC-32 of it, of which it is known for what stands before ``start``."""
    size = os.fstat(fd).st_size
    if crc is None or size - start > _MOST_SUMMED_BYTES:
        return size, None
    while start < size:
        piece = os.pread(fd, min(_COPIED_BYTES, size - start), start)
        if not piece:
            return start, crc
        crc = zlib.crc32(piece, crc)
        start += len(piece)
    return size, crc


def limit_of_files(capture: OwnFolder) -> int | None:
    """What files of the recorded processes may take in a capture; None: as much as usual."""
    with contextlib.suppress(OSError, ValueError), capture.subfolder(SPOOL_FOLDER) as spool:
        return max(int(spool.read(LIMIT_FILE, _LIMIT_BYTES)), 0)
    return None


class SpoolWriter:
    """Append-only files of one recording. Use as a context manager.

    Args:
        capture: has or gets them.
        most_bytes_of_files: what `limit_of_files` says of it.
    """

    def __init__(self, capture: OwnFolder, most_bytes_of_files: int | None = None) -> None:
        self._capture = capture
        self._folders: dict[str, OwnFolder] = {}
        self._descriptors: dict[tuple[str, str], int] = {}
        self._sums: dict[str, tuple[int, int | None]] = {}
        self._sums_fd: int | None = None
        with self._folder(SPOOL_FOLDER).replacing(RESERVE_FILE) as file:
            file.write(bytes(RESERVE_BYTES))
        if most_bytes_of_files is not None:
            with self._folder(SPOOL_FOLDER).replacing(LIMIT_FILE) as file:
                file.write(str(most_bytes_of_files).encode())

    def _folder(self, name: str) -> OwnFolder:
        if name not in self._folders:
            self._folders[name] = self._capture.subfolder(name, make=True)
        return self._folders[name]

    def descriptor(self, name: str) -> int:
        """The descriptor of a file of the spool, created at first use."""
        return self._descriptor(SPOOL_FOLDER, name)

    def size(self, name: str) -> int:
        """Bytes that a file of the spool has."""
        return os.fstat(self.descriptor(name)).st_size

    def aux_descriptor(self, name: str) -> int:
        """The same for SPE's bytes, which stay in the capture when the spool goes."""
        return self._descriptor(SPE_FOLDER, name)

    def _descriptor(self, folder: str, name: str) -> int:
        if (folder, name) not in self._descriptors:
            self._descriptors[folder, name] = self._folder(folder).create(name, flags=os.O_APPEND)
        return self._descriptors[folder, name]

    def release_reserve(self) -> None:
        """Give back the space that was kept for the manifest of a recording that fills its disk."""
        self._folder(SPOOL_FOLDER).remove(RESERVE_FILE)

    def copy_tail(self, name: str, start: int, other: "SpoolWriter") -> None:
        """Append what a file of this spool holds from ``start`` on to the other spool's file of that name."""
        out_fd = other.descriptor(name)
        with self._folder(SPOOL_FOLDER).open_file(name) as file:
            file.seek(start)
            while data := memoryview(file.read(_COPIED_BYTES)):
                while data:
                    data = data[os.write(out_fd, data) :]

    def append_rows(self, time_ns: int, keys: bytes, values: bytes, rows: int) -> None:
        """Append a batch of aggregated rows that fell into the interval that ended at ``time_ns``."""
        payload = zlib.compress(keys + values, 1)
        header = FRAME_HEADER.pack(FRAME_MAGIC, rows, time_ns, len(payload), 0)[:CRC_OFFSET]
        data = memoryview(header + struct.pack("<I", frame_checksum(header, payload)) + payload)
        fd = self.descriptor(ROWS_FILE)
        while data:
            data = data[os.write(fd, data) :]

    def append_replaced(self, pid: int, time_ns: int) -> None:
        """Note that rows of a process that fall into later intervals than ``time_ns`` are of what was mapped then."""
        os.write(self.descriptor(REPLACED_FILE), REPLACED.pack(pid, time_ns))

    def append_uncertain(self, pid: int, time_ns: int) -> None:
        """Note that stacks of a process may be wrong in rows of the interval that ended then."""
        os.write(self.descriptor(REPLACED_FILE), REPLACED.pack(pid | UNCERTAIN, time_ns))

    def note_sums(self) -> None:
        """Note what each file of the spool holds by now: what is gone or changed of it later can be told then."""
        if self._sums_fd is None:
            self._sums_fd = self._folder(SPOOL_FOLDER).create(SUMS_FILE)
        for (folder, name), fd in self._descriptors.items():
            if folder == SPOOL_FOLDER:
                self._sums[name] = _sum_on(fd, *self._sums.get(name, (0, 0)))
        text = json.dumps(self._sums).encode()
        os.pwrite(self._sums_fd, text + b" " * (max(0, os.fstat(self._sums_fd).st_size - len(text))), 0)

    def __enter__(self) -> "SpoolWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its files; may be called again."""
        for fd in self._descriptors.values():
            os.close(fd)
        self._descriptors.clear()
        if self._sums_fd is not None:
            os.close(self._sums_fd)
            self._sums_fd = None
        for folder in self._folders.values():
            folder.close()
        self._folders.clear()
