#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare tdprof's unwind tables, row by row, with what ``readelf --debug-dump=frames-interp`` says of the same files.

    .venv/bin/python tools/unwind_rows.py [PATH…]      files, or folders to search; default: the whole machine
    .venv/bin/python tools/unwind_rows.py --pyelftools [PATH…]     with what pyelftools says; ten times slower

Prints every disagreement (the first few of each file) and a summary; the status is 1 if there is any. Needs binutils.
"""

import own_python  # noqa: F401  # isort: skip
import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.elftools_rows import elftools_rows
from builders.unwind_table import UnwindTable, read_table
from tdprof.linux.elf import ElfError, open_elf
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

_SHOWN = 5  # disagreements of a file
_FRAME_POINTER = {sections.EM_X86_64: "rbp", sections.EM_AARCH64: "x29"}
_STACK_POINTER = {sections.EM_X86_64: "rsp", sections.EM_AARCH64: "sp"}
_X86_NUMBERS = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp")
_ENTRY = re.compile(r"^[0-9a-f]{8,16} [0-9a-f]{16} [0-9a-f]{8,16} (CIE|FDE)")
_ROW = re.compile(r"^[0-9a-f]{16} [a-z]")
_CIE = re.compile(r'^([0-9a-f]+) \S+ \S+ CIE "(\w*)"')
_FDE = re.compile(r"FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)")
_PLACES = ("/usr", "/lib", "/bin", "/sbin", "/opt")


class Reader(NamedTuple):
    """Reads the rows of each FDE in a file's section: in the builders' words, or empty where it has none for a row."""

    name: str
    rows: Callable[[Path, int, str], Iterator[tuple[int, int, list[tuple[int, str]]]]]


@dataclass
class Totals:
    """Of all files."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    entries: int = 0
    unsupported: Counter[str] = field(default_factory=Counter)
    unsupported_rows: int = 0
    bad: int = 0
    differing: int = 0
    skipped: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="*", default=_PLACES)
    parser.add_argument("--pyelftools", action="store_true", help="compare with pyelftools")
    options = parser.parse_args()
    reader = Reader("pyelftools", elftools_rows) if options.pyelftools else Reader("readelf", readelf_rows)
    totals = Totals()
    for path in find_files(options.paths):
        compare_file(path, reader, totals)
    print(
        f"{totals.files} files, {totals.entries} FDEs, {totals.rows} rows of {reader.name} compared: "
        f"{totals.differing} differ; "
        f"{totals.unsupported_rows} have a rule that is not followed, {totals.bad} bad entries; "
        f"{totals.bytes / 1e6:.1f} MB of tables; {totals.skipped} files without unwind information"
    )
    for text, count in totals.unsupported.most_common(20):
        print(f"  not followed: {count:6} rows with {text}")
    return 1 if totals.differing else 0


def find_files(paths: list[str]) -> Iterator[Path]:
    """ELF files, each once, whatever links lead to it."""
    seen: set[tuple[int, int]] = set()
    for start in paths:
        walk = os.walk(start) if os.path.isdir(start) else [(os.path.dirname(start), [], [os.path.basename(start)])]
        for folder, _, names in walk:
            for name in names:
                path = Path(folder, name)
                try:
                    status = path.stat()
                    if (status.st_dev, status.st_ino) in seen or not path.is_file():
                        continue
                    seen.add((status.st_dev, status.st_ino))
                    with open(path, "rb") as file:
                        start_bytes = file.read(20)
                except OSError:
                    continue
                if start_bytes[:6] == b"\x7fELF\x02\x01" and start_bytes[16] in (2, 3) and start_bytes[18] in (62, 183):
                    yield path


def compare_file(path: Path, reader: Reader, totals: Totals) -> None:
    try:
        elf = open_elf(path)
    except (ElfError, OSError):
        return
    if not (elf.section(".eh_frame") or elf.section(".debug_frame")):
        totals.skipped += 1
        return
    source = sections.table_input(elf, None, b"x")
    if not source.segments:
        totals.skipped += 1
        return
    data = binding.build_table(source)
    if data is None or not binding.is_table(data):
        print(f"{path}: no table")
        totals.differing += 1
        return
    table = read_table(data)
    totals.files += 1
    totals.bytes += len(data)
    totals.entries += table.counts[0]
    totals.bad += table.counts[1]
    shown = 0
    kind = ".eh_frame" if elf.section(".eh_frame") else ".debug_frame"
    outermost = [(s.start, s.end) for s in source.stretches if s.kind == binding.CERTAIN]
    within = [place for s in source.stretches if s.kind == binding.WITHIN for place in (s.start, s.end)]
    found = (divided(fde, within) for fde in reader.rows(path, elf.machine, kind))
    for difference in differences(reader.name, found, elf.machine, table, outermost, totals):
        totals.differing += 1
        shown += 1
        if shown <= _SHOWN:
            print(f"{path}: {difference}")
    if shown > _SHOWN:
        print(f"{path}: {shown} in all")


