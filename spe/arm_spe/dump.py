"""Packets as text, one a line, with offset and bytes, in the manner of `perf report -D`."""

import ctypes
from collections.abc import Iterator

import numpy as np

from arm_spe.native import Buffer, Dumper, load_native
from arm_spe.packet import Kind, Packet, read_packet
from arm_spe.reference import Framer, Piece
from arm_spe.text import describe_packet

CHUNK_BYTES = 1 << 20


def dump_packets(data: Buffer, base: int = 0) -> Iterator[bytes]:
    """The packets of one span of AUX bytes as chunks of ASCII text, whole lines each.

    A line before damage or an unfinished record says how many bytes were given up and why.

    Args:
        data: the bytes.
        base: added to the offsets shown.
    """
    library = load_native()
    if library is None:
        yield from ((line + "\n").encode() for line in dump_reference(data, base))
        return
    array = np.frombuffer(data, np.uint8)
    dumper = Dumper()
    out = ctypes.create_string_buffer(CHUNK_BYTES)
    view = memoryview(out).cast("B")
    while dumper.position < len(array):
        written = library.spe_dump(array.ctypes.data, len(array), base, ctypes.byref(dumper), out, CHUNK_BYTES)
        yield bytes(view[:written])


def _line(data: memoryview, base: int, start: int, end: int, text: str) -> str:
    return f".  {base + start:08x}: {''.join(f' {byte:02x}' for byte in data[start : min(end, start + 16)]):48} {text}"


def _piece_lines(data: memoryview, base: int, piece: Piece) -> Iterator[str]:
    size = piece.end - piece.start
    if piece.damage is not None:
        yield f".  {base + piece.start:08x}:  ---- damaged: {size} bytes, {piece.damage.text}"
    elif piece.record is None:
        yield f".  {base + piece.start:08x}:  ---- open: {size} bytes, not closed before the input ends"
    at = piece.start
    while at < piece.end:
        packet: Packet = read_packet(data[: piece.end], at)
        if packet.kind in (Kind.BAD, Kind.CUT):
            break
        yield _line(data, base, at, at + packet.bytes, describe_packet(packet))
        at += packet.bytes
    for row in range(at, piece.end, 16):
        yield _line(data, base, row, min(row + 16, piece.end), "skipped")


def dump_reference(data: Buffer, base: int = 0) -> Iterator[str]:
    """The same lines from the Python decoder."""
    view = memoryview(data)
    at = 0
    for piece in Framer(view).pieces():
        if at < piece.start:
            yield _line(view, base, at, piece.start, "PAD")
        yield from _piece_lines(view, base, piece)
        at = piece.end
    if at < len(view):
        yield _line(view, base, at, len(view), "PAD")
