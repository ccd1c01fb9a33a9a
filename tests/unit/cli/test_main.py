"""The command line's outermost behaviour."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tdprof.cli import main
from tdprof.cli.usage import usage_error


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    # Readline, which pytest loads, puts COLUMNS into what children inherit, behind the back of os.environ.
    settings.setdefault("env", dict(os.environ))
    code = "from tdprof.cli.main import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], check=False, **settings)


def test_help_lists_what_to_type() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "tdprof record -- ./app" in result.stdout


def test_unknown_command_is_one_line_and_a_hint() -> None:
    result = run("recrod")
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == "tdprof: no command named 'recrod'"
    assert "Traceback" not in result.stderr


def test_an_interrupt_while_a_class_is_made_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python before 3.12 makes another error of it."""

    def interrupted() -> None:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(main, "_run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "tdprof: interrupted\n")


TOPDOWN_HINT = "tdprof record --topdown -- CMD, or tdprof record --topdown=2 -- CMD"


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("recrod", "no command named 'recrod'", "tdprof record --help"),
        ("zzzz", "no command named 'zzzz'", "tdprof --help"),
        ("spe dcode x", "no command named 'dcode'", "tdprof spe decode --help"),
        ("--verson", "no option --verson", "tdprof --version"),
        ("record --durtion 3 -- x", "no option --durtion", "tdprof record --duration"),
        ("record --zzzz", "no option --zzzz", "tdprof record --help"),
        ("record -F abc -- x", "--freq: 'abc' is not a number", "tdprof record --help"),
        ("record -F 0 -- x", "--freq: 0 is not between 1 and 2147483648", "tdprof record --help"),
        ("record --duration 0 -- x", "--duration: 0.0 is not more than 0", "tdprof record --help"),
        ("stat -I 5 -- x", "--interval-print: 5 is less than 10", "tdprof stat --help"),
        ("record -F", "option '-F' requires an argument", "tdprof record --help"),
        ("spe decode -o", "option '-o' requires an argument", "tdprof spe decode --help"),
        ("record --topdown=3 -- x", "--topdown takes 1, 2 or all, not '3'", TOPDOWN_HINT),
        ("export x --to flded", "--to: 'flded' is not one of", "tdprof export --to folded"),
        ("list metric", "what: 'metric' is not one of", "tdprof list metrics"),
        ("report a b", "got unexpected extra argument (b)", "tdprof report --help"),
        ("import --kallsyms /nowhere", "--kallsyms: file '/nowhere' does not exist", "tdprof import --help"),
        ("spe decode x", "missing option '-o'", "tdprof spe decode --help"),
    ],
)
def test_what_was_typed_wrong_is_one_line_and_a_hint(typed: str, message: str, hint: str) -> None:
    result = run(*typed.split())
    first, second = result.stderr.splitlines()
    assert first.startswith(f"tdprof: {message}")
    assert second == f"  try: {hint}"
    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize("typed", ["--help", "--version", "record --help", "spe --help", "spe dump -h"])
