"""What it costs to read a file: run in a process of its own with limits, so that no failure hurts the machine."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
_MEMORY_GUARD_BYTES = 3 << 30  # of address space; beyond that a case has failed anyway
_TESTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a command took: processor time of it and its children, and the largest resident size of any of them."""

    seconds: float
    peak_bytes: int
    status: int
    output: str
    errors: str


def allowed_seconds(size_bytes: int) -> float:
    """Processor time that reading ``size_bytes`` may take."""
    return 2 + 10 * size_bytes / MB


def allowed_bytes(size_bytes: int) -> int:
    """Memory that reading ``size_bytes`` may take."""
    return 300 * MB + 50 * size_bytes


def is_affordable(cost: Cost, size_bytes: int) -> bool:
    """Whether a file was read, perhaps found to be damaged, or refused in a line, for what it may cost."""
    is_told = cost.errors.startswith("tdprof: ") or bool(cost.output and not cost.errors)
    ended = cost.status == 0 or (cost.status in (1, 2) and is_told)
    return ended and cost.seconds <= allowed_seconds(size_bytes) and cost.peak_bytes <= allowed_bytes(size_bytes)


# A process counts the memory of the one that it was forked from as its own, so a small one stands between.
_LAUNCHER = """
import os, resource, sys
seconds, memory, report = map(int, sys.argv[1:4])
child = os.fork()
if not child:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execv(sys.argv[4], sys.argv[4:])
_, status, usage = os.wait4(child, 0)
line = f"{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss * 1024} {os.waitstatus_to_exitcode(status)}"
os.write(report, line.encode())
"""


def measure(command: Sequence[str], size_bytes: int) -> Cost:
    """Run a command that reads ``size_bytes``, stopped soon after it has used up its time or its memory."""
    seconds = int(allowed_seconds(size_bytes)) + 3
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as report:
        limits = [str(seconds), str(_MEMORY_GUARD_BYTES), str(report.fileno())]
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, *limits, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            pass_fds=[report.fileno()],
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            check=True,
        )
        for file in (output, errors, report):
            file.seek(0)
        used_seconds, peak_bytes, status = report.read().split()
        return Cost(
            float(used_seconds),
            int(peak_bytes),
            int(status),
            output.read().decode(errors="replace"),
            errors.read().decode(errors="replace"),
        )


def tdprof(*arguments: object) -> list[str]:
    """The command line of tdprof."""
    return [sys.executable, "-m", "tdprof", *map(str, arguments)]


def python(code: str, *arguments: object) -> list[str]:
    """The command line of a few lines of Python."""
    return [sys.executable, "-c", code, *map(str, arguments)]
