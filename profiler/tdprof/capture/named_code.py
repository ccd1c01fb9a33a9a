"""Code made at run time that samples themselves name, put into a capture's maps: also what no map was asked for."""

from collections.abc import Sequence

from tdprof.capture.files import MOST_CODE_FILE_BYTES, PERF_MAP_FOLDER
from tdprof.capture.java_code import JavaHeader, JavaMethod, code_name
from tdprof.capture.java_methods import external_name
from tdprof.capture.perf_maps import MAP_LINE, MOST_STEPS, MapTimes, times_name
from tdprof.capture.spool import limit_of_files
from tdprof.linux.own_folder import OwnFolder
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class MethodCode:
    """What a method was compiled to, as samples met it.

    Attributes:
        begin, end: run-time addresses.
        time_ns: of its first sample (CLOCK_MONOTONIC).
        method: which it is.
        lowest_byte: as of `JavaHeader`.
    """

    begin: int
    end: int
    time_ns: int
    method: JavaMethod
    lowest_byte: int


def add_named_code(folder: OwnFolder, pid: int, codes: Sequence[MethodCode], until_ns: int) -> str | None:
    """Put into a process's map when each of these came, behind what else is in it; and the methods' source files.

    A map of which it is known when its lines came stays as it is.

    Args:
        folder: the capture.
        pid: the process.
        codes: of it.
        until_ns: the end of the recording (CLOCK_MONOTONIC).

    Returns:
        What there is no room for, a sentence; or None.
    """
    name = f"perf-{pid}.map"
    with folder.subfolder(PERF_MAP_FOLDER, make=True) as files:
        if files.has(times_name(name)):
            return None
        text = files.read(name, MOST_CODE_FILE_BYTES) if files.has(name) else b""
        text, times = _with_times(text, sorted(codes, key=lambda code: code.time_ns)[: MOST_STEPS - 1], until_ns)
        methods = {code.method: code.lowest_byte for code in codes}
        java = b"" if files.has(code_name(pid)) else JavaHeader(codes[0].lowest_byte, False).to_bytes()
        java += b"".join(method.to_bytes() for method in methods)
        room = limit_of_files(folder)
        if len(text) + len(java) > (MOST_CODE_FILE_BYTES if room is None else min(room, MOST_CODE_FILE_BYTES)):
            return f"names of compiled Java methods that samples have of process {pid} are not kept: there is no room"
        with files.append(code_name(pid)) as file:
            file.write(java)
        with files.replacing(name) as file:
            file.write(text)
        with files.replacing(times_name(name)) as file:
            file.write(times.to_bytes())
    return None


def _with_times(text: bytes, codes: Sequence[MethodCode], until_ns: int) -> tuple[bytes, MapTimes]:
    """A map with lines of these, ascending in time, behind its others; and since when lines hold."""
    lines = [(code.begin, code.end - code.begin, external_name(code.method).encode()) for code in codes]
    known = set(lines)
    others = b"".join(
        line[0] for line in MAP_LINE.finditer(text) if (int(line[1], 16), int(line[2], 16), line[3]) not in known
    )
    grown = bytearray(others)
    steps = {1: len(grown)} if others else {}
    for line, code in zip(lines, codes, strict=True):
        grown += b"%x %x %s\n" % line
        steps[code.time_ns] = len(grown)
    text = bytes(grown)
    return text, MapTimes.of(text, [(end, time_ns) for time_ns, end in steps.items()], max(until_ns, *steps))
