"""What class files and JVMs have of a method: its name, its source file and its lines.

Formats: src/hotspot/share/code/compressedStream.hpp and src/hotspot/share/utilities/unsigned5.hpp of the JDK.
"""

import contextlib
from array import array

import numpy as np

from tdprof.capture.java_code import JavaMethod

_MOST_BYTES = 5  # of a number
_LONG = 192  # bytes from here on have another behind them
_ESCAPE, _END = 0xFF, 0  # in tables of lines
_MOST_LINES = 1 << 16  # class files have 16 bits
_BASE_TYPES = {
    "B": "byte",
    "C": "char",
    "D": "double",
    "F": "float",
    "I": "int",
    "J": "long",
    "S": "short",
    "Z": "boolean",
    "V": "void",
}


class CompressedNumbers:
    """Compressed numbers of a table, one after the other; IndexError where it ends."""

    def __init__(self, data: bytes, at: int, lowest_byte: int) -> None:
        if at < 0:
            raise IndexError
        self.data, self.at, self._lowest = data, at, lowest_byte

    def next(self) -> int:
        """The next one."""
        total = 0
        for place in range(_MOST_BYTES):
            byte = self.data[self.at]
            self.at += 1
            if byte < self._lowest:
                raise IndexError
            total += (byte - self._lowest) << 6 * place
            if byte < _LONG:
                break
        return total & 0xFFFFFFFF

    def next_signed(self) -> int:
        """The next one, with its sign."""
        number = self.next()
        return number >> 1 ^ -(number & 1)


class BytecodeLines:
    """A method's table of lines.

    Args:
        data: compressed.
        lowest_byte: as of `JavaHeader`.
    """

    def __init__(self, data: bytes, lowest_byte: int) -> None:
        stream = CompressedNumbers(data, 0, lowest_byte)
        at = line = 0
        offsets, lines = array("q"), array("q")
        with contextlib.suppress(IndexError):
            while (byte := data[stream.at]) != _END:
                stream.at += 1
                at += stream.next_signed() if byte == _ESCAPE else byte >> 3
                line += stream.next_signed() if byte == _ESCAPE else byte & 7
                offsets.append(at)
                lines.append(line)
        order = np.argsort(offsets, kind="stable")
        self._offset, self._line = np.array(offsets)[order], np.array(lines)[order]

    def line(self, bytecode: int) -> int:
        """The line of a bytecode; 0 where it has none."""
        row = int(np.searchsorted(self._offset, bytecode, "right")) - 1
        line = int(self._line[row]) if row >= 0 else 0
        return line if 0 < line < _MOST_LINES else 0


def source_file(method: JavaMethod) -> str:
    """Where compilers expect a method's source: its file in the folders of its package; empty if it has none."""
    package, slash, _ = method.holder.decode("utf-8", "replace").rpartition("/")
    file = method.file.decode("utf-8", "replace")
    return f"{package}{slash}{file}" if file else ""


def external_name(method: JavaMethod) -> str:
    """A method's name as a JVM's perf map has it: ``long Split.heavy(int)``."""
    holder = method.holder.decode("utf-8", "replace").replace("/", ".")
    if "+" in holder:  # of a hidden class, with its address
        holder = "/".join(holder.rsplit("+", 1))
    types, _, result = method.signature.decode("utf-8", "replace").removeprefix("(").partition(")")
    name = method.name.decode("utf-8", "replace")
    return f"{''.join(_types(result))} {holder}.{name}({', '.join(_types(types))})"


def _types(descriptor: str) -> list[str]:
    """The types of a class file's descriptor."""
    found, at, arrays = list[str](), 0, 0
    while at < len(descriptor):
        letter = descriptor[at]
        if letter == "[":
            arrays, at = arrays + 1, at + 1
            continue
        end = descriptor.find(";", at) if letter == "L" else at
        end = len(descriptor) if end < 0 else end
        plain = descriptor[at + 1 : end].replace("/", ".") if letter == "L" else _BASE_TYPES.get(letter, letter)
        found.append(plain + "[]" * arrays)
        at, arrays = end + 1, 0
    return found
