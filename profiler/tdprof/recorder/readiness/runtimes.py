"""Check of the language runtimes whose programs run: whether those were started so that their functions have names."""

import os
from collections import defaultdict
from functools import partial
from pathlib import Path

from tdprof.model.runtimes import Runtime, runtimes_of
from tdprof.recorder.host import read_text
from tdprof.recorder.patience import Patience
from tdprof.recorder.process_memory import ProcessMemory
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.recorder.runtime_options import SET_RUNTIMES
from tdprof.text import few, plural

_MOST_ARGUMENT_BYTES = 1 << 20
_MOST_SILENT = 4  # before no more are asked what they were started with
_MOST_PIDS = 4  # that are named of each runtime


def check_runtimes(machine: Machine) -> Check:
    """Which of them run, and which lack a flag, as far as this user may look."""
    proc = machine.path("proc")
    running: dict[Runtime, list[int]] = defaultdict(list)
    lacking: dict[Runtime, list[int]] = defaultdict(list)
    patience, silent = Patience(), 0
    with ProcessMemory(str(proc)) as memory:
        for pid in sorted(int(name) for name in _names(proc) if name.isdigit()):
            # A process's memory may be a file that never answers: then each of these waits.
            try:
                runtimes = patience.ask(pid, partial(_mapped, proc / str(pid) / "maps"))
                if runtimes and silent >= _MOST_SILENT:
                    raise TimeoutError
                given = memory.arguments(pid, _MOST_ARGUMENT_BYTES) if runtimes else b""
            except OSError:  # TimeoutError, or what reads its memory has ended
                silent += 1
                continue
            for runtime in runtimes:
                running[runtime].append(pid)
                if runtime.given and not runtime.given.search(given.decode(errors="replace")):
                    lacking[runtime].append(pid)
    found = few([f"{each.called} ({plural(len(pids), 'process', 'es')})" for each, pids in running.items()])
    nameless = [each.called for each in running if not each.to_write_a_map]
    unknown = f"; nothing names the functions of {' and '.join(nameless)} programs" * bool(nameless)
    unknown += f"; {plural(silent, 'process', 'es')} did not answer" if silent else ""
    if not lacking:
        said = f"running: {found}" if running else "no program of a known one runs"
        return Check("runtimes", CheckStatus.OK, said + unknown)
    without = [f"{each.called} ({_numbers(pids)}): {each.to_start_with}" for each, pids in lacking.items()]
    to_set = [each.called for each in lacking if each.called in SET_RUNTIMES]
    what = f" for {' and '.join(to_set)}" * (len(to_set) < len(lacking))
    return Check(
        "runtimes",
        CheckStatus.WARN,
        f"running: {found}{unknown}",
        f"started without what names functions or makes stacks whole: {'; '.join(without)}",
        f"tdprof record --perf-maps -- CMD sets it{what}" if to_set else "",
    )


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _mapped(maps: Path) -> list[Runtime]:
    paths = {line.split(maxsplit=5)[5] for line in read_text(maps).splitlines() if "/" in line and " r-xp " in line}
    return list(dict.fromkeys(runtime for path in sorted(paths) for runtime in runtimes_of(path)))


def _numbers(pids: list[int]) -> str:
    return ", ".join(map(str, pids[:_MOST_PIDS])) + (", …" if len(pids) > _MOST_PIDS else "")
