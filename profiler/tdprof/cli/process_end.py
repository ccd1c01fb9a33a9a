"""The end of a process of ours: without taking apart what the system takes back at once."""

import atexit
import os
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process with an exit status, having done all that Python does before it takes its modules apart.

    That last step alone is a tenth of a short report: it frees what NumPy, Arrow and a few hundred modules have made.
    """
    threading = sys.modules.get("threading")
    # Python alone waits for other threads, and for none that may be left behind.
    if threading is None or all(each is threading.main_thread() or each.daemon for each in threading.enumerate()):
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, AttributeError):  # a stream that is full, gone or was never there: Python says what it says
            sys.exit(status)
        os._exit(status)
    sys.exit(status)
