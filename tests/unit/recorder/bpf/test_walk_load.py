"""Who loads the program that walks: a thread, before all else, since stacks are lost meanwhile."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from tdprof.recorder.bpf.object_file import LoadError
from tdprof.recorder.bpf.walk_load import WalkLoad


def priority() -> int:
    """Of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="may not take a higher priority (run it as root)")
def test_it_goes_before_others() -> None:
    def priorities() -> tuple[int, int]:
        """Of who loads, and of who waits for it."""
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        found = list[int]()
        assert WalkLoad(lambda: found.append(priority())).wait()
        return found[0], priority()

    with ThreadPoolExecutor(1) as thread:  # tests may run behind all else, and Linux has a niceness for each thread
        assert thread.submit(priorities).result() == (-20, 0)


def test_without_the_right_to_it_is_loaded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, who: int, value: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    loaded: list[bool] = []
    load = WalkLoad(lambda: loaded.append(True))
    assert load.wait()
    assert (loaded, load.refusal) == ([True], "")


def test_the_kernels_refusal_is_kept() -> None:
    def refuse() -> None:
        raise LoadError("walk: too many instructions")

    load = WalkLoad(refuse)
    assert load.wait()
    assert load.refusal == "walk: too many instructions"
