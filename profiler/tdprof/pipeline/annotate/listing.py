"""A function's code: the pieces it is in, the lines they come from, and their instructions with what they took."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tdprof.model.addresses import FileKind, Locations, MappedFile, Unknown
from tdprof.model.annotation import Code, CodeLine
from tdprof.model.arrays import U64
from tdprof.model.machine_code import CodePart, Instruction
from tdprof.model.profile import Profile
from tdprof.pipeline.annotate.sampled_code import SampledCode, sum_cost
from tdprof.profile.choice import ChosenFunction
from tdprof.profile.frames import module_names
from tdprof.profile.naming import base_name
from tdprof.report.summary import REASONS
from tdprof.symbolize.demangling import demangle
from tdprof.symbolize.elf_symbols import ElfSymbols
from tdprof.symbolize.locations import concatenate_locations
from tdprof.symbolize.symbolizer import Symbolizer
from tdprof.text import plural, printable
from tdprof.values import dataclass

_LOCATED_AT_ONCE = 1 << 20  # offsets
_HALF, _LOWER = np.uint64(32), np.uint64(2**32 - 1)
_MOST_INSTRUCTIONS = 1 << 14  # of a piece of code that are listed whether they have samples or not
_NEAR_BYTES = 128  # before and behind a sample, where there are more


@dataclass(frozen=True, slots=True)
class FoundCode:
    """One piece of code, and what stands at each of its bytes' file offsets."""

    file: MappedFile
    symbols: ElfSymbols
    part: CodePart
    locations: Locations


def find_code(
    profile: Profile, places: SampledCode, symbolizer: Symbolizer, function: ChosenFunction
) -> list[FoundCode]:
    """The symbols that samples of the function fell into, with the pieces split off from them."""
    # One file can be mapped as several: processes that ran before the recording show it without its build-id.
    files: dict[Path, MappedFile] = {}
    addresses: dict[Path, list[int]] = defaultdict(list)
    for row, (path, address) in _rows_in_files(profile, places, symbolizer):
        files.setdefault(path, profile.mapped_files[int(profile.locations.mapped_file[places.location[row]])])
        addresses[path].append(address)
    parts_of = []
    for path, file in files.items():
        symbols = symbolizer.file_of(file)
        assert isinstance(symbols, ElfSymbols)
        parts_of.append((file, symbols, symbols.parts(np.unique(np.array(addresses[path], np.uint64)))))
    meant = _meanings(part.name for _, _, parts in parts_of for part in parts)
    found = []
    for file, symbols, parts in parts_of:
        # Where the function has code of its own, callers that it is inlined into are not part of it.
        own = [part for part in parts if base_name(meant[part.name]) == function.name]
        for part in own or parts:
            offsets = np.arange(part.file_offset, part.file_offset + len(part.data), dtype=np.uint64)
            found.append(FoundCode(file, symbols, part, _located(symbolizer, file, offsets)))
    return found


def _located(symbolizer: Symbolizer, file: MappedFile, offsets: U64) -> Locations:
    """What stands at each offset. In pieces: to look one up takes many times what is then known of it."""
    pieces = [
        symbolizer.locate(file, offsets[begin : begin + _LOCATED_AT_ONCE])
        for begin in range(0, max(len(offsets), 1), _LOCATED_AT_ONCE)
    ]
    return pieces[0] if len(pieces) == 1 else concatenate_locations(pieces)


def _meanings(names: Iterable[str]) -> dict[str, str]:
    """What each linkage name means: of all at once, since a costly one is a child's, and there may be many."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, demangle(distinct), strict=True))


def _names_in(found: Sequence[FoundCode]) -> dict[str, str]:
    """The same of all functions in pieces of code."""
    rows = [(each.locations.strings, np.unique(each.locations.function).tolist()) for each in found]
    return _meanings(strings[number] for strings, numbers in rows for number in numbers)


def _rows_in_files(
    profile: Profile, places: SampledCode, symbolizer: Symbolizer
) -> Iterator[tuple[int, tuple[Path, int]]]:
    """Row of ``places``, and (file, offset in it) for each address in a file that can be read here."""
    for row, location in enumerate(places.location):
        number = int(profile.locations.mapped_file[location])
        symbols = symbolizer.file_of(profile.mapped_files[number]) if number >= 0 else None
        if isinstance(symbols, ElfSymbols):
            yield row, (symbols.path, int(profile.locations.address[location]))


def _frames(locations: Locations, row: int) -> list[tuple[str, str, int]]:
    """(linkage name, file, line), innermost first."""
    start, end = locations.frame_start[row : row + 2].tolist()
    return [
        (
            locations.strings[locations.function[at]],
            locations.strings[locations.file[at]] if locations.file[at] >= 0 else "",
            int(locations.line[at]),
        )
        for at in range(start, end)
    ]


def lines_with_code(found: Sequence[FoundCode], function: ChosenFunction) -> Mapping[str, set[int]]:
    """The lines of each file that the function's own code comes from, calls that were inlined included."""
    lines: dict[str, set[int]] = defaultdict(set)
    meant = _names_in(found)
    for each in found:
        names = [base_name(meant.get(name, "")) for name in each.locations.strings]
        is_function = np.array([name == function.name for name in names], bool)
        frames = np.flatnonzero(is_function[each.locations.function] & (each.locations.file >= 0))
        pairs = np.unique(each.locations.file[frames].astype(np.uint64) << _HALF | each.locations.line[frames])
        for file, line in zip((pairs >> _HALF).tolist(), (pairs & _LOWER).tolist(), strict=True):
            if line:
                lines[each.locations.strings[file]].add(line)
    return lines


