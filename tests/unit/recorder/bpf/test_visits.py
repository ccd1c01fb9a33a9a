"""Stays in control groups: of threads alone, and with their process."""

from tdprof.model.thread_state import ThreadState
from tdprof.recorder.bpf.standing_threads import StandingThread
from tdprof.recorder.bpf.visits import Visit, Visits

PROCESS = 1 << 32


def thread(pid: int, tid: int) -> StandingThread:
    return StandingThread(pid, tid, "t", ThreadState.INTERRUPTIBLE, -1)


def test_a_thread_has_the_later_of_its_own_and_its_processs() -> None:
    visits = Visits({PROCESS | 7: Visit(10, 20), 8: Visit(30, 5)}, {})
    assert visits.of_thread(7, 7) == Visit(10, 20)
    assert visits.of_thread(7, 8) == Visit(30, 20)  # it came again by itself
    assert visits.of_thread(9, 9) == Visit(0, 0)
    assert visits.of_thread(8, 9) == Visit(0, 0)


def test_over_are_visits_of_who_came_and_left() -> None:
    ended, there, never_came = Visit(10, 20), Visit(20, 10), Visit(0, 10)
    visits = Visits({PROCESS | 1: ended, PROCESS | 2: there, PROCESS | 3: never_came, 4: ended}, {})
    assert visits.over == {1}


def test_what_the_programs_have_told_is_not_told_again() -> None:
    visits = Visits({PROCESS | 1: Visit(10, 20)}, {1: 20, 2: 9})
    assert not visits.is_untold(thread(1, 1))
    assert visits.is_untold(thread(1, 2))  # what was told was an earlier one
    assert visits.is_untold(thread(1, 3))
    assert not visits.is_untold(thread(5, 5))
    # It was told as it left, a moment before the kernel told of that; or it is there.
    assert not Visits({PROCESS | 1: Visit(10, 20)}, {1: 19}).is_untold(thread(1, 1))
    assert not Visits({PROCESS | 1: Visit(10, 5)}, {}).is_untold(thread(1, 1))
