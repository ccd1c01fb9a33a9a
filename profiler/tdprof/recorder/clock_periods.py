"""Sampled clocks with periods that vary: no program keeps step with them.

A program that works in short bursts, all alike, between sleeps may stay in step with a clock of one period, by chance
or because of the clock: the kernel wakes who sleeps at whichever timer comes within the sleep's slack, so that a CPU's
clock sets when bursts begin. Samples then come at a few places of each burst.
"""

import ctypes
import os
import threading
from collections.abc import Sequence

from tdprof.native.library import load_native
from tdprof.recorder.host import MAX_SAMPLE_RATE, read_setting
from tdprof.recorder.stop_signals import hear_no_signals

_WIDTH = 0.1
"""To either side of the rate, as a share of it. Little, since a recorder that gets no processor leaves it as it is."""


class VariedClock:
    """Varies the period of one event, on each CPU by itself, until it is closed; not without the compiled library.

    Args:
        fds: its descriptors, which have to stay open.
        frequency_hz: its rate on average.
    """

    def __init__(self, fds: Sequence[int], frequency_hz: int) -> None:
        self._stop = os.eventfd(0, os.EFD_CLOEXEC)
        most_hz = read_setting(MAX_SAMPLE_RATE) or 2 * frequency_hz
        width = min(_WIDTH, most_hz / frequency_hz - 1)
        self._thread: threading.Thread | None = None
        library = load_native()
        if library is None or width <= 0:
            return
        events = (ctypes.c_int * len(fds))(*fds)
        arguments = (events, len(fds), frequency_hz, width, int.from_bytes(os.urandom(8), "little"), self._stop)
        self._thread = threading.Thread(target=self._run, args=(library, *arguments), daemon=True)
        self._thread.start()

    @staticmethod
    def _run(library: ctypes.CDLL, *arguments: object) -> None:
        hear_no_signals()
        library.tdprof_vary_periods(*arguments)

    def close(self) -> None:
        """Leave the periods as they are then."""
        if self._thread is not None:
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            self._thread = None
        os.close(self._stop)