def differences(
    name: str,
    found: Iterator[tuple[int, int, list[tuple[int, str]]]],
    machine: int,
    table: UnwindTable,
    outermost: list[tuple[int, int]],
    totals: Totals,
) -> Iterator[str]:
    """What a reader says of each row that the table does not; functions within the outermost ranges have no caller."""
    addresses: list[int] = []
    expected: list[str] = []
    ends: list[tuple[int, int]] = []
    for start, end, rows in map(with_pushed, found):
        ends.append((start, end))
        is_outermost = any(low <= start and end <= high for low, high in outermost)
        for address, text in rows:
            addresses.append(address)
            expected.append("stop" if is_outermost else text)
    places = np.array(addresses, np.uint64)
    inside = np.zeros(len(places), bool)
    for start, _, size, _ in table.segments:
        inside |= (places >= start) & (places < start + size)
    numbers = table.at(places)
    # An FDE's first rows may be those of a later one that covers the same code.
    for i in np.flatnonzero(inside):
        if not expected[i]:
            continue
        totals.rows += 1
        text = table.texts[numbers[i]]
        if text == "unsupported":
            totals.unsupported[expected[i]] += 1
            totals.unsupported_rows += 1
        elif not is_written_over(text) and not agrees(text, expected[i], machine):
            yield f"{addresses[i]:#x}: table says {text}, {name} {expected[i]}"
    yield from surplus(name, table, places, ends)


def is_written_over(rule: str) -> bool:
    """Whether the rule is that of a frame of libgcc's that may be written over, of which readers know nothing."""
    return rule.endswith(" kept")


def is_behind_call_with_rbx(table: UnwindTable, row: int) -> bool:
    """Whether a row is the dynamic linker's entry's behind a call, by where RBX is kept, or its own behind that."""
    texts = [table.texts[table.rules[i]] for i in range(max(row - 2, 0), row + 1)]
    return texts[-1].startswith("[sp-") or (len(texts) == 3 and texts[1].startswith("[sp-") and texts[0] == texts[2])


def is_forgotten_frame(table: UnwindTable, row: int) -> bool:
    """Whether a row is a frame by RBP that a function of assembly does not tell, between alike rows by RSP."""
    texts = [table.texts[rule] for rule in table.rules[row - 1 : row + 2]]
    return texts == [f"{base}+16 fp=cfa-16 ra=cfa-8" for base in ("sp", "fp", "sp")]


def surplus(name: str, table: UnwindTable, places: np.ndarray, ends: list[tuple[int, int]]) -> Iterator[str]:
    """Rows inside of an FDE that a reader does not have, but for where libgcc writes over its own frame, calls of lazy
    binding and frames that assembly does not tell.
    """
    ranges = np.array(sorted(ends), np.uint64).reshape(-1, 2)
    if not len(ranges):
        return
    own = np.flatnonzero(~np.isin(table.addresses, places))
    at = np.searchsorted(ranges[:, 0], table.addresses[own], side="right") - 1
    for row in own[(at >= 0) & (table.addresses[own] < ranges[at, 1])]:
        address, text = int(table.addresses[row]), table.texts[table.rules[row]]
        is_known = is_behind_call_with_rbx(table, int(row)) or is_forgotten_frame(table, int(row))
        if text != "unsupported" and not is_written_over(text) and not is_known:
            yield f"{address:#x}: table has a row {text}, {name} none"


