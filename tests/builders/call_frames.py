"""Call-frame information of x86-64 programs, byte by byte: as right or as wrong as a test wants it."""

import struct


def uleb(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def entry(body: bytes, length: int | None = None) -> bytes:
    body += b"\0" * (-len(body) % 4)
    return struct.pack("<I", len(body) if length is None else length) + body


CIE = entry(b"\0\0\0\0\x01zR\0" + uleb(1) + b"\x78" + uleb(16) + b"\x01\x03\x0c\x07\x08\x90\x01")
SIGNAL_CIE = CIE.replace(b"zR\0\x01\x78\x10\x01\x03\x0c", b"zRS\0\x01\x78\x10\x01\x03")  # one letter more, no program


def fde(at: int, start: int, size: int, program: bytes, cie: int = 0) -> bytes:
    """An FDE at this offset of .eh_frame, with absolute addresses of four bytes."""
    return entry(struct.pack("<III", at + 4 - cie, start, size) + b"\0" + program)


def frames(*functions: tuple[int, int, bytes]) -> bytes:
    data = CIE
    for start, size, program in functions:
        data += fde(len(data), start, size, program)
    return data + b"\0\0\0\0"
