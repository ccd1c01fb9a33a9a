"""The arguments that name a capture, its symbols and some of its samples: the same in every command that reads one.

Nothing slow is loaded here: help, and what is typed wrong, are said at once.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tdprof.capture.files import MANIFEST_FILE
from tdprof.cli.option_groups import adding
from tdprof.cli.output import DEFAULT_OUTPUT
from tdprof.errors import TdprofError
from tdprof.model.choices import Selection, SymbolOptions
from tdprof.model.time_range import parse_time_ranges
from tdprof.text import printable
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest

# What may not be read is told when it is: click's words have no hint.
CAPTURE_PATH = click.Path(path_type=Path, readable=False)
capture_argument = click.argument(
    "capture", type=CAPTURE_PATH, default=DEFAULT_OUTPUT, metavar=f"[CAPTURE={DEFAULT_OUTPUT}]"
)


@dataclass(frozen=True, slots=True)
class Input:
    """What a user wants to have read: a capture with its manifest, or something that might be perf.data."""

    path: Path
    manifest: "Manifest | None"


def find_input(path: Path) -> Input:
    """Refuse what is neither a capture nor might be perf.data, before what reads either is loaded.

    Raises:
        TdprofError: there is no such capture.
    """
    if is_perf_data(path):
        return Input(path, None)
    from tdprof.capture.manifest import read_manifest

    return Input(path, read_manifest(path))


def is_perf_data(path: Path) -> bool:
    """A file, a pipe, standard input, or a directory that ``perf record --threads`` made."""
    return (
        str(path) == "-"
        or path.is_file()
        or path.is_fifo()
        or ((path / "data").is_file() and not (path / MANIFEST_FILE).exists())
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


_add_selection = adding(
    click.option(
        "--comm", "comms", multiple=True, metavar="NAME", help="Only samples of threads or processes of this name."
    ),
    click.option("--pid", "pids", multiple=True, type=click.IntRange(0), metavar="PID", help="Only of this process."),
    click.option("--tid", "tids", multiple=True, type=click.IntRange(0), metavar="TID", help="Only of this thread."),
    click.option(
        "--module",
        "modules",
        multiple=True,
        metavar="FILE",
        help="Only samples taken in this file's code: its name or path.",
    ),
    click.option(
        "--function",
        "functions",
        multiple=True,
        metavar="NAME",
        help="Only samples with this function in their call stack: name, part of it, or MODULE:NAME. Each of these may "
        "be repeated: any of the names given, but for --function, which all must be there.",
    ),
    click.option(
        "--where",
        "wheres",
        multiple=True,
        metavar="cgroup=NAME",
        help="Only samples taken in this control group or below it: its path, container id, pod uid or systemd unit.",
    ),
    click.option(
        "--time",
        "times",
        multiple=True,
        metavar="FROM-TO",
        help="Only samples of this time since the start: 10s-20s, 10s-, -20s; -5s- the last 5 s; 10:00:00-10:05:00 by "
        "the clock (UTC); 0%-10%, 10%/2 the second tenth.",
    ),
    click.option(
        "--native/--no-native",
        "has_native",
        default=True,
        help="--no-native: of Python, Java, Node and the like only their functions. What these call, native code and "
        "the kernel, counts as theirs; the interpreter's own functions are hidden. --native, the default, shows all.",
    ),
)


def selection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --comm, --pid, --tid, --module, --function, --where, --time, --native as ``selection``, a ``Selection``."""

    @functools.wraps(command)
    def wrapped(
        *args: Any,
        comms: tuple[str, ...],
        pids: tuple[int, ...],
        tids: tuple[int, ...],
        modules: tuple[str, ...],
        functions: tuple[str, ...],
        wheres: tuple[str, ...],
        times: tuple[str, ...],
        has_native: bool,
        **kwargs: Any,
    ) -> Any:
        ranges = tuple(each for text in times for each in parse_time_ranges(text))
        # Reports show names printable, so that is what they are compared with.
        kinds = (comms, modules, functions, _cgroups(wheres))
        comms, modules, functions, cgroups = (tuple(map(printable, names)) for names in kinds)
        selection = Selection(comms, pids, tids, modules, functions, cgroups, ranges, has_native)
        return command(*args, selection=selection, **kwargs)

    return _add_selection(wrapped)


def _cgroups(wheres: Sequence[str]) -> tuple[str, ...]:
    """The names of control groups in ``cgroup=NAME``."""
    for where in wheres:
        key, _, name = where.partition("=")
        if key != "cgroup" or not name:
            raise TdprofError(
                f"--where takes cgroup=NAME, not '{where}'", hint="--where cgroup=nginx.service", status=2
            )
    return tuple(where.partition("=")[2] for where in wheres)
