"""Two captures compared and printed, for `tdprof diff`, and what speaks against comparing them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from tdprof.capture.manifest import Host, Manifest, State
from tdprof.cli.capture_options import Input
from tdprof.cli.form import DEFAULT_LIMIT, Output, print_result
from tdprof.cli.loading import check_has_wakers, load_with_findings, open_input
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import Basis, Selection, SymbolOptions
from tdprof.model.events import OFF_CPU
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.profile.compare import Comparison, compare
from tdprof.profile.compare.conditions import find_breaches, parse_condition
from tdprof.profile.wakers import with_wakers_alone
from tdprof.report.comparison.csv import render_csv
from tdprof.report.comparison.json import render_json
from tdprof.report.comparison.text import describe_breach, render_text
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """What of two captures is wanted, as the options of `tdprof diff` say it; `by_waker`: who ended sleeps."""

    fail_on: Sequence[str]
    event: str | None
    by_waker: bool
    basis: Basis | None
    noise_percent: float
    selection: Selection
    symbols: SymbolOptions


def print_comparison(a: Input, b: Input, asked: Asked, output: Output) -> int:
    """Compare capture b with capture a and print it; returns the exit status, 1 for what was to fail.

    Raises:
        TdprofError: they cannot be compared.
    """
    conditions = [parse_condition(text) for text in asked.fail_on]
    loaded = [_load(source, asked.symbols, asked.selection) for source in (a, b)]
    if asked.by_waker:
        loaded = [_by_waker(source.path, each) for source, each in zip((a, b), loaded, strict=True)]
    sides = [(str(source.path), each.profile) for source, each in zip((a, b), loaded, strict=True)]
    doubts = list(reasons_against(sides, [each.manifest for each in loaded]))
    if conditions and doubts:
        raise TdprofError(f"cannot judge --fail-on: {doubts[0]}", hint="record both again, on one kind of machine")
    a_side, b_side = loaded
    with waiting("comparing"):
        comparison = compare(
            a_side.profile,
            b_side.profile,
            a_side.findings,
            b_side.findings,
            basis=asked.basis,
            noise_percent=asked.noise_percent,
        )
    leading = _leading_event(comparison, asked.event or (OFF_CPU if asked.by_waker else None))
    shares = comparison.share_a[:, leading], comparison.share_b[:, leading]
    if not comparison.functions.are_of_one_program(*shares):
        doubts.insert(0, "they have hardly a function in common: two different programs, it seems")
        if conditions:
            raise TdprofError(f"cannot judge --fail-on: {doubts[0]}", hint="name two captures of one program")
    comparison = replace(comparison, notes=[*doubts, *comparison.notes])
    breaches = find_breaches(comparison, conditions)
    print_result(
        output,
        json=lambda: render_json(comparison, sides, breaches, event=leading, limit=output.rows()),
        csv=lambda: render_csv(comparison, event=leading, limit=output.rows()),
        text=lambda console: render_text(comparison, sides, console, limit=output.rows(DEFAULT_LIMIT), event=leading),
    )
    for breach in breaches:
        say(f"tdprof: --fail-on {describe_breach(breach)}")
    return 1 if breaches else 0


@dataclass(frozen=True, slots=True)
class _Loaded:
    profile: Profile
    findings: Findings | None
    manifest: Manifest


def _load(source: Input, symbols: SymbolOptions, selection: Selection) -> _Loaded:
    with open_input(source, symbols) as opened:
        try:
            profile, findings = load_with_findings(opened, source.path, selection=selection)
        except TdprofError as error:
            if not selection.words:
                raise
            # Which of the two it is that has nothing of the kind.
            raise TdprofError(f"{source.path}: {error.message}", hint=error.hint, status=error.status) from error
        return _Loaded(profile, findings, opened.recorded)


def _by_waker(capture: Path, loaded: _Loaded) -> _Loaded:
    check_has_wakers(loaded.profile, capture)
    return replace(loaded, profile=with_wakers_alone(loaded.profile), findings=None)


def reasons_against(sides: Sequence[tuple[str, Profile]], manifests: Sequence[Manifest]) -> Iterator[str]:
    """Why the captures should not be compared, or only with care."""
    cores = [_core(manifest.host) for manifest in manifests]
    if cores[0] != cores[1] and all(cores):
        yield f"they were recorded on different cores: {cores[0]} and {cores[1]}"
    groups = [profile.topdown.core for _, profile in sides if profile.topdown]
    if len(set(groups)) > 1:
        yield f"their metrics are those of different cores: {groups[0]} and {groups[1]}"
    for (name, profile), manifest in zip(sides, manifests, strict=True):
        if profile.losses.bytes_damaged:
            yield f"{name} is damaged: {profile.losses.bytes_damaged:,} bytes of it cannot be read"
        elif manifest.state is not State.COMPLETE:
            yield f"the recording of {name} was interrupted"
        elif profile.unreadable:
            yield f"not all of {name} could be read"
        if not len(profile.samples.count):
            yield f"{name} has no samples: where its time went is not known"


def _core(host: Host) -> str:
    parts = sorted(set(host.midr_el1.values())) or [host.cpu_model]
    return " ".join([host.machine, *parts]).strip()


def _leading_event(comparison: Comparison, name: str | None) -> int:
    names = [quantity.name for quantity in comparison.inclusive_changes.quantities]
    if name is None or name in names:
        return names.index(name) if name else 0
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"one of: {', '.join(names)}"
    raise TdprofError(f"not both captures have an event '{name}'", hint=hint)
