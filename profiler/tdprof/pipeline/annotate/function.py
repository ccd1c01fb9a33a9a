"""One function of a capture: its lines with their samples, metrics and latencies, and its code."""

import itertools
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.model.addresses import FileKind, Unknown
from tdprof.model.annotation import Annotation, Latency, SourceLine, SourcePart
from tdprof.model.findings import Findings, MetricValue
from tdprof.model.profile import Profile
from tdprof.pipeline.annotate.callees import why_no_samples
from tdprof.pipeline.annotate.latencies import SourcePlace, line_latencies
from tdprof.pipeline.annotate.listing import find_code, lines_with_code, read_code
from tdprof.pipeline.annotate.sampled_code import SampledCode, find_sampled_code, sum_cost
from tdprof.pipeline.annotate.source_files import SourceFiles
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.choice import ChosenFunction
from tdprof.recorder.identity import Identity
from tdprof.report.summary import REASONS
from tdprof.symbolize.elf_symbols import ElfSymbols
from tdprof.symbolize.symbolizer import Symbolizer

# Shown above the first and below the last line with code, so that the function's head is seen.
_CONTEXT_LINES = 2
# Between lines with code, at most so many others are shown.
_LONGEST_GAP = 40


def annotate(
    capture: OpenCapture,
    profile: Profile,
    findings: Findings | None,
    function: ChosenFunction,
    sources: SourceFiles,
    *,
    has_code: bool,
    has_spe: bool = True,
    event: int = 0,
) -> Annotation:
    """Bring one function's samples to its lines and, with ``has_code``, to its instructions.

    Args:
        capture: the capture.
        profile: of it, ``calibrated``.
        findings: its metrics.
        sources: where source files are looked for.
        has_code: whether instructions are wanted.
        has_spe: whether what SPE measured is, which is of all samples.
        event: the one that leads.
    """
    places = find_sampled_code(profile, function)
    whole = sum_cost(places, range(len(places.location)), len(profile.events))
    notes = [] if places.location else [why_no_samples(profile, function, event)]
    symbolizer = capture.symbolizer
    found = find_code(profile, places, symbolizer, function)
    files = {path: list(lines) for path, lines in lines_with_code(found, function).items()}
    notes += _why_no_lines(profile, places, function, symbolizer)
    sources.read_as(_reader(symbolizer, profile, places))
    built = _built_ns(symbolizer, profile, places.location[0]) if places.location else None
    code = list(read_code(profile, places, found, symbolizer, notes)) if has_code else []
    for path, line in zip(places.file, places.line, strict=True):
        files.setdefault(path, []).append(line)
    metrics = _line_metrics(findings, function)
    latencies: Mapping[SourcePlace, Latency] = {}
    try:
        latencies = line_latencies(capture, function) if has_spe else {}
    except TdprofError as error:
        profile = profile.without_spe(error)
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
        notes=[*profile.unreadable, *notes, *sources.notes],
    )


def _of_file(places: SampledCode, path: str) -> int:
    rows = [row for row, file in enumerate(places.file) if file == path]
    return int(places.samples[rows].sum())


def _why_no_lines(
    profile: Profile, places: SampledCode, function: ChosenFunction, symbolizer: Symbolizer
) -> Iterator[str]:
    files = [profile.mapped_files[number] for number in _mapped_files(profile, places) if number >= 0]
    if all(path and line for path, line in zip(places.file, places.line, strict=True)):
        if not all(symbolizer.tells_lines(file.pid) for file in files if file.kind is FileKind.ANONYMOUS):
            yield "code made at run time: its program told where the function begins, no lines (a jit-PID.dump would)"
        return
    kinds = {file.kind for file in files}
    reasons = {Unknown(int(profile.locations.reason[location])) for location in places.location} - {Unknown.KNOWN}
    if reasons:
        yield from (f"{function.name}: {REASONS[reason]}" for reason in sorted(reasons))
    elif kinds & {FileKind.KERNEL, FileKind.KERNEL_MODULE}:
        yield "kernel code: a capture has its names, not its lines and instructions"
    elif FileKind.ANONYMOUS in kinds:
        yield "code made at run time: its program told not all lines (Java: record --perf-maps; else a jit-PID.dump)"
    elif not any(places.file):
        name = Path(function.module).name or "it"
        yield f"no lines are known: compile {name} with -g, or name a folder with its debug data: --debug-dir"


def _mapped_files(profile: Profile, places: SampledCode) -> set[int]:
    return {int(profile.locations.mapped_file[location]) for location in places.location}


def _reader(symbolizer: Symbolizer, profile: Profile, places: SampledCode) -> Identity:
    """With whose rights sources are read: to root those of who named them, since debug data may name any file."""
    if os.geteuid() != 0:
        return Identity.own()
    files = [profile.mapped_files[number] for number in _mapped_files(profile, places) if number >= 0]
    owners = {symbolizer.owner_of(file) for file in files if file.kind in (FileKind.ELF, FileKind.VDSO)}
    only = owners.pop() if len(owners) == 1 else None
    if only == 0:
        return Identity.own()
    return Identity.nobody() if only is None else Identity.of_user(only)


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
    places: SampledCode,
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
            cost=sum_cost(places, rows[line], events) if line in rows else None,
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
