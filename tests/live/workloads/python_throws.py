"""Three quarters of its time where an exception is handled that was thrown in from outside, for as many seconds."""

import sys
import time


def heavy(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def light(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def handle():  # type: ignore[no-untyped-def]
    try:
        yield
    except ValueError:
        yield heavy(30_000)


def pass_on():  # type: ignore[no-untyped-def]
    yield from handle()


def main() -> None:
    until = time.process_time() + float(sys.argv[1])
    while time.process_time() < until:
        outer = pass_on()
        next(outer)
        outer.throw(ValueError())
        next(outer, None)  # so that nothing is left of it to be closed
        light(10_000)


main()
