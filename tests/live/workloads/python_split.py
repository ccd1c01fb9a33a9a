"""Three quarters of its time in one function, one quarter in another, for as many seconds as the argument says."""

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


def main() -> None:
    until = time.process_time() + float(sys.argv[1])
    while time.process_time() < until:
        heavy(30_000)
        light(10_000)


main()