def readelf_rows(path: Path, machine: int, section: str) -> Iterator[tuple[int, int, list[tuple[int, str]]]]:
    """Start, end and rows of each FDE in the section; a row as ``describe`` of the builders writes rules."""
    process = subprocess.Popen(
        ["readelf", "-W", "--debug-dump=frames-interp,no-follow-links", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    signals: set[str] = set()
    initial: dict[str, str] = {}  # the row of each CIE
    cie_id = ""
    in_section = False
    fde: tuple[int, int, list[tuple[int, str]]] | None = None
    columns: list[str] = []
    is_signal = False
    for line in process.stdout:
        if line.startswith("Contents of the"):
            in_section = f" {section} " in line
        if not in_section:
            continue
        if _ENTRY.match(line):
            if fde:
                yield with_initial(fde, initial.get(cie_id, ""), is_signal)
                fde = None
            if cie := _CIE.match(line):
                cie_id = cie[1]
                if "S" in cie[2]:
                    signals.add(cie_id)
            elif match := _FDE.search(line):
                fde = (int(match[2], 16), int(match[3], 16), [])
                cie_id = match[1]
                is_signal = cie_id in signals
        elif line.startswith("   LOC"):
            columns = line.split()
        elif not fde and _ROW.match(line):
            initial[cie_id] = row_text(row_values(columns, line), machine)
        elif fde and _ROW.match(line):
            values = row_values(columns, line)
            address = int(values["LOC"], 16)
            if address < fde[1]:
                # Of rows for one address the last holds.
                if fde[2] and fde[2][-1][0] == address:
                    fde[2].pop()
                fde[2].append((address, "signal" if is_signal else row_text(values, machine)))
    if fde:
        yield with_initial(fde, initial.get(cie_id, ""), is_signal)
    process.wait()


def with_pushed(fde: tuple[int, int, list[tuple[int, str]]]) -> tuple[int, int, list[tuple[int, str]]]:
    """Rows of glibc's _dl_runtime_resolve on aarch64 as they should be: they leave out 16 bytes that the PLT pushed."""
    start, end, rows = fde
    if [text for _, text in rows[:2]] != ["sp+0 ra=lr", "sp+0 ra=cfa+8"]:
        return fde
    right = []
    for address, text in rows:
        offset = int(re.match(r"sp([+-]\d+)", text)[1]) + 16  # type: ignore[index]
        right.append((address, f"sp{offset:+d} ra={'cfa-8' if text.endswith('cfa+8') and offset else 'lr'}"))
    return start, end, right


def divided(fde: tuple[int, int, list[tuple[int, str]]], places: list[int]) -> tuple[int, int, list[tuple[int, str]]]:
    """With a row more at each place within where none begins: the table may have another rule up to there, or from
    there on."""
    start, end, rows = fde
    more = [place for place in places if start < place < end and place not in dict(rows)]
    held = [(place, [text for address, text in rows if address < place][-1:]) for place in more]
    return start, end, sorted([*rows, *((place, text) for place, texts in held for text in texts)])


def with_initial(
    fde: tuple[int, int, list[tuple[int, str]]], initial: str, is_signal: bool
) -> tuple[int, int, list[tuple[int, str]]]:
    """readelf prints no row of an FDE without instructions: that of its CIE holds."""
    return fde if fde[2] else (fde[0], fde[1], [(fde[0], "signal" if is_signal else initial)])


def row_values(columns: list[str], line: str) -> dict[str, str]:
    # "r10 (r10)" is one value.
    return dict(zip(columns, (word for word in line.split() if word[0] != "("), strict=False))


def row_text(values: dict[str, str], machine: int) -> str:
    cfa = values["CFA"]
    base, sign, offset = re.match(r"([a-z0-9]+)([+-]?)(\d*)", cfa).groups()  # type: ignore[union-attr]
    if sign:
        if base == _STACK_POINTER[machine]:
            base = "sp"
        elif base == _FRAME_POINTER[machine]:
            base = "fp"
        elif base in _X86_NUMBERS:
            base = f"r{_X86_NUMBERS.index(base)}"
        cfa = f"{base}{sign}{offset}"
    fp = values.get(_FRAME_POINTER[machine], "u")
    ra = values.get("ra" if machine == sections.EM_X86_64 else "x30", values.get("ra", "u"))
    if machine == sections.EM_X86_64 and ra == "u":
        return "stop"
    text = cfa
    if fp not in ("u", "s"):
        text += " fp=" + fp.replace("c", "cfa", 1)
    if ra in ("u", "s"):
        return text + " ra=lr"
    return text + " ra=" + (f"r{_X86_NUMBERS.index(ra)}" if ra in _X86_NUMBERS else ra.replace("c", "cfa", 1))


def agrees(text: str, expected: str, machine: int) -> bool:
    """Whether a rule is what readelf says. It names no expressions, and the outermost frame of aarch64 not apart."""
    if text.removeprefix("left ") == expected:  # readers do not know on which stack that is
        return True
    if text == "stop" and machine == sections.EM_AARCH64:
        return expected.endswith("ra=lr")
    if "exp" not in expected:
        return False
    mine, theirs = text.split(), expected.split()
    if theirs[0] == "exp":
        return (
            mine[0] == "plt+11" or mine[0][0] == "[" or (mine[1:] == theirs[1:] and "exp" not in " ".join(theirs[1:]))
        )
    return mine[0] == theirs[0] and mine[-1] == theirs[-1]


if __name__ == "__main__":
    sys.exit(main())
