"""The running kernel's symbols, for the addresses that were sampled."""

import os
import string
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tdprof.linux.file_bytes import open_regular
from tdprof.model.arrays import I64, U8, U64, distinct
from tdprof.recorder.host import KALLSYMS

_DIGITS, _TYPE_AT = 16, 17
_PIECE_BYTES = 1 << 15
_IS_CODE = np.isin(np.arange(256), [*b"tTwW"])
_VALUE = np.array([int(chr(c), 16) if chr(c) in string.hexdigits else 255 for c in range(256)], np.uint8)


@dataclass(frozen=True, slots=True)
class KernelSymbolTable:
    """Code symbols that some addresses fall into.

    Attributes:
        address: uint64[n], sorted.
        size: uint64[n], bytes up to the next symbol.
        name: n names.
        module: the module of each, None for the kernel itself.
    """

    address: U64
    size: U64
    name: list[str]
    module: list[str | None]


_NONE = KernelSymbolTable(np.empty(0, np.uint64), np.empty(0, np.uint64), [], [])


def read_kernel_symbols(addresses: U64, path: Path = KALLSYMS) -> KernelSymbolTable:
    """The symbols that cover ``addresses``; none where kptr_restrict hides them (all are then at address 0).

    Of a copy of the kernel's list that was cut, a last line without its end may have half a name, and is no symbol.
    """
    if not len(addresses):
        return _NONE
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            text = file.read()
    except OSError:
        return _NONE
    line, start = _code_lines(text)
    if not start.any():
        return _NONE
    order = np.argsort(start, kind="stable")
    line, start = line[order], start[order]
    at = np.searchsorted(start, addresses, side="right") - 1
    # Of several names at one address the first that kallsyms lists stays.
    used = distinct(np.searchsorted(start, start[at[at >= 0]]))
    borders = distinct(start)
    following = np.searchsorted(borders, start[used], side="right")
    end = np.append(borders, borders[-1])[following]
    names, modules = [], []
    for first in line[used].tolist():
        fields = text[first : text.find(b"\n", first)].decode("utf-8", "replace").split()
        names.append(fields[2] if len(fields) > 2 else "")
        modules.append(fields[3].strip("[]") if len(fields) > 3 else None)
    return KernelSymbolTable(start[used], end - start[used], names, modules)


def _code_lines(text: bytes) -> tuple[I64, U64]:
    """Where the lines of code symbols begin, and the address of each: "address type name [module]", in 16 digits."""
    lines, addresses = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
    begin, length = 0, text.rfind(b"\n") + 1
    while begin < length:
        # A piece at a time: what is made of all lines together takes many times the cache, in memory that is new.
        end = text.rfind(b"\n", begin, begin + _PIECE_BYTES) + 1 or text.index(b"\n", begin) + 1
        line, address = _code_lines_of_piece(np.frombuffer(text, np.uint8, end - begin, begin))
        lines.append(line + begin)
        addresses.append(address)
        begin = end
    return np.concatenate(lines), np.concatenate(addresses)


def _code_lines_of_piece(text: U8) -> tuple[I64, U64]:
    """The same of whole lines."""
    ends = np.flatnonzero(text == ord("\n"))
    line = np.concatenate([[0], ends[:-1] + 1])
    line = line[ends - line > _TYPE_AT]
    line = line[_IS_CODE[text[line + _TYPE_AT]]]
    digit = _VALUE[text[line[:, None] + np.arange(_DIGITS)]]
    is_address = (digit <= 15).all(axis=1)
    line, digit = line[is_address], digit[is_address]
    return line, (digit[:, ::2] << 4 | digit[:, 1::2]).view(">u8")[:, 0].astype(np.uint64)
