"""`tdprof fleet add`: captures into a store."""

import functools
import importlib.util
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tdprof.cli.capture_options import symbol_options
from tdprof.cli.fleet import store_argument
from tdprof.cli.form import Output, output_options, print_plain
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import SymbolOptions
from tdprof.text import plural, printable

if TYPE_CHECKING:
    from tdprof.fleet.add import Added
    from tdprof.fleet.engine import Engine
    from tdprof.fleet.work import WorkOptions

LOCAL = "local"
_FEW_CAPTURES = 16  # starting processes takes longer than reading so many
_FEW_NAMES = 0.8  # of the samples: with a smaller part in functions with names, it is said where names come from


@click.command("add")
@store_argument
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE…")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Kept with each recording, for --where. May be repeated.",
)
@click.option("--again", is_flag=True, help="Roll up again what is there already, for instance with more symbols.")
@click.option(
    "--engine",
    default=LOCAL,
    metavar="ENGINE",
    help="What reads captures: local, or a Dask scheduler, tls://HOST:PORT or tcp://HOST:PORT, whose workers see the "
    "captures and the store under the same names (local).",
)
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Processes of --engine local (a CPU each).")
@click.option("--insecure", is_flag=True, help="Speak to a scheduler on another machine without TLS.")
@output_options(
    json="Print one JSON object.",
    csv="Print comma-separated values: a row for each capture set aside, or a part of it.",
)
@symbol_options
def command(
    store: str,
    captures: Sequence[str],
    labels: Sequence[str],
    again: bool,
    engine: str,
    workers: int | None,
    insecure: bool,
    output: Output,
    symbols: SymbolOptions,
) -> int:
    """Roll captures up into a store, which is made if it is not there.

    \b
    tdprof fleet add prod captures/                    all captures in a folder
    tdprof fleet add prod web1.capture --label service=web --label version=1.2
    tdprof fleet add s3://bucket/prod /var/lib/tdprof  into an object store
    tdprof fleet add prod s3://bucket/captures         from one
    tdprof fleet add /shared/prod /shared/captures --engine tls://scheduler:8786   by the workers of a cluster

    What is added is added up by function and call path; the captures stay where they are. A recording counts once,
    however often it is added. A capture that cannot be read is set aside and named; the others go on. Where only SPE's
    records cannot be read, the rest is added, and that is said. No file is opened
    because a capture names its path: symbols come from the capture (tdprof archive puts them there), from --debug-dir
    and debuginfod by build-id, or with --symfs from a folder with the hosts' files (--symfs / for those of this one).

    The exit status is 0 if any capture given is in the store.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.add import add_captures
    from tdprof.fleet.sources import find_captures
    from tdprof.fleet.store import Store
    from tdprof.report.csv_lines import write_rows

    keep_process_small()
    options = _work_options(store, labels, symbols)
    sources = find_captures(captures)
    opened = Store.create(options.store)
    with waiting(f"adding {plural(len(sources), 'capture', 's')}") as progress:
        added = add_captures(
            opened,
            sources,
            options,
            functools.partial(engine_for, engine, workers, insecure=insecure),
            again=again,
            progress=lambda done: progress(f"adding captures: {done} of {len(sources)}"),
        )
    print_plain(
        output.form,
        json=lambda: [_json(store, added)],
        csv=lambda: write_rows(("source", "what", "reason"), _rows(added)),
        text=lambda: _text(store, added, sources),
    )
    return 0 if added.added or added.known else 1


def engine_for(engine: str, workers: int | None, captures: int, *, insecure: bool) -> "Engine":
    """What reads so many captures. Dask is loaded only where there are enough of them, and where it is installed.

    Raises:
        TdprofError: there is no such engine, or it is not installed.
    """
    from tdprof.fleet.engine import InProcessEngine

    wanted = workers or len(os.sched_getaffinity(0))
    is_cluster = engine != LOCAL
    if not is_cluster and (wanted == 1 or (captures < _FEW_CAPTURES and workers is None)):
        return InProcessEngine()
    if is_cluster and not engine.startswith(("tls://", "tcp://")):
        raise TdprofError(f"no engine '{engine}'", hint="--engine local, tls://HOST:PORT or tcp://HOST:PORT", status=2)
    if importlib.util.find_spec("distributed") is None:
        if not is_cluster and workers is None:
            say("tdprof: one process reads them all; more need Dask: pip install 'tdprof[fleet]'")
            return InProcessEngine()
        raise TdprofError("Dask is not installed", hint="pip install 'tdprof[fleet]'")
    from tdprof.fleet.cluster import DaskEngine

    return DaskEngine("" if not is_cluster else engine, wanted, insecure=insecure)


def _work_options(store: str, labels: Sequence[str], symbols: SymbolOptions) -> "WorkOptions":
    """What each worker is told, which may run elsewhere: every path is whole."""
    from tdprof.fleet.selection import parse_label
    from tdprof.fleet.work import WorkOptions

    return WorkOptions(
        _absolute(store),
        [parse_label(text) for text in labels],
        "" if symbols.symfs is None else str(symbols.symfs.absolute()),
        [str(folder.absolute()) for folder in symbols.debug_dirs],
        use_cache=symbols.use_cache,
    )


def _absolute(store: str) -> str:
    """The store's place, the same from any working folder."""
    if not store:
        raise TdprofError("a store without a name", hint="tdprof fleet add prod CAPTURE…", status=2)
    return store if "://" in store else str(Path(store).absolute())


def _json(store: str, added: "Added") -> str:
    told = {
        "store": printable(store),
        "added": added.added,
        "known": added.known,
        "samples": added.samples,
        "known_samples": added.known_samples,
        "rejected": [each.told for each in added.rejected],
        "without_spe": [each.told for each in added.no_spe],
        "damaged": [each.told for each in added.damaged],
    }
    return json.dumps(told, indent=1) + "\n"


def _rows(added: "Added") -> Iterator[tuple[str, str, str]]:
    for left_out, what in (
        (added.rejected, "capture"),
        (added.no_spe, "SPE data"),
        (added.damaged, "damaged part"),
    ):
        for source, reason in (each.shown for each in left_out):
            yield source, what, reason


def _text(store: str, added: "Added", sources: Sequence[str]) -> Iterator[str]:
    there = f", {added.known:,} already there" if added.known else ""
    yield f"{plural(added.added, 'capture', 's')} added to {printable(store)}{there}\n"
    for left_out, what in (
        (added.rejected, "set aside"),
        (added.no_spe, "added without SPE data"),
        (added.damaged, "damaged, and added without what cannot be read"),
    ):
        if left_out:
            yield f"{len(left_out)} of {plural(len(sources), 'capture', 's')} {what}:\n"
        for source, reason in (each.shown for each in left_out):
            yield f"  {source}: {reason}\n"
    if added.samples and added.known_samples < _FEW_NAMES * added.samples:
        share = added.known_samples / added.samples
        yield f"only {share:.0%} of the samples are in functions with names: tdprof archive CAPTURE on its host, then\n"
        place = shlex.quote(printable(store))
        yield f"  tdprof fleet add --again {place} CAPTURE…; or with --symfs / if these are its files\n"
