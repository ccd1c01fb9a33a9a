"""Processes that do not answer hold nobody up for long, and are asked again once they have."""

import contextlib
import gc
import threading
import weakref
from types import SimpleNamespace

import pytest

from builders.waiting import PATIENCE_S, wait_until
from tdprof.recorder import patience as module
from tdprof.recorder.patience import Call, Patience


def test_an_answer_is_handed_over_and_so_is_a_failure() -> None:
    patience = Patience()
    assert patience.ask(1, lambda: 42) == 42
    with pytest.raises(PermissionError):
        patience.ask(1, _refuse)
    assert not patience.late


def test_a_failure_keeps_nothing() -> None:
    """Else each process that ends while it is looked at leaves frames behind, until a collection finds them."""

    class Asker:
        def ask(self) -> None:
            raise ProcessLookupError

    patience, asker = Patience(), Asker()
    kept = weakref.ref(asker)
    gc.disable()
    try:
        with contextlib.suppress(ProcessLookupError):
            patience.ask(1, asker.ask)
        del asker
        wait_until(lambda: kept() is None)
    finally:
        gc.enable()


def test_who_does_not_answer_is_not_asked_again_before_it_has() -> None:
    patience, go, asked = Patience(), threading.Event(), list[int]()
    with pytest.raises(TimeoutError):
        patience.ask(1, go.wait)
    with pytest.raises(TimeoutError):
        patience.ask(1, lambda: asked.append(1))
    assert asked == []
    assert list(patience.late) == [1]
    assert patience.ask(2, lambda: "another") == "another"
    go.set()
    assert patience.late[1].wait(PATIENCE_S)
    assert patience.ask(1, lambda: "again") == "again"
    assert not patience.late


def test_an_answer_that_comes_too_late_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_S", 0.01)
    patience, go, discarded = Patience(), threading.Event(), list[bool]()
    with pytest.raises(TimeoutError):
        patience.ask(1, go.wait, discarded.append)
    go.set()
    assert patience.late[1].wait(PATIENCE_S)
    assert discarded == [True]
    with pytest.raises(TimeoutError):
        patience.late[1].result(0, "it")
    monkeypatch.setattr(module, "_LEAST_S", PATIENCE_S)  # what is used up by now
    assert patience.ask(1, lambda: False, discarded.append) is False
    assert discarded == [True]


def test_one_thread_makes_all_calls_until_one_does_not_return_and_ends_with_who_asks() -> None:
    patience, go = Patience(), threading.Event()
    first, second = (patience.ask(pid, threading.current_thread) for pid in (1, 2))
    assert first is second
    with pytest.raises(TimeoutError):
        patience.ask(3, go.wait)
    third = patience.ask(4, threading.current_thread)
    assert third is not first
    go.set()
    del patience
    for thread in (first, third):
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_who_asks_while_another_thread_waits_for_an_answer_does_not_wait_for_it() -> None:
    patience, go, began = Patience(), threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        go.wait(PATIENCE_S)

    other = threading.Thread(target=lambda: patience.ask(1, wait))
    other.start()
    assert began.wait(PATIENCE_S)
    assert patience.ask(2, lambda: "answer") == "answer"
    go.set()
    other.join(PATIENCE_S)


def test_all_that_do_not_answer_share_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, waited_s, go = [0.0], list[float](), threading.Event()

    def wait(_: Call[object], patience_s: float, _who: str) -> object:
        now_s[0] += patience_s
        waited_s.append(patience_s)
        raise TimeoutError

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(Call, "result", wait)
    monkeypatch.setattr(module, "_MOST_S", 2.0)
    patience = Patience()
    for pid in range(100):
        with pytest.raises(TimeoutError):
            patience.ask(pid, go.wait)
    go.set()
    assert waited_s[0] == 1
    assert sum(waited_s) < 2 + 0.05 * sum(waited_s) + 100 * 0.005


def _refuse() -> None:
    raise PermissionError
