"""Keeps what JVMs of a recording say of their compiled code: asked from time to time, since they free and end.

In a thread of its own: each answer takes milliseconds, and may never come.
"""

import contextlib
import os
import queue
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tdprof.capture.files import MOST_CODE_FILE_BYTES, PERF_MAP_FOLDER
from tdprof.capture.java_code import code_name
from tdprof.linux.elf import ElfError
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.artefacts import code_budget, save_run_time_code
from tdprof.recorder.hotspot import NotKnownError, NotThereYetError
from tdprof.recorder.identity import HeldProcess
from tdprof.recorder.java_attach import NotAskedError, NotReadyError, perf_map
from tdprof.recorder.java_code import CompiledCode, compiled_code
from tdprof.recorder.process_memory import NOT_PERMITTED, NoReaderError, ProcessMemory
from tdprof.recorder.shares import Shares
from tdprof.text import plural

# After it was found; then in twice the time, up to the last.
_FIRST_S, _LONGEST_S = 0.5, 10.0
_PATIENCE_S = 5.0
_ENDING_S = 10.0  # for all of them, at the end
_MOST_TRIES = 20  # at one that does not catch signals yet
_MOST_PROCESSES, _MOST_WAITING = 256, 4096
_NO_ROOM = "there was more of them than is kept"


