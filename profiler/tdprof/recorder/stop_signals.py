"""The signals that end a recording, for a loop that waits on descriptors."""

import os
import signal


class StopSignals:
    """Turns SIGINT, SIGTERM and SIGHUP into a readable descriptor for the duration of a recording."""

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
        self._handlers = {
            number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)
