"""Closed or full standard streams, and few descriptors: a line says so, and nothing goes where it does not belong."""

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from builders.spe_capture import write_spe_capture
from tdprof.cli import main

TDPROF = (sys.executable, "-c", "from tdprof.cli.main import main; main()")


def shell(redirections: str, *arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *TDPROF, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=cwd,
    )


COMMANDS = [["report", "--json"], ["diff", "app.capture"], ["export", "--to", "html", "-o", "page.html"]]


@pytest.mark.parametrize("redirections", [">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", "2>/dev/full"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_closed_and_full_streams(tmp_path: Path, command: list[str], redirections: str) -> None:
    capture = write_spe_capture(tmp_path / "app.capture")
    before = {path: path.read_bytes() for path in capture.glob("*.*")}
    result = shell(redirections, *command, capture, cwd=tmp_path)
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr
    has_lost_output = command[0] != "export" and not redirections.startswith("2")
    # What `diff` exits with says more: 1 is a change for the worse.
    assert result.returncode == (has_lost_output and {"diff": 2}.get(command[0], 1)), result.stderr
    if has_lost_output and "2>" not in redirections:
        assert re.match("tdprof: cannot write the output: (Bad file descriptor|No space left)", result.stderr)
    assert {path: path.read_bytes() for path in capture.glob("*.*")} == before


@pytest.mark.parametrize("redirections", ["2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_usage_errors_keep_their_status(tmp_path: Path, redirections: str) -> None:
    result = shell(redirections, "report", "--no-such-option", cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("descriptors", [12, 32])
@pytest.mark.parametrize(
    "command",
    [["report", "app.capture"], ["record", "-o", "new", "--", "true"], ["stat", "--", "true"], ["doctor"], ["cache"]],
    ids=" ".join,
)
def test_few_descriptors(tmp_path: Path, command: list[str], descriptors: int) -> None:
    result = subprocess.run(
        [*TDPROF, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)),
    )
    assert result.returncode == 1
    assert result.stderr == (
        f"tdprof: only {descriptors} files may be open at once, 64 are needed\n"
        "  try: ulimit -n 1024, or more for many threads and CPUs\n"
    )
    assert not (tmp_path / "new").exists()


def test_descriptors_that_a_caller_left_open_count(tmp_path: Path) -> None:
    """With too few for itself tdprof would take what it cannot open for what is not there."""
    with open(os.devnull, "rb") as file:
        held = [os.dup(file.fileno()) for _ in range(40)]
    try:
        result = subprocess.run(
            [*TDPROF, "record", "-a", "-o", "new"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            pass_fds=held,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96)),
        )
    finally:
        for fd in held:
            os.close(fd)
    assert (result.returncode, result.stderr.splitlines()[0]) == (
        1,
        "tdprof: only 56 files may be open at once beside 40 that its caller left open, 64 are needed",
    )


def test_no_folder_for_temporary_files_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    said: list[str] = []
    monkeypatch.setattr(main, "_run", refuse)
    monkeypatch.setattr(main, "say", said.append)
    with pytest.raises(SystemExit):
        main.main()
    assert said == ["tdprof: no folder for temporary files can be written to", "  try: TMPDIR=DIR"]
