"""Work in a process of its own: if that dies and whoever started it does not, what was read is to blame, and nobody
who kills workers.
"""

import ctypes
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence

from tdprof.errors import TdprofError
from tdprof.fleet.engine import Work

_ATTEMPTS = 3  # who kills workers may hit this process, too
# What this process imports from, and nothing that the environment adds.
_START = "import sys; sys.path[:] = {path!r}; from tdprof.fleet.own_process import main; main()"
_RESULT, _ERROR = b"r", b"e"
_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h


def do_in_own_process(work: Work, sources: Sequence[str], options: str, memory_bytes: int | None) -> bytes | None:
    """What the work returns; None if each process that does it dies.

    Args:
        work: a module's function.
        memory_bytes: as much as it may take; None: no bound.

    Raises:
        TdprofError: the work raised it.
    """
    task = {
        "module": work.__module__,
        "function": work.__qualname__,
        "sources": list(sources),
        "options": options,
        "memory_bytes": memory_bytes,
        "parent": os.getpid(),
    }
    command = [sys.executable, "-I", "-c", _START.format(path=sys.path)]
    for _ in range(_ATTEMPTS):
        done = subprocess.run(
            command, input=json.dumps(task).encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        kind, content = done.stdout[:1], done.stdout[1:]
        if done.returncode == 0 and kind == _RESULT:
            return content
        if done.returncode == 0 and kind == _ERROR:
            told = json.loads(content)
            raise TdprofError(told["message"], hint=told["hint"], status=told["status"])
    return None


def main() -> None:
    """The process: a task on standard input, what became of it on standard output."""
    task = json.load(sys.stdin.buffer)
    # Nobody waits for a process whose worker was killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != task["parent"]:
        return
    if task["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (task["memory_bytes"], task["memory_bytes"]))
    work: Work = getattr(importlib.import_module(task["module"]), task["function"])
    try:
        answer = _RESULT + work(task["sources"], task["options"])
    except TdprofError as error:
        told = {"message": error.message, "hint": error.hint, "status": error.status}
        answer = _ERROR + json.dumps(told).encode()
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
