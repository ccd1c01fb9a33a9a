"""Stays in control groups: of threads alone, and with their process."""

from tdprof.recorder.bpf.visits import Stay, Visit, Visits

PROCESS = 1 << 32


def test_a_thread_has_its_own_stays_and_its_processs() -> None:
    visits = Visits({PROCESS | 7: Visit([Stay(0, 5), Stay(10, 20)]), 8: Visit([Stay(2, 4), Stay(6, 8)], 1)}, {})
    assert visits.of_thread(7, 7) == Visit([Stay(0, 5), Stay(10, 20)])
    assert visits.of_thread(7, 8) == Visit([Stay(2, 4), Stay(6, 8), Stay(10, 20)], 1)
    assert visits.of_thread(9, 9) == Visit([Stay(0, 0)])
    assert visits.of_thread(8, 9) == Visit([Stay(0, 0)])


def test_a_stay_counts_once() -> None:
    """What a thread does by itself is noted with what its process has done before."""
    whole, alone = Visit([Stay(10, 20), Stay(30, 20)]), Visit([Stay(10, 20), Stay(30, 40)])
    assert Visits({PROCESS | 7: whole, 8: alone}, {}).of_thread(7, 8) == alone


def test_over_are_visits_of_who_came_and_left() -> None:
    ended, there, never_came = (Visit([Stay(*times)]) for times in ((10, 20), (20, 10), (0, 10)))
    visits = Visits({PROCESS | 1: ended, PROCESS | 2: there, PROCESS | 3: never_came, 4: ended}, {})
    assert visits.over == {1}
