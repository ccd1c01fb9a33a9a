"""Programs that walk stacks, loaded by a thread: the verifier takes longer for these than for all else."""

import threading
from collections.abc import Callable

from tdprof.recorder.bpf.object_file import LoadError
from tdprof.recorder.stop_signals import hear_no_signals
from tdprof.recorder.urgency import urgent

# Programs of other types than perf events', and where the kernel runs them.
TRACEPOINTS = {
    "begin_program": "sched_process_exec",
    "begin_copy": "task_newtask",
    "end_thread": "sched_process_exit",
    "retake": "vm_unmapped_area",
}


class WalkLoad:
    """A load under way, before what else is to run, if we may: stacks are lost until it is done.

    A JVM's own threads alone would hold a quarter of a second up to two.

    Args:
        load: has the programs call what it loads from then on, or raises LoadError.

    Attributes:
        refusal: why the kernel refuses, once that is known; empty if it does not.
    """

    def __init__(self, load: Callable[[], None]) -> None:
        self.refusal = ""
        self._load = load
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        hear_no_signals()
        try:
            with urgent():
                self._load()
        except (LoadError, OSError) as error:
            self.refusal = str(error)

    def wait(self, most_s: float | None = None) -> bool:
        """Return when the kernel has said yes or no: True; or after so long."""
        self._thread.join(most_s)
        return not self._thread.is_alive()
