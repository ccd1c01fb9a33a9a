"""What is said of commands off which the kernel takes events."""

import os
from pathlib import Path

import pytest

from tdprof.recorder.following import privilege_notes
from tdprof.recorder.targets import SamplingTarget


@pytest.mark.parametrize(
    ("mode", "user", "is_filtered", "is_said"),
    [
        (0o755, 65534, False, False),
        (0o4755, 65534, False, True),
        (0o2755, 65534, False, True),
        (0o4755, None, False, False),  # its owner records it
        (0o4755, 65534, True, False),
    ],
)
def test_a_program_that_gains_privileges_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, user: int | None, is_filtered: bool, is_said: bool
) -> None:
    program = tmp_path / "program"
    program.write_text("")
    program.chmod(mode)
    if user is not None:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(os, "getegid", lambda: user)
    notes = list(privilege_notes(str(program), SamplingTarget([1], [1], is_filtered=is_filtered)))
    assert bool(notes) == is_said
    assert all("as root" in note for note in notes)
