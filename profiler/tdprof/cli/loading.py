"""The capture that a subcommand reads: its argument, and the wait for it."""

from pathlib import Path

import click
from rich.console import Console

from tdprof.cli.record import DEFAULT_OUTPUT
from tdprof.errors import TdprofError
from tdprof.pipeline import load_profile
from tdprof.profile import Profile

capture_argument = click.argument(
    "capture", type=click.Path(path_type=Path), default=DEFAULT_OUTPUT, metavar=f"[CAPTURE={DEFAULT_OUTPUT}]"
)


def load_with_progress(capture: Path) -> Profile:
    """Load a capture; while that lasts a line on stderr says so, if it is a terminal."""
    with Console(stderr=True).status(f"reading and symbolizing {capture}", spinner="line"):
        return load_profile(capture)


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
