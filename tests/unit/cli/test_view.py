"""`tdprof view` from its arguments to what it opens; what the browser then shows is in tests/browser."""

import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S
from tdprof.cli.speedscope import find_speedscope
from tdprof.errors import TdprofError

TESTS = Path(__file__).parents[2]
PRELUDE = """
import sys
from builders.opened import NoCapture
from builders.profiles import example
import tdprof.cli.loading
import tdprof.cli.view as view
from tdprof.cli.capture_options import Input
tdprof.cli.loading.load_profile = lambda _: example()
tdprof.cli.loading.OpenCapture = NoCapture
view.find_input = lambda path: Input(path, None)
if "--not-installed" in sys.argv:
    sys.argv.remove("--not-installed")
    view.find_speedscope = lambda: None
from tdprof.cli.main import main
main()
"""

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **more: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")}
        environment |= {"PYTHONPATH": str(TESTS), "XDG_DATA_HOME": str(tmp_path / "data"), **more}
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE, "view", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> str:
    """Ctrl-C once it serves; returns what standard error got."""
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if "serving until Ctrl-C" in line:
            break
    process.send_signal(signal.SIGINT)
    errors = "".join(told) + process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    return errors


def first_line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_without_speedscope_the_page_is_served_and_how_to_get_it_is_said(start: Start, tmp_path: Path) -> None:
    process = start("--not-installed")
    name, url = first_line(process)
    assert name == "page"
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        assert b"Flame graph" in response.read()
    errors = stop(process)
    assert f"npm install --prefix {shlex.quote(str(tmp_path / 'data/tdprof'))} speedscope@" in errors
    assert "ssh -L" in errors  # no display
    assert "stopped" in errors


def test_asking_for_speedscope_without_it_is_refused_with_both_ways_out(start: Start) -> None:
    process = start("--speedscope", "--not-installed")
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (2, "")
    assert "speedscope is not installed" in errors
    assert "npm install" in errors
    assert "--html" in errors


def test_the_browser_is_given_the_address(start: Start, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(
        f'#!/bin/sh\ncp -p "${{1#file://}}" {tmp_path}/page\n'
        f'echo "$1" >{tmp_path}/opened.part\nmv {tmp_path}/opened.part {tmp_path}/opened\n'
    )
    browser.chmod(0o755)
    process = start("--html", BROWSER=str(browser))
    _, url = first_line(process)
    stop(process)
    opened = (tmp_path / "opened").read_text().strip()
    # What everybody sees of a process is no key to the page; what leads there is for nobody else.
    assert url.split("/")[3] not in opened
    assert f'content="0; url={url}"' in (tmp_path / "page").read_text()
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o600
    assert not Path(opened.removeprefix("file://")).parent.exists()


def test_a_browser_is_not_opened_where_none_is_wanted(start: Start, tmp_path: Path) -> None:
    process = start("--html", "--no-browser", BROWSER=f"touch {tmp_path / 'opened'}")
    first_line(process)
    assert "ssh -L" in stop(process)
    assert not (tmp_path / "opened").exists()


def test_speedscope_is_found_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert find_speedscope() is None
    release = tmp_path / "data/tdprof/node_modules/speedscope/dist/release"
    release.mkdir(parents=True)
    (release / "index.html").write_text("page")
    assert find_speedscope() == {"index.html": b"page"}


@pytest.mark.parametrize("refused", ["folder", "file", "link", "pipe"])
def test_what_others_could_have_put_into_speedscope_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    release = tmp_path / "data/tdprof/node_modules/speedscope/dist/release"
    release.mkdir(parents=True)
    (release / "index.html").touch()
    (tmp_path / "elsewhere").touch()
    if refused == "folder":
        release.parent.chmod(0o777)
    elif refused == "file":
        (release / "index.html").chmod(0o666)
    elif refused == "link":
        (release / "more.js").symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(release / "more.js")
    with pytest.raises(TdprofError, match="is not used") as caught:
        find_speedscope()
    assert "chmod -R go-w" in caught.value.hint