def test_help_that_cannot_be_written_is_one_line_and_a_failure(typed: str) -> None:
    for unbuffered in ("", "1"):  # the failure shows when the buffer is emptied, or at once
        with Path("/dev/full").open("w") as full:
            result = run(*typed.split(), stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
        assert result.stderr == "tdprof: cannot write the output: No space left on device\n"
        assert result.returncode == 1


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/null", "/dev/null is not a capture: it is no folder"),
        ("empty", "empty is empty: no perf.data and no capture, which is a folder"),
        ("text", "text is not a perf.data file and no capture, which is a folder"),
        (".", ". is not a capture: it has no capture.json"),
        ("gone", "no capture at gone"),
    ],
)
def test_what_is_no_capture_is_said_with_what_makes_one(path: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello, this is no recording")
    more = {"annotate": "main", "diff": path}
    for command in ("report", "export --to folded", "diff", "annotate"):
        arguments = [*command.split(), path, *([more[command]] if command in more else [])]
        first, second = run(*arguments, cwd=tmp_path).stderr.splitlines()
        assert first == f"tdprof: {said}"
        assert "tdprof record -o DIR -- CMD" in second


def test_a_capture_whose_name_is_typed_wrong_has_the_right_one_as_hint(tmp_path: Path) -> None:
    (tmp_path / "prod.capture").mkdir()
    (tmp_path / "prod.capture" / "capture.json").touch()
    (tmp_path / "prod.txt").touch()
    said = run("report", "prdo.capture", cwd=tmp_path).stderr
    assert said == "tdprof: no capture at prdo.capture\n  try: prod.capture, which is one\n"


def test_a_store_has_the_command_that_reads_it_as_hint(tmp_path: Path) -> None:
    (tmp_path / "prod").mkdir()
    (tmp_path / "prod" / "tdprof-store.json").touch()
    assert run("report", "prod", cwd=tmp_path).stderr.splitlines() == [
        "tdprof: prod is not a capture: it is a store of many",
        "  try: tdprof fleet report prod",
    ]


def test_a_folder_of_captures_has_one_of_them_as_hint(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "segments" / f"2026010{number}").mkdir(parents=True)
        (tmp_path / "segments" / f"2026010{number}" / "capture.json").touch()
    assert run("report", "segments", cwd=tmp_path).stderr.splitlines() == [
        "tdprof: segments is not a capture: it is a folder of captures",
        "  try: segments/20260102, which is one; or tdprof fleet add STORE segments",
    ]


@pytest.mark.parametrize(
    ("metavar", "shown"),
    [("[CAPTURE=tdprof.capture]", "CAPTURE"), ("[PERF.DATA]", "PERF.DATA"), ("CAPTURE…", "CAPTURE"), (None, "what")],
)
def test_an_argument_is_called_by_the_word_of_its_usage(metavar: str | None, shown: str) -> None:
    error = click.BadParameter("path 'x' is not readable.", param=click.Argument(["what"], metavar=metavar))
    assert usage_error(error).message == f"{shown}: path 'x' is not readable"


def test_the_cache_is_told_in_the_units_of_its_help(tmp_path: Path) -> None:
    folder = tmp_path / "tdprof/symbols"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    assert "It never grows beyond 2 GiB" in run("cache", "--help").stdout
    assert run("cache", env=environment).stdout == f"{folder}: 0 files, 0 B of at most 2.000 GiB\n"
    (folder / "ab").mkdir(parents=True)
    (folder / "ab/cdef.tds").write_bytes(bytes(3 << 19))
    first, second = run("cache", env=environment).stdout.splitlines()
    assert first == f"{folder}: 1 file, 1.500 MiB of at most 2.000 GiB"
    assert second.startswith("  abcdef   1.500 MiB  last used ")
    assert run("cache", "--prune", "0", env=environment).stdout.startswith("removed 1 file, 1.500 MiB\n")


@pytest.mark.parametrize("typed", [(), ("spe",)])
def test_a_group_by_itself_is_its_help(typed: tuple[str, ...]) -> None:
    result = run(*typed)
    assert "Commands:" in result.stdout + result.stderr
    assert "try:" not in result.stderr


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("tdprof.recorder.recording", {"numpy", "pyarrow", "rich", "subprocess", "tdprof.catalog"}),
        (
            "tdprof.recorder.session",
            {"tdprof.recorder.run", "tdprof.recorder.bpf.sampler", "tdprof.recorder.unwinding"},
        ),
        ("tdprof.cli.record_end", {"subprocess", "socket", "tdprof.recorder.held_programs"}),
        ("tdprof.pipeline.finish", {"rich", "tdprof.symbolize", "tdprof.attribute", "tdprof.metrics"}),
        ("tdprof.pipeline.load", {"urllib.request", "http.client", "rich", "tdprof.recorder", "tdprof.decode"}),
        ("tdprof.pipeline.load", {"subprocess", "zipfile", "tdprof.catalog.load", "tdprof.symbolize.debuginfod"}),
        ("tdprof.pipeline.spe_columns", {"tdprof.decode.perf.data", "tdprof.metrics.attribution"}),
        ("tdprof.pipeline.walk_copies", {"tdprof.symbolize.symbolizer", "tdprof.symbolize.elf_symbols", "rich"}),
        (
            "tdprof.cli.report_views",
            {"tdprof.profile.groups", "tdprof.report.calls.text", "tdprof.catalog.tree"},
        ),
        ("tdprof.cli.main", {"difflib", "traceback", "shutil", "dataclasses", "tdprof.linux.output_file"}),
    ],
)
def test_a_module_loads_no_more_than_it_needs(module: str, unwanted: set[str]) -> None:
    # Some machines' interpreters load more before anything is asked of them.
    code = f"import sys; before = {{*sys.modules}}; import {module}; print(*{{*sys.modules}} - before)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not unwanted & set(found)


SAID_AT_ONCE = """
import sys
from tdprof.cli.main import COMMANDS, main
slow = ("numpy", "pyarrow", "rich", "tdprof.recorder.session")
lines = [[name, *more] for name in COMMANDS for more in (["--help"], ["--no-such-option"])]
lines += [["--help"], ["nosuch"], ["spe", "report", "--help"], ["report", "gone"], ["annotate", "gone", "main"]]
lines += [["diff", "gone", "gone"], ["export", "gone", "--to", "folded"], ["report", "--by", "x"], ["record"]]
lines += [["record", "--", "./gone"]]
for line in lines:
    sys.argv[1:] = line
    try:
        main()
    except SystemExit as end:
        status = 0 if "--help" in line else 127 if "--" in line else 2 if "gone" not in line or "diff" in line else 1
        assert end.code == status, (line, end)
    loaded = [name for name in slow if name in sys.modules]
    assert not loaded, (line, loaded)
"""


def test_help_and_what_is_typed_wrong_load_nothing_slow(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SAID_AT_ONCE], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]


@pytest.mark.parametrize(("command", "first"), [("doctor", "name,status,detail,cost,fix"), ("cache", "build_id,")])
def test_tables_of_the_machine_as_csv(command: str, first: str) -> None:
    done = run(command, "--csv")
    assert done.stdout.startswith(first)
    both = run(command, "--csv", "--json")
    assert (both.returncode, both.stdout) == (2, "")
    assert "exclude each other" in both.stderr


def test_a_pipe_does_not_break_the_doctor_s_findings() -> None:
    done = run("doctor")
    table = done.stdout.split("\n\n")[1].splitlines()
    assert len(table) == 1 + len(json.loads(run("doctor", "--json").stdout)["checks"])


@pytest.mark.parametrize("command", ["record", "import"])
def test_help_says_what_an_output_folder_may_be(command: str) -> None:
    """An older capture makes way under the default name alone."""
    said = " ".join(run(command, "--help").stdout.split())
    assert "nothing may be there yet. Default: tdprof.capture, where an older one becomes tdprof.capture.old." in said
