"""Where a subcommand's result goes: standard output or a file, with failures that name their cause."""

import contextlib
import io
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tdprof.errors import TdprofError
from tdprof.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Render = Callable[["Console"], str | Iterator[str]]

DEFAULT_OUTPUT = "tdprof.capture"
CAPTURE_HELP = (
    f"The capture to make; nothing may be there yet. Default: {DEFAULT_OUTPUT}, where an older one becomes "
    f"{DEFAULT_OUTPUT}.old."
)
# Wide enough for any name: whoever reads a pipe cuts lines as it likes.
PIPE_COLUMNS = 100_000
_BAR_AFTER_S = 2.0


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Print within: what the terminal's encoding lacks becomes "?", and nothing stays in a buffer.

    When the reader has gone (head, less) it has what it wanted: the process ends quietly, with SIGPIPE's status.

    Raises:
        TdprofError: it cannot be written, for instance because the disk is full.
    """
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # which writes out what was printed before
        yield
        sys.stdout.flush()
    except OSError as error:
        # What is left in the buffer would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(128 + signal.SIGPIPE)  # click would make it a 1
        raise TdprofError(f"cannot write the output: {error.strerror}") from error


def print_rendered(render: Render, *, may_page: bool, pipe_columns: int = PIPE_COLUMNS) -> None:
    """Print a text for people, made for the terminal's width and colours: through the user's pager, as git does.

    Args:
        render: makes the text for a console, whole or in pieces.
        may_page: whether the user lets a pager be used.
        pipe_columns: the width where there is neither a terminal nor ``COLUMNS``.
    """
    from rich.console import Console  # slow to load

    fits_width = sys.stdout.isatty() or "COLUMNS" in os.environ
    with standard_output():  # a console flushes the stream whose width and colours it asks for
        text = render(Console(width=None if fits_width else pipe_columns))
    print_paged(text, may_page=may_page)


def print_paged(text: str | Iterator[str], *, may_page: bool) -> None:
    """Print a text, whole or in pieces: on a terminal through the pager, else as it is.

    ``PAGER`` names the pager, ``less`` without it; an empty one or ``cat`` is none. ``less`` keeps colours, and does
    not stay where one screen holds all, unless ``LESS`` says otherwise.
    """
    pager = os.environ.get("PAGER", "less") if may_page and sys.stdout.isatty() else ""
    words = shlex.split(pager)
    is_paged = bool(words) and words[0] != "cat"
    if is_paged:
        # Only now: every command loads this module, and few need more of it than the rest.
        import shutil

        is_paged = shutil.which(words[0]) is not None
    pieces = (text,) if isinstance(text, str) else text
    if not is_paged:
        with standard_output():
            sys.stdout.writelines(pieces)
        return
    import subprocess

    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    with subprocess.Popen(words, stdin=subprocess.PIPE, env=environment, text=True, errors="replace") as process:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's as long as it runs
        try:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):  # a pager that is left early has shown what was wanted
                process.stdin.writelines(pieces)
            process.communicate()
        finally:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def waiting(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Say on a terminal what is being waited for, while that lasts; yields what changes the words.

    Args:
        text: the first words.
        quiet: say nothing.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console  # slow to load
    from rich.text import Text

    def shown(words: str) -> Text:  # not a str, in which rich looks for markup: files' names may be anything
        return Text(printable(words))

    with Console(stderr=True).status(shown(text), spinner="line") as status:
        yield lambda words: status.update(shown(words))


@contextlib.contextmanager
def progress_bar(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal how far something is, once it takes long; yields what is told the bytes done, and in all.

    Args:
        text: what is done.
        quiet: show nothing.
    """
    began, is_shown = time.monotonic(), not quiet and sys.stderr.isatty()
    with contextlib.ExitStack() as stack:
        bar: Progress | None = None

        def show(done: int, total: int) -> None:
            nonlocal bar
            if is_shown and bar is None and time.monotonic() - began > _BAR_AFTER_S:
                bar = stack.enter_context(_open_bar(text))
            if bar is not None:
                bar.update(bar.task_ids[0], completed=done, total=total)

        yield show


def _open_bar(text: str) -> "Progress":
    from rich.console import Console  # slow to load
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bar = Progress(text, *columns, console=Console(stderr=True), transient=True)
    bar.add_task(text)
    return bar


@contextlib.contextmanager
def result_file(path: Path) -> Iterator[BinaryIO]:
    """``replaced_file``, whose failures name the file.

    Raises:
        TdprofError: the file cannot be written; what was there before stays.
    """
    from tdprof.linux.output_file import replaced_file

    try:
        with replaced_file(path) as file:
            yield file
    except OSError as error:
        raise TdprofError(f"cannot write {path}: {error.strerror}", hint="another file with -o") from error
