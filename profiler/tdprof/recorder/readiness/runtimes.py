"""Check of the language runtimes whose programs run: whether those were started so that their functions have names."""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tdprof.model.runtimes import Runtime, runtimes_of
from tdprof.recorder.host import read_text
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.text import few, plural

_MOST_PIDS = 4  # that are named of each runtime


def check_runtimes(machine: Machine) -> Check:
    """Which of them run, and which lack a flag, as far as this user may look."""
    proc = machine.path("proc")
    running: dict[Runtime, list[int]] = defaultdict(list)
    lacking: dict[Runtime, list[int]] = defaultdict(list)
    for pid in sorted(int(name) for name in _names(proc) if name.isdigit()):
        given = "".join(read_text(proc / str(pid) / name) for name in ("cmdline", "environ"))
        for runtime in _mapped(proc / str(pid) / "maps"):
            running[runtime].append(pid)
            if runtime.given and not runtime.given.search(given):
                lacking[runtime].append(pid)
    found = few([f"{each.language} ({plural(len(pids), 'process', 'es')})" for each, pids in running.items()])
    if not lacking:
        return Check("runtimes", CheckStatus.OK, f"running: {found}" if running else "no program of a known one runs")
    without = [f"{each.language} ({_numbers(pids)}): {each.to_start_with}" for each, pids in lacking.items()]
    return Check(
        "runtimes",
        CheckStatus.WARN,
        f"running: {found}",
        f"started without what names functions or makes stacks whole: {'; '.join(without)}",
        "tdprof record --perf-maps -- CMD sets it",
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _mapped(maps: Path) -> Iterator[Runtime]:
    paths = {line.split(maxsplit=5)[5] for line in read_text(maps).splitlines() if "/" in line and " r-xp " in line}
    yield from dict.fromkeys(runtime for path in sorted(paths) for runtime in runtimes_of(path))


def _numbers(pids: list[int]) -> str:
    return ", ".join(map(str, pids[:_MOST_PIDS])) + (", …" if len(pids) > _MOST_PIDS else "")
