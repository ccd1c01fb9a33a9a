"""`tdprof import` on the command line."""

import subprocess
import sys
from pathlib import Path

import pytest

from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_USER, Sample
from tdprof.capture.manifest import read_manifest
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import SampleType

LAYOUT = RecordLayout(SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CALLCHAIN, ids=(1,))


def recording(*, big: bool = False) -> bytes:
    writer = PerfDataWriter([Event(LAYOUT)], "big" if big else "little")
    samples = (Sample(ip=i, pid=1, tid=1, time_ns=i, chain=[CONTEXT_USER, i]) for i in range(1, 50))
    return writer.file(b"".join(map(writer.records.sample, samples)))


def run(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from tdprof.cli.main import main; main()", "import", *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, check=False)


def test_imports_perf_data_by_default(tmp_path: Path) -> None:
    (tmp_path / "perf.data").write_bytes(recording())
    result = run(tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    assert b"tdprof: imported cycles over" in result.stderr
    assert read_manifest(tmp_path / "tdprof.capture").events[0].name == "cycles"


def test_imports_standard_input(tmp_path: Path) -> None:
    assert run(tmp_path, "-", "-o", "c", "-q", stdin=recording(big=True)).returncode == 0
    assert read_manifest(tmp_path / "c").events[0].period == 4000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.data"], b"tdprof: cannot read none.data: No such file or directory"),
        (["."], b"tdprof: cannot read .: it is a folder that perf record --threads did not make"),
        (["text"], b"tdprof: text is not a perf.data file and no capture, which is a folder"),
        (["-"], b"tdprof: - is empty: no perf.data and no capture, which is a folder"),
        (["good", "-o", "full"], b"tdprof: full exists already"),
        (["good", "-o", "no/such/folder"], b"tdprof: cannot create no/such/folder: No such file or directory"),
    ],
)
def test_bad_input_is_one_line_and_a_hint(tmp_path: Path, arguments: list[str], message: bytes) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "good").write_bytes(recording())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    result = run(tmp_path, *arguments)
    assert result.returncode == 1
    first, second = result.stderr.splitlines()
    assert first == message
    assert second.startswith(b"  try: ")
    assert b"Traceback" not in result.stderr


def test_a_refused_import_leaves_no_capture(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    run(tmp_path, "text", "-o", "c")
    assert not (tmp_path / "c").exists()


def test_losses_are_said(tmp_path: Path) -> None:
    (tmp_path / "perf.data").write_bytes(recording()[:-700])
    result = run(tmp_path)
    assert result.returncode == 0
    assert b"bytes missing at the end of the file" in result.stderr
