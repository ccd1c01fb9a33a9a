"""A process that makes a capture's tables: of a segment while its recorder goes on, or of a whole recording, for which
it loads what that takes while the recording runs.

It is started with the descriptor of a socket as its standard input, by which `FinishingProcess.finish` tells it of the
capture.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tdprof.cli.process_end import leave
from tdprof.errors import TdprofError
from tdprof.linux.limits import raised_descriptor_limit
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.held_programs import HeldPrograms

if TYPE_CHECKING:
    from tdprof.recorder.kallsyms import CodeSymbols

_NICENESS = 19
# `memory` before what loads NumPy.
_LOADED = ("tdprof.cli.memory", "tdprof.pipeline.finish", "tdprof.pipeline.walk_copies")
_IS_READY = b"r"
_MOST_DESCRIPTORS = 250  # of a message: SCM_MAX_FD (include/net/scm.h) is 253
_MESSAGE_BYTES = 1 << 16
# What this process imports from, and nothing that the environment adds.
_START = "import sys; sys.path[:] = {path!r}; from tdprof.cli.finishing_process import main; main(is_ahead={ahead})"


class FinishingProcess:
    """Makes the tables of a capture. Use as a context manager, or ask for its result: what has begun ends with it.

    Args:
        is_ahead: it may be long until there is something to do, and until `is_ready` only time is taken in which CPUs
            are idle. Else it runs behind all others from its start to its end, or until it is to `hurry`.
        hurries: it does from its start, which takes no rights.
    """

    def __init__(self, *, is_ahead: bool, hurries: bool = False) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._is_asked = False
        self._socket, its_end = socket.socketpair()
        with its_end:
            # In a group of its own: Ctrl-C ends the recording, not what is written of it. Not in a session of its own,
            # in which idle time would be that of its processes alone (autogroups, sched(7)).
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START.format(path=sys.path, ahead=is_ahead)],
                stdin=its_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                process_group=0,
            )
        if is_ahead or hurries:
            self.hurry()  # whoever starts it may be more urgent while it records
        else:  # here, where no `hurry` can come before it
            self._set_niceness(_NICENESS)

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded all it needs."""
        with contextlib.suppress(OSError):
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == _IS_READY
        return False

    def finish(self, folder: OwnFolder, held: HeldPrograms | None) -> None:
        """Have it make the tables of a capture whose recording has ended.

        Args:
            folder: the capture.
            held: what its recorder holds of the programs that were mapped.
        """
        self._is_asked = True
        descriptors, told = held.handed_over() if held else ([], [])
        descriptors = [folder.fd, *descriptors]
        request = json.dumps({"shown": str(folder.shown), "held": told}).encode()
        try:
            for begin in range(0, len(descriptors), _MOST_DESCRIPTORS):
                # Blanks before the request carry them.
                socket.send_fds(self._socket, [b" "], descriptors[begin : begin + _MOST_DESCRIPTORS])
            self._socket.sendall(request)
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:  # it ended, or too many descriptors are on their way: `result` says that there are no tables
            self._process.kill()

    def hurry(self) -> None:
        """From now on it runs like this process, but before nobody, unless we have no right to that."""
        self._set_niceness(max(os.getpriority(os.PRIO_PROCESS, 0), 0))

    def _set_niceness(self, niceness: int) -> None:
        with contextlib.suppress(OSError):  # it has ended, or we may not
            os.setpriority(os.PRIO_PGRP, self._process.pid, niceness)  # of all its threads

    def wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended within so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return self.is_done

    @property
    def is_done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._process.poll() is not None

    def result(self) -> str | None:
        """Wait for its end.

        Returns:
            Why there are no tables; None if there are. The spool is then still there, and can be read.
        """
        status = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        self.close()
        if status == 0:
            return None
        return lines[-1] if lines else f"the process that made them ended with status {status}"

    def close(self) -> None:
        """End it: of what it has begun to write nothing stays. May be called again."""
        self._socket.close()
        if not self.is_done and self._is_asked:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
        elif not self.is_done:  # and is not waited for: where no CPU is idle, even to end takes it long
            self._process.kill()
        self._log.close()

    def abandon(self) -> None:
        """End it at once; the capture that it was told of is to be removed."""
        self._process.kill()
        self._process.wait()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def main(*, is_ahead: bool) -> None:
    """Load what makes tables, then finish the capture that standard input tells of, if it does."""
    # What the recorder holds has room here, too.
    with socket.socket(fileno=0) as recorder, raised_descriptor_limit():
        try:
            _run(recorder, is_ahead=is_ahead)
        except KeyboardInterrupt:
            sys.exit(130)
    leave(0)


def _run(recorder: socket.socket, *, is_ahead: bool) -> None:
    loaded: list[CodeSymbols] = []
    if is_ahead:
        # A thread, since who is no administrator cannot take this back: what is made then is waited for.
        loading = threading.Thread(target=_load_in_idle_time, args=(loaded,), daemon=True)
        loading.start()
        loading.join()
        with contextlib.suppress(BrokenPipeError):  # the recorder was killed
            recorder.send(_IS_READY)
    request, descriptors = _received(recorder)
    if not request:
        return
    from tdprof.cli.memory import keep_process_small
    from tdprof.pipeline.finish import finish_capture

    keep_process_small()
    folder, *of_programs = descriptors
    try:
        with HeldPrograms.taken_over(request["held"], of_programs) as held:
            finish_capture(OwnFolder(folder, Path(request["shown"])), held, loaded[0] if loaded else None)
    except TdprofError as error:
        sys.exit(error.message)


def _load_in_idle_time(loaded: "list[CodeSymbols]") -> None:
    """What the tables of most captures take: modules, and the kernel's symbols."""
    # Who gave the recorder real-time priority wants no waiting; but what is recorded is not to wait for this either.
    is_usual = os.sched_getscheduler(0) in (os.SCHED_OTHER, os.SCHED_BATCH)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE if is_usual else os.SCHED_OTHER, os.sched_param(0))
    for module in _LOADED:
        importlib.import_module(module)
    from tdprof.recorder.kallsyms import read_code_symbols

    loaded.append(read_code_symbols())


def _received(recorder: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What `FinishingProcess.finish` sent, and descriptors; nothing where the recorder has ended."""
    text, descriptors = b"", list[int]()
    while True:
        data, received, _, _ = socket.recv_fds(recorder, _MESSAGE_BYTES, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
        descriptors += received
        if not data:
            return json.loads(text) if text else {}, descriptors
        text += data
