"""The spool: what a running recording appends to, before tables are made of it.

A recording writes raw bytes and nothing else, so that it needs little memory and so that whatever was written stays
readable when it is interrupted. ``tdprof.decode`` reads the files; once the tables are made, the spool is removed.

    spool/ring.CPU.perf   perf records as the kernel wrote them (side-band; samples on the ring-buffer rung)
    spool/spe.CPU.N.perf  perf records of an SPE event: where its AUX bytes belong
    spool/stacks.bpf      BPF ring-buffer records, each a ``struct stack_record`` of bpf/sample.h
    spool/initial.jsonl   one JSON object for each process that ran before the recording began
    spool/rows.bpf        frames: FRAME_HEADER, then zlib of keys and values as arrays
"""

import os
import struct
import zlib
from pathlib import Path

SPOOL_FOLDER = "spool"
SPE_FOLDER = "spe"  # of the capture, not of the spool: raw AUX bytes are kept
STACKS_FILE = "stacks.bpf"
ROWS_FILE = "rows.bpf"
INITIAL_FILE = "initial.jsonl"
RING_FILE = "ring.{cpu}.perf"
AUX_FILE = "cpu{cpu}.{number}.aux"  # `number` tells apart the tasks of -p on one CPU
# Space for the last manifest, which has the exact totals and says that the disk was full.
RESERVE_FILE = "reserve"
RESERVE_BYTES = 64 << 10
SPE_RING_FILE = "spe.{cpu}.{number}.perf"

# magic, rows, end of the interval (CLOCK_MONOTONIC, ns), bytes that follow; then CRC-32 of the header up to it and of
# what follows.
FRAME_HEADER = struct.Struct("<4sIQII")
FRAME_MAGIC = b"TDR1"
CRC_OFFSET = 20
MAX_FRAME_ROWS = 1 << 16  # a writer never comes near; a reader need not believe more


def frame_checksum(header: bytes, payload: bytes) -> int:
    """CRC-32 over a frame's header up to its checksum and over its payload."""
    return zlib.crc32(payload, zlib.crc32(header[:CRC_OFFSET]))


class SpoolWriter:
    """Append-only files of one recording. Use as a context manager."""

    def __init__(self, capture_folder: Path) -> None:
        self.folder = capture_folder / SPOOL_FOLDER
        self.folder.mkdir()
        (self.folder / RESERVE_FILE).write_bytes(bytes(RESERVE_BYTES))
        self._descriptors: dict[Path, int] = {}

    def descriptor(self, name: str) -> int:
        """The descriptor of a file of the spool, created at first use."""
        return self.descriptor_at(self.folder / name)

    def descriptor_at(self, path: Path) -> int:
        """The same for a file that stays in the capture when the spool goes."""
        if path not in self._descriptors:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptors[path] = os.open(path, flags, 0o644)
        return self._descriptors[path]

    def release_reserve(self) -> None:
        """Give back the space that was kept for the manifest of a recording that fills its disk."""
        (self.folder / RESERVE_FILE).unlink(missing_ok=True)

    def append_rows(self, time_ns: int, keys: bytes, values: bytes, rows: int) -> None:
        """Append a batch of aggregated rows that fell into the interval that ended at ``time_ns``."""
        payload = zlib.compress(keys + values, 1)
        header = FRAME_HEADER.pack(FRAME_MAGIC, rows, time_ns, len(payload), 0)[:CRC_OFFSET]
        data = memoryview(header + struct.pack("<I", frame_checksum(header, payload)) + payload)
        fd = self.descriptor(ROWS_FILE)
        while data:
            data = data[os.write(fd, data) :]

    def __enter__(self) -> "SpoolWriter":
        return self

    def __exit__(self, *exception: object) -> None:
        for fd in self._descriptors.values():
            os.close(fd)
        self._descriptors.clear()
