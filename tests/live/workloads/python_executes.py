"""Works for as many seconds as the first argument says, then executes itself with the second, an interpreter."""

import os
import sys
import time


def spin() -> None:
    for _ in range(20_000):
        pass


def work(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        spin()


def main() -> None:
    seconds, *others = sys.argv[1:]
    # A function whose name tells which of them it is.
    names: dict[str, object] = {"work": work, "seconds": float(seconds)}
    exec(f"def round_{len(others)}(): work(seconds)\nround_{len(others)}()", names)
    if others:
        os.execv(others[0], [others[0], __file__, seconds, *others[1:]])


main()
