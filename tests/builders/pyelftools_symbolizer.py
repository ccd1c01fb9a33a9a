"""What pyelftools reads in debug data, put together to call stacks: a peer that shares nothing with ours."""

import bisect
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile

Stack = list[tuple[str, str]]  # function and "file:line" of each frame, innermost first; files without their folder
NOTHING = [("??", "??:0")]


def pyelftools_stacks(path: str, addresses: Sequence[int]) -> list[Stack]:
    """The functions around ELF addresses, inlined ones first, with the line of the code or of the call."""
    with open(path, "rb") as file:
        dwarf = ELFFile(file).get_dwarf_info()
        units = [unit for unit in dwarf.iter_CUs() if unit.get_top_DIE().tag == "DW_TAG_compile_unit"]
        lines = [row for unit in units for row in _line_rows(dwarf, unit)]
        lines.sort(key=lambda row: row[0])
        starts = [row[0] for row in lines]
        roots = [_tree(dwarf, unit) for unit in units]
        return [_stack(roots, lines, starts, address) for address in addresses]


def _line_rows(dwarf: Any, unit: Any) -> Iterator[tuple[int, int, str]]:
    """Start, end and "file:line" of each row that covers an address."""
    program = dwarf.line_program_for_CU(unit)
    if program is None:
        return
    before = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and before.address < state.address:
            yield before.address, state.address, f"{_file_name(program, before.file)}:{before.line}"
        before = None if state.end_sequence else state


def _file_name(program: Any, number: int) -> str:
    index = number if program.header.version >= 5 else number - 1
    return PurePath(program["file_entry"][index].name.decode()).name


def _tree(dwarf: Any, unit: Any) -> list[tuple[list[tuple[int, int]], str, str, list[Any]]]:
    """Functions of a unit: ranges, name, where it was called (if inlined), functions inlined into it."""
    top = unit.get_top_DIE()
    base = top.attributes["DW_AT_low_pc"].value if "DW_AT_low_pc" in top.attributes else 0
    program = dwarf.line_program_for_CU(unit)

    def below(parent: Any) -> list[Any]:
        found = []
        for die in parent.iter_children():
            inner = below(die) if die.has_children else []
            if die.tag not in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine"):
                found += inner  # blocks, namespaces and classes
            elif ranges := _ranges(dwarf, unit, die, base):
                found.append((ranges, _name(die), _called_at(program, die), inner))
        return found

    return below(top)


def _ranges(dwarf: Any, unit: Any, die: Any, base: int) -> list[tuple[int, int]]:
    attributes = die.attributes
    if "DW_AT_ranges" in attributes:
        found = []
        for entry in dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value, cu=unit):
            if isinstance(entry, BaseAddressEntry):
                base = entry.base_address
            else:
                origin = 0 if entry.is_absolute else base
                found.append((origin + entry.begin_offset, origin + entry.end_offset))
        return found
    if "DW_AT_low_pc" not in attributes or "DW_AT_high_pc" not in attributes:
        return []
    low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
    return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]


def _name(die: Any) -> str:
    for name in ("DW_AT_linkage_name", "DW_AT_MIPS_linkage_name"):
        if name in die.attributes:
            return str(die.attributes[name].value.decode())
    for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
        if link in die.attributes:
            return _name(die.get_DIE_from_attribute(link))
    return str(die.attributes["DW_AT_name"].value.decode()) if "DW_AT_name" in die.attributes else ""


def _called_at(program: Any, die: Any) -> str:
    if "DW_AT_call_line" not in die.attributes:
        return ""
    return f"{_file_name(program, die.attributes['DW_AT_call_file'].value)}:{die.attributes['DW_AT_call_line'].value}"


def _stack(roots: list[Any], lines: list[tuple[int, int, str]], starts: list[int], address: int) -> Stack:
    row = bisect.bisect_right(starts, address) - 1
    where = lines[row][2] if row >= 0 and address < lines[row][1] else "??:0"
    around = [function for root in roots for function in _enclosing(root, address)]
    stack = []
    for _, name, called_at, _ in reversed(around):
        stack.append((name, where))
        where = called_at
    return stack or NOTHING


def _enclosing(functions: list[Any], address: int) -> list[Any]:
    """From the outermost to the innermost."""
    for function in functions:
        if any(low <= address < high for low, high in function[0]):
            return [function, *_enclosing(function[3], address)]
    return []
