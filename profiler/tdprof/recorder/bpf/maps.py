"""bpf(2): the few map operations that the sampling process needs, without bcc.

Layouts are those of ``union bpf_attr`` in the kernel's include/uapi/linux/bpf.h.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator

from tdprof.recorder.host import parse_cpu_list, read_text

_SYSCALL_NUMBER = {"x86_64": 321, "aarch64": 280, "riscv64": 280}
BPF_MAP_LOOKUP_ELEM = 1
BPF_MAP_UPDATE_ELEM = 2
BPF_MAP_DELETE_ELEM = 3
BPF_MAP_LOOKUP_AND_DELETE_BATCH = 25
MOST_CPUS = 8192  # the largest NR_CPUS of arch/{x86,arm64}/Kconfig

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def bpf(command: int, attr: bytearray) -> int:
    """The system call itself; returns what it returns, a descriptor or 0.

    Raises:
        OSError: the kernel refuses.
    """
    number = _SYSCALL_NUMBER[os.uname().machine]
    buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
    result = _libc.syscall(ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attr)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def map_element(command: int, map_fd: int, key: "ctypes._CData", value: "ctypes._CData | None" = None) -> None:
    """Look up, set or delete one element of a map that all CPUs share.

    Raises:
        OSError: it is not there, or has no room.
    """
    addresses = ctypes.addressof(key), ctypes.addressof(value) if value is not None else 0
    bpf(command, bytearray(struct.pack("=IIQQQ", map_fd, 0, *addresses, 0)))


def update_u32(map_fd: int, index: int, value: int) -> None:
    """Set element ``index`` of an array of uint32."""
    map_element(BPF_MAP_UPDATE_ELEM, map_fd, ctypes.c_uint32(index), ctypes.c_uint32(value))


def read_u32(map_fd: int, index: int) -> int:
    """Element ``index`` of an array of uint32."""
    value = ctypes.c_uint32()
    map_element(BPF_MAP_LOOKUP_ELEM, map_fd, ctypes.c_uint32(index), value)
    return value.value


def possible_cpus() -> int:
    """How many values a per-CPU map holds for each key: one for each CPU the kernel could ever bring up.

    Where /sys is hidden, the most that any kernel is built for: a buffer too large stays zero at its end.
    """
    possible = parse_cpu_list(read_text("/sys/devices/system/cpu/possible"))
    return possible[-1] + 1 if possible else MOST_CPUS


class PerCpuCounters:
    """A per-CPU array of uint64, read as sums over the CPUs."""

    def __init__(self, map_fd: int, size: int) -> None:
        self._map_fd = map_fd
        self._size = size
        self._values = (ctypes.c_uint64 * possible_cpus())()

    def read(self) -> list[int]:
        """The sum of each counter, ``size`` numbers."""
        totals = []
        for index in range(self._size):
            key = ctypes.c_uint32(index)
            bpf(
                BPF_MAP_LOOKUP_ELEM,
                bytearray(
                    struct.pack("=IIQQQ", self._map_fd, 0, ctypes.addressof(key), ctypes.addressof(self._values), 0)
                ),
            )
            totals.append(sum(self._values))
        return totals


class BatchReader:
    """Takes all rows out of a hash map, a batch at a time."""

    # The batch call fails with ENOSPC when one hash bucket has more rows than the batch; none is ever near this.
    BATCH_ROWS = 2048

    def __init__(self, key_bytes: int, value_bytes: int) -> None:
        self._keys = bytearray(key_bytes * self.BATCH_ROWS)
        self._values = bytearray(value_bytes * self.BATCH_ROWS)
        self._key_bytes, self._value_bytes = key_bytes, value_bytes
        self._cursor = ctypes.create_string_buffer(16)
        self._key_address = ctypes.addressof((ctypes.c_char * len(self._keys)).from_buffer(self._keys))
        self._value_address = ctypes.addressof((ctypes.c_char * len(self._values)).from_buffer(self._values))

    def take(self, map_fd: int) -> Iterator[tuple[bytes, bytes]]:
        """Remove every row; yields batches of (keys, values), each the concatenation of its rows.

        The kernel keeps a row that is added while this runs for the next call.
        """
        cursor_address = ctypes.addressof(self._cursor)
        first = 0
        while True:
            buffers = (first, cursor_address, self._key_address, self._value_address)
            attr = bytearray(struct.pack("=QQQQIIQQ", *buffers, self.BATCH_ROWS, map_fd, 0, 0))
            finished = False
            try:
                bpf(BPF_MAP_LOOKUP_AND_DELETE_BATCH, attr)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                finished = True  # the last batch; its rows are there all the same
            rows = struct.unpack_from("=I", attr, 32)[0]
            if rows:
                yield bytes(self._keys[: rows * self._key_bytes]), bytes(self._values[: rows * self._value_bytes])
            if finished:
                return
            first = cursor_address
