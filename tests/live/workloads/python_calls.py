"""Python calls of every kind, for as many seconds of CPU time as the argument says; who may call whom is in EDGES."""

import asyncio
import functools
import re
import sys
import threading
import time

# Who calls each of the functions below, without what they are part of, which CPython before 3.11 does not say.
EDGES = {
    "spin": {"work"},
    "work": {
        "greet", "greeting", "__eq__", "generate_work", "throw_it", "catch_it", "sort_key", "replacement", "recurse",
        "work_within", "work_once", "await_work", "<lambda>", "short_life",
    },
    "greet": {"call_everything"},
    "greeting": {"call_everything"},
    "generate_work": {"pass_work_on"},
    "pass_work_on": {"call_everything"},
    "throw_it": {"catch_it"},
    "catch_it": {"call_everything"},
    "sort_key": {"call_everything"},
    "replacement": {"sub"},
    "recurse": {"call_everything", "recurse"},
    "make_closure": {"call_everything"},
    "work_within": {"make_closure"},
    "work_once": {"call_everything"},
    "await_leaf": {"_run", "<genexpr>"},
    "await_work": {"await_leaf"},
    "call_unnamed": {"call_everything"},
    "short_life": {"run"},
    "call_everything": {"run_in_thread", "main"},
    "run_in_thread": {"run"},
}  # fmt: skip


def spin(rounds: int) -> int:
    total = 0
    for number in range(rounds):
        total += number * number
    return total


def work() -> int:
    return spin(300)


class Greeter:
    def greet(self) -> int:
        return work()

    @property
    def greeting(self) -> int:
        return work()

    def __eq__(self, other: object) -> bool:
        return work() >= 0

    __hash__ = None  # type: ignore[assignment]


def generate_work(count):  # type: ignore[no-untyped-def]
    for _ in range(count):
        yield work()


def pass_work_on(count):  # type: ignore[no-untyped-def]
    yield from generate_work(count)


def throw_it() -> None:
    work()
    raise ValueError


def catch_it() -> None:
    try:
        throw_it()
    except ValueError:
        work()


def sort_key(_item: int) -> int:
    return work()


def replacement(_match: object) -> str:
    return str(work())


def recurse(levels: int) -> int:
    return recurse(levels - 1) if levels else work()


def make_closure() -> int:
    def work_within() -> int:
        return work()

    return work_within()


@functools.lru_cache(maxsize=1)
def work_once(_argument: int) -> int:
    return work()


async def await_work() -> int:
    await asyncio.sleep(0)
    return work()


async def await_leaf() -> int:
    return await await_work()


async def gather() -> None:
    await asyncio.gather(*(await_leaf() for _ in range(3)))


def call_unnamed() -> int:
    return (lambda: work())()


def short_life() -> None:
    work()


def call_everything() -> None:
    greeter = Greeter()
    greeter.greet()
    assert greeter.greeting >= 0
    assert greeter == 1
    sum(pass_work_on(3))
    catch_it()
    sorted(range(3), key=sort_key)
    list(map(sort_key, range(2)))
    re.sub("a", replacement, "aa")
    recurse(40)
    make_closure()
    work_once(1)
    work_once(2)
    call_unnamed()


def run_in_thread(until: float) -> None:
    while time.process_time() < until:
        call_everything()


def main() -> None:
    until = time.process_time() + float(sys.argv[1])
    thread = threading.Thread(target=run_in_thread, args=(until,))
    thread.start()
    while time.process_time() < until:
        call_everything()
        asyncio.run(gather())
        other = threading.Thread(target=short_life)
        other.start()
        other.join()
    thread.join()


if __name__ == "__main__":
    main()
