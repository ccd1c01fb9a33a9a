"""The capture that a subcommand reads: its argument, and the wait for it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tdprof.cli.record import DEFAULT_OUTPUT
from tdprof.errors import TdprofError
from tdprof.pipeline import SymbolOptions, load_profile
from tdprof.profile import Profile

capture_argument = click.argument(
    "capture", type=click.Path(path_type=Path), default=DEFAULT_OUTPUT, metavar=f"[CAPTURE={DEFAULT_OUTPUT}]"
)


def symbol_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say where symbols come from, as the argument ``symbols``, a ``SymbolOptions``."""

    @click.option(
        "--symfs",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Look for the recorded machine's files below DIR, and nowhere else.",
    )
    @click.option(
        "--debug-dir",
        "debug_dirs",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        multiple=True,
        metavar="DIR",
        help="Look here for debug data before /usr/lib/debug. May be repeated.",
    )
    @click.option("--no-symbol-cache", is_flag=True, help="Neither use nor fill the cache of symbols (tdprof cache).")
    @functools.wraps(command)
    def wrapped(
        *args: Any, symfs: Path | None, debug_dirs: tuple[Path, ...], no_symbol_cache: bool, **kwargs: Any
    ) -> Any:
        options = SymbolOptions(symfs, debug_dirs, use_cache=not no_symbol_cache)
        return command(*args, symbols=options, **kwargs)

    return wrapped


def load_with_progress(capture: Path, symbols: SymbolOptions) -> Profile:
    """Load a capture; while that lasts a line on stderr says so, if it is a terminal."""
    with Console(stderr=True).status(f"reading {capture}", spinner="line") as status:
        return load_profile(capture, symbols, status.update)


def find_event(profile: Profile, name: str | None) -> int:
    """The index of an event by its name; the first without one.

    Raises:
        TdprofError: the capture has no such event.
    """
    names = [event.name for event in profile.events]
    if name is None:
        return 0
    if name not in names:
        raise TdprofError(f"the capture has no event '{name}'", hint=f"one of: {', '.join(names)}", status=2)
    return names.index(name)
