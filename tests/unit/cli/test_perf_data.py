"""perf.data given to the commands that read captures."""

import subprocess
import sys
from pathlib import Path

import pytest

from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_USER, Sample
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import SampleType

SECOND = 1_000_000_000
PERIOD = 4000  # of the writer's events
LAYOUT = RecordLayout(SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CALLCHAIN, ids=(1,))


def recording() -> bytes:
    """Two processes over ten seconds; one maps another file at its address in the sixth."""
    writer = PerfDataWriter([Event(LAYOUT)])
    w = writer.records
    stream = b""
    for pid in (7, 8):
        stream += w.comm(pid, pid, b"app%d" % pid, trailer=w.sample_id(pid=pid, tid=pid, time_ns=1))
        stream += w.mmap2(pid, 0x10000, 0x8000, 0, b"/no/first", trailer=w.sample_id(pid=pid, tid=pid, time_ns=2))
    for tick in range(40):
        time_ns = SECOND + tick * SECOND // 4
        if tick == 20:
            stream += w.mmap2(7, 0x10000, 0x8000, 0, b"/no/second", trailer=w.sample_id(pid=7, tid=7, time_ns=time_ns))
        for pid in (7, 8):
            chain = [CONTEXT_USER, 0x10010 + tick % 3 * 16, 0x10101]
            stream += w.sample(Sample(ip=chain[1], pid=pid, tid=pid, time_ns=time_ns, chain=chain))
    return writer.file(stream)


def run(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from tdprof.cli.main import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, input=stdin, capture_output=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "perf.data").write_bytes(recording())
    assert run(tmp_path, "import", "-q").returncode == 0
    return tmp_path


@pytest.mark.parametrize("command", [("export", "--to", "folded"), ("export", "--to", "speedscope"), ("report",)])
def test_perf_data_says_what_its_capture_says(folder: Path, command: tuple[str, ...]) -> None:
    of_capture, of_file = run(folder, *command), run(folder, *command, "perf.data")
    assert of_file.returncode == 0, of_file.stderr
    assert of_file.stdout == of_capture.stdout
    assert len(of_file.stdout.splitlines()) > 2
    assert sorted(path.name for path in folder.iterdir()) == ["perf.data", "tdprof.capture"]


def test_folded_stacks_keep_what_was_mapped_when(folder: Path) -> None:
    lines = run(folder, "export", "--to", "folded", "perf.data").stdout.decode().splitlines()
    weight = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}
    assert sum(weight.values()) == PERIOD * 80
    assert sum(value for line, value in weight.items() if line.startswith("app7;") and "second" in line) == PERIOD * 20
    assert sum(value for line, value in weight.items() if line.startswith("app8;") and "first" in line) == PERIOD * 40


def test_standard_input_and_directories(folder: Path) -> None:
    expected = run(folder, "export", "--to", "folded").stdout
    assert run(folder, "export", "--to", "folded", "-", stdin=recording()).stdout == expected
    (folder / "threads").mkdir()
    (folder / "threads" / "data").write_bytes(recording())
    assert run(folder, "export", "--to", "folded", "threads").stdout == expected


def test_losses_are_said(folder: Path) -> None:
    (folder / "cut.data").write_bytes(recording()[:-900])
    result = run(folder, "export", "--to", "folded", "cut.data")
    assert result.returncode == 0
    assert b"bytes missing at the end of the file" in result.stderr


def test_another_file_is_refused_in_one_line(folder: Path) -> None:
    (folder / "text").write_text("hello")
    result = run(folder, "report", "text")
    assert result.returncode == 1
    first, second = result.stderr.splitlines()
    assert first == b"tdprof: text is not a perf.data file and no capture, which is a folder"
    assert second.startswith(b"  try: ")
