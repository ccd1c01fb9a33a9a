"""Six threads with an interpreter each, for as many seconds as the argument says (CPython 3.13 and later)."""

import sys
import threading
import time

import _interpreters  # type: ignore[import-not-found]

SOURCE = """
import time

def within():
    for _ in range(20_000):
        pass

until = time.monotonic() + SECONDS
while time.monotonic() < until:
    within()
"""


def beside() -> None:
    for _ in range(20_000):
        pass


def run_one(interpreter: int) -> None:
    _interpreters.run_string(interpreter, SOURCE.replace("SECONDS", sys.argv[1]))


def main() -> None:
    made = [_interpreters.create() for _ in range(6)]
    threads = [threading.Thread(target=run_one, args=(each,)) for each in made]
    for thread in threads:
        thread.start()
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        beside()
    for thread in threads:
        thread.join()


main()
