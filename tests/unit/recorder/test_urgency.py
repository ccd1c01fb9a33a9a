"""Threads that run before others."""

import contextlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tdprof.recorder.urgency import python_threads, soon_switched, urgent


def niceness_when_urgent(usual: int) -> tuple[int, int, int]:
    """Of a thread and one that it starts meanwhile, and of itself afterwards."""

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    def run() -> tuple[int, int, int]:
        os.setpriority(os.PRIO_PROCESS, 0, usual)
        with urgent(), ThreadPoolExecutor(1) as meanwhile:
            inside = niceness(), meanwhile.submit(niceness).result()
        return *inside, niceness()

    with ThreadPoolExecutor(1) as thread:  # Linux has a niceness for each
        return thread.submit(run).result()


def is_allowed() -> bool:
    def can_go_back() -> bool:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, before - 1)
        except PermissionError:
            return False
        return True

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(can_go_back).result()


@pytest.mark.skipif(not is_allowed(), reason="only root, or who has CAP_SYS_NICE, may be more urgent than others")
def test_who_may_runs_first_and_then_as_before() -> None:
    assert niceness_when_urgent(0) == (-20, -20, 0)


@pytest.mark.skipif(not is_allowed(), reason="only root, or who has CAP_SYS_NICE, may be more urgent than others")
def test_threads_that_run_already_are_as_urgent_until_all_is_as_before() -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    def make_usual() -> None:
        os.setpriority(os.PRIO_PROCESS, 0, 0)

    own = niceness()
    with ThreadPoolExecutor(1) as stays, contextlib.ExitStack() as urgency:
        stays.submit(make_usual).result()
        with ThreadPoolExecutor(1) as ends:
            ends.submit(make_usual).result()
            urgency.enter_context(urgent(python_threads()))
            assert [thread.submit(niceness).result() for thread in (stays, ends)] == [-20, -20]
        urgency.close()  # one of them is gone by now
        assert stays.submit(niceness).result() == 0
    assert niceness() == own


def test_threads_are_switched_sooner_for_a_while_only() -> None:
    usual = sys.getswitchinterval()
    with soon_switched():
        assert sys.getswitchinterval() < usual / 4
    assert sys.getswitchinterval() == usual


def test_who_has_chosen_a_niceness_keeps_it() -> None:
    chosen = max(os.getpriority(os.PRIO_PROCESS, 0), 7)
    assert niceness_when_urgent(chosen) == (chosen, chosen, chosen)
