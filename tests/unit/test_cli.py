"""The command line's outermost behaviour."""

import subprocess
import sys


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
