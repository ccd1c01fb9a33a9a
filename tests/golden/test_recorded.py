"""A capture says in its first line what was recorded: a command, processes, control groups or all CPUs."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tdprof.cli.main import cli

CAPTURE = Path(__file__).parent / "shop.capture"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"command": ["./app", "a b"]}, "command ./app 'a b'"),
        ({"pids": [12]}, "recorded process 12"),
        ({"pids": [12, 13]}, "recorded processes 12, 13"),
        ({"is_system_wide": True}, "recorded all CPUs"),
        ({"is_system_wide": True, "cgroups": ["/a", "/b\x1b"]}, "recorded control groups /a, /b\ufffd"),
        ({}, "command (not known)"),
    ],
)
def test_the_report_says_what_was_recorded(said: dict[str, object], line: str, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    shutil.copytree(CAPTURE, capture)
    manifest = json.loads((capture / "capture.json").read_text())
    manifest |= {"command": [], "pids": [], "is_system_wide": False, **said}
    (capture / "capture.json").write_text(json.dumps(manifest))
    result = CliRunner().invoke(cli, ["report", str(capture)])
    assert result.exit_code == 0, result.output
    assert " ".join(result.stdout.splitlines()[0].split()) == line
