"""How `tdprof record` makes a capture's tables in the end: in a process that loaded what it takes meanwhile."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Self

from tdprof.cli.output import waiting
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest
    from tdprof.cli.finishing_process import FinishingProcess
    from tdprof.recorder.held_programs import HeldPrograms

_UNSAID_S = 0.5  # what shows that one waits takes longer to load than most tables to make


@contextlib.contextmanager
def interrupted_once() -> Iterator[None]:
    """The first Ctrl-C that no recording hears ends what runs; those after it are ignored until the process has ended.

    Or they would end what the first one has to tidy up and to say. Where Ctrl-C is ignored it stays so.
    """
    before = signal.getsignal(signal.SIGINT)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is interrupt:
            signal.signal(signal.SIGINT, before)


def left_unfinished(folder: Path, *, is_segment: bool) -> TdprofError:
    """What to say where Ctrl-C came while tables were made: what was recorded is kept."""
    if is_segment:
        return TdprofError(
            f"interrupted: the last segments, up to {folder}, are kept, but not all of them have their tables yet",
            hint=f"tdprof report {folder} (tables are made each time that it is read, or by the next recorder)",
            status=128 + signal.SIGINT,
        )
    return TdprofError(
        f"interrupted: {folder} has the whole recording, but not its tables yet",
        hint=f"tdprof report {folder} (it makes them each time that the capture is read)",
        status=128 + signal.SIGINT,
    )


class RecordEnd:
    """Of one recording. Use as a context manager: leaving it ends what has begun.

    Args:
        quiet: say nothing while tables are made.
        stays_small: tables are made in another process, though nothing was loaded for it meanwhile.
    """

    def __init__(self, *, quiet: bool, stays_small: bool) -> None:
        self._quiet = quiet
        self._stays_small = stays_small
        self._process: FinishingProcess | None = None
        self._starting: threading.Thread | None = None

    def prepare(self) -> None:
        """Load, in another process, what making tables takes; to be called once the recording has begun."""
        # Not in the thread that answers what the kernel asks.
        self._starting = threading.Thread(target=self._start, kwargs={"is_ahead": True}, daemon=True)
        self._starting.start()

    def _start(self, *, is_ahead: bool, hurries: bool = False) -> None:
        from tdprof.cli.finishing_process import FinishingProcess  # what it needs is slow to load

        with contextlib.suppress(OSError):  # no process, descriptor or room for one more: `finish` does without
            self._process = FinishingProcess(is_ahead=is_ahead, hurries=hurries)

    def finish(self, folder: OwnFolder, held: "HeldPrograms") -> "Manifest":
        """`finish_capture`, by that process if it is ready."""
        if self._starting:
            self._starting.join()
        if self._stays_small:
            self._start(is_ahead=False, hurries=True)
        if self._process and (self._stays_small or self._process.is_ready):
            self._process.finish(folder, held)
            if not self._process.wait(_UNSAID_S):
                with waiting("writing the capture's tables", quiet=self._quiet):
                    self._process.wait(None)
            if self._process.result() is None:
                from tdprof.capture.manifest import read_manifest

                return read_manifest(folder.path)
        self._close()
        from tdprof.recorder.kallsyms_text import KallsymsAhead

        kallsyms = KallsymsAhead()
        # Only now: the process that samples stays small and starts fast without NumPy and Arrow.
        from tdprof.cli.memory import keep_process_small
        from tdprof.pipeline.finish import finish_capture
        from tdprof.recorder.kallsyms import code_symbols

        keep_process_small()
        with waiting("writing the capture's tables", quiet=self._quiet):
            return finish_capture(folder, held, read_kernel=lambda: code_symbols(kallsyms.text()))

    def _close(self) -> None:
        if self._starting:
            self._starting.join()
        if self._process:
            self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._close()
