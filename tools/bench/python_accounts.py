# SPDX-License-Identifier: Apache-2.0
"""Python call stacks of a stopped program, from two judges: py-spy, and CPython itself (`faulthandler`).

CPython writes them when it handles a signal. That is left pending with a thread that stands still: when the thread goes
on it runs no other instruction before the handler, so what that says is of just the moment of the stop.
"""

import ctypes
import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Frame = tuple[str, str, int]  # name, without what the function is part of; file; line
Stack = tuple[Frame, ...]
ANY_THREAD = 0  # of CPython before 3.11 py-spy does not say which thread a stack is of, unless it stops it itself
OWN_DEPTH = 100  # MAX_FRAME_DEPTH of CPython's Python/traceback.c: what calls these is not told
_OWN_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$', re.MULTILINE)
# Of a frame that it takes for damaged (3.14), or whose file it cannot tell: what calls that is not told.
_BROKEN_OFF = re.compile(r"^  (<invalid frame>|File \?\?\?)", re.MULTILINE)
_NO_LINE = "???"  # of an instruction that has none
_ENTRY = "<interpreter trampoline>"  # 3.12's frame of a call from C, no function; told until what is called has begun
_PAUSE_S = (0.002, 0.02)  # between two moments
_POLL_S = 0.001
_POLLS = 200


def plain(name: str) -> str:
    """A function's name without what it is part of, which py-spy and `faulthandler` do not say."""
    return name.rpartition(".")[2]


def spied(pid: int, py_spy: str, moments: int) -> Counter[tuple[int, Stack]]:
    """(thread, stack) of each thread of a process at so many moments, as py-spy dumps it."""
    found: Counter[tuple[int, Stack]] = Counter()
    for _ in _moments(moments):
        _stop(pid)
        text = subprocess.run(
            [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)], capture_output=True, text=True, check=False
        ).stdout
        os.kill(pid, signal.SIGCONT)
        for thread in json.loads(text or "[]"):
            stack = tuple((plain(each["name"]), each["filename"], each["line"]) for each in thread["frames"])
            if stack:
                found[thread["os_thread_id"] or ANY_THREAD, stack] += 1
    return found


def ready_to_tell(folder: Path) -> dict[str, str]:
    """The environment in which Python programs write their stacks into `told` in a folder when asked by a signal."""
    (folder / "sitecustomize.py").write_text(
        "import faulthandler, signal\n"
        f"faulthandler.register(signal.SIGUSR2, open({str(folder / 'told')!r}, 'ab', 0), all_threads=False)\n"
    )
    return {**os.environ, "PYTHONPATH": str(folder)}


def told(pid: int, folder: Path, moments: int) -> tuple[Counter[tuple[int, Stack]], int]:
    """(thread, stack) of one thread of a program or of its children at so many moments, as CPython writes it.

    A thread without Python functions, or that ends, tells nothing: such a moment is not among them, nor is one at which
    CPython broke off; how many these were is returned, too.
    """
    written = folder / "told"
    libc = ctypes.CDLL(None)
    found: Counter[tuple[int, Stack]] = Counter()
    broken_off = 0
    for _ in _moments(moments):
        chosen = random.choice([pid, *_children(pid)])
        try:
            _stop(chosen)
            tid = random.choice(_threads(chosen))
            os.truncate(written, 0)
            libc.tgkill(chosen, tid, signal.SIGUSR2)
            os.kill(chosen, signal.SIGCONT)
            has_told = _has_told(chosen, tid, written)
        except (FileNotFoundError, ProcessLookupError):
            continue  # a child that has ended
        if not has_told:
            continue
        stack = own_account(written.read_text(errors="backslashreplace"))
        broken_off += stack is None
        if stack:
            found[tid, stack] += 1
    return found, broken_off


def own_account(text: str) -> Stack | None:
    """The stack that CPython wrote; None if it broke off."""
    if _BROKEN_OFF.search(text):
        return None
    return tuple(
        (name, file, 0 if line == _NO_LINE else int(line))
        for file, line, name in _OWN_FRAME.findall(text)
        if name != _ENTRY
    )


def _moments(count: int) -> Iterator[None]:
    random.seed(7)
    for _ in range(count):
        time.sleep(random.uniform(*_PAUSE_S))
        yield


def _stop(pid: int) -> None:
    """Stops a process. Returns when all of its threads stand still."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(pid, tid) != "T" for tid in _threads(pid)):
        time.sleep(0.001)


def _threads(pid: int) -> list[int]:
    return [int(tid) for tid in os.listdir(f"/proc/{pid}/task")]


def _state(pid: int, tid: int) -> str:
    try:
        state = Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "T"  # it has ended
    return "T" if state in "ZX" else state


def _children(pid: int) -> list[int]:
    """All processes below a process, but for those that have just ended."""
    try:
        own = [
            int(child)
            for tid in _threads(pid)
            for child in Path(f"/proc/{pid}/task/{tid}/children").read_text().split()
        ]
    except OSError:
        return []
    return [each for child in own for each in (child, *_children(child))]


def _has_told(pid: int, tid: int, written: Path) -> bool:
    """Waits until a thread has written its stack; False: it writes nothing.

    Raises:
        OSError: it has ended.
    """
    for _ in range(_POLLS):
        time.sleep(_POLL_S)
        has_begun = written.stat().st_size > 0  # looked at first: who has begun has the signal blocked until the end
        lines = Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines()
        blocked = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk:"))
        if has_begun and not blocked >> (signal.SIGUSR2 - 1) & 1:
            return True
    return False
