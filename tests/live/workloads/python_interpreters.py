"""Six threads with an interpreter each; two CPUs work for as many seconds as the argument says (CPython 3.13 on)."""

import sys
import threading
import time

import _interpreters  # type: ignore[import-not-found]

SOURCE = """
import time

def within():
    for _ in range(20_000):
        pass

until = time.process_time() + 2 * SECONDS
while time.process_time() < until:
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
    until = time.process_time() + 2 * float(sys.argv[1])
    while time.process_time() < until:
        beside()
    for thread in threads:
        thread.join()


main()
