"""The beginning of the process: the console script, and `python -m tdprof`, where that is not on PATH."""

import gc
import signal

_OBJECTS_AT_ONCE = 100_000  # of a start: modules and classes, none of which is garbage


def start() -> None:
    """Load and run the command line; Ctrl-C before it can be caught ends that without a word."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, and stays so
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.set_threshold(_OBJECTS_AT_ONCE)
    from tdprof.cli.late_modules import LATE, loaded_when_used

    with loaded_when_used(LATE):
        import dataclasses  # noqa: F401

        from tdprof.cli.main import run_process

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_process()


if __name__ == "__main__":
    start()
