"""Windows of records decoded by several threads: the same as by one, in every column and count."""

from pathlib import Path
from typing import Any, Literal

import pytest

import tdprof.decode.perf.data as perf_data
import tdprof.decode.perf.windows as perf_windows
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_KERNEL, CONTEXT_USER, Sample
from tdprof.decode.perf.columns import SAMPLE_COLUMNS
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import SampleType

ByteOrder = Literal["little", "big"]
LAYOUT = RecordLayout(
    SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.PERIOD | SampleType.CALLCHAIN, ids=(1,)
)
FINISHED_ROUND = 68
SAMPLES = 2000


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_data, "_WINDOW_BYTES", 4096)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where windows began that another thread decoded."""
    starts: list[int] = []
    take = perf_windows.WindowsAhead.take

    def noted(self: perf_windows.WindowsAhead, start: int) -> Any:
        found = take(self, start)
        starts.extend([start] if found else [])
        return found

    monkeypatch.setattr(perf_windows.WindowsAhead, "take", noted)
    return starts


def records(writer: PerfDataWriter) -> list[bytes]:
    """Samples, with chains that come again sooner and later, and what perf and its tool write between them."""
    w = writer.records
    made: list[bytes] = []
    for i in range(SAMPLES):
        chain = [CONTEXT_KERNEL, 1 << 63 | i % 7, CONTEXT_USER, *(range(i % 5 + 1)), i % 97 if i % 3 else i]
        made.append(w.sample(Sample(ip=i, pid=7, tid=i, time_ns=i, period=i, chain=chain)))
        if i % 40 == 0:
            made.append(w.comm(7, i, b"name", trailer=w.sample_id(pid=7, tid=i, time_ns=i)))
        if i % 100 == 50:
            made.append(writer.tool_record(FINISHED_ROUND, b""))
    return made


def write(path: Path, made: list[bytes], writer: PerfDataWriter) -> Path:
    path.write_bytes(writer.file(b"".join(made)))
    return path


def read(path: Path, threads: int) -> dict[str, Any]:
    """All that comes of the records."""
    columns: dict[str, list[Any]] = {name: [] for name in SAMPLE_COLUMNS}
    names: list[bytes] = []
    with PerfData(path) as data:
        for _ in data.batches(skip_samples=True):
            pass
        for batch in data.batches(copy=False, threads=threads):
            for name, values in columns.items():
                values += getattr(batch.samples, name).tolist()
            names += [batch.side_band.name(row) for row in batch.side_band.rows]
        chains = data.chains()
        return columns | {
            "names": names,
            "frames": chains.frames.tolist(),
            "offsets": chains.offsets.tolist(),
            "record_losses": data.record_losses,
            "losses": data.losses,
            "aux_buffers": data.aux_buffers,
            "position": data.position,
        }


@pytest.mark.parametrize("byteorder", ["little", "big"])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_make_what_one_does(tmp_path: Path, byteorder: ByteOrder, threads: int, taken: list[int]) -> None:
    writer = PerfDataWriter([Event(LAYOUT, "cycles")], byteorder)
    path = write(tmp_path / "perf.data", records(writer), writer)
    one = read(path, 1)
    assert one["ip"] == list(range(SAMPLES))
    assert not taken
    assert read(path, threads) == one
    assert len(taken) > 20


def test_a_thread_that_forgets_its_chains_numbers_them_alike(
    tmp_path: Path, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = PerfDataWriter([Event(LAYOUT, "cycles")])
    path = write(tmp_path / "perf.data", records(writer), writer)
    one = read(path, 1)
    monkeypatch.setattr(perf_windows, "_MOST_CHAIN_WORDS", 100)
    assert read(path, 2) == one
    assert len(taken) > 20


def test_what_the_tool_writes_is_read_once(tmp_path: Path, taken: list[int]) -> None:
    """A record that nobody knows, and an AUX buffer with all that lies in it, are found as by one thread."""
    writer = PerfDataWriter([Event(LAYOUT, "cycles")])
    made = records(writer)
    made.insert(SAMPLES // 2, writer.tool_record(90, b"\0" * 16))
    made.insert(SAMPLES // 3, writer.auxtrace(b"\x55" * 10_000, cpu=1))
    path = write(tmp_path / "perf.data", made, writer)
    one = read(path, 1)
    assert one["losses"].unknown_tool_records == {90: 1}
    assert len(one["aux_buffers"]) == 1
    assert read(path, 2) == one
    assert len(taken) > 20


def test_files_of_a_directory(tmp_path: Path, taken: list[int]) -> None:
    """Each has windows of its own, chains are numbered through all."""
    writer = PerfDataWriter([Event(LAYOUT, "cycles")])
    made = records(writer)
    folder = tmp_path / "perf.data"
    folder.mkdir()
    (folder / "data").write_bytes(writer.file(b"".join(made[:700])))
    (folder / "data.0").write_bytes(b"".join(made[700:1400]))
    (folder / "data.1").write_bytes(b"".join(made[1400:]))
    one = read(folder, 1)
    assert one["ip"] == list(range(SAMPLES))
    assert read(folder, 2) == one
    assert taken.count(0) == 3


@pytest.mark.parametrize("is_whole", [True, False])
def test_damage_that_only_who_reads_samples_sees(tmp_path: Path, is_whole: bool, taken: list[int]) -> None:
    """A sample's chain is longer than the sample; or its size is wrong, too, and the next record is to be found."""
    writer = PerfDataWriter([Event(LAYOUT, "cycles")])
    made = records(writer)
    bad = bytearray(made[SAMPLES // 2])
    assert int.from_bytes(bad[:4], "little") == 9  # a sample
    bad[40:48] = (1 << 40).to_bytes(8, "little")  # entries of its chain
    made[SAMPLES // 2] = bytes(bad) if is_whole else bytes(bad[:-8])
    path = write(tmp_path / "perf.data", made, writer)
    one = read(path, 1)
    assert one["record_losses"].malformed == 1
    assert len(one["ip"]) < SAMPLES
    assert read(path, 2) == one
    assert taken


def test_samples_stay_until_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only until the other threads have decoded what comes after it."""
    writer = PerfDataWriter([Event(LAYOUT, "cycles")])
    path = write(tmp_path / "perf.data", records(writer), writer)
    take = perf_windows.WindowsAhead.take

    def take_late(self: perf_windows.WindowsAhead, start: int) -> Any:
        found = take(self, start)
        for *_, coming in self._coming:
            coming.result()
        return found

    one = read(path, 1)
    monkeypatch.setattr(perf_windows.WindowsAhead, "take", take_late)
    assert read(path, 2) == one
