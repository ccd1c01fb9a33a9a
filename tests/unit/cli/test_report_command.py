"""`tdprof report` on a Topdown recording: options, pager, colours."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders.opened import NoCapture
from builders.profiles import ProfileBuilder
from builders.topdown import topdown_profile
from tdprof.cli import report
from tdprof.errors import TdprofError
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated


@pytest.fixture(autouse=True)
def _no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = topdown_profile(seconds=8)
    show(monkeypatch, profile)


def show(monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    monkeypatch.setattr("tdprof.cli.loading.OpenCapture", NoCapture)
    monkeypatch.setattr(report, "load_with_findings", lambda *_, **__: (calibrated(profile), find_findings(profile)))


def run(*arguments: str, **environment: str) -> Result:
    result = CliRunner().invoke(report.command, ["some.capture", *arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_functions_are_led_by_cycles_and_explained() -> None:
    lines = run().stdout.splitlines()
    assert " 40.0% ± 0.4  chase  app  with callees 40.0%" in lines
    assert any("-> Backend Cache L2D Bound" in line for line in lines)


def test_json_has_metrics_and_csv_too() -> None:
    document = json.loads(run("--json").stdout)
    assert document["functions"][0]["name"] == "chase"
    assert run("--csv").stdout.startswith("function,module,file,line,self_share")
    assert len(json.loads(run("--json", "--limit", "2").stdout)["functions"]) == 2


@pytest.mark.parametrize("form", ["--json", "--csv"])
@pytest.mark.parametrize("view", [["--lines"], ["--tree"], ["--function", "chase"]])
def test_every_view_has_every_form(form: str, view: list[str]) -> None:
    text = run(*view, form).stdout
    assert json.loads(text) if form == "--json" else len(text.splitlines()) > 2


def test_one_function_by_a_part_of_its_name() -> None:
    assert " chase " in run("--function", "has").stdout
    entry = json.loads(run("--function", "chase", "--json").stdout)["functions"]
    assert [each["name"] for each in entry] == ["chase"]
    with pytest.raises(TdprofError, match="no samples in a function 'chess'") as caught:
        run("--function", "chess")
    assert "chase" in (caught.value.hint or "")


@pytest.mark.parametrize("options", [("--json", "--csv"), ("--tree", "--lines"), ("--tree", "--spe")])
def test_contradictions_are_refused(options: tuple[str, str]) -> None:
    with pytest.raises(TdprofError, match=f"{options[0]}.*{options[1]}|{options[1]}.*{options[0]}"):
        run(*options)


def test_metrics_of_other_captures_are_refused_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, ProfileBuilder().add("main", "f").build())
    with pytest.raises(TdprofError, match="--tree shows metrics") as caught:
        run("--tree")
    assert "tdprof record --topdown" in (caught.value.hint or "")
    assert "function" in run("--csv").stdout.splitlines()[0]


SHOW = """
import sys
from tdprof.cli.output import print_paged
print_paged("line\\n" * int(sys.argv[1]), may_page=sys.argv[2] == "page")
"""


def on_terminal(*arguments: str, **environment: str) -> tuple[str, int]:
    """What a program that pages prints on a terminal, and its status."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, *arguments], stdout=child, stdin=child, env={**os.environ, **environment}
    )
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:  # the terminal is gone with its last program
        pass
    os.close(parent)
    return shown.decode(), process.wait()


def test_long_output_goes_through_the_pager_on_a_terminal(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "paged by LESS=$LESS"; cat > /dev/null\n')
    pager.chmod(0o755)
    environment = {"PAGER": str(pager)} | ({"LESS": "FRX"} if "LESS" in os.environ else {})
    assert on_terminal("9", "page", **environment) == ("paged by LESS=FRX\r\n", 0)
    assert on_terminal("2", "no", **environment) == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="") == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="cat") == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="/no/such/pager") == ("line\r\n" * 2, 0)


def test_a_pager_that_is_left_early_is_no_error() -> None:
    assert on_terminal("200000", "page", PAGER="true") == ("", 0)


def test_pipes_are_not_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: 1 / 0)
    assert "chase" in run().stdout
