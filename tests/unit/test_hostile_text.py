"""Whatever text a capture or an error is made of, it steers no terminal."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from builders.fleet import tdprof
from builders.spe_capture import write_spe_capture
from tdprof.cli.main import cli
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError

TDPROF = (sys.executable, "-c", "from tdprof.cli.main import main; main()")
# What moves a cursor, retitles a window, ends a line, or turns the direction of writing.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e\x7f"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

COMMANDS = [
    ["report"],
    ["report", "--json"],
    ["report", "--csv"],
    ["report", "--spe"],
    ["report", "--spe", "--json"],
    ["report", "--by", "process"],
    ["report", "--by", "command", "--csv"],
    ["report", "--tree"],
    ["report", "--lines"],
    ["spe", "report"],
    ["diff", "app.capture"],
    ["annotate", "work"],
    ["export", "--to", "folded"],
    ["export", "--to", "speedscope"],
    ["export", "--to", "html"],
]


def with_hostile_text(value: Any) -> Any:
    """The JSON value with its free texts followed by what is hostile; the words that a reader knows stay."""
    if isinstance(value, dict):
        kept = ("state", "rung", "unit")
        return {key: each if key in kept else with_hostile_text(each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_hostile_text(each) for each in value]
    return value + HOSTILE if isinstance(value, str) else value


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    folder = write_spe_capture(tmp_path / "app.capture")
    manifest = json.loads((folder / "capture.json").read_text())
    manifest |= {"rung_reason": "no BPF", "notes": ["a note"], "command": ["./app"]}
    manifest["losses"]["by_reason"] = {"somewhere": 3}
    (folder / "capture.json").write_text(json.dumps(with_hostile_text(manifest)))
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        for at, field in enumerate(table.schema):
            plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if plain == pa.string() and field.name not in ("kind", "build_id"):
                texts = [text and text + HOSTILE for text in table[field.name].to_pylist()]
                table = table.set_column(at, field, pa.array(texts, plain).cast(field.type))
        pq.write_table(table, path)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_controls(capture: Path, tmp_path: Path, command: list[str]) -> None:
    # A process of its own: what is printed when the program ends counts, too.
    result = subprocess.run(
        [*TDPROF, command[0], *command[1:], str(capture)], capture_output=True, cwd=tmp_path, check=False, timeout=300
    )
    assert result.stdout or result.returncode
    for stream in (result.stdout, result.stderr):
        found = CONTROLS.search(stream.decode())
        assert found is None, stream[max(0, found.start() - 80) :][:200]
    if "json" in str(command):
        assert not any(CONTROLS.search(text) for text in texts_of(json.loads(result.stdout)))


def test_no_answer_of_a_fleet_has_controls(capture: Path, tmp_path: Path) -> None:
    store, damaged = tmp_path / "store", tmp_path / f"damaged{HOSTILE}\udc9b"
    damaged.mkdir()
    (damaged / "capture.json").write_text("{}")
    other = tmp_path / f"other{HOSTILE}\udc9b"  # no UTF-8
    shutil.copytree(capture, other)
    manifest = json.loads((other / "capture.json").read_text())
    manifest["host"] |= {"hostname": f"h{HOSTILE}", "boot_id": "another"}
    (other / "capture.json").write_text(json.dumps(manifest))
    shutil.rmtree(other / "spe")
    given = ["fleet", "add", str(store), *map(str, (capture, other, damaged)), "--again"]
    asked = [["fleet", question, str(store)] for question in ("report", "hosts", "spe", "check")]
    exported = [["export", "--to", form, str(store)] for form in ("folded", "speedscope", "html")]
    for words in (given, *asked, *exported):
        for form in ([], ["--json"], ["--csv"]) if words[0] == "fleet" else ([],):
            ran = tdprof(*words, *form)
            told = [ran.stdout] if form != ["--json"] or ran.error else texts_of(json.loads(ran.stdout))
            for text in told:
                assert not CONTROLS.search(text), (words[1], form, text[:400])


def texts_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for each in pair for text in texts_of(each)]
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


def test_damage_is_told_without_its_bytes(tmp_path: Path) -> None:
    folder = write_spe_capture(tmp_path / "app.capture")
    (folder / "capture.json").write_text('{"schema_version": 99, "tdprof_version": "' + "\\u001b[2J" + '"}')
    result = subprocess.run([*TDPROF, "report", str(folder)], capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 1
    assert result.stderr.startswith("tdprof: ")
    assert not CONTROLS.search(result.stderr)


def test_arguments_are_told_without_their_controls() -> None:
    for arguments in (["report", HOSTILE], ["export", ".", "--to", HOSTILE], [HOSTILE], ["record", "--", HOSTILE]):
        result = subprocess.run([*TDPROF, *arguments], capture_output=True, text=True, check=False, timeout=300)
        assert result.returncode not in (0, 120), result
        assert not CONTROLS.search(result.stdout + result.stderr)


@pytest.mark.needs_perf
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_counts_of_a_program_with_a_hostile_name(tmp_path: Path, form: list[str]) -> None:
    program = tmp_path / f"program{HOSTILE}\udc9b"
    program.symlink_to("/bin/true")
    assert tdprof("stat", *form, "-o", tmp_path / "counts", "--", program).error is None
    text = (tmp_path / "counts").read_text()
    assert "program\ufffd" in text
    assert not CONTROLS.search(text)


def test_say_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"tdprof: two\nlines{HOSTILE}")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not CONTROLS.search(said)


def test_errors_are_what_was_raised() -> None:
    """The text of an error is made printable where it is printed, and nowhere before: a program may look at it."""
    result = CliRunner().invoke(cli, ["report", f"/no/such{HOSTILE}"])
    assert isinstance(result.exception, TdprofError)


def test_what_is_waited_for_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with waiting(f"reading {HOSTILE}[/bold][red]a") as show:
        show(f"fetching {HOSTILE}[/bold][red]b")
    text = terminal.getvalue()
    assert "\x1b]" not in text
    assert "\x9b" not in text
    assert "[/bold][red]b" in text
