"""The command line's outermost behaviour."""

import json
import subprocess
import sys

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tdprof.cli.main import main; main()", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_lists_what_to_type() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "tdprof record -- ./app" in result.stdout


def test_unknown_command_is_one_line_and_a_hint() -> None:
    result = run("recrod")
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == "tdprof: no command named 'recrod'"
    assert "Traceback" not in result.stderr


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
        ("record -F 0 -- x", "--freq: 0 is not in the range 1<=x<=2147483648", "tdprof record --help"),
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


@pytest.mark.parametrize("typed", [(), ("spe",)])
def test_a_group_by_itself_is_its_help(typed: tuple[str, ...]) -> None:
    result = run(*typed)
    assert "Commands:" in result.stdout + result.stderr
    assert "try:" not in result.stderr


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("tdprof.cli.record", {"numpy", "pyarrow", "rich", "subprocess", "tdprof.catalog"}),
        ("tdprof.finishing", {"rich", "tdprof.symbolize", "tdprof.attribute", "tdprof.metrics"}),
        ("tdprof.pipeline", {"urllib.request", "http.client", "rich"}),
    ],
)
def test_what_starts_and_ends_a_recording_loads_no_more_than_it_needs(module: str, unwanted: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not unwanted & set(found)


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
