"""`tdprof cache`: show and prune what is kept of debug data."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tdprof.cli.form import Output, output_options, print_plain
from tdprof.errors import TdprofError
from tdprof.model.events import Unit
from tdprof.text import plural

if TYPE_CHECKING:
    from tdprof.symbolize.cache import CacheEntry, SymbolCache

_COLUMNS = ("build_id", "size_bytes", "used_s")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text, re.IGNORECASE)
    if match is None:
        raise TdprofError(f"'{text}' is no size", hint="tdprof cache --prune 500M", status=2)
    return int(match[1]) * _UNITS[match[2].upper()]


def _shown(size_bytes: int) -> str:
    from tdprof.report.summary import format_value

    return format_value(size_bytes, Unit.BYTES)


@click.command("cache")
@click.option("--prune", "keep", metavar="SIZE", help="Remove what was used longest ago until SIZE is left (500M, 0).")
@output_options(json="Print one JSON object.", csv="Comma-separated values: a row for each entry.")
def command(keep: str | None, output: Output) -> None:
    """Show what tdprof keeps of the debug data that it has read, so that the next report is fast.

    \b
    tdprof cache                what is kept, and where
    tdprof cache --prune 500M   remove what was used longest ago
    tdprof cache --prune 0      remove all

    It never grows beyond 2 GiB, and removing it costs only time. Entries are checked before use, and read again when
    the debug data they come from changes.
    """
    kept_bytes = _size(keep) if keep is not None else None
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.report.csv_lines import write_rows
    from tdprof.symbolize.cache import SymbolCache

    cache = SymbolCache.default()
    removed = cache.prune(kept_bytes) if kept_bytes is not None else []
    entries = list(reversed(cache.entries()))
    print_plain(
        output.form,
        json=lambda: [_json(cache, entries, removed)],
        csv=lambda: write_rows(_COLUMNS, ([getattr(entry, name) for name in _COLUMNS] for entry in entries)),
        text=lambda: (f"{line}\n" for line in _lines(cache, entries, removed)),
    )


def _json(cache: "SymbolCache", entries: "Sequence[CacheEntry]", removed: "Sequence[CacheEntry]") -> str:
    listed = [{name: getattr(entry, name) for name in _COLUMNS} for entry in entries]
    content = {"folder": str(cache.folder), "limit_bytes": cache.limit_bytes, "entries": listed}
    return json.dumps(content | {"removed": [entry.build_id for entry in removed]}, indent=2) + "\n"


def _lines(cache: "SymbolCache", entries: "Sequence[CacheEntry]", removed: "Sequence[CacheEntry]") -> Iterator[str]:
    if removed:
        freed = sum(entry.size_bytes for entry in removed)
        yield f"removed {plural(len(removed), 'file', 's')}, {_shown(freed)}"
    if why := cache.refusal():
        yield f"not used: {why}"
    total = sum(entry.size_bytes for entry in entries)
    held = f"{_shown(total)} of at most {_shown(cache.limit_bytes)}"
    yield f"{cache.folder}: {plural(len(entries), 'file', 's')}, {held}"
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used_s))
        yield f"  {entry.build_id}  {_shown(entry.size_bytes):>10}  last used {used}"
