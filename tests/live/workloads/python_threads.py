"""Works for as many CPU seconds as the argument says in the first of hundreds of threads, CPython's last."""

import sys
import threading
import time


def spin() -> None:
    for _ in range(20_000):
        pass


def work() -> None:
    may_begin.wait()
    until = time.process_time() + float(sys.argv[1])
    while time.process_time() < until:
        spin()
    may_end.set()


may_begin, may_end = threading.Event(), threading.Event()
threading.Thread(target=work).start()
for _ in range(300):
    threading.Thread(target=may_end.wait).start()
may_begin.set()
