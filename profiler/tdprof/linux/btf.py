"""Where the running kernel's structures have their members, as its own type information says (BTF).

Layout: Documentation/bpf/btf.rst of the kernel.
"""

import struct
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from tdprof.errors import TdprofError

KERNEL_BTF = Path("/sys/kernel/btf/vmlinux")
_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")  # name, info, size or type
_MEMBER = struct.Struct("<III")  # name, type, offset in bits
_ENUMERATOR = struct.Struct("<Ii")
_INT, _ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF = 1, 3, 4, 5, 6, 8
_FUNC_PROTO, _VAR, _DATASEC, _DECL_TAG, _ENUM64 = 13, 14, 15, 17, 19
# Bytes behind a type: of the whole, and of each of its `vlen` parts.
_FIXED = {_INT: 4, _ARRAY: 12, _VAR: 4, _DECL_TAG: 4}
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _FUNC_PROTO: 8, _DATASEC: 12, _ENUM64: 12}
_LAST_KIND = 19
_MOST_STRUCTURES = 1 << 12  # whose members are read: some tens, unless a damaged file has one within itself


class KernelTypes(NamedTuple):
    """What was asked for, and found.

    Attributes:
        offsets: of a structure's members in bytes, by (structure, member); members of what has no name within it, too.
        enumerators: values by name.
        typedefs: what the kernel numbers them with, by name.
    """

    offsets: dict[tuple[str, str], int]
    enumerators: dict[str, int]
    typedefs: dict[str, int]


def read_kernel_types(
    structures: Collection[str],
    enumerations: Collection[str],
    path: Path = KERNEL_BTF,
    *,
    typedefs: Collection[str] = (),
) -> KernelTypes:
    """Find structures, enumerations and typedefs of the running kernel, by name.

    Raises:
        TdprofError: the kernel does not tell its types, or the file is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TdprofError(
            f"the kernel does not tell its types: {path}: {error.strerror}", hint="a kernel with CONFIG_DEBUG_INFO_BTF"
        ) from error
    try:
        return _find(data, structures, enumerations, typedefs)
    except (struct.error, ValueError) as error:
        raise TdprofError(f"{path} is damaged: {error}") from error


def _find(
    data: bytes, structures: Collection[str], enumerations: Collection[str], typedefs: Collection[str]
) -> KernelTypes:
    magic, _, _, header, type_at, type_bytes, text_at, text_bytes = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise ValueError("no type information")
    text = data[header + text_at : header + text_at + text_bytes]
    wanted = {
        offset: (name, kind)
        for names, kind in ((structures, _STRUCT), (enumerations, _ENUM), (typedefs, _TYPEDEF))
        for name in names
        if (offset := text.find(b"\0" + name.encode() + b"\0") + 1)
    }
    enumerators: dict[str, int] = {}
    numbers: dict[str, int] = {}
    found: list[tuple[str, int, int, int, bool]] = []  # structure, offset in it of members, and where they stand
    places = []  # of each type's parts; types are numbered from 1 on
    for at, name_at, kind, parts, has_bits in _types(data, header + type_at, header + type_at + type_bytes):
        places.append(at)
        if name_at not in wanted or wanted[name_at][1] != kind:
            continue
        if kind == _ENUM:
            for name, value in _ENUMERATOR.iter_unpack(data[at : at + 8 * parts]):
                enumerators[_text(text, name)] = value
        elif kind == _TYPEDEF:
            numbers[wanted[name_at][0]] = len(places)
        else:
            found.append((wanted[name_at][0], 0, at, parts, has_bits))
    offsets: dict[tuple[str, str], int] = {}
    left = _MOST_STRUCTURES
    while found and (left := left - 1):
        structure, base, at, parts, has_bits = found.pop()
        for name, number, bits in _MEMBER.iter_unpack(data[at : at + 12 * parts]):
            # In a structure with bit fields the upper byte is a field's width.
            offset = base + (bits & 0xFFFFFF if has_bits else bits) // 8
            if name:
                offsets[structure, _text(text, name)] = offset
            elif 0 < number <= len(places):
                inner, _, kind, members, has_fields = next(_types(data, places[number - 1] - _TYPE.size, len(data)))
                if kind in (_STRUCT, _UNION):
                    found.append((structure, offset, inner, members, has_fields))
    return KernelTypes(offsets, enumerators, numbers)


def _types(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Each type: where its parts begin, where its name stands, its kind, how many parts it has, whether it has bits."""
    while at < end:
        name, info, _ = _TYPE.unpack_from(data, at)
        at += _TYPE.size
        kind, parts = info >> 24 & 0x1F, info & 0xFFFF
        if not 1 <= kind <= _LAST_KIND:
            raise ValueError(f"a type of kind {kind}")
        yield at, name, kind, parts, bool(info >> 31)
        at += _FIXED.get(kind, 0) + parts * _EACH.get(kind, 0)


def _text(text: bytes, at: int) -> str:
    return text[at : text.index(b"\0", at)].decode(errors="replace")
