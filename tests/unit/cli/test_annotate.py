"""`tdprof annotate`: which of its words is what."""

import sys
from pathlib import Path

import pytest

from tdprof.cli.main import main


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["work"], 1, "no capture at tdprof.capture"),
        (["old.capture", "work"], 1, "no capture at old.capture"),
        ([], 2, "tdprof annotate [CAPTURE] FUNCTION"),
        (["my.capture"], 2, "tdprof annotate [CAPTURE] FUNCTION"),
        (["a", "b", "c"], 2, "tdprof annotate [CAPTURE] FUNCTION"),
    ],
)
def test_the_capture_may_be_left_out(
    words: list[str],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my.capture").mkdir()
    (tmp_path / "my.capture/capture.json").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tdprof", "annotate", *words])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == status
    assert said in capsys.readouterr().err


def test_a_capture_after_the_function_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.capture").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tdprof", "annotate", "work", "my.capture"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capsys.readouterr().err
    assert "the capture comes before the function" in said
    assert "tdprof annotate my.capture work" in said
