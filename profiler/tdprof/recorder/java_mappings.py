"""Which processes map a JVM, as perf's records tell: known before anything that JVMs are asked by is loaded."""

import re
import struct
from collections.abc import Iterator

JVM_LIBRARY = "/libjvm.so"
# struct perf_event_header of PERF_RECORD_MMAP2 of user space, with or without a build-id: see held_programs.
_HEADER = re.compile(rb"\x0a\0\0\0\x02[\0\x20\x40\x60]", re.DOTALL)
_RECORD = struct.Struct("<HII")  # size, pid, tid; the path ends the record
_PATH = 8 + 64  # where it begins


def java_mapped(records: bytes) -> Iterator[int]:
    """The processes that perf records say have mapped a JVM's library, for each time."""
    library = JVM_LIBRARY.encode()
    if library not in records:
        return
    for found in _HEADER.finditer(records):
        if found.end() + _RECORD.size > len(records):
            continue
        size, pid, _ = _RECORD.unpack_from(records, found.end())
        if found.start() + size > len(records):
            continue
        path = records[found.start() + _PATH : found.start() + size].partition(b"\0")[0]
        if path.startswith(b"/") and path.endswith(library):
            yield pid
