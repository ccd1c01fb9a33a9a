"""A function on a stack whose beginning nobody knows; arguments: the library of left_over.c, seconds."""

import ctypes
import sys
import time


def spin() -> None:
    for _ in range(20_000):
        pass


def on_a_stack_of_its_own() -> None:
    until = time.process_time() + float(sys.argv[2])
    while time.process_time() < until:
        spin()


def main() -> None:
    function = ctypes.CFUNCTYPE(None)
    ctypes.CDLL(sys.argv[1]).elsewhere(function(on_a_stack_of_its_own))


main()
