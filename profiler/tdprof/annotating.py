"""A function of a capture beside its source and its instructions: finds both, and adds the samples up."""

import itertools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tdprof.capture.manifest import State, read_manifest
from tdprof.code import CodePart, Instruction
from tdprof.decode.spe_capture import open_capture
from tdprof.findings import Findings, MetricValue
from tdprof.finishing import tables_of
from tdprof.frames import leaf_locations, module_names, printable
from tdprof.function_choice import ChosenFunction
from tdprof.model import U64, FileKind, Locations, MappedFile, Unknown
from tdprof.naming import base_name
from tdprof.pipeline import SymbolOptions, open_symbolizer
from tdprof.profile import Profile
from tdprof.report.annotation import Annotation, Code, CodeLine, Cost, Latency, SourceLine, SourcePart
from tdprof.report.summary import REASONS
from tdprof.source_files import SourceFiles
from tdprof.spe_analysis import By, analyse
from tdprof.symbolize import Symbolizer, demangle
from tdprof.symbolize.elf_symbols import ElfSymbols

# Shown above the first and below the last line with code, so that the function's head is seen.
_CONTEXT_LINES = 2
# Between lines with code, at most so many others are shown.
_LONGEST_GAP = 40


@dataclass(frozen=True, slots=True)
class _Places:
    """The code addresses at which samples fell into the function, itself or inlined into others.

    Attributes:
        location: location ids, n of them.
        line, file: of the function's frame there: int, and the source file's path.
        is_own: whether it is the innermost frame.
        weight, samples: uint64[n, events].
    """

    location: Sequence[int]
    line: Sequence[int]
    file: Sequence[str]
    is_own: Sequence[bool]
    weight: U64
    samples: U64


