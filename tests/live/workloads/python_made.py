"""Code that is made, run and dropped, as templates are: at its line N it calls `work_N`, for as many seconds."""

import sys
import time

LINES = range(2, 10)
WORK = """
def work_{}():
    total = 0
    for number in range(5_000):
        total += number * number
"""


def main() -> None:
    names: dict[str, object] = {}
    for line in LINES:
        exec(WORK.format(line), names)
    until = time.process_time() + float(sys.argv[1])
    while time.process_time() < until:
        for line in LINES:
            exec("\n" * (line - 1) + f"work_{line}()", names)
            exec("if True:\n" + " x = 1\n" * (line - 2) + f" work_{line}()\n" + " y = 2\n" * (9 - line), names)
            exec("\n" * (line - 1) + f"(lambda: work_{line}())()", names)


main()
