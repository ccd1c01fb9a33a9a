"""tools/guest/run: what the guest leaves comes back, whichever Python runs the tool."""

import importlib.machinery
import importlib.util
import io
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools/guest/run"


def load_tool() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("guest_run", str(TOOL))
    spec = importlib.util.spec_from_loader("guest_run", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("has_filters", [True, False], ids=["filters", "3.11.2"])
def test_files_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_filters: bool) -> None:
    disk = tmp_path / "out.tar"
    with tarfile.open(disk, "w") as archive:
        entry = tarfile.TarInfo("folder/said")
        entry.size = 5
        archive.addfile(entry, io.BytesIO(b"hello"))
    if not has_filters:  # as in Debian 12 (3.11.2)
        extract = tarfile.TarFile.extractall
        monkeypatch.delattr(tarfile, "tar_filter", raising=False)
        monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: extract(self, path))
    assert load_tool().copy_out(disk, tmp_path / "kept") == ["folder/said"]
    assert (tmp_path / "kept/folder/said").read_bytes() == b"hello"