def read_code(
    profile: Profile, places: SampledCode, found: Sequence[FoundCode], symbolizer: Symbolizer, notes: list[str]
) -> Iterator[Code]:
    """The instructions of pieces of code with their samples; then samples at all other addresses of the function.

    Args:
        notes: what is missing is added.
    """
    from tdprof.symbolize.disassembly import disassemble, is_supported  # slow to load, and few need it

    events = len(profile.events)
    rows: dict[tuple[Path, int], list[int]] = defaultdict(list)
    for row, place in _rows_in_files(profile, places, symbolizer):
        rows[place].append(row)
    seen: set[int] = set()
    shown = _names_in(found) | _meanings(each.part.name for each in found)
    for each in found:
        if not is_supported(each.part.machine):
            notes.append(
                f"no instructions: code of ELF machine {each.part.machine} is not decoded (AArch64, x86-64 are)"
            )
            return
        first = each.part.file_offset
        mine = [at - first for path, at in rows if path == each.symbols.path and 0 <= at - first < len(each.part.data)]
        instructions, left_out = _near_samples(disassemble(each.part), each.part, mine)
        if left_out:
            name = printable(shown[each.part.name])
            notes.append(f"{name}: {left_out:,} instructions that are far from all samples are left out")
        targets = [target for instruction in instructions if (target := instruction.target) is not None]
        names = _shown_targets(each.symbols.name_targets(np.array(targets, np.uint64)))
        named: dict[int | None, str] = dict(zip(targets, names, strict=True))
        lines = []
        for instruction in instructions:
            at = instruction.address - each.part.address
            offset = each.part.file_offset + at
            bytes_ = ((each.symbols.path, byte) for byte in range(offset, offset + instruction.size))
            sampled = [row for place in bytes_ if place in rows for row in rows[place]]
            seen.update(sampled)
            frames = _frames(each.locations, at)
            lines.append(
                CodeLine(
                    instruction,
                    [(printable(shown[name]), file, line) for name, file, line in frames],
                    sum_cost(places, sampled, events) if sampled else None,
                    named.get(instruction.target, ""),
                )
            )
        yield Code(printable(shown[each.part.name]), printable(each.file.path), lines)
    rest = [row for row in range(len(places.location)) if row not in seen]
    for number in sorted({int(profile.locations.mapped_file[places.location[row]]) for row in rest}):
        file = profile.mapped_files[number] if number >= 0 else None
        reason = symbolizer.file_of(file) if file and file.kind is FileKind.ELF else None
        if file and isinstance(reason, Unknown):
            notes.append(f"{printable(file.path)}: {REASONS[reason]}")
    yield from _bare_addresses(profile, places, rest, notes)


def _near_samples(
    instructions: Iterable[Instruction], part: CodePart, sampled: Sequence[int]
) -> tuple[list[Instruction], int]:
    """All instructions; of very many those near samples, as many as may be, and how many are left out.

    Args:
        sampled: positions in the part.
    """
    near = np.zeros(len(part.data), bool)
    for at in sampled:
        near[max(0, at - _NEAR_BYTES) : at + _NEAR_BYTES] = True
    kept: list[Instruction] = []
    seen = 0
    for instruction in instructions:
        seen += 1
        if seen == _MOST_INSTRUCTIONS + 1:
            kept = [each for each in kept if near[each.address - part.address]]
        if seen <= _MOST_INSTRUCTIONS or (len(kept) < _MOST_INSTRUCTIONS and near[instruction.address - part.address]):
            kept.append(instruction)
    return kept, seen - len(kept)


def _shown_targets(names: Sequence[str]) -> list[str]:
    """Names to show for ``name+0x10``."""
    parts = [name.partition("+0x") for name in names]
    return [
        printable(shown) + plus + distance
        for shown, (_, plus, distance) in zip(demangle([name for name, _, _ in parts]), parts, strict=True)
    ]


def _bare_addresses(profile: Profile, places: SampledCode, rows: Sequence[int], notes: list[str]) -> Iterator[Code]:
    """Samples at addresses whose code is not at hand, or is that of other functions that this one is inlined into."""
    modules = module_names(profile)
    by_module: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_module[modules[int(profile.locations.mapped_file[places.location[row]])]].append(row)
    for module, mine in by_module.items():
        where = f"{plural(len(mine), 'sampled address', 'es')} in {module or 'no mapping'}"
        notes.append(f"{where}: their code is not at hand, or that of functions that this one is inlined into")
        lines = []
        for row in sorted(mine, key=lambda row: int(profile.locations.address[places.location[row]])):
            location = places.location[row]
            start, end = profile.locations.frame_start[location : location + 2].tolist()
            functions = profile.locations.frame_function[start:end].tolist()
            frames = [
                (printable(profile.functions.name[each]), profile.functions.file[each], line)
                for each, line in zip(functions, profile.locations.frame_line[start:end].tolist(), strict=True)
            ]
            instruction = Instruction(int(profile.locations.address[location]), 0, "")
            lines.append(CodeLine(instruction, frames, sum_cost(places, [row], len(profile.events))))
        yield Code("", module, lines)
