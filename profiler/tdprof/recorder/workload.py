"""The launched command: forked early, held until its events are open, then executed."""

import os
import shlex
import shutil
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tdprof.errors import TdprofError
from tdprof.recorder.stop_signals import default_unless_ignored

EXIT_NOT_EXECUTABLE = 126  # what shells return for the two ways a command cannot start
EXIT_NOT_FOUND = 127


class Workload:
    """A child process that waits to execute a command. Use as a context manager: leaving it ends the child.

    Between construction and ``start`` events can be attached to ``pid`` with ``enable_on_exec``, so that nothing
    before the command's first instruction counts.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Fork the child.

        Args:
            command: what it is to execute.
            variables: of its environment, beside our own.

        Raises:
            TdprofError: the command does not exist or is not executable, with a shell's status for it.
        """
        self.command = list(command)
        self._environment = os.environ | (variables or {})
        check_command(self.command[0])
        self.exit_status: int | None = None
        go_read, self._go = os.pipe()
        self._failed, failed_write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        # Ignored, as it may have been when we were started, the kernel would keep no exit status for us.
        on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.pid = os.fork()
        if self.pid == 0:
            self._run_child(go_read, failed_write, on_child)
        os.close(go_read)
        os.close(failed_write)
        self.pidfd = os.pidfd_open(self.pid)

    def _run_child(self, go_read: int, failed_write: int, on_child: Any) -> None:
        # Nothing may be raised past here: this is the other process.
        try:
            os.close(self._go)
            os.close(self._failed)
            default_unless_ignored()
            signal.signal(signal.SIGCHLD, on_child)
            if os.read(go_read, 1):
                os.execvpe(self.command[0], self.command, self._environment)
        except OSError as error:
            os.write(failed_write, struct.pack("=i", error.errno or 0))
        finally:
            os._exit(EXIT_NOT_FOUND)

    def start(self) -> None:
        """Let the child execute the command; returns when it has.

        Raises:
            TdprofError: exec failed (bad interpreter, wrong architecture, no permission, …).
        """
        os.write(self._go, b"x")
        # The write end closes on exec, so end-of-file is the good news.
        failure = os.read(self._failed, 4)
        if failure:
            errno = struct.unpack("=i", failure)[0]
            self.wait()
            raise TdprofError(f"cannot execute {self.command[0]}: {os.strerror(errno)}", status=EXIT_NOT_EXECUTABLE)

    def poll(self) -> int | None:
        """The exit status as a shell gives it (128 + n for signal n), or None while it runs."""
        if self.exit_status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.exit_status = _shell_status(status)
        return self.exit_status

    def wait(self) -> int:
        """Wait for the end; returns the exit status as a shell gives it."""
        while self.exit_status is None:
            _, status = os.waitpid(self.pid, 0)
            self.exit_status = _shell_status(status)
        return self.exit_status

    def terminate(self) -> None:
        """Ask the command to end, as perf does when recording is interrupted."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def __enter__(self) -> "Workload":
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._go)
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
        os.close(self._failed)
        os.close(self.pidfd)


def _shell_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def check_command(name: str) -> None:
    """Fail before anything is opened if a command cannot be run.

    Raises:
        TdprofError: status 127 if it is not found, 126 if it is there but not executable.
    """
    if shutil.which(name):
        return
    try:
        os.stat(name)
    except PermissionError as error:
        raise TdprofError(
            f"not allowed to reach {name}",
            hint=f"namei -l {name} shows which folder is closed",
            status=EXIT_NOT_EXECUTABLE,
        ) from error
    except OSError:
        pass
    if "/" in name and Path(name).is_dir():
        raise TdprofError(f"{name} is a directory, not a command", status=EXIT_NOT_EXECUTABLE)
    if "/" in name and Path(name).exists():
        raise TdprofError(f"{name} is not executable", hint=f"chmod +x {name}", status=EXIT_NOT_EXECUTABLE)
    raise TdprofError(f"command not found: {name}", hint=_hint_of_missing(name), status=EXIT_NOT_FOUND)


def _hint_of_missing(name: str) -> str:
    if " " in name.strip():
        return f"sh -c {shlex.quote(name)} runs a command line; a command's words are typed without quotes around all"
    if Path(name).is_file():
        return f"./{name}"
    if "/" in name:
        return f"ls {shlex.quote(str(Path(name).parent))}"
    return f"command -v {shlex.quote(name)} shows the path that your shell has for it; sudo has a PATH of its own"
