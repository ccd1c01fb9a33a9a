"""The beginning of the process: the console script, and `python -m tdprof`, where that is not on PATH."""

import signal


def start() -> None:
    """Load and run the command line; Ctrl-C before it can be caught ends that without a word."""
    is_heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, and stays so
    if is_heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tdprof.cli.main import run_process

    if is_heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_process()


if __name__ == "__main__":
    start()
