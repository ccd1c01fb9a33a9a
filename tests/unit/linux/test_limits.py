"""Limits are raised for a recording and are as before after it."""

import resource
from pathlib import Path

import pytest

from tdprof.linux import limits
from tdprof.linux.limits import raised_descriptor_limit, unlimited_descriptors, unlimited_locked_memory


def test_the_limit_on_descriptors_is_raised_for_a_while() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 256), before[1]))
    try:
        with raised_descriptor_limit():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(before[0], 256), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(("is_allowed", "within"), [(True, (100_000, 100_000)), (False, (4096, 4096))])
def test_a_recording_has_more_descriptors_than_the_hard_limit_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_allowed: bool, within: tuple[int, int]
) -> None:
    """Old systems have a hard limit of 4,096: root's events of a few hundred threads are more."""
    has = (1024, 4096)

    def set_limit(_kind: int, wanted: tuple[int, int]) -> None:
        nonlocal has
        if wanted[1] > has[1] and not is_allowed:
            raise ValueError("not allowed to raise maximum limit")
        has = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: has)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    monkeypatch.setattr(limits, "NR_OPEN", tmp_path / "nr_open")
    (tmp_path / "nr_open").write_text("100000\n")
    with unlimited_descriptors():
        assert has == within
    assert has == (1024, 4096)


def test_a_refusal_to_raise_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)

    def refuse(_kind: int, limits: tuple[int, int]) -> None:
        if limits != before:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with unlimited_locked_memory():
        assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == before
