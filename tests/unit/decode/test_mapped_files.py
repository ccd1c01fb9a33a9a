"""Recordings that are cut short while they are read: an error that says so, and neither death nor wrong numbers."""

import mmap
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders import spe
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import Sample
from builders.spe_capture import load, write_spe_capture
from builders.spe_perf_data import perf_data
from tdprof.decode.mapped_files import MappedFiles
from tdprof.decode.perf.layout import RecordLayout
from tdprof.errors import TdprofError
from tdprof.native.library import load_native

needs_native = pytest.mark.skipif(load_native() is None, reason="the compiled library was not built")
RECORDS = 200_000

PERF_DATA = """
from tdprof.decode.perf.data import PerfData
with PerfData(path) as data:
    os.truncate(path, 4096)
    for _ in data.batches():
        pass
"""
AUX_OF_PERF_DATA = """
from arm_spe import RecordDecoder
from tdprof.decode.spe.perf_input import open_perf_data
with open_perf_data(path) as source:
    os.truncate(path, 4096)
    print(sum(len(batch) for span in source.spans for batch in RecordDecoder(span.data)))
"""
STORED_AUX = """
from tdprof.pipeline import import_perf
to_spe = import_perf._with_spe
def cut_first(*arguments):
    os.truncate(path, 4096)
    return to_spe(*arguments)
import_perf._with_spe = cut_first
import_perf.import_perf_data(path, Path(path + ".capture"))
"""
RAW = """
from tdprof.decode.spe.spans import open_raw
from arm_spe import RecordDecoder
with open_raw(path) as source:
    os.truncate(path, 4096)
    print(sum(len(batch) for span in source.spans for batch in RecordDecoder(span.data)))
"""
CAPTURE = """
from arm_spe import RecordDecoder
from tdprof.capture.manifest import read_manifest
from tdprof.decode.spe.capture import open_spe
with open_spe(Path(path), read_manifest(Path(path))) as source:
    os.truncate(path + "/spe/cpu0.0.aux", 0)
    print(sum(len(batch) for span in source.spans for batch in RecordDecoder(span.data)))
"""


def run(script: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """The script in a process of its own, which says what it refuses to go on with; Python tells nobody of a signal."""
    whole = f"""
import os, sys
from pathlib import Path
from tdprof.errors import TdprofError
path = sys.argv[1]
try:
{"".join(f"    {line}" for line in script.strip().splitlines(keepends=True))}
except TdprofError as error:
    sys.exit(error.message)
"""
    return subprocess.run([sys.executable, "-c", whole, path], capture_output=True, text=True, timeout=300)


def write_perf_data(path: Path) -> Path:
    writer = PerfDataWriter([Event(RecordLayout(sample_type=0x10087), "cycles")])
    sample = writer.records.sample(Sample(ip=1, pid=7, tid=8, time_ns=9))
    path.write_bytes(writer.file(sample * RECORDS))
    return path


def write_spe_perf_data(path: Path) -> Path:
    return perf_data(path, [(0, stream() * 20)], [0x410FD4F0])


def write_raw(path: Path) -> Path:
    path.write_bytes(stream())
    return path


def stream() -> bytes:
    return spe.write_stream([load(0x401000)] * 2000, spe.packed_record)[0]


@pytest.mark.parametrize(
    ("script", "write"),
    [
        pytest.param(PERF_DATA, write_perf_data, id="perf.data"),
        pytest.param(AUX_OF_PERF_DATA, write_spe_perf_data, id="AUX of perf.data"),
        pytest.param(STORED_AUX, write_spe_perf_data, id="AUX of perf.data, stored"),
        pytest.param(RAW, write_raw, id="raw"),
        pytest.param(CAPTURE, write_spe_capture, id="capture"),
    ],
)
def test_what_is_cut_short_while_it_is_read_is_an_error(tmp_path: Path, script: str, write: object) -> None:
    assert callable(write)
    ended = run(script, write(tmp_path / "input"))
    assert ended.returncode == 1, ended.stderr
    assert "was cut short" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(tmp_path.glob("*.capture"))


OTHER_MAPPING = """
import mmap
from tdprof.decode.mapped_files import MappedFiles
with open(path, "r+b") as file:
    watched = MappedFiles().add(file, path)
    other = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    file.truncate(0)
    assert watched[5000] == 0
    print(other[5000])
"""


@needs_native
def test_a_mapping_of_somebody_else_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    assert run(OTHER_MAPPING, path).returncode == -signal.SIGBUS


def test_more_files_than_can_be_watched_are_read_and_numbers_are_given_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 2 * mmap.PAGESIZE)
    with path.open("r+b") as file:
        many = MappedFiles()
        held = [many.add(file, str(path)) for _ in range(1030)]
        file.truncate(mmap.PAGESIZE)
        assert held[-1][-1:] == b"x"  # read, not mapped
        if load_native():
            assert held[0][-1:] == b"\0"
            with pytest.raises(TdprofError, match="was cut short"):
                many.check()
        many, held = MappedFiles(), []
        file.truncate(2 * mmap.PAGESIZE)
        assert bytes(many.add(file, str(path))[-1:]) == b"\0"
        many.check()


def test_what_is_forgotten_is_read_again(tmp_path: Path) -> None:
    """Whatever part of the file it is, and where nothing is mapped."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 256)
    files = MappedFiles()
    with path.open("rb") as file:
        data = memoryview(files.add(file, "file"))
    for start, end in ((0, len(data)), (1, 2), (4095, 8193), (5000, 5000), (100, len(data) - 1)):
        assert bytes(data[start:end]) == path.read_bytes()[start:end]
        files.forget(data[start:end])
        assert bytes(data) == path.read_bytes()
    elsewhere = memoryview(bytes(range(256)) * 64)
    files.forget(elsewhere)
    assert bytes(elsewhere) == bytes(range(256)) * 64
    files.check()
