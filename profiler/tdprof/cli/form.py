"""How a result is printed: its form, its length, its pager; the options that say so, and what heeds them."""

import functools
import sys
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import click

from tdprof.cli.output import PIPE_COLUMNS, Render, print_rendered, standard_output
from tdprof.errors import TdprofError
from tdprof.values import dataclass

DEFAULT_LIMIT = 40  # rows of a table
# Blocks of several lines; the rest is in the table of --limit 0, or one by one in --function.
DEFAULT_TOPDOWN_LIMIT = 12

Command = Callable[..., Any]
Pieces = Callable[[], Iterable[str]]


class Form(Enum):
    """For people, or for programs."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Output:
    """What the user wants to see.

    Attributes:
        form: text, JSON or CSV.
        limit: the most rows, 0 for all; None where nothing was said.
        may_page: whether text may go through the user's pager.
    """

    form: Form
    limit: int | None = None
    may_page: bool = False

    def rows(self, usual: int = 0) -> int:
        """The most rows, 0 for all: what was asked for, else as many as usual."""
        return usual if self.limit is None else self.limit


def output_options(*, json: str, csv: str, limit: str = "", has_pager: bool = False) -> Callable[[Command], Command]:
    """Adds --json and --csv, and if wanted --limit and --no-pager, as the argument ``output``, an ``Output``.

    Args:
        json, csv, limit: the options' helps; without one for --limit there is no such option.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(
            *args: Any, as_json: bool, as_csv: bool, limit: int | None = None, no_pager: bool = True, **kwargs: Any
        ) -> Any:
            if as_json and as_csv:
                raise TdprofError("--json and --csv exclude each other", hint="give one of them", status=2)
            form = Form.JSON if as_json else Form.CSV if as_csv else Form.TEXT
            return command(*args, output=Output(form, limit, may_page=not no_pager), **kwargs)

        options = [
            click.option("--json", "as_json", is_flag=True, help=json),
            click.option("--csv", "as_csv", is_flag=True, help=csv),
        ]
        if limit:
            options.append(click.option("--limit", type=click.IntRange(0), metavar="N", help=limit))
        if has_pager:
            help_text = "Print to the terminal at once, not through PAGER (less)."
            options.append(click.option("--no-pager", is_flag=True, help=help_text))
        return functools.reduce(lambda done, option: option(done), reversed(options), wrapped)

    return decorate


def print_plain(form: Form, *, json: Pieces, csv: Pieces, text: Pieces) -> None:
    """Print a result whose text is the same at any width; each form is made only where it is wanted."""
    with standard_output():
        sys.stdout.writelines({Form.JSON: json, Form.CSV: csv, Form.TEXT: text}[form]())


def print_result(output: Output, *, json: Pieces, csv: Pieces, text: Render, pipe_columns: int = PIPE_COLUMNS) -> None:
    """Print a result whose text is made for the width and colours of a terminal.

    Args:
        pipe_columns: the width where there is neither a terminal nor ``COLUMNS``.
    """
    if output.form is Form.TEXT:
        print_rendered(text, may_page=output.may_page, pipe_columns=pipe_columns)
    else:
        print_plain(output.form, json=json, csv=csv, text=tuple)
