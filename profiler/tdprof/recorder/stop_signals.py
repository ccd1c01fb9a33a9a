"""The signals that end a recording, for a loop that waits on descriptors, and what a launched command has of them."""

import os
import signal

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Python ignores these two for itself, whatever it found, and no process can ask what that was.
_PYTHONS = (signal.SIGPIPE, signal.SIGXFSZ)


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a readable descriptor for the duration of a recording.

    Those that were ignored when we were started stay so: ``nohup``, a background job of a script.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def _note(self, number: int, _frame: object) -> None:
        self.received = number

    def __enter__(self) -> "StopSignals":
        self._wakeup = signal.set_wakeup_fd(self._write)
        heard = [number for number in _STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
        self._handlers = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)


def default_unless_ignored() -> None:
    """Give this process, about to execute a command, what the command would have had without us."""
    for number in (*_STOPPING, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in _PYTHONS:
        signal.signal(number, signal.SIG_DFL)


def hear_no_signals() -> None:
    """For a thread beside the main one, for which they are; the kernel's verifier gives up when one comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
