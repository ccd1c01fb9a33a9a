"""`tdprof fleet`: the group of subcommands that take a store; each one's module is loaded when it is asked for."""

import functools
import importlib
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tdprof.capture.files import STORE_MARKER
from tdprof.cli.usage import SuggestingGroup
from tdprof.errors import GoneError

if TYPE_CHECKING:
    from tdprof.fleet.selection import Chosen

_Answer = TypeVar("_Answer")
_MOST_QUESTIONS = 8

# subcommand: (module in tdprof.cli that defines a click command named `command`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "add": ("fleet_add", "roll captures up into a store"),
    "compact": ("fleet_compact", "put a store's days together, so that long times are read in a moment"),
    "report": ("fleet_report", "functions with 95 % intervals over hosts, by kind of core"),
    "diff": ("fleet_diff", "what differs between two parts of a fleet, and whether a release should fail"),
    "hosts": ("fleet_hosts", "hosts that differ from the hosts like them"),
    "spe": ("fleet_spe", "latencies of operations that SPE sampled, with 95 % intervals over hosts"),
    "plan": ("fleet_plan", "how many hosts and samples it takes, from simulated fleets"),
    "check": ("fleet_check", "what a store has, and what is missing, set aside or old"),
}

store_argument = click.argument("store", metavar="STORE")


class _LazyFleet(SuggestingGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"tdprof.cli.{COMMANDS[cmd_name][0]}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group("fleet", cls=_LazyFleet)
def command() -> None:
    """Put captures of many hosts together, and say what holds for all of them.

    \b
    tdprof fleet add prod captures/      roll up all captures of a folder into the store prod
    tdprof fleet report prod             functions, each with an interval over hosts
    tdprof export prod --to html -o fleet.html   the fleet's flame graph

    STORE is a folder, or a place in an object store: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX.
    """


def is_store(place: Path) -> bool:
    """Whether a command's argument is a store, and not a capture."""
    return "://" in store_place(place) or (place / STORE_MARKER).is_file()


def store_place(place: Path) -> str:
    """A store's place from a command's argument; of a URI, what a path makes of it is undone."""
    return re.sub(r"^(s3|gs|gcs|abfss?):/+", r"\1://", str(place))


def recordings_options(decorated: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --since, --until and --recordings, for a command that has a --where of its own, as ``chosen``."""
    return _chosen_options("--recordings", "Of a store: only", decorated)


def chosen_options(decorated: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --since, --until and --where as the argument ``chosen``, which makes a ``Chosen`` when it is called."""
    return _chosen_options("--where", "Only", decorated)


def _chosen_options(where: str, only: str, decorated: Callable[..., Any]) -> Callable[..., Any]:

    @click.option("--since", metavar="TIME", help=f"{only} recordings from then on: 7d, 36h, 2026-11-22.")
    @click.option("--until", metavar="TIME", help=f"{only} recordings before then.")
    @click.option(
        where,
        "conditions",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"{only} recordings with this host, core, kernel, build (build-id) or label. May be repeated.",
    )
    @functools.wraps(decorated)
    def wrapped(*args: Any, since: str | None, until: str | None, conditions: tuple[str, ...], **kwargs: Any) -> Any:
        chosen = functools.partial(_chosen, since, until, conditions)
        return asked_again(lambda: decorated(*args, chosen=chosen, **kwargs))

    return wrapped


def asked_again(ask: Callable[[], _Answer]) -> _Answer:
    """What a question to a store answers; asked again where a file is gone that was listed, as when days are put
    together meanwhile, but not where the same one is missing again."""
    missing = ""
    for _ in range(_MOST_QUESTIONS):
        try:
            return ask()
        except GoneError as error:
            if error.message == missing:
                raise
            missing = error.message
    return ask()


def _chosen(since: str | None, until: str | None, wheres: Sequence[str]) -> "Chosen":
    # Only now: help is said without loading Arrow.
    from tdprof.fleet.selection import Chosen, parse_time, parse_where

    now = datetime.now(UTC)
    return Chosen(
        None if since is None else parse_time(since, now),
        None if until is None else parse_time(until, now),
        [parse_where(text) for text in wheres],
    )
