"""A thread of C calls a function for as many seconds; arguments: the library of calls_back.c, those."""

import ctypes
import sys
import time


def spin() -> None:
    for _ in range(5_000):
        pass


def called() -> int:
    spin()
    return time.process_time() < until


until = time.process_time() + float(sys.argv[2])
ctypes.CDLL(sys.argv[1]).call_in_thread(ctypes.CFUNCTYPE(ctypes.c_int)(called))
