"""The kernel side of walking Python's frames: threads load it, whenever the recording ends."""

import threading
from collections.abc import Mapping

from tdprof.recorder.bpf.python_walk import PythonWalk

PATIENCE_S = 60


def test_the_end_waits_for_what_a_thread_loads_and_admits_no_more() -> None:
    is_loading, may_end = threading.Event(), threading.Event()
    loads = []

    def load(rings: Mapping[str, int]) -> None:
        loads.append(rings)
        is_loading.set()
        may_end.wait(PATIENCE_S)

    walk = PythonWalk({}, load)
    loading = threading.Thread(target=walk.start)
    loading.start()
    assert is_loading.wait(PATIENCE_S)
    closing = threading.Thread(target=walk.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    may_end.set()
    for thread in (closing, loading):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    never_started = PythonWalk({}, load)
    never_started.close()
    assert not never_started.start()
    assert len(loads) == 1
