"""Finding and loading the compiled libraries."""

import subprocess
from pathlib import Path

import pytest

import arm_spe.native
from tdprof.errors import TdprofError
from tdprof.native import library


@pytest.fixture
def stale(tmp_path: Path) -> Path:
    """A library without the functions of today."""
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing_of_today;\n")
    built = tmp_path / "_native.abi3.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, empty], check=True)
    return built


def test_a_library_of_another_version_says_how_to_rebuild_it(stale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "__file__", str(stale.parent / "native/library.py"))
    with pytest.raises(TdprofError, match="another version") as raised:
        library.load_native.__wrapped__()
    assert str(stale) in raised.value.message
    assert "pip install ." in raised.value.hint


def test_a_decoder_of_another_version_counts_as_none(stale: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arm_spe.native, "__file__", str(stale.parent / "native.py"))
    assert arm_spe.native.load_native.__wrapped__() is None