def annotate(
    folder: Path,
    profile: Profile,
    findings: Findings | None,
    function: ChosenFunction,
    sources: SourceFiles,
    symbols: SymbolOptions,
    *,
    has_code: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> Annotation:
    """Bring one function's samples to its lines and, with ``has_code``, to its instructions.

    Args:
        folder: the capture.
        profile: of it, ``calibrated``.
        findings: its metrics.
        sources: where source files are looked for.
    """
    places = _find_places(profile, function)
    whole = _total(places, range(len(places.location)), len(profile.events))
    notes: list[str] = []
    with tables_of(folder) as (tables, _), open_symbolizer(tables, symbols, progress) as symbolizer:
        found = _find_code(profile, places, symbolizer, function)
        files = {path: list(lines) for path, lines in _lines_with_code(found, function).items()}
        notes += _why_no_lines(profile, places, function)
        built = _built_ns(symbolizer, profile, places.location[0]) if places.location else None
        code = list(_code(profile, places, found, symbolizer, notes)) if has_code else []
    for path, line in zip(places.file, places.line, strict=True):
        files.setdefault(path, []).append(line)
    metrics = _line_metrics(findings, function)
    latencies = _latencies(folder, profile, function, symbols, notes, progress)
    parts = []
    for path in sorted(filter(None, files), key=lambda path: -_of_file(places, path)):
        lines = sources.read(path, built)
        parts.append(_source_part(path, files[path], lines, places, len(profile.events), metrics, latencies))
    texts = {}
    for path in {path for part in code for line in part.lines for _, path, _ in line.frames if path}:
        for number, text in enumerate(sources.read(path, built) or (), 1):
            texts[path, number] = text
    return Annotation(
        name=function.name,
        module=function.module,
        events=profile.events,
        totals=profile.total_weight(),
        cost=whole,
        sources=parts,
        code=code,
        texts=texts,
        notes=[*notes, *sources.notes],
    )


def _find_places(profile: Profile, function: ChosenFunction) -> _Places:
    locations, events = profile.locations, len(profile.events)
    at = leaf_locations(profile)[profile.samples.stack]
    known = at >= 0
    weight, samples = (np.zeros((len(locations.address), events), np.uint64) for _ in range(2))
    np.add.at(weight, (at[known], profile.samples.event[known]), profile.samples.weight[known])
    np.add.at(samples, (at[known], profile.samples.event[known]), profile.samples.count[known])

    is_chosen = np.isin(locations.frame_function, function.ids)
    frame_location = np.repeat(np.arange(len(locations.address)), np.diff(locations.frame_start).astype(np.int64))
    frames = np.flatnonzero(is_chosen & (samples.sum(axis=1) > 0)[frame_location])
    # The innermost of a recursion that was inlined into itself.
    location, first = np.unique(frame_location[frames], return_index=True)
    frames = frames[first]
    functions = locations.frame_function[frames].tolist()
    return _Places(
        location=location.tolist(),
        line=locations.frame_line[frames].tolist(),
        file=[profile.functions.file[each] for each in functions],
        is_own=(frames == locations.frame_start[location]).tolist(),
        weight=weight[location],
        samples=samples[location],
    )


def _total(places: _Places, rows: Sequence[int] | range, events: int) -> Cost:
    own = [row for row in rows if places.is_own[row]]
    inlined = [row for row in rows if not places.is_own[row]]
    sums = [
        values[part].sum(axis=0, dtype=np.uint64).reshape(events)
        for part in (own, inlined)
        for values in (places.weight, places.samples)
    ]
    return Cost(*sums)


def _of_file(places: _Places, path: str) -> int:
    rows = [row for row, file in enumerate(places.file) if file == path]
    return int(places.samples[rows].sum())


@dataclass(frozen=True, slots=True)
class _Found:
    """One piece of code, and what stands at each of its bytes' file offsets."""

    file: MappedFile
    part: CodePart
    locations: Locations


def _find_code(profile: Profile, places: _Places, symbolizer: Symbolizer, function: ChosenFunction) -> list[_Found]:
    """The symbols that samples of the function fell into, with the pieces split off from them."""
    by_file: dict[int, list[int]] = defaultdict(list)
    for location in places.location:
        by_file[int(profile.locations.mapped_file[location])].append(int(profile.locations.address[location]))
    found = []
    for number, addresses in by_file.items():
        if number < 0:
            continue
        file = profile.mapped_files[number]
        symbols = symbolizer.file_of(file)
        if not isinstance(symbols, ElfSymbols):
            continue
        parts = symbols.parts(np.unique(np.array(addresses, np.uint64)))
        # Where the function has code of its own, callers that it is inlined into are not part of it.
        shown = demangle([part.name for part in parts])
        own = [part for part, name in zip(parts, shown, strict=True) if base_name(name) == function.name]
        for part in own or parts:
            offsets = np.arange(part.file_offset, part.file_offset + len(part.data), dtype=np.uint64)
            found.append(_Found(file, part, symbolizer.locate(file, offsets)))
    return found


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


def _lines_with_code(found: Sequence[_Found], function: ChosenFunction) -> Mapping[str, set[int]]:
    """The lines of each file that the function's own code comes from, calls that were inlined included."""
    lines: dict[str, set[int]] = defaultdict(set)
    for each in found:
        names = [base_name(name) for name in demangle(each.locations.strings)]
        is_function = np.array([name == function.name for name in names], bool)
        frames = np.flatnonzero(is_function[each.locations.function] & (each.locations.file >= 0))
        pairs = np.unique(np.stack([each.locations.file[frames], each.locations.line[frames].astype(np.int64)]), axis=1)
        for file, line in pairs.T.tolist():
            if line:
                lines[each.locations.strings[file]].add(line)
    return lines


def _why_no_lines(profile: Profile, places: _Places, function: ChosenFunction) -> Iterator[str]:
    if all(path and line for path, line in zip(places.file, places.line, strict=True)):
        return
    kinds = {profile.mapped_files[row].kind if row >= 0 else None for row in _mapped_files(profile, places)}
    reasons = {Unknown(int(profile.locations.reason[location])) for location in places.location} - {Unknown.KNOWN}
    if reasons:
        yield from (f"{function.name}: {REASONS[reason]}" for reason in sorted(reasons))
    elif kinds & {FileKind.KERNEL, FileKind.KERNEL_MODULE}:
        yield "kernel code: a capture has its names, not its lines and instructions"
    elif FileKind.ANONYMOUS in kinds:
        yield "code made at run time: its program left no lines of it (a jit-PID.dump would have them)"
    elif not any(places.file):
        name = Path(function.module).name or "it"
        yield f"no lines are known: compile {name} with -g, or name a folder with its debug data: --debug-dir"


def _mapped_files(profile: Profile, places: _Places) -> set[int]:
    return {int(profile.locations.mapped_file[location]) for location in places.location}


def _built_ns(symbolizer: Symbolizer, profile: Profile, location: int) -> int | None:
    """When the file with the function's code was last written, or None if it is not here."""
    number = int(profile.locations.mapped_file[location])
    symbols = symbolizer.file_of(profile.mapped_files[number]) if number >= 0 else None
    if not isinstance(symbols, ElfSymbols):
        return profile.start_realtime_ns or None
    return symbols.path.stat().st_mtime_ns


def _source_part(
    path: str,
    with_code: Sequence[int],
    text: Sequence[str] | None,
    places: _Places,
    events: int,
    metrics: Mapping[tuple[str, int], Sequence[tuple[str, MetricValue]]],
    latencies: Mapping[tuple[str, int], Latency],
) -> SourcePart:
    rows: dict[int, list[int]] = defaultdict(list)
    for row, (file, line) in enumerate(zip(places.file, places.line, strict=True)):
        if file == path:
            rows[line].append(row)
    known = sorted({line for line in with_code if line})
    shown = {0} & set(rows) | set(known)
    if text is not None and known:
        shown |= set(range(max(1, known[0] - _CONTEXT_LINES), min(len(text), known[-1] + _CONTEXT_LINES) + 1))
        for line, following in itertools.pairwise(known):
            if following - line > _LONGEST_GAP:
                shown -= set(range(line + _CONTEXT_LINES + 1, following - _CONTEXT_LINES))
    lines = [
        SourceLine(
            line=line,
            text=text[line - 1] if text is not None and 0 < line <= len(text) else None,
            cost=_total(places, rows[line], events) if line in rows else None,
            metrics=metrics.get((path, line), ()),
            latency=latencies.get((path, line)),
        )
        for line in sorted(shown)
    ]
    return SourcePart(path, lines)


def _line_metrics(
    findings: Findings | None, function: ChosenFunction
) -> Mapping[tuple[str, int], Sequence[tuple[str, MetricValue]]]:
    if findings is None:
        return {}
    files = dict(zip(function.ids, function.files, strict=True))
    return {
        (files[id_], int(findings.line[row])): findings.lines.row(row)
        for row, id_ in enumerate(findings.line_function.tolist())
        if id_ in files
    }


def _latencies(
    folder: Path,
    profile: Profile,
    function: ChosenFunction,
    symbols: SymbolOptions,
    notes: list[str],
    progress: Callable[[str], None],
) -> Mapping[tuple[str, int], Latency]:
    """SPE's latencies by (file, line), if the capture has its records."""
    manifest = read_manifest(folder)
    if manifest.spe is None:
        return {}
    if manifest.state is not State.COMPLETE:
        notes.append("SPE records of a recording that was interrupted are not shown")
        return {}
    progress("adding up SPE records")
    with open_capture(folder, manifest) as source:
        report = analyse(source, By.LINE, folder, workers=len(os.sched_getaffinity(0)), symbols=symbols)
    found = {}
    for row, key in enumerate(report.code or ()):
        if base_name(printable(key.function)) == function.name and printable(key.module) == function.module:
            cycles, count = (int(report.counts[f"TOTAL_{what}"][row]) for what in ("CYCLES", "COUNT"))
            if count:
                quantiles = report.latencies["total_latency"][row].tolist()
                found[key.file, key.line] = Latency(int(report.counts["OPERATIONS"][row]), cycles / count, *quantiles)
    return found


def _code(
    profile: Profile, places: _Places, found: Sequence[_Found], symbolizer: Symbolizer, notes: list[str]
) -> Iterator[Code]:
    from tdprof.symbolize.disassembly import disassemble, is_supported  # slow to load, and few need it

    events = len(profile.events)
    rows: dict[tuple[MappedFile, int], int] = {}
    for row, location in enumerate(places.location):
        number = int(profile.locations.mapped_file[location])
        if number >= 0:
            rows[profile.mapped_files[number], int(profile.locations.address[location])] = row
    seen = set()
    for each in found:
        if not is_supported(each.part.machine):
            notes.append(
                f"no instructions: code of ELF machine {each.part.machine} is not decoded (AArch64, x86-64 are)"
            )
            return
        symbols = symbolizer.file_of(each.file)
        assert isinstance(symbols, ElfSymbols)
        instructions = list(disassemble(each.part))
        targets = [target for instruction in instructions if (target := instruction.target) is not None]
        names = _shown_targets(symbols.name_targets(np.array(targets, np.uint64)))
        named: dict[int | None, str] = dict(zip(targets, names, strict=True))
        lines = []
        shown: dict[str, str] = {}
        for instruction in instructions:
            at = instruction.address - each.part.address
            offset = each.part.file_offset + at
            places_here = ((each.file, byte) for byte in range(offset, offset + instruction.size))
            mine = [rows[place] for place in places_here if place in rows]
            seen.update(mine)
            frames = _frames(each.locations, at)
            for name, _, _ in frames:
                if name not in shown:
                    shown[name] = demangle([name])[0]
            lines.append(
                CodeLine(
                    instruction,
                    [(printable(shown[name]), file, line) for name, file, line in frames],
                    _total(places, mine, events) if mine else None,
                    named.get(instruction.target, ""),
                )
            )
        yield Code(printable(demangle([each.part.name])[0]), printable(each.file.path), lines)
    rest = [row for row in range(len(places.location)) if row not in seen]
    for number in sorted({int(profile.locations.mapped_file[places.location[row]]) for row in rest}):
        file = profile.mapped_files[number] if number >= 0 else None
        reason = symbolizer.file_of(file) if file and file.kind is FileKind.ELF else None
        if file and isinstance(reason, Unknown):
            notes.append(f"{printable(file.path)}: {REASONS[reason]}")
    yield from _bare_addresses(profile, places, rest, notes)


def _shown_targets(names: Sequence[str]) -> list[str]:
    """Names to show for ``name+0x10``."""
    parts = [name.partition("+0x") for name in names]
    return [
        printable(shown) + plus + distance
        for shown, (_, plus, distance) in zip(demangle([name for name, _, _ in parts]), parts, strict=True)
    ]


def _bare_addresses(profile: Profile, places: _Places, rows: Sequence[int], notes: list[str]) -> Iterator[Code]:
    """Samples at addresses whose code is not at hand, or is that of callers that the function is inlined into."""
    modules = module_names(profile)
    by_module: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_module[modules[int(profile.locations.mapped_file[places.location[row]])]].append(row)
    for module, mine in by_module.items():
        notes.append(f"of {len(mine)} sampled addresses in {module or 'no mapping'} the code is not shown")
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
            lines.append(CodeLine(instruction, frames, _total(places, [row], len(profile.events))))
        yield Code("", module, lines)
