"""`tdprof diff`: what changed between two captures, and whether a build should fail for it."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import click

from tdprof.capture.manifest import Host, Manifest, State
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options, print_result
from tdprof.cli.loading import load_with_findings, open_input, symbol_options
from tdprof.cli.output import waiting
from tdprof.cli.selecting import selection_options
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.pipeline.symbols import SymbolOptions
from tdprof.profile.compare import Basis, Comparison, compare
from tdprof.profile.compare.conditions import find_breaches, parse_condition
from tdprof.profile.compare.significance import DEFAULT_NOISE_PERCENT
from tdprof.profile.selection import Selection
from tdprof.report.comparison.csv import render_csv
from tdprof.report.comparison.json import render_json
from tdprof.report.comparison.text import describe_breach, render_text

FAIL_ON_HELP = (
    "Exit with 1 if that changed, significantly: [FUNCTION:]QUANTITY>NUMBER[%], with < and a negative NUMBER for a "
    "fall. QUANTITY: total (the first event; of a FUNCTION with what it calls), self (of a FUNCTION alone), an event "
    "or a metric. FUNCTION * is any. Without % in the quantity's units. May be repeated."
)


@click.command("diff")
@click.argument("a", type=click.Path(path_type=Path), metavar="A")
@click.argument("b", type=click.Path(path_type=Path), metavar="B")
@output_options(
    json="Print one JSON object with all values, intervals and tests.",
    csv="Print comma-separated values, a line for each value.",
    limit=f"The most functions to print; 0 for all ({DEFAULT_LIMIT}, with --json and --csv all).",
    has_pager=True,
)
@click.option("--fail-on", "fail_on", multiple=True, metavar="EXPRESSION", help=FAIL_ON_HELP)
@click.option("-e", "--event", metavar="EVENT", help="The event whose changes lead the table (the first in common).")
@click.option(
    "--basis",
    type=click.Choice([basis.value for basis in Basis]),
    help="Compare whole runs, or shares (run, if both are of commands that ran to their end).",
)
@click.option(
    "--noise",
    "noise_percent",
    type=click.FloatRange(0, 1000),
    default=DEFAULT_NOISE_PERCENT,
    metavar="PERCENT",
    help=f"How much two runs of one program differ on this machine ({DEFAULT_NOISE_PERCENT:g}); see docs/diff.md.",
)
@selection_options
@symbol_options
def command(
    a: Path,
    b: Path,
    output: Output,
    fail_on: Sequence[str],
    event: str | None,
    basis: str | None,
    noise_percent: float,
    selection: Selection,
    symbols: SymbolOptions,
) -> int:
    """Compare capture B with capture A: what each function, and the whole program, takes more or less of.

    \b
    tdprof diff before.capture after.capture
    tdprof diff before.capture after.capture --fail-on 'total>5%' --fail-on 'parse(char const*):self>10%'
    tdprof diff before.capture after.capture --fail-on '*:self>20%' --fail-on 'ipc<-5%'
    tdprof diff before.capture after.capture --json | jq '.functions[] | select(.self[0].is_significant)'

    The exit status is 0 if no --fail-on holds, 1 if one does, 2 if the captures cannot be compared.
    """
    with _status_2():
        conditions = [parse_condition(text) for text in fail_on]
        loaded = [_load(path, symbols, selection) for path in (a, b)]
        sides = [(str(path), each.profile) for path, each in zip((a, b), loaded, strict=True)]
        doubts = list(reasons_against(sides, [each.manifest for each in loaded]))
        if conditions and doubts:
            raise TdprofError(f"cannot judge --fail-on: {doubts[0]}", hint="record both again, on one kind of machine")
        chosen = Basis(basis) if basis else None
        a_side, b_side = loaded
        with waiting("comparing"):
            comparison = compare(
                a_side.profile,
                b_side.profile,
                a_side.findings,
                b_side.findings,
                basis=chosen,
                noise_percent=noise_percent,
            )
        leading = _leading_event(comparison, event)
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


@contextlib.contextmanager
def _status_2() -> Iterator[None]:
    """1 means a regression: whatever keeps from comparing is a 2."""
    try:
        yield
    except TdprofError as error:
        raise TdprofError(error.message, hint=error.hint, status=2) from error


@dataclass(frozen=True, slots=True)
class _Loaded:
    profile: Profile
    findings: Findings | None
    manifest: Manifest


def _load(capture: Path, symbols: SymbolOptions, selection: Selection) -> _Loaded:
    with open_input(capture, symbols) as opened:
        profile, findings = load_with_findings(opened, capture, selection=selection)
        return _Loaded(profile, findings, opened.recorded)


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
