"""Limits are raised for a recording and are as before after it."""

import resource

import pytest

from tdprof.linux.limits import raised_descriptor_limit, unlimited_locked_memory


def test_the_limit_on_descriptors_is_raised_for_a_while() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 256), before[1]))
    try:
        with raised_descriptor_limit():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(before[0], 256), before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_refusal_to_raise_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)

    def refuse(_kind: int, limits: tuple[int, int]) -> None:
        if limits != before:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    with unlimited_locked_memory():
        assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == before
