# SPDX-License-Identifier: Apache-2.0
"""Damages a capture or perf.data in many ways, reads each with every command, and shows what goes wrong.

Wrong is a traceback, a control character on a terminal, or a command that takes longer than --limit. Repeatable by
its seed. With the environment of the tests: .venv/bin/python tools/fuzz/mutate_captures.py -n 1000 [CAPTURE|PERF.DATA]
"""

import own_python  # noqa: F401  # isort: skip
import argparse
import copy
import json
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from builders.spe_capture import write_spe_capture  # noqa: E402
from tdprof.cli.main import cli  # noqa: E402
from tdprof.errors import TdprofError  # noqa: E402

READERS = [
    "report {}", "report {} --json", "report {} --spe", "report {} --branches", "report {} --by cgroup",
    "report {} --by state", "report {} --by thread", "report {} --by waker", "report {} --by phase", "report {} --tree",
    "report {} --time 10%-60%", "report {} --by second --json", "fleet add {out} {}",
    "annotate {} main", "diff {} {good}", "archive {}", "spe report {}", "spe decode {} -o {out}",
    "export {} --to html -o {out}", "export {} --to pprof -o {out}", "export {} --to folded -o {out}",
]  # fmt: skip
PERF_READERS = ["report {}", "report {} --branches", "report {} --spe", "export {} --to html -o {out}", "spe dump {}"]
ODD_NUMBERS = [None, True, 0, -1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1e308, float("nan"), 0.5]
ODD = [*ODD_NUMBERS, "", "\x1b[31m", "\ud800", "../..", "a" * 5000, [], {}, [[]], [None], {"a": 1}]
ODD_BYTES = [b"\xff" * 8, b"\0" * 7 + b"\x80", b"\xff" * 7 + b"\x7f", b"\xff" * 4, b"\0\0\0\x80", b"\x1b[31"]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values of a JSON document but the whole."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


def damage_manifest(chance: random.Random, capture: Path) -> None:
    """One value becomes an odd one, or is gone."""
    manifest = json.loads((capture / "capture.json").read_text())
    *path, last = chance.choice(list(places(manifest)))
    holder = manifest
    for key in path:
        holder = holder[key]
    if chance.random() < 0.15:
        del holder[last]
    else:
        holder[last] = copy.deepcopy(chance.choice(ODD))
    (capture / "capture.json").write_text(json.dumps(manifest))


def damage_table(chance: random.Random, capture: Path) -> None:
    """A column is gone, null, of another type or of extreme numbers; or rows are gone or doubled."""
    path = chance.choice(sorted(capture.glob("*.parquet")) or [capture])
    if path == capture:  # an interrupted recording's
        damage_bytes(chance, capture / "spool")
        return
    table = pq.read_table(path)
    column = chance.randrange(table.num_columns)
    field, rows = table.schema.field(column), len(table)
    number = pa.types.is_integer(field.type)
    extreme = [0, 2 ** (field.type.bit_width - 1) - 1] if number else ["", "\x1b[31mX\n", "../../etc/passwd", "[vdso]"]
    kind = chance.choice(["drop", "null", "type", "empty", "twice", "value"])
    if kind == "drop":
        table = table.drop_columns([field.name])
    elif kind == "null":
        table = table.set_column(column, pa.field(field.name, field.type), pa.nulls(rows, field.type))
    elif kind == "type":
        table = table.set_column(column, field.name, pa.array(["x"] * rows if number else [1] * rows))
    elif kind == "empty":
        table = table.slice(0, 0)
    elif kind == "twice":
        table = pa.concat_tables([table] * 2)
    elif number or pa.types.is_string(field.type):
        table = table.set_column(column, field, pa.array([chance.choice(extreme) for _ in range(rows)], field.type))
    pq.write_table(table, path)


def damage_bytes(chance: random.Random, path: Path) -> None:
    """Flip bits, put odd numbers in, or cut off, in a file or one of a folder."""
    if path.is_dir():
        path = chance.choice(sorted(file for file in path.rglob("*") if file.is_file()))
    data = bytearray(path.read_bytes()) or bytearray(1)
    for _ in range(chance.choice([1, 1, 3, 20])):
        at = chance.choice([chance.randrange(len(data)), chance.randrange(min(len(data), 400))])
        odd = chance.choice(ODD_BYTES)
        if chance.random() < 0.5:
            data[at] ^= 1 << chance.randrange(8)
        elif at + len(odd) <= len(data):
            data[at : at + len(odd)] = odd
    path.write_bytes(data[: chance.randrange(len(data))] if chance.random() < 0.1 else data)


def wrong_with(arguments: list[str], limit_s: int) -> str:
    """What a command does that none may do, or an empty text."""
    signal.alarm(limit_s)
    try:
        result = CliRunner().invoke(cli, arguments)
    except TimeoutError:
        return "too long"
    finally:
        signal.alarm(0)
    error = result.exception
    if isinstance(error, TimeoutError):
        return "too long"
    if error is not None and not isinstance(error, SystemExit | TdprofError | click.ClickException):
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
    controls = {text for text in result.output if not text.isprintable() and text not in "\n\t\r"}
    # `spe dump` and folded stacks write bytes and blanks of their own, never these.
    return f"control characters {sorted(controls & set(map(chr, range(32))))}" if controls & {"\x1b", "\x07"} else ""


def main() -> int:
    """Exit status: 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=200, help="how many damaged inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=30, help="seconds for one command")
    parser.add_argument("input", nargs="?", type=Path, help="a capture or perf.data instead of one made here")
    given = parser.parse_args()

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    chance, seen = random.Random(given.seed), set[str]()
    with tempfile.TemporaryDirectory(prefix="tdprof-fuzz-") as name:
        folder = Path(name)
        good = given.input or write_spe_capture(folder / "good")
        bad, out = folder / "bad", folder / "out"
        for number in range(given.n):
            shutil.rmtree(bad, ignore_errors=True)
            shutil.rmtree(out, ignore_errors=True)
            if good.is_dir():
                shutil.copytree(good, bad)
                chance.choice([damage_manifest, damage_table, damage_bytes])(chance, bad)
            else:
                shutil.copyfile(good, bad)
                damage_bytes(chance, bad)
            for reader in chance.sample(READERS if good.is_dir() else PERF_READERS, 3):
                arguments = reader.format(bad, good=good, out=out).split()
                wrong = wrong_with(arguments, given.limit)
                if wrong and wrong not in seen:
                    seen.add(wrong)
                    print(f"input {number}, {reader}: {wrong}")
    print(f"{given.n} inputs, seed {given.seed}: {len(seen)} kinds of failure")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
