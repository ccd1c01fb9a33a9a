"""`tdprof export`: a capture as a file for another program."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from tdprof.cli.capture_options import capture_argument, find_input, selection_options, symbol_options
from tdprof.cli.fleet import is_store, recordings_options, store_place
from tdprof.cli.output import result_file, standard_output, waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import EVERYTHING, Selection, SymbolOptions
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest
    from tdprof.fleet.selection import Chosen
    from tdprof.model.findings import Findings
    from tdprof.model.profile import Profile
    from tdprof.model.spe import SampledOperations
    from tdprof.pipeline.opened import OpenCapture
    from tdprof.report.page.data import Page


@dataclass(frozen=True, slots=True)
class Export:
    """What there is to write.

    Attributes:
        profile: calibrated, for all but the page with Stage 1 categories among its events.
        findings: its metrics.
        operations: what SPE sampled, for formats that have it.
        page: for the page.
    """

    profile: "Profile"
    findings: "Findings | None"
    operations: "SampledOperations | None" = None
    page: "Page | None" = None


@dataclass(frozen=True, slots=True)
class Format:
    """A format to export to: how it is written, and what the user does with the file ({} is its name)."""

    write: Callable[[Export, BinaryIO], None]
    next_step: str
    is_binary: bool = False
    has_time: bool = False  # whether the file says when samples were taken
    has_spe: bool = False  # whether it says what SPE measured
    most_spe_samples: int | None = None  # whether SPE records are samples in it, and how many
    is_page: bool = False  # it makes Stage 1's categories of the findings, and has SPE's latencies of functions


# Each writer is loaded only when its format is wanted: together they take longer than a small capture.
def _write_speedscope(what: Export, out: BinaryIO) -> None:
    from tdprof.export.speedscope import write_speedscope

    write_speedscope(what.profile, out, what.findings)


def _write_pprof(what: Export, out: BinaryIO) -> None:
    from tdprof.export.pprof import write_pprof

    write_pprof(what.profile, out, what.findings, what.operations)


def _write_folded(what: Export, out: BinaryIO) -> None:
    from tdprof.export.folded import write_folded

    write_folded(what.profile, out)


def _write_html(what: Export, out: BinaryIO) -> None:
    from tdprof.report.page.html import write_html

    assert what.page is not None
    write_html(what.page, out)


FORMATS = {
    "speedscope": Format(
        _write_speedscope,
        "drop {} onto https://www.speedscope.app, which keeps it in the browser",
        has_time=True,
    ),
    "pprof": Format(
        _write_pprof,
        "go tool pprof -http=: {}",
        is_binary=True,
        has_spe=True,
        most_spe_samples=50_000,  # go tool pprof needs about a kilobyte for each label of each sample
    ),
    "folded": Format(_write_folded, "flamegraph.pl {} > flame.svg"),
    "html": Format(
        _write_html,
        "open {} in a browser; it needs no network",
        has_spe=True,
        is_page=True,
    ),
}

_OF_STORES = {"--since", "--until", "--recordings"}
# A store has names already, and adds its recordings' processes and times up.
_OF_CAPTURES = {
    *("--diff", "--comm", "--pid", "--tid", "--where", "--time"),
    *("--symfs", "--debug-dir", "--no-symbol-cache"),
}


@click.command("export")
@capture_argument
@click.option(
    "--to", "format_name", type=click.Choice(list(FORMATS)), required=True, help="The format; see the examples."
)
@click.option(
    "-o",
    "--output",
    default="-",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="The file to write, '-' for standard output (the default). An existing file is replaced when all is written.",
)
@click.option("--event", metavar="EVENT", help="Export this event alone (all; for folded, which has one, the first).")
@click.option(
    "--diff",
    "older",
    type=click.Path(path_type=Path),
    metavar="OLDER",
    help="For html: also colour by what changed since this capture, as tdprof diff OLDER CAPTURE finds it.",
)
@recordings_options
@selection_options
@symbol_options
def command(
    capture: Path,
    format_name: str,
    output: Path,
    event: str | None,
    older: Path | None,
    selection: Selection,
    symbols: SymbolOptions,
    chosen: "Callable[[], Chosen]",
) -> None:
    """Write a capture, a store of many hosts' captures, or what perf record left, as a file for another program.

    \b
    tdprof export --to speedscope -o app.speedscope.json   flame graphs at speedscope.app
    tdprof export --to pprof -o app.pb.gz                  go tool pprof -http=: app.pb.gz
    tdprof export --to folded | flamegraph.pl > app.svg    one line for each call stack
    tdprof export --to folded --event backend_bound_slots  of a Topdown capture: slots lost to the backend
    tdprof export --to html -o app.html                    one page to look at and pass on: flame graph, metrics, advice
    tdprof export b.capture --to html --diff a.capture -o b.html   a differential flame graph
    tdprof export perf.data --to folded                    without making a capture
    tdprof export prod --to html -o fleet.html --since 7d  of a store (tdprof fleet): all hosts of one kind of core
    """
    target = FORMATS[format_name]
    _check_options(capture, has_store=(has_store := is_store(capture)))
    if older and not target.is_page:
        raise TdprofError("--diff is an option of --to html", hint=f"tdprof diff {older} {capture}", status=2)
    is_stdout = str(output) == "-"
    if is_stdout and target.is_binary and sys.stdout.isatty():
        raise TdprofError(
            f"{format_name} is a binary format and standard output is a terminal",
            hint=f"tdprof export {capture} --to {format_name} -o profile.pb.gz",
            status=2,
        )
    if has_store:
        _write(target, _prepare_store(capture, target, event, selection, chosen()), output)
        return
    source = find_input(capture)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.loading import open_input, say_losses

    most = target.most_spe_samples if event is None else None
    with open_input(
        source, symbols, keeps_time=target.has_time or bool(selection.times), most_spe_samples=most
    ) as opened:
        what = _prepare(opened, capture, target, event, selection)
        if older is not None and what.page is not None:
            what = replace(what, page=_with_changes(what.page, opened.recorded, capture, older, symbols, selection))
        say_losses(what.profile.losses, what.profile.unreadable)
    _write(target, what, output)


def _check_options(place: Path, *, has_store: bool) -> None:
    """Refuse what is typed in vain: a choice of recordings of a capture, or of what a store does not tell."""
    options, what, hint = (
        (
            _OF_CAPTURES,
            "captures",
            "--since, --until and --recordings choose recordings, --module and --function samples",
        )
        if has_store
        else (_OF_STORES, "stores", "--time, --where cgroup=NAME, --comm and the like choose samples of a capture")
    )
    context = click.get_current_context()
    for each in context.command.params:
        if each.opts[0] in options and context.get_parameter_source(str(each.name)) is ParameterSource.COMMANDLINE:
            other = "store" if has_store else "capture"
            raise TdprofError(f"{each.opts[0]} is an option for {what}; {place} is a {other}", hint=hint, status=2)


def _write(target: Format, what: Export, output: Path) -> None:
    if str(output) == "-":
        with standard_output():
            target.write(what, sys.stdout.buffer)
        return
    with waiting(f"writing {output}"), result_file(output) as file:
        target.write(what, file)
    say(f"tdprof: wrote {output}")
    say(f"  next: {target.next_step.format(output)}")


def _prepare_store(place: Path, target: Format, event: str | None, selection: Selection, chosen: "Chosen") -> Export:
    """What a format writes of a store."""
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.flame import fleet_profile
    from tdprof.fleet.report import find_recordings
    from tdprof.fleet.store import Store
    from tdprof.profile.selection import select

    keep_process_small()
    with waiting(f"reading {place}"):
        store = Store(store_place(place))
        profile = select(fleet_profile(store, find_recordings(store, chosen, event, each_recording=True)), selection)
    if not target.is_page:
        return Export(profile, None)
    from tdprof.report.page.data import Page

    return Export(profile, None, page=Page(profile))


def _prepare(capture: "OpenCapture", shown: Path, target: Format, event: str | None, selection: Selection) -> Export:
    """Load what a format writes."""
    from tdprof.cli.loading import find_event, load_with_findings, with_function_operations
    from tdprof.profile.categories import with_categories
    from tdprof.profile.wakers import with_waker_stacks

    profile, findings = load_with_findings(
        capture, shown, with_spe=target.has_spe, selection=selection, by_time=target.is_page
    )
    if not target.is_page:
        profile = with_waker_stacks(with_categories(profile, findings))
    index = find_event(profile, event)
    if event is not None:
        profile = profile.only_event(index)
    if target.is_page:
        from tdprof.report.page.data import Page

        profile, functions = with_function_operations(capture, profile, selection)
        return Export(profile, findings, page=Page(profile, findings, functions))
    operations = None
    if capture.has_spe and capture.most_spe_samples is not None and selection == EVERYTHING:
        # Only now: SPE's part of the program is not needed for anything else here.
        from tdprof.pipeline.spe_samples import load_operations

        with waiting("adding up SPE records") as capture.progress:
            try:
                operations = load_operations(capture)
            except TdprofError as error:
                profile = profile.without_spe(error)
    return Export(profile, findings, operations)


def _with_changes(
    page: "Page", manifest: "Manifest", capture: Path, older: Path, symbols: SymbolOptions, selection: Selection
) -> "Page":
    """A page with what changed since an older capture."""
    # Only now: what finds changes is not needed for anything else here.
    from tdprof.cli.comparing import reasons_against
    from tdprof.cli.loading import load_with_findings, open_input
    from tdprof.profile.compare import compare

    with open_input(find_input(older), symbols) as opened:
        profile, findings = load_with_findings(opened, older, selection=selection)
    with waiting("comparing"):
        comparison = compare(profile, page.profile, findings, page.findings)
    doubts = reasons_against([(str(older), profile), (str(capture), page.profile)], [opened.recorded, manifest])
    return replace(page, comparison=replace(comparison, notes=[*doubts, *comparison.notes]), older=str(older))
