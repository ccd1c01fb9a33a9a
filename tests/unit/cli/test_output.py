"""`tdprof report` and `tdprof export` from their arguments to their output."""

import gzip
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# A capture is somebody else's contract: these commands are tested from the loaded profile on.
PRELUDE = """
import sys
from builders.opened import NoCapture
from builders.profiles import example
import tdprof.cli.loading
tdprof.cli.loading.load_profile = lambda _: example()
tdprof.cli.loading.OpenCapture = NoCapture
tdprof.cli.capture_options.find_input = lambda path: tdprof.cli.capture_options.Input(path, None)
from tdprof.cli.main import main
main()
"""
TESTS = Path(__file__).parents[2]

Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
        environment |= {"PYTHONPATH": str(TESTS), "TERM": "xterm-256color", **options.pop("env", {})}  # type: ignore[dict-item]
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path, **options}
        return subprocess.run([sys.executable, "-c", PRELUDE, *arguments], env=environment, check=False, **settings)  # type: ignore[call-overload]

    return run


def on_terminal(run: Run, *arguments: str, **options: object) -> tuple[int, str]:
    """Exit status and what a terminal of 100 columns gets."""
    controller, terminal = pty.openpty()
    status = run(*arguments, stdout=terminal, stderr=terminal, **options).returncode
    os.close(terminal)
    pieces = []
    while True:
        try:
            piece = os.read(controller, 65536)
        except OSError:  # EIO: the terminal's last user has gone
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(controller)
    return status, b"".join(pieces).decode()


def test_report_pipes_whole_names_without_colours(run: Run) -> None:
    result = run("report")
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"\x1b" not in result.stdout
    assert b"[libz.so.1+0x1f00]" in result.stdout


def test_report_keeps_to_the_width_that_is_asked_for(run: Run) -> None:
    result = run("report", env={"COLUMNS": "40"})
    assert max(len(line) for line in result.stdout.decode().splitlines()) <= 40


def test_colours_on_a_terminal_unless_no_color(run: Run) -> None:
    _, coloured = on_terminal(run, "report")
    _, plain = on_terminal(run, "report", env={"NO_COLOR": "1"})
    assert "\x1b[33m" in coloured
    assert "\x1b[33m" not in plain
    assert "square(int)" in plain


def test_json_has_the_promised_form(run: Run) -> None:
    report = json.loads(run("report", "x.capture", "--json").stdout)
    assert {"events", "rung", "losses", "duration_ns", "functions"} <= set(report)
    assert len(report["functions"]) == 6
    assert report["functions"][0] == {
        "name": "square(int)",
        "module": "/bin/app",
        "file": "math.h",
        "line": 3,
        "samples": 700,
        "self": {"cpu-clock": 700_000_000, "page-faults": 0},
        "total": {"cpu-clock": 700_000_000, "page-faults": 0},
        "guessed": 0,
    }
    assert len(json.loads(run("report", "--json", "--limit", "2").stdout)["functions"]) == 2
    by_line = json.loads(run("report", "--json", "--lines", "--sort", "page-faults").stdout)["functions"]
    assert (len(by_line), by_line[0]["name"]) == (7, "handle_mm_fault")


def test_an_unknown_event_is_one_line_and_the_choices(run: Run) -> None:
    events = "cpu-clock, page-faults"
    for choices, *arguments in (
        [f"self, total, {events}", "report", "--sort", "cycles"],
        [events, "export", "--to", "folded", "--event", "cycles"],
    ):
        result = run(*arguments)
        assert result.returncode == 2
        assert result.stderr.decode().splitlines() == [
            "tdprof: the capture has no event 'cycles'",
            f"  try: one of: {choices}",
        ]


def test_a_reader_that_stops_early_is_no_error(run: Run) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    result = run("report", stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["report"], ["report", "--json"], ["export", "--to", "folded"]])
def test_a_full_disk_is_one_line(run: Run, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        result = run(*arguments, stdout=full)
    assert (result.returncode, result.stderr) == (1, b"tdprof: cannot write the output: No space left on device\n")


def test_a_terminal_without_utf8_gets_question_marks(run: Run) -> None:
    result = run("report", env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert b"? 95 %" in result.stdout


def test_export_writes_each_format(run: Run, tmp_path: Path) -> None:
    for name in ("speedscope", "pprof", "folded"):
        result = run("export", "x.capture", "--to", name, "-o", f"out.{name}")
        assert (result.returncode, result.stdout) == (0, b"")
        assert f"tdprof: wrote out.{name}" in result.stderr.decode()
    assert json.loads((tmp_path / "out.speedscope").read_text())["profiles"][1]["name"].startswith("page-faults (")
    assert b"_Z6squarei" in gzip.decompress((tmp_path / "out.pprof").read_bytes())
    assert (tmp_path / "out.folded").read_text().endswith("worker;main;work(int);square(int) 100000000\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.folded", "out.pprof", "out.speedscope"]


def test_export_to_standard_output_and_of_one_event(run: Run) -> None:
    result = run("export", "--to", "folded", "--event", "page-faults")
    assert (result.stdout, result.stderr) == (b"app;main;work(int);handle_mm_fault 7\n", b"")
    document = json.loads(run("export", "--to", "speedscope", "-o", "-", "--event", "page-faults").stdout)
    assert [each["name"].partition(" (")[0] for each in document["profiles"]] == ["page-faults"]


def test_export_of_some_samples(run: Run) -> None:
    result = run("export", "--to", "folded", "--comm", "worker")
    assert result.stdout == b"worker;main;work(int);square(int) 100000000\n"
    refused = run("export", "--to", "folded", "--pid", "7")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert refused.stderr.decode().splitlines() == ["tdprof: no sample is of --pid 7", "  try: --pid 100, 200"]


def test_a_binary_format_does_not_go_to_a_terminal(run: Run) -> None:
    status, text = on_terminal(run, "export", "--to", "pprof")
    assert status == 2
    assert "tdprof: pprof is a binary format and standard output is a terminal" in text
    assert "-o profile.pb.gz" in text


def test_export_replaces_a_file_but_not_a_link_or_a_device(run: Run, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert run("export", "--to", "folded", "-o", "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text().startswith("app;")
    assert run("export", "--to", "folded", "-o", "/dev/null").returncode == 0
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("no-such-folder/out", "No such file or directory"),
        ("file/out", "Not a directory"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_export_that_cannot_write_says_why(run: Run, tmp_path: Path, output: str, cause: str) -> None:
    (tmp_path / "file").write_text("")
    result = run("export", "--to", "folded", "-o", output)
    assert result.returncode == 1
    assert result.stderr.decode().splitlines()[0] == f"tdprof: cannot write {output}: {cause}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_help_shows_what_to_type(run: Run) -> None:
    assert b"tdprof report my.capture --lines" in run("report", "--help").stdout
    assert b"go tool pprof -http=: app.pb.gz" in run("export", "--help").stdout
    missing = run("export", "x.capture")
    assert missing.returncode == 2
    assert b"Traceback" not in missing.stderr
