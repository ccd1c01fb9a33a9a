"""Lines of code that V8 compiled, as its dumps have them (``node --perf-prof``).

They are not what the format says (src/diagnostics/perf-jit.cc, up to V8 13). Addresses are those in the ELF file that
perf makes of a function, behind its header. Of code that was not optimized they count bytes of bytecode. And every file
is said to be the function's own, by a name read from memory that was freed, also where a line is of what was inlined
from elsewhere. Code that was not optimized has all positions of its function, and nothing inlined: by these, line and
column together tell the file.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

_SHIFT = 64
_ENTRY = struct.Struct("<QII")  # address, line, column; then the file's name
_ADDRESS = struct.Struct("<Q")
_OPTIMIZED, _WITHOUT_INLINING = "*", ("~", "^")  # Maglev's lines of inlined code ("+") are counted in another file


class _Position(NamedTuple):
    address: int
    line: int
    column: int


class _Optimized(NamedTuple):
    """Code with lines that are to be told."""

    script: str
    positions: list[_Position]
    lines: list[tuple[int, int, str]]


class V8Lines:
    """Reads the lines of all of a dump's functions; they are known once all were seen."""

    def __init__(self) -> None:
        self._optimized: list[_Optimized] = []
        self._scripts: defaultdict[tuple[int, int], set[str]] = defaultdict(set)
        self._has_any = False

    def __bool__(self) -> bool:
        """Whether V8 wrote the dump."""
        return self._has_any

    def add(self, tier: str, script: str, body: bytes, code: range) -> list[tuple[int, int, str]]:
        """Read a function's record.

        Args:
            tier: V8's mark of how well the code was compiled.
            script: the path of the function's file.
            body: the entries of its record.
            code: its addresses.

        Returns:
            What `settle` completes: address, line and file. Line 0 where it is not known.
        """
        self._has_any = True
        lines = [(code.start, 0, script)]
        positions = list(_positions(body, code))
        if tier == _OPTIMIZED:
            self._optimized.append(_Optimized(script, positions, lines))
        elif tier in _WITHOUT_INLINING:
            for position in positions:
                self._scripts[position.line, position.column].add(script)
        return lines

    def settle(self) -> None:
        """All functions were seen."""
        for script, positions, lines in self._optimized:
            for address, line, column in positions:
                is_own = self._scripts.get((line, column)) == {script}
                lines.append((address, line if is_own else 0, script))


def _positions(body: bytes, code: range) -> Iterator[_Position]:
    """The entries up to the first that cannot be one.

    A name may contain its own end, and ends where the next entry follows, which is known by its address.
    """
    at, lowest = 0, code.start
    while at + _ENTRY.size <= len(body):
        shifted, line, column = _ENTRY.unpack_from(body, at)
        address = shifted - _SHIFT
        if not lowest <= address <= code.stop:
            return
        yield _Position(address, line, column)
        lowest = address
        following = range(address + _SHIFT, code.stop + _SHIFT + 1)
        at = body.find(b"\0", at + _ENTRY.size) + 1
        while at and not _begins_entry(body, at, following):
            at = body.find(b"\0", at) + 1
        if not at:
            return


def _begins_entry(body: bytes, at: int, addresses: range) -> bool:
    return at + _ADDRESS.size <= len(body) and _ADDRESS.unpack_from(body, at)[0] in addresses
