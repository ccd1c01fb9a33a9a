"""What each sample's process is called."""

import numpy as np

from tdprof.model.arrays import I32, distinct
from tdprof.model.profile import NO_ID, Profile
from tdprof.text import printable

UNKNOWN_COMMAND = "[unknown]"


def command_names(profile: Profile) -> tuple[list[str], I32]:
    """The processes' names, printable, and int32[samples]: which of them each sample has.

    A process is called as its main thread: where that was sampled, as it was called then, before an exec by another
    name than after it; its other threads by the last name that the recording tells.
    """
    samples = profile.samples
    numbers: dict[str, int] = {}
    pids = distinct(samples.pid)
    of_pid = np.array(
        [numbers.setdefault(_name(profile.process_names, pid), len(numbers)) for pid in pids.tolist()], np.int32
    )
    of_thread = np.array(
        [numbers.setdefault(printable(name) or UNKNOWN_COMMAND, len(numbers)) for name in profile.thread_names],
        np.int32,
    )
    named = of_pid[np.searchsorted(pids, samples.pid)] if len(pids) else np.zeros(0, np.int32)
    is_main = (samples.pid == samples.tid) & (samples.pid != NO_ID)
    if len(of_thread):
        named = np.where(is_main, of_thread[samples.thread_name], named)
    return list(numbers), named.astype(np.int32)


def _name(names: dict[int, str], pid: int) -> str:
    return (printable(names.get(pid, "")) if pid != NO_ID else "") or UNKNOWN_COMMAND
