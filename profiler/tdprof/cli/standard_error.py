"""What is said to people beside a command's result: whatever it is made of, it is a line and no terminal command."""

import os
import sys

from tdprof.text import printable


def say(line: str) -> None:
    """Print one line to standard error; where that is closed, or its disk full, there is nobody to tell."""
    try:
        print(printable(line), file=sys.stderr, flush=True)
    except OSError:
        # What is left in the buffer would fail again when the interpreter exits, and change its status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def open_standard_streams() -> None:
    """Occupy those of descriptors 0 to 2 that are closed, or the next file we open would get what is printed.

    They can neither be read nor written, so that who needs one is told; a command that is launched has them closed.
    """
    for fd, wrong_way in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, wrong_way)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  # for as long as the process lives
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
