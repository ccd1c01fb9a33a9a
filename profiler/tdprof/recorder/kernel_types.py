"""Where the running kernel's structures have their members, as its own type information says (BTF).

Layout: Documentation/bpf/btf.rst of the kernel.
"""

import os
import struct
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tdprof.errors import TdprofError
from tdprof.native.kernel_types import find_types
from tdprof.native.library import load_native

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


class _Types:
    """The types of a file; a number counts from 1 on.

    Args:
        data: the file's part that has them.
        wanted: names, by where they stand, and kinds.

    Attributes:
        numbers: of the first type with each of these names and kinds, 0 where there is none.
    """

    def __init__(self, data: bytes, wanted: Sequence[tuple[int, int]]) -> None:
        self._data = data
        native = load_native()
        self._places, self.numbers = find_types(native, data, wanted) if native else _find_types(data, wanted)

    def parts(self, number: int) -> tuple[int, bool, bytes]:
        """Kind, whether it has bit fields, and the parts of a type; kind 0 where there is no such type."""
        if not 0 < number <= len(self._places):
            return 0, False, b""
        at = self._places[number - 1]
        _, info, _ = _TYPE.unpack_from(self._data, at)
        kind, begin = _kind(info), at + _TYPE.size
        return kind, bool(info >> 31), self._data[begin : begin + _bytes_behind(info)]

    def enumerators(self, number: int) -> list[tuple[int, int]]:
        """Where each one's name stands, and its value."""
        return list(_ENUMERATOR.iter_unpack(self.parts(number)[2]))

    def members(self, number: int) -> list[tuple[int, int]]:
        """Where each one's name stands, and its offset in the structure, those of what has no name within it, too."""
        found = []
        inner = [(number, 0)]
        left = _MOST_STRUCTURES
        while inner and (left := left - 1):
            number, base = inner.pop()
            kind, has_bits, parts = self.parts(number)
            if kind not in (_STRUCT, _UNION):
                continue
            for name, of_type, bits in _MEMBER.iter_unpack(parts):
                # In a structure with bit fields the upper byte is a field's width.
                offset = base + (bits & 0xFFFFFF if has_bits else bits) // 8
                if name:
                    found.append((name, offset))
                else:
                    inner.append((of_type, offset))
        return found


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
    names = [
        *((name, _STRUCT) for name in structures),
        *((name, _ENUM) for name in enumerations),
        *((name, _TYPEDEF) for name in typedefs),
    ]
    try:
        with path.open("rb") as file:
            return _find(file, names)
    except OSError as error:
        raise TdprofError(
            f"the kernel does not tell its types: {path}: {error.strerror}", hint="a kernel with CONFIG_DEBUG_INFO_BTF"
        ) from error
    except (struct.error, ValueError) as error:
        raise TdprofError(f"{path} is damaged: {error}") from error


def _find(file: BinaryIO, names: Sequence[tuple[str, int]]) -> KernelTypes:
    magic, _, _, header, type_at, type_bytes, text_at, text_bytes = _HEADER.unpack(file.read(_HEADER.size))
    if magic != _MAGIC:
        raise ValueError("no type information")
    # Names and types one after the other: with both, 6 MB, this would be when a recording takes the most memory.
    text = _read(file, header + text_at, text_bytes)
    wanted = {(at, kind): name for name, kind in names if (at := text.find(b"\0" + name.encode() + b"\0") + 1)}
    del text
    types = _Types(_read(file, header + type_at, type_bytes), list(wanted))
    found = [(name, kind, number) for ((_, kind), name), number in zip(wanted.items(), types.numbers, strict=True)]
    members = [(name, *each) for name, kind, number in found if kind == _STRUCT for each in types.members(number)]
    enumerators = [each for _, kind, number in found if kind == _ENUM for each in types.enumerators(number)]
    del types
    text = _read(file, header + text_at, text_bytes)
    return KernelTypes(
        {(structure, _text(text, name)): offset for structure, name, offset in members},
        {_text(text, name): value for name, value in enumerators},
        {name: number for name, kind, number in found if kind == _TYPEDEF and number},
    )


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """Part of a file. Raises ValueError: it is not all there."""
    if at + size > os.fstat(file.fileno()).st_size:
        raise ValueError("its end is missing")
    file.seek(at)
    return file.read(size)


def _find_types(data: bytes, wanted: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """What `find_types` does, where there is no compiled library."""
    numbers = dict.fromkeys(wanted, 0)
    places: list[int] = []
    at = 0
    while at < len(data):
        name, info, _ = _TYPE.unpack_from(data, at)
        kind = _kind(info)
        if not 1 <= kind <= _LAST_KIND:
            raise ValueError(f"a type of kind {kind}")
        places.append(at)
        if numbers.get((name, kind)) == 0:
            numbers[name, kind] = len(places)
        at += _TYPE.size + _bytes_behind(info)
    return places, [numbers[each] for each in wanted]


def _kind(info: int) -> int:
    return info >> 24 & 0x1F


def _bytes_behind(info: int) -> int:
    """How many a type's parts take."""
    return _FIXED.get(_kind(info), 0) + (info & 0xFFFF) * _EACH.get(_kind(info), 0)


def _text(text: bytes, at: int) -> str:
    return text[at : text.index(b"\0", at)].decode(errors="replace")
