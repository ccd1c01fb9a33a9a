"""Groups of perf events: who leads, who follows, and what becomes of a group whose events are refused."""

import errno
import os

import pytest

from tdprof.recorder import perf_event as pe
from tdprof.recorder import refusals
from tdprof.recorder.event_group import open_group, open_whole_group
from tdprof.recorder.refusals import Scope, not_permitted, open_error


class Kernel:
    """Notes what is opened, and refuses the events with these numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: tuple[int, ...] = ()) -> None:
        self.refuses = refuses
        self.opened: list[tuple[int, int, bool, bool]] = []
        self.fds: list[int] = []
        monkeypatch.setattr(pe, "perf_event_open", self.open)

    def open(self, attr: pe.PerfEventAttr, _task: int, _cpu: int, leader: int = -1, *, is_cgroup: bool = False) -> int:
        assert not is_cgroup
        if attr.config in self.refuses:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.opened.append((attr.config, leader, bool(attr.disabled), bool(attr.enable_on_exec)))
        self.fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return self.fds[-1]


def attrs(count: int) -> list[pe.PerfEventAttr]:
    return [pe.PerfEventAttr(config=number) for number in range(count)]


def test_the_first_that_opens_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, refuses=(0, 2))
    asked = []

    def refused(index: int, error: OSError) -> bool:
        asked.append((index, error.errno))
        return True

    found = open_group(attrs(4), 7, -1, refused, starts_at_exec=True)
    leader = kernel.fds[0]
    assert found == [None, leader, None, kernel.fds[1]]
    assert kernel.opened == [(1, -1, True, True), (3, leader, False, False)]
    assert asked == [(0, errno.EINVAL), (2, errno.EINVAL)]
    for fd in kernel.fds:
        os.close(fd)


def test_a_group_is_given_up_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, refuses=(0,))
    assert open_group(attrs(3), 7, -1, lambda _index, _error: False) == [None, None, None]
    assert kernel.opened == []


def test_a_refusal_that_raises_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch, refuses=(2,))
    with pytest.raises(OSError, match="Invalid argument"):
        open_whole_group(attrs(3), 0, -1)
    assert len(kernel.fds) == 2
    for fd in kernel.fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


@pytest.mark.parametrize(
    ("scope", "paranoid", "expected", "hint"),
    [
        (
            Scope.SYSTEM,
            2,
            "the whole system: kernel.perf_event_paranoid is 2",
            "sudo sysctl kernel.perf_event_paranoid=0",
        ),
        (
            Scope.COMMAND,
            4,
            "your own programs: kernel.perf_event_paranoid is 4",
            "sudo sysctl kernel.perf_event_paranoid=2",
        ),
        (Scope.PROCESS, 2, "this process: Permission denied", "you can {verb} your own processes"),
    ],
)
@pytest.mark.parametrize("verb", ["record", "count"])
def test_recording_and_counting_are_refused_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, scope: Scope, paranoid: int, expected: str, hint: str, verb: str
) -> None:
    monkeypatch.setattr(refusals, "perf_event_paranoid", lambda: paranoid)
    error = PermissionError(errno.EACCES, "Permission denied")
    for refusal in (not_permitted(error, scope, verb=verb), open_error("cycles", error, scope, verb=verb)):
        assert refusal.message == f"not allowed to {verb} {expected}"
        assert refusal.hint.startswith(hint.format(verb=verb, setting="kernel.perf_event_paranoid"))
