"""Stores that somebody else has made, file by file: nothing is followed or waited for, and what is left out is told."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.fleet import START_NS, tdprof
from builders.rollups import write_recording
from builders.waiting import ends_within
from tdprof.capture.files import STORE_MARKER
from tdprof.errors import TdprofError
from tdprof.fleet.store import Store

QUESTIONS = (("report",), ("hosts",), ("check",), ("compact",), ("spe",))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    made = Store.create(str(tmp_path / "store"))
    for host in "ab":
        write_recording(made, host, {"work": 60, "rest": 20}, date="2026-11-22", start_ns=START_NS)
    return tmp_path / "store"


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    """A question that waits for a pipe, or goes round in links, ends the test run in words."""
    with ends_within(60, AssertionError("it does not end")):
        yield


def links_in_circles(store: Path) -> None:
    for folder in (store / "rollup", store / "rollup" / "recordings", store / "rejected", store / "sums"):
        folder.mkdir(exist_ok=True)
        for name in "xyz":
            (folder / name).symlink_to(".")


def pipe_instead_of_the_marker(store: Path) -> None:
    (store / STORE_MARKER).unlink()
    os.mkfifo(store / STORE_MARKER)


def pipe_among_what_was_set_aside(store: Path) -> None:
    (store / "rejected").mkdir()
    os.mkfifo(store / "rejected" / "0.json")


def pipes_for_rollups(store: Path) -> None:
    for path in (store / "rollup").rglob("*.parquet"):
        path.unlink()
        os.mkfifo(path)


def device_for_a_rollup(store: Path) -> None:
    path = next(iter((store / "rollup" / "functions").rglob("*.parquet")))
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "change",
    [
        links_in_circles,
        pipe_instead_of_the_marker,
        pipe_among_what_was_set_aside,
        pipes_for_rollups,
        device_for_a_rollup,
    ],
    ids=lambda change: change.__name__,
)
def test_nothing_is_waited_for_or_followed(store: Path, change: Callable[[Path], None]) -> None:
    change(store)
    for question in QUESTIONS:
        ran = tdprof("fleet", *question, store)
        assert ran.error is None or isinstance(ran.error, TdprofError), (question, ran.error)


def test_a_link_is_told_of(store: Path) -> None:
    [folder] = (store / "rollup" / "recordings").rglob("host=a")
    folder.rename(store.parent / "elsewhere")
    folder.symlink_to(store.parent / "elsewhere")
    error = tdprof("fleet", "report", store).error
    assert isinstance(error, TdprofError)
    assert "host=a is a link" in error.message


def test_a_store_is_its_users_alone(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    for name, mode in (("new", 0o700), ("shared", 0o755)):  # what is there is as it was made
        Store.create(str(tmp_path / name))
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode
