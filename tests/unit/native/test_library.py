"""Finding and loading the compiled libraries."""

import ctypes
import subprocess
import zlib
from pathlib import Path

import pytest

import arm_spe.native
from tdprof.errors import TdprofError
from tdprof.native import library
from tdprof.native.headers import is_current


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


def test_a_library_of_other_headers_is_not_current(tmp_path: Path) -> None:
    """Its functions may have the same names, and structures of other sizes."""
    folder = tmp_path / "profiler/native"
    folder.mkdir(parents=True)
    (folder / "layout.h").write_text("struct of_today { long one, two; };\n")
    crc = zlib.crc32((folder / "layout.h").read_bytes())
    for told, is_its in ((f"{crc}u", True), ("1u", False), (None, False)):
        source = f"#include <stdint.h>\nconst uint32_t headers_crc = {told};\n" if told else "int nothing_told;\n"
        (tmp_path / "made.c").write_text(source)
        built = tmp_path / f"{told}.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, tmp_path / "made.c"], check=True)
        assert is_current(ctypes.CDLL(str(built)), tmp_path) is is_its
        assert is_current(ctypes.CDLL(str(built)), tmp_path / "installed")


def test_a_header_that_changes_makes_the_library_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "is_current", lambda *_: False)
    with pytest.raises(TdprofError, match="headers are not those"):
        library.load_native.__wrapped__()
