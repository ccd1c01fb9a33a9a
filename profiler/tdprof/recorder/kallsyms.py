"""The running kernel's symbols, for the addresses that were sampled."""

import string
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tdprof.model.arrays import I64, U8, U64, distinct
from tdprof.recorder.host import KALLSYMS
from tdprof.recorder.kallsyms_text import read_kallsyms
from tdprof.values import dataclass

_DIGITS, _TYPE_AT = 16, 17
_PIECE_BYTES = 1 << 15
_PAGE_BYTES = 4096
_LAST_ADDRESS = 2**64 - 1
_ENDS_OF_CODE = frozenset({"_etext", "_einittext", "__inittext_end", "__exittext_end"})  # where the linker put the end
_IS_CODE = np.isin(np.arange(256), [*b"tTwW"])
_VALUE = np.array([int(chr(c), 16) if chr(c) in string.hexdigits else 255 for c in range(256)], np.uint8)


@dataclass(frozen=True, slots=True)
class KernelSymbolTable:
    """Code symbols that some addresses fall into.

    Attributes:
        address: uint64[n], sorted.
        size: uint64[n], bytes up to the next symbol; the last of the kernel or of a module, of which nobody tells the
            end, reaches at most to the end of the page after the one that it begins in.
        name: n names.
        module: the module of each, None for the kernel itself.
    """

    address: U64
    size: U64
    name: list[str]
    module: list[str | None]


_NONE = KernelSymbolTable(np.empty(0, np.uint64), np.empty(0, np.uint64), [], [])


@dataclass(frozen=True, slots=True)
class CodeSymbols:
    """The kernel's list of symbols, as far as they are code's.

    Attributes:
        text: the list.
        line: int64[n]: where the line of each begins.
        start: uint64[n], sorted: the address of each.
    """

    text: bytes
    line: I64
    start: U64

    def hold_for(self, addresses: U64) -> bool:
        """Whether of this kernel, which may have loaded and unloaded code since, they are still the symbols there."""
        begin, end = (self._address_of(name) for name in (b"_stext", b"_etext"))
        return begin is not None and end is not None and bool(((addresses >= begin) & (addresses < end)).all())

    def _address_of(self, name: bytes) -> int | None:
        at = self.text.find(b" " + name + b"\n")
        begin = self.text.rfind(b"\n", 0, at) + 1
        return int(self.text[begin : begin + _DIGITS], 16) if at >= 0 else None


def read_code_symbols(path: Path = KALLSYMS) -> CodeSymbols:
    """Those of the list; none where it cannot be read."""
    return code_symbols(read_kallsyms(path))


def code_symbols(text: bytes) -> CodeSymbols:
    """Those of the list's text; none if kptr_restrict hid addresses (all are then 0).

    Of a copy of the kernel's list that was cut, a last line without its end may have half a name, and is no symbol.
    """
    line, start = _code_lines(text)
    if not start.any():
        line, start = line[:0], start[:0]
    order = np.argsort(start, kind="stable")
    return CodeSymbols(text, line[order], start[order])


def read_kernel_symbols(
    addresses: U64, read: Callable[[], CodeSymbols] = read_code_symbols, ahead: CodeSymbols | None = None
) -> KernelSymbolTable:
    """The symbols that cover ``addresses``; ``ahead`` was read before, and is used as far as it still holds."""
    if not len(addresses):
        return _NONE
    return symbols_at(addresses, ahead if ahead and ahead.hold_for(addresses) else read())


def symbols_at(addresses: U64, found: CodeSymbols) -> KernelSymbolTable:
    """Those of a list that cover ``addresses``."""
    text, line, start = found.text, found.line, found.start
    if not len(start):
        return _NONE
    at = np.searchsorted(start, addresses, side="right") - 1
    # Of several names at one address the first that kallsyms lists stays.
    used = distinct(np.searchsorted(start, start[at[at >= 0]]))
    following = np.searchsorted(start, start[used], side="right")
    begins, ends, names, modules = [], [], [], []
    for first, after in zip(used.tolist(), following.tolist(), strict=True):
        name, module = _name_and_module(text, line[first])
        if name in _ENDS_OF_CODE:
            continue
        begin = int(start[first])
        end = min(begin // _PAGE_BYTES * _PAGE_BYTES + 2 * _PAGE_BYTES, _LAST_ADDRESS)
        if after < len(start):
            is_last = _name_and_module(text, line[after])[1] != module
            end = min(int(start[after]), end) if is_last else int(start[after])
        begins.append(begin)
        ends.append(end)
        names.append(name)
        modules.append(module)
    begin_of = np.array(begins, np.uint64)
    return KernelSymbolTable(begin_of, np.array(ends, np.uint64) - begin_of, names, modules)


def _name_and_module(text: bytes, first: int) -> tuple[str, str | None]:
    """What the line that begins at ``first`` says."""
    fields = text[first : text.find(b"\n", first)].decode("utf-8", "replace").split()
    return fields[2] if len(fields) > 2 else "", fields[3].strip("[]") if len(fields) > 3 else None


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