class JavaProcesses:
    """The JVMs that are asked, until `finish`; then others may be.

    Args:
        folder: the capture.
    """

    def __init__(self, folder: OwnFolder) -> None:
        self._folder = folder
        self._budget = code_budget(folder)
        self._waiting: queue.Queue[int | None] = queue.Queue(_MOST_WAITING)
        self._expected: set[int] = set()  # those in the queue
        self._due: dict[int, tuple[float, float]] = {}  # when, and how long after the time before
        self._tries: dict[int, int] = defaultdict(int)
        self._known: dict[int, int] = {}  # each with its user
        self._asked_s: defaultdict[int, float] = defaultdict(float)  # how long processes of each user were asked
        self._asked: set[int] = set()
        self._reasons: dict[str, set[int]] = defaultdict(set)
        self._left_out: set[int] = set()
        self._memory = ProcessMemory()
        self._code: dict[int, CompiledCode | None] = {}  # None: no more of it is kept
        self._without_code: dict[int, str] = {}  # why that is not all, or nothing
        self._thread: threading.Thread | None = None

    def found(self, pid: int) -> None:
        """A process that has mapped a JVM's library. Any thread may tell."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if pid in self._expected:
            return
        self._expected.add(pid)
        try:
            self._waiting.put_nowait(pid)
        except queue.Full:
            self._expected.discard(pid)
            self._left_out.add(pid)

    def known(self) -> list[int]:
        """Those that were found and have not ended."""
        return [pid for pid in list(self._known) if Path(f"/proc/{pid}").exists()]

    def finish(self) -> list[str]:
        """Ask those once more that run; returns what the user should know."""
        if self._thread is None:
            return []
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=_ENDING_S)
        self._thread.join(_ENDING_S)
        self._thread = None
        if late := set(self._due) - self._asked:
            self._reasons["there was no time to ask it"] |= late
        notes = list(self._notes())
        self._asked.clear()
        self._reasons.clear()
        self._left_out.clear()
        self._without_code.clear()
        return notes

    def _run(self) -> None:
        while True:
            next_s = min((when for when, _ in self._due.values()), default=None)
            with contextlib.suppress(queue.Empty):
                timeout = None if next_s is None else max(0.0, next_s - time.monotonic())
                pid = self._waiting.get(timeout=timeout)
                if pid is None:
                    break
                self._expected.discard(pid)
                self._add(pid)
            now = time.monotonic()
            self._ask_one_of({pid for pid, (when, _) in self._due.items() if when <= now})
        deadline, left = time.monotonic() + _ENDING_S, set(self._due)
        while left and time.monotonic() < deadline:
            left.remove(self._ask_one_of(left))
        self._memory.close()

    def _add(self, pid: int) -> None:
        """Have one asked from now on, if there is a place for it."""
        if pid in self._known:
            return
        user = _user_of(pid)
        if not self._places_for(user):
            alive = set(self.known()) & self._due.keys()
            self._known = {each: its for each, its in self._known.items() if each in alive}
        if not self._places_for(user):
            self._left_out.add(pid)
            return
        self._known[pid] = user
        self._due[pid] = time.monotonic() + _FIRST_S, _FIRST_S

    def _places_for(self, user: int) -> int:
        places = Shares(_MOST_PROCESSES)
        for each in self._known.values():
            places.take(each)
        return places.left_for(user)

    def _ask_one_of(self, pids: set[int]) -> int:
        """Ask the one of whose user's processes the least time was spent: each may let us wait. Returns which; or 0."""
        if not pids:
            return 0
        pid = min(pids, key=lambda each: self._asked_s[self._known.get(each, 0)])
        began_s = time.monotonic()
        self._ask(pid)
        self._asked_s[self._known.get(pid, 0)] += time.monotonic() - began_s
        return pid

    def _ask(self, pid: int) -> None:
        """Ask one, and settle when it is asked again."""
        _, gap = self._due.pop(pid)
        try:
            with perf_map(pid, _PATIENCE_S):
                for note in save_run_time_code(self._folder, [pid], budget=self._budget):
                    self._reasons[note].add(pid)
            self._asked.add(pid)
            self._keep_code(pid)
        except NotReadyError as error:
            self._tries[pid] += 1
            if self._tries[pid] == _MOST_TRIES:
                self._reasons[str(error)].add(pid)
                return
            self._due[pid] = time.monotonic() + _FIRST_S, _FIRST_S
            return
        except NotAskedError as error:
            self._reasons[str(error)].add(pid)
            return
        except ProcessLookupError:
            self._code.pop(pid, None)  # one segment may see very many
            if pid not in self._asked:
                self._reasons["it ended before it could be asked (record --perf-maps -- CMD)"].add(pid)
            return
        except (TimeoutError, NoReaderError) as error:  # whoever asks
            if pid not in self._asked:
                self._reasons[f"{error.strerror or error}"].add(pid)
            return
        except OSError as error:
            if pid not in self._asked:
                self._reasons[f"{error.strerror or error} (its user may, or root with CAP_SYS_PTRACE)"].add(pid)
            return
        gap = min(2 * gap, _LONGEST_S)
        self._due[pid] = time.monotonic() + gap, gap

    def _keep_code(self, pid: int) -> None:
        """Keep what one has of its code besides the map, as far as it can be had; names are known without."""
        try:
            self._without_code.pop(pid, None)
            self._add_code(pid)
        except PermissionError:
            self._without_code[pid] = NOT_PERMITTED
        except (NotKnownError, ElfError):
            self._without_code[pid] = "this JVM does not describe its code, or not as others do"
        except (NotThereYetError, struct.error, OSError):
            pass

    def _add_code(self, pid: int) -> None:
        uid, name = _user_of(pid), code_name(pid)
        header = b""
        if pid not in self._code:
            self._code[pid] = new = compiled_code(pid, self._memory)
            header = new.header.to_bytes()
        if (code := self._code[pid]) is None:
            self._without_code[pid] = _NO_ROOM
            return
        with self._folder.subfolder(PERF_MAP_FOLDER, make=True) as files, files.append(name) as file:
            file.write(header)
            for record in code.more():
                self._code[pid] = None  # later records name methods by how many came before: none may be missing
                if len(record) > min(self._budget.left_for(uid), MOST_CODE_FILE_BYTES - file.tell()):
                    self._without_code[pid] = _NO_ROOM
                    return
                self._budget.add(len(record), uid, name)
                file.write(record)
        self._code[pid] = code

    def _notes(self) -> Iterator[str]:
        if self._asked:
            those = plural(len(self._asked), "Java process", "es")
            yield f"asked {those} for the names of compiled code (--no-interpreters does not)"
        reasons = dict(self._reasons)
        if self._left_out:
            reasons[f"{_MOST_PROCESSES} others were to be asked"] = self._left_out
        for reason, pids in reasons.items():
            yield f"Java code of process {_numbers(pids)} may have no names: {reason}"
        for reason in sorted(set(self._without_code.values())):
            pids = {pid for pid, why in self._without_code.items() if why == reason}
            yield f"inlined methods and lines of Java process {_numbers(pids)} are missing: {reason}"


def _user_of(pid: int) -> int:
    """Whose a process is; ours once it has ended. /proc/PID itself is root's where it keeps others from its memory."""
    with contextlib.suppress(OSError), HeldProcess(pid) as process:
        return process.identity.uid
    return os.geteuid()


def _numbers(pids: set[int]) -> str:
    return ", ".join(map(str, sorted(pids)[:8])) + (", …" if len(pids) > 8 else "")
