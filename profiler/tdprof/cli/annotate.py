"""`tdprof annotate`: a function's source, or its instructions, beside what they took."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tdprof.capture.files import MANIFEST_FILE
from tdprof.cli.capture_options import find_input, selection_options, symbol_options
from tdprof.cli.form import Output, output_options, print_result
from tdprof.cli.output import DEFAULT_OUTPUT, waiting
from tdprof.errors import TdprofError
from tdprof.model.choices import Selection, SymbolOptions
from tdprof.text import printable

if TYPE_CHECKING:
    from tdprof.model.annotation import Annotation


@click.command("annotate")
@click.argument("words", nargs=-1, metavar=f"[CAPTURE={DEFAULT_OUTPUT}] FUNCTION")
@click.option("--asm", "has_code", is_flag=True, help="Show instructions, with the source lines they come from.")
@output_options(
    json="Print one JSON object, with exact counts of every event.",
    csv="Print comma-separated values, a row for each line and event.",
    has_pager=True,
)
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
@selection_options
@symbol_options
def command(
    words: Sequence[str],
    has_code: bool,
    event: str | None,
    source_dirs: Sequence[Path],
    source_maps: Sequence[str],
    output: Output,
    selection: Selection,
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
    source = find_input(capture)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.loading import find_event, load_with_findings, open_input, say_losses
    from tdprof.pipeline.annotate.source_files import SourceFiles, parse_source_map
    from tdprof.profile.choice import choose_function

    sources = SourceFiles(source_dirs, [parse_source_map(text) for text in source_maps], symbols.symfs)
    with open_input(source, symbols) as opened:
        profile, findings = load_with_findings(opened, capture, selection=selection)
        say_losses(profile.losses, profile.unreadable)
        leading = find_event(profile, event)
        chosen = choose_function(profile, function, leading)

        # Only now: what is typed wrong is said at once.
        from tdprof.pipeline.annotate.function import annotate

        with waiting(f"annotating {chosen.name}") as opened.progress:
            annotation = annotate(
                opened,
                profile,
                findings,
                chosen,
                sources,
                has_code=has_code,
                has_spe=not selection.words and selection.has_native,
                event=leading,
            )
    if selection.words:
        # Shares are of the samples that the newest note tells of.
        annotation = replace(annotation, notes=[profile.notes[0], *annotation.notes])
    _print(annotation, leading, output)


def _print(annotation: "Annotation", event: int, output: Output) -> None:
    from tdprof.report.annotation.csv import render_csv
    from tdprof.report.annotation.json import render_json
    from tdprof.report.annotation.text import render_text

    print_result(
        output,
        json=lambda: [render_json(annotation)],
        csv=lambda: render_csv(annotation),
        text=lambda console: render_text(annotation, console, event=event),
    )


def _capture_and_function(words: Sequence[str]) -> tuple[Path, str]:
    match words:
        case [function] if not (Path(function) / MANIFEST_FILE).is_file():
            return Path(DEFAULT_OUTPUT), function
        case [function, capture] if not Path(function).exists() and Path(capture).exists():
            raise TdprofError(
                f"the capture comes before the function, and there is nothing named {printable(function)}",
                hint=f"tdprof annotate {shlex.quote(printable(capture))} {shlex.quote(printable(function))}",
                status=2,
            )
        case [capture, function]:
            return Path(capture), function
    raise TdprofError(
        "annotate takes one function, and the capture before it", hint="tdprof annotate [CAPTURE] FUNCTION", status=2
    )
