"""`tdprof annotate`: a function's source, or its instructions, beside what they took."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tdprof.cli.loading import find_event, load_with_findings, open_input, symbol_options
from tdprof.cli.output import DEFAULT_OUTPUT, print_rendered, refuse_two_forms, standard_output, waiting
from tdprof.errors import TdprofError
from tdprof.pipeline.annotate.source_files import SourceFiles, parse_source_map
from tdprof.pipeline.symbols import SymbolOptions
from tdprof.profile.choice import choose_function


@click.command("annotate")
@click.argument("words", nargs=-1, metavar=f"[CAPTURE={DEFAULT_OUTPUT}] FUNCTION")
@click.option("--asm", "has_code", is_flag=True, help="Show instructions, with the source lines they come from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with exact counts of every event.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values, a row for each line and event.")
@click.option("-e", "--event", metavar="EVENT", help="The event that leads (the first).")
@click.option(
    "--source-dir",
    "source_dirs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Look for source files below DIR first. May be repeated.",
)
@click.option(
    "--source-map",
    "source_maps",
    multiple=True,
    metavar="FROM=TO",
    help="Source paths that begin with FROM begin with TO here. May be repeated.",
)
@click.option("--no-pager", is_flag=True, help="Print to the terminal at once, not through PAGER (less).")
@symbol_options
def command(
    words: Sequence[str],
    has_code: bool,
    as_json: bool,
    as_csv: bool,
    event: str | None,
    source_dirs: Sequence[Path],
    source_maps: Sequence[str],
    no_pager: bool,
    symbols: SymbolOptions,
) -> None:
    """Print FUNCTION line by line, with the samples of each: name, part of a name, or MODULE:NAME.

    \b
    share    of the function's samples; of its own code, and of what was inlined there
    inlined  the part of a line's samples that is in functions inlined there
    cycles   mean latency of the operations that SPE sampled in the line, with their p99 and number

    \b
    tdprof annotate work                         source
    tdprof annotate old.capture work --asm       instructions
    tdprof annotate libc.so.6:memcpy --source-map /build/glibc=/src/glibc
    """
    capture, function = _capture_and_function(words)
    refuse_two_forms(as_json=as_json, as_csv=as_csv)
    sources = SourceFiles(source_dirs, [parse_source_map(text) for text in source_maps], symbols.symfs)
    with open_input(capture, symbols) as opened:
        profile, findings = load_with_findings(opened, capture)
        leading = find_event(profile, event)
        chosen = choose_function(profile, function, leading)

        # Only now: what is typed wrong is said at once.
        from tdprof.pipeline.annotate.function import annotate
        from tdprof.report.annotation.json import render_csv, render_json
        from tdprof.report.annotation.text import render_text

        with waiting(f"annotating {chosen.name}") as opened.progress:
            annotation = annotate(opened, profile, findings, chosen, sources, has_code=has_code, event=leading)
    if as_json or as_csv:
        with standard_output():
            sys.stdout.writelines([render_json(annotation)] if as_json else render_csv(annotation))
        return
    print_rendered(lambda console: render_text(annotation, console, event=leading), may_page=not no_pager)


def _capture_and_function(words: Sequence[str]) -> tuple[Path, str]:
    match words:
        case [function]:
            return Path(DEFAULT_OUTPUT), function
        case [capture, function]:
            return Path(capture), function
    raise TdprofError(
        "annotate takes one function, and the capture before it", hint="tdprof annotate [CAPTURE] FUNCTION", status=2
    )
