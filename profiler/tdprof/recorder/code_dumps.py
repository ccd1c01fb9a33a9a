"""Dumps of code made at run time, ``jit-PID.dump``, read as they grow, for when code takes other code's place."""

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import field

from tdprof.recorder.code_ranges import CodeRanges
from tdprof.values import dataclass

_MOST_RECORDS = 1 << 18  # of a dump: half a second of the reading thread's time, whatever a program appends
# PERF_RECORD_MMAP2 of user space, with or without a build-id; its path stands behind 72 bytes, and ends it.
_MMAP = re.compile(rb"\x0a\0\0\0\x02[\0\x20\x40\x60]", re.DOTALL)
_SIZE_AND_PID, _PATH = struct.Struct("<HI"), 72
DUMP_NAME = r"/jit-\d+(-\d+)?\.dump"
"""How a dump's path ends; JavaScriptCore's names have the thread's number, too."""
_DUMP_NAME = re.compile(DUMP_NAME.encode())
# The dump's format: see tdprof.symbolize.jitdump.
_FILE_HEADER, _MAGIC = struct.Struct("<III"), 0x4A695444
_RECORD, _LONGEST_NAME = struct.Struct("<II8x"), 256
# Of code that is loaded: its address twice, its size, its number; then its name. Of code that moves: the same with old
# and new address and the size; then its number, which stands for its name here.
_PLACED = struct.Struct("<8xQQQQ")
_JIT_CODE_LOAD, _JIT_CODE_MOVE = 0, 1


@dataclass(slots=True)
class DumpedCode:
    """What stands where, by the records of one dump that were read.

    Attributes:
        position: in the dump, behind the last whole record; -1: it is no dump, damaged from there on, or too long.
        records: that were read.
    """

    position: int = 0
    records: int = 0
    _ranges: CodeRanges = field(default_factory=CodeRanges)

    def read_on(self, fd: int) -> bool:
        """Read what the file has more; returns whether code was put where other code of another name stands."""
        size, is_replaced = os.fstat(fd).st_size, False
        if self.position == 0 and size >= _FILE_HEADER.size:
            magic, _, header_size = _FILE_HEADER.unpack(os.pread(fd, _FILE_HEADER.size, 0))
            self.position = header_size if magic == _MAGIC and header_size else -1
        while 0 < self.position < size:
            record = os.pread(fd, _RECORD.size + _PLACED.size + _LONGEST_NAME, self.position)
            if len(record) < _RECORD.size:
                break
            kind, length = _RECORD.unpack_from(record)
            self.records += 1
            if length < _RECORD.size or self.records > _MOST_RECORDS:
                self.position = -1
            elif self.position + length > size:
                break
            else:
                self.position += length
                if kind in (_JIT_CODE_LOAD, _JIT_CODE_MOVE) and length >= _RECORD.size + _PLACED.size <= len(record):
                    is_replaced |= self._put(kind, record[_RECORD.size :])
        return is_replaced

    def _put(self, kind: int, body: bytes) -> bool:
        """Whether a function that is loaded, or moved, covers what has another name."""
        _, second, third, fourth = _PLACED.unpack_from(body)
        start, size = (second, third) if kind == _JIT_CODE_LOAD else (third, fourth)
        return self._ranges.put(start, size, body[_PLACED.size :].partition(b"\0")[0])


def dumps_mapped(records: bytes) -> Iterator[tuple[int, str]]:
    """(process, path) of each dump that perf records say is mapped: so programs tell profilers of it."""
    if b".dump" not in records:
        return
    for found in _MMAP.finditer(records):
        if found.end() + _SIZE_AND_PID.size > len(records):
            continue
        size, pid = _SIZE_AND_PID.unpack_from(records, found.end())
        path = records[found.start() + _PATH : found.start() + size].partition(b"\0")[0]
        if found.start() + size <= len(records) and _DUMP_NAME.fullmatch(path[path.rfind(b"/") :]):
            yield pid, os.fsdecode(path)
