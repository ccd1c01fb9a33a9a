"""A manifest that is not as it was written: every command says so, and shows the rest."""

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner, Result

from builders.captures import write_manifest
from builders.spe_capture import write_spe_capture
from tdprof.capture.manifest import State, read_manifest
from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.pipeline.finish import finish_capture

# A form of each kind of output, and each command that reads captures.
COMMANDS = [
    "report {}", "report {} --tree --csv", "report {} --by second --json", "report {} --spe --csv",
    "spe report {} --by source", "spe decode {} -o {out}", "spe dump {}", "annotate {} work", "diff {} {good}",
    "archive {}", "fleet add {out} {} --json", "export {} --to html -o {out}", "export {} --to folded -o {out}",
]  # fmt: skip
TOLD = "capture.json has changed since it was written"


def run(command: str) -> Result:
    return CliRunner().invoke(cast(click.Command, cli), command.split(), catch_exceptions=False)


def edit(capture: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = capture / "capture.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write_spe_capture(tmp_path / "app.capture")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so_and_goes_on(capture: Path, tmp_path: Path, command: str) -> None:
    good = write_spe_capture(tmp_path / "good.capture")
    edit(capture, lambda data: data.update(end_monotonic_ns=data["end_monotonic_ns"] + 1))
    result = run(command.format(capture, good=good, out=tmp_path / "out"))
    said = "not all of " if command.startswith("diff") else TOLD
    assert result.exit_code == 0, result.output
    assert said in result.output


def test_each_character_counts(capture: Path) -> None:
    """Whichever of them is another, that is said, or makes no difference to what is read."""
    path = capture / "capture.json"
    text, written = path.read_bytes(), read_manifest(capture)
    assert not written.was_altered
    silent = []
    for at in range(0, len(text), 5):
        path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])  # of a digit: the next one
        with contextlib.suppress(TdprofError):
            found = read_manifest(capture)
            if not found.was_altered and found != written:
                silent.append(at)
    assert silent == []


def test_another_layout_is_no_other_content(capture: Path) -> None:
    edit(capture, lambda data: None)
    assert not read_manifest(capture).was_altered


def test_one_from_before_there_were_checksums_is_believed(capture: Path) -> None:
    edit(capture, lambda data: data.pop("checksum"))
    assert not read_manifest(capture).was_altered
    assert TOLD not in run(f"report {capture}").output


def test_it_is_said_of_the_tables_that_were_made_by_it(capture: Path) -> None:
    write_manifest(capture, replace(read_manifest(capture), state=State.RECORDING, spe=None))
    (capture / "spool").mkdir()
    (capture / "spool/samples").touch()
    edit(capture, lambda data: data.update(interval_ns=1))
    with OwnFolder.open(capture) as folder:
        finish_capture(folder)
    assert read_manifest(capture).state is State.COMPLETE
    assert read_manifest(capture).was_altered
