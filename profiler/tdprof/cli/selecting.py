"""The options that choose some of a capture's samples: the same in every command that shows a profile."""

import functools
from collections.abc import Callable
from typing import Any

import click

from tdprof.profile.selection import Selection


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --comm, --pid, --tid, --module and --function as the argument ``selection``, a ``Selection``."""

    @click.option(
        "--comm", "comms", multiple=True, metavar="NAME", help="Only samples of threads or processes of this name."
    )
    @click.option("--pid", "pids", multiple=True, type=click.IntRange(0), metavar="PID", help="Only of this process.")
    @click.option("--tid", "tids", multiple=True, type=click.IntRange(0), metavar="TID", help="Only of this thread.")
    @click.option(
        "--module",
        "modules",
        multiple=True,
        metavar="FILE",
        help="Only samples taken in this file's code: its name or path.",
    )
    @click.option(
        "--function",
        "functions",
        multiple=True,
        metavar="NAME",
        help="Only samples with this function in their call stack: name, part of it, or MODULE:NAME. Each of these may "
        "be repeated: any of the names given, but for --function, which all must be there.",
    )
    @functools.wraps(command)
    def wrapped(
        *args: Any,
        comms: tuple[str, ...],
        pids: tuple[int, ...],
        tids: tuple[int, ...],
        modules: tuple[str, ...],
        functions: tuple[str, ...],
        **kwargs: Any,
    ) -> Any:
        return command(*args, selection=Selection(comms, pids, tids, modules, functions), **kwargs)

    return wrapped
