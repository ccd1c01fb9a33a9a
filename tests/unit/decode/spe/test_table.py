"""Spans decoded and converted by several threads: everything comes once and in order."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from arm_spe import DecodeCounts
from builders import spe
from builders.spe_perf_data import perf_data
from tdprof.cli.spe_table import _held_back
from tdprof.decode.spe.perf_input import open_perf_data
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.decode.spe.table import decode_spans

SIZES = (700, 1, 90, 300)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    streams = [
        (number, spe.write_stream(spe.program(size, number), spe.neoverse_slot)[0]) for number, size in enumerate(SIZES)
    ]
    return perf_data(tmp_path / "perf.data", streams, [0x410FD0C0] * len(SIZES))


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_records_come_in_order_however_long_each_takes(recording: Path, workers: int) -> None:
    chance = random.Random(workers)

    def convert(batch: pa.RecordBatch) -> list[tuple[int, int]]:
        time.sleep(chance.random() / 200)
        return list(zip(batch["cpu"].to_pylist(), batch["offset"].to_pylist(), strict=True))

    counts = DecodeCounts()
    with open_perf_data(recording) as source:
        pieces = list(decode_spans(source, counts, convert, workers=workers, batch_records=32))
        offsets = {span.cpu: span.aux_offset for span in source.spans}
    expected = [(cpu, offsets[cpu] + 64 * record) for cpu, size in enumerate(SIZES) for record in range(size)]
    assert [row for piece in pieces for row in piece.value] == expected
    assert counts.records == sum(piece.records for piece in pieces) == sum(SIZES)
    done = [piece.done for piece in pieces]
    assert done == sorted(done)
    assert done[-1] == 64 * (sum(SIZES) - 1)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_short_spans_share_a_batch(monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool) -> None:
    """Whatever a batch holds of each, rows say the same; what another core wrote has a batch of its own."""
    if not is_compiled:
        monkeypatch.setattr("arm_spe.decoder.load_native", lambda: None)
    own = bytes([0x9E, 0x07, 0x00])  # a counter that is no field
    records = [spe.write_stream([record], spe.packed_record)[0] for record in spe.program(60, 1)]
    datas = [data[:9] + own + data[9:] if number % 3 else data for number, data in enumerate(records)]
    cores = [0x410FD0C0] * 40 + [None] * 20
    spans = [
        AuxSpan(memoryview(data), 1000 * number, number % 2 or None, None, core)
        for number, (data, core) in enumerate(zip(datas, cores, strict=True))
    ]

    def rows(spans: list[AuxSpan]) -> tuple[list[dict], list[int], DecodeCounts]:
        counts = DecodeCounts()
        pieces = list(decode_spans(SpeInput(spans), counts, pa.RecordBatch.to_pylist, workers=2))
        return [row for piece in pieces for row in piece.value], [piece.records for piece in pieces], counts

    joined, lengths, counts = rows(spans)
    alone = [rows([span]) for span in spans]
    assert joined == [row for each, _, _ in alone for row in each]
    assert len(lengths) == 2
    assert counts.records == sum(lengths) == 60
    assert sum(row["other_packets"] is not None for row in joined) == 40


def test_one_long_span_is_converted_by_several_threads(tmp_path: Path) -> None:
    stream, _ = spe.write_stream(spe.program(400, 1), spe.neoverse_slot)
    path = perf_data(tmp_path / "perf.data", [(0, stream)], [0x410FD0C0])
    met = threading.Barrier(3)

    def convert(batch: pa.RecordBatch) -> int:
        if batch["offset"][0].as_py() < 3 * 100 * 64:
            met.wait(120)  # breaks if the others wait for this one
        return len(batch)

    with open_perf_data(path) as source:
        pieces = list(decode_spans(source, DecodeCounts(), convert, workers=3, batch_records=100))
    assert [piece.value for piece in pieces] == [100] * 4


def test_an_error_of_a_conversion_is_raised(recording: Path) -> None:
    def convert(batch: pa.RecordBatch) -> None:
        raise OSError("no room")

    with open_perf_data(recording) as source, pytest.raises(OSError, match="no room"):
        list(decode_spans(source, DecodeCounts(), convert, workers=2, batch_records=32))


def test_an_interrupt_waits_for_the_rows_that_are_being_written() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with _held_back():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("written")
        done.append("never")
    assert done == ["written"]
    with pytest.raises(KeyboardInterrupt), _held_back():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("never")
    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_background_job_stays_deaf() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with _held_back():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
