"""`tdprof cache`: show and prune what is kept of debug data."""

import json
import re
import sys
import time

import click

from tdprof.cli.output import refuse_two_forms, standard_output
from tdprof.errors import TdprofError
from tdprof.model.events import Unit
from tdprof.report.profile.csv import write_rows
from tdprof.report.summary import format_value
from tdprof.symbolize import SymbolCache
from tdprof.text import plural

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)i?B?", text, re.IGNORECASE)
    if match is None:
        raise TdprofError(f"'{text}' is no size", hint="tdprof cache --prune 500M", status=2)
    return int(match[1]) * _UNITS[match[2].upper()]


def _shown(size_bytes: int) -> str:
    return format_value(size_bytes, Unit.BYTES)


@click.command("cache")
@click.option("--prune", "keep", metavar="SIZE", help="Remove what was used longest ago until SIZE is left (500M, 0).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values: a row for each entry.")
def command(keep: str | None, as_json: bool, as_csv: bool) -> None:
    """Show what tdprof keeps of the debug data that it has read, so that the next report is fast.

    \b
    tdprof cache                what is kept, and where
    tdprof cache --prune 500M   remove what was used longest ago
    tdprof cache --prune 0      remove all

    It never grows beyond 2 GiB, and removing it costs only time. Entries are checked before use, and read again when
    the debug data they come from changes.
    """
    refuse_two_forms(as_json=as_json, as_csv=as_csv)
    cache = SymbolCache.default()
    removed = cache.prune(_size(keep)) if keep is not None else []
    entries = cache.entries()
    total = sum(entry.size_bytes for entry in entries)
    with standard_output():
        if as_json:
            listed = [
                {"build_id": entry.build_id, "size_bytes": entry.size_bytes, "used_s": entry.used_s}
                for entry in reversed(entries)
            ]
            content = {"folder": str(cache.folder), "limit_bytes": cache.limit_bytes, "entries": listed}
            print(json.dumps(content | {"removed": [entry.build_id for entry in removed]}, indent=2))
            return
        if as_csv:
            rows = ([entry.build_id, entry.size_bytes, entry.used_s] for entry in reversed(entries))
            sys.stdout.writelines(write_rows(["build_id", "size_bytes", "used_s"], rows))
            return
        if removed:
            freed = sum(entry.size_bytes for entry in removed)
            print(f"removed {plural(len(removed), 'file', 's')}, {_shown(freed)}")
        held = f"{_shown(total)} of at most {_shown(cache.limit_bytes)}"
        if why := cache.refusal():
            print(f"not used: {why}")
        print(f"{cache.folder}: {plural(len(entries), 'file', 's')}, {held}")
        for entry in reversed(entries):
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used_s))
            print(f"  {entry.build_id}  {_shown(entry.size_bytes):>10}  last used {used}")
