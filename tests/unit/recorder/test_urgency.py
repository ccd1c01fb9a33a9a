"""Threads that run before others."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tdprof.recorder.urgency import urgent


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


def test_who_has_chosen_a_niceness_keeps_it() -> None:
    chosen = max(os.getpriority(os.PRIO_PROCESS, 0), 7)
    assert niceness_when_urgent(chosen) == (chosen, chosen, chosen)
