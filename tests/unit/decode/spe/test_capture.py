"""SPE data in captures: spans, clocks, and the way from perf.data."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.capture_tables import table
from builders.captures import table_writer
from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung, SpeEventInfo, SpeInfo, State
from tdprof.capture.schema import PROCESSES, SPE_SPANS, SWITCHES
from tdprof.decode.spe.capture import open_spe, pairs_of, store_spe
from tdprof.decode.spe.clock import clock_of, time_ns
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.losses import Losses
from tdprof.pipeline.spe_report import weight_of

SPE = SpeInfo(4096, [])
MANIFEST = Manifest(HOST, [], [], False, [], Rung.BPF_PMU, "", 0, 0, 0, Losses(), spe=SPE, state=State.COMPLETE)


def capture(folder: Path, files: dict[str, bytes], *rows: tuple, **more: pa.Table) -> Path:
    (folder / "spe").mkdir()
    for name, data in files.items():
        (folder / "spe" / name).write_bytes(data)
    with table_writer(folder) as writer:
        writer.write("spe_spans", table(SPE_SPANS, rows))
        for name, rows_of_it in more.items():
            writer.write(name, rows_of_it)
    return folder


def spans(folder: Path, manifest: Manifest = MANIFEST) -> list[tuple]:
    with open_spe(folder, manifest) as spe:
        return [(span.cpu, span.tid, span.midr, span.aux_offset, bytes(span.data)) for span in spe.spans]


def test_adjoining_spans_of_a_task_are_one_and_padding_between_is_left_out(tmp_path: Path) -> None:
    data = bytes(range(1, 13)) + bytes(4) + bytes(range(17, 33)) + bytes(8)
    rows = [
        (3, 0, 0, 7, 71, 16, 8, 0),
        (1, 0, 0, 7, 70, 0, 8, 0),
        (2, 0, 0, 7, 70, 8, 4, 0),
        (4, 0, 0, 7, 71, 24, 8, 0),
    ]
    folder = capture(tmp_path, {"cpu0.0.aux": data}, *rows)
    midr = int(HOST.midr_el1["0"], 16)
    assert spans(folder) == [(0, 70, midr, 0, data[:12]), (0, 71, midr, 16, data[16:32])]
    # The whole system's spans end where the driver drained, not where a task left the CPU.
    assert spans(folder, replace(MANIFEST, is_system_wide=True)) == [
        (0, None, midr, 0, data[:12]),
        (0, None, midr, 16, data[16:32]),
    ]


def test_what_the_kernel_had_no_room_to_tell_of_is_nobodys(tmp_path: Path) -> None:
    """Its ring of AUX records is full long before the AUX area where spans are short."""
    data = bytes(range(1, 41))
    folder = capture(tmp_path, {"cpu0.0.aux": data}, (1, 0, 0, 7, 70, 8, 8, 0), (2, 0, 0, 7, 71, 24, 8, 0))
    assert [(tid, start, found) for _, tid, _, start, found in spans(folder)] == [
        (None, 0, data[:8]),
        (70, 8, data[8:16]),
        (None, 16, data[16:24]),
        (71, 24, data[24:32]),
        (None, 32, data[32:]),
    ]


CLOCKS = [[0, 0], [1 << 40, 1 << 40]]


def with_tables(folder: Path, threads: tuple[int, ...], switches: tuple[tuple, ...] = ()) -> Path:
    """A capture of two spans of CPU 0 that end while 71 runs, and one of CPU 1."""
    rows = [(1, 0, 0, 7, 71, 0, 8, 0), (2, 0, 0, 7, 71, 8, 8, 0), (3, 1, 0, 7, 70, 0, 8, 0)]
    tables = {"processes": table(PROCESSES, [(5, "fork", 7, tid, 7, 7, None) for tid in threads])}
    if switches:
        tables["switches"] = table(SWITCHES, switches)
    return capture(folder, {"cpu0.0.aux": bytes(16), "cpu1.0.aux": bytes(8)}, *rows, **tables)


def test_a_span_is_of_who_ended_it_only_where_nobody_else_was_recorded(tmp_path: Path) -> None:
    """The kernel swaps inherited events between tasks without ending a span."""
    for name, threads in (("one", (71,)), ("two", (70, 71))):
        (tmp_path / name).mkdir()
        with_tables(tmp_path / name, threads)
    assert [row[1] for row in spans(tmp_path / "one")] == [71, 70]
    assert [row[1] for row in spans(tmp_path / "two")] == [None, None]


def test_switches_decide_wherever_there_were_any(tmp_path: Path) -> None:
    with_tables(tmp_path, (70, 71), ((0, 0, 70), (100, 0, 71)))
    told = replace(MANIFEST, spe=replace(SPE, has_switches=True, clock_pairs=CLOCKS))
    # Nobody was switched to on CPU 1: who ended its span wrote all of it.
    assert [row[:2] for row in spans(tmp_path, told)] == [(0, None), (1, 70)]
    without_clock = replace(told, spe=replace(SPE, has_switches=True))
    assert [row[:2] for row in spans(tmp_path, without_clock)] == [(0, None), (1, None)]


def test_nothing_is_joined_to_a_span_that_ends_within_a_record(tmp_path: Path) -> None:
    folder = capture(tmp_path, {"cpu1.0.aux": b"abcdef"}, (1, 1, 0, 7, 7, 0, 3, 0x05), (2, 1, 0, 7, 7, 3, 3, 0x08))
    assert [row[4] for row in spans(folder)] == [b"abc", b"def"]
    with open_spe(folder, MANIFEST) as spe:
        assert (spe.losses.truncated, spe.losses.partial, spe.losses.collided) == (1, 1, 1)


def test_bytes_that_the_files_lack_are_counted(tmp_path: Path) -> None:
    rows = [(1, 0, 0, 7, 7, 0, 4, 0), (1, 0, 0, 8, 8, 4, 4, 0), (1, 5, 0, 9, 9, 0, 8, 0)]
    folder = capture(tmp_path, {"cpu0.0.aux": b"abcdef"}, *rows)
    assert [row[4] for row in spans(folder)] == [b"abcd", b"ef"]
    with open_spe(folder, MANIFEST) as spe:
        assert spe.losses.cut_buffers == 2


def test_of_very_many_spans_those_of_a_few_bytes_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1, 0, 0, 7, 7, offset, size, 0x04) for offset, size in ((0, 63), (63, 64), (127, 1))]
    folder = capture(tmp_path, {"cpu0.0.aux": bytes(128)}, *rows)
    for many, kept, left_out in ((3, [63, 64, 1], 0), (2, [64], 2)):
        monkeypatch.setattr("tdprof.decode.spe.spans._MANY_SPANS", many)
        assert [len(row[4]) for row in spans(folder)] == kept
        with open_spe(folder, MANIFEST) as spe:
            assert spe.losses.too_short == left_out


def test_a_number_that_no_cpu_has_is_none(tmp_path: Path) -> None:
    folder = capture(tmp_path, {f"cpu{2**31}.0.aux": b"abcd"}, (1, 2**31, 0, 7, 7, 0, 4, 0))
    assert [row[0] for row in spans(folder)] == [None]


def test_no_span_at_all_is_stored(tmp_path: Path) -> None:
    with table_writer(tmp_path) as writer:
        info = store_spe(OwnFolder.open(tmp_path), SpeInput([]), writer, period=0, event="arm_spe_0//", caps={})
    assert spans(tmp_path, replace(MANIFEST, spe=info)) == []


def test_a_capture_without_spe_says_so(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="holds no SPE data"), open_spe(tmp_path, replace(MANIFEST, spe=None)):
        pass


def test_what_is_stored_comes_back_piece_by_piece(tmp_path: Path) -> None:
    pieces = [AuxSpan(memoryview(b"one"), 0, 0, None, None), AuxSpan(memoryview(b"two"), 3, 0, None, None)]
    pieces.append(AuxSpan(memoryview(b"task"), 0, None, 99, None))
    with table_writer(tmp_path) as writer:
        info = store_spe(
            OwnFolder.open(tmp_path),
            SpeInput(pieces),
            writer,
            period=1024,
            event="arm_spe_0//",
            caps={"min_interval": 4},
        )
    assert [event.caps for event in info.events] == [{"min_interval": 4}]
    manifest = replace(MANIFEST, spe=info)
    assert [(row[0], row[1], row[4]) for row in spans(tmp_path, manifest)] == [
        (0, None, b"one"),
        (0, None, b"two"),
        (None, 99, b"task"),
    ]


@given(
    start=st.integers(0, 2**50),
    ticks=st.integers(10**6, 10**12),
    begin_ns=st.integers(0, 2**55),
    hertz=st.sampled_from([24_000_000, 62_500_000, 100_000_000, 1_000_000_000]),
    share=st.floats(0, 1),
)
def test_clock_pairs_give_the_time_between(start: int, ticks: int, begin_ns: int, hertz: int, share: float) -> None:
    end_ns = begin_ns + ticks * 10**9 // hertz
    conversion = clock_of([[start, begin_ns], [start + ticks, end_ns]])
    assert conversion is not None
    at = int(ticks * share)
    found = int(time_ns(np.array([start + at], np.uint64), conversion)[0])
    # Rounding the slope to 2^-24 ns a tick, and the pairs' own rounding to a nanosecond.
    assert abs(found - (begin_ns + at * 10**9 // hertz)) <= 3 + ticks * 2**-24
    again = clock_of(pairs_of(conversion))
    assert again is None or again.mult.tolist() == [conversion.mult[0]] * 3


def test_a_clock_that_is_steered_is_followed() -> None:
    """For ten minutes a clock is up to 40 millionths too fast or slow; it is read every second, within 80 ns."""
    random = np.random.default_rng(3)
    seconds = np.arange(601)
    true_ns = 10**12 + 10**9 * seconds + np.cumsum(40e3 * np.sin(seconds / 60))
    read_ns = true_ns + random.uniform(-80, 80, len(seconds))
    readings = [[10**12 + 25_000_000 * at, int(ns)] for at, ns in enumerate(read_ns.tolist())]
    clock = clock_of(readings)
    assert clock
    ticks = random.uniform(0, 600, 10_000)
    found = time_ns((10**12 + 25e6 * ticks).astype(np.uint64), clock).astype(float)
    assert np.abs(found - np.interp(ticks, seconds, true_ns)).max() < 200
    line = clock_of([readings[0], readings[-1]])
    assert line
    straight = time_ns((10**12 + 25e6 * ticks).astype(np.uint64), line).astype(float)
    assert np.abs(straight - np.interp(ticks, seconds, true_ns)).max() > 10**6


def test_readings_that_run_backwards_are_left_out() -> None:
    clock = clock_of([[100, 1000], [200, 2000], [150, 1500], [300, 1999], [400, 4000]])
    assert clock
    assert time_ns(np.array([50, 100, 150, 300, 400, 500], np.uint64), clock).tolist() == [
        500,
        1000,
        1500,
        3000,
        4000,
        5000,
    ]


@pytest.mark.parametrize("pairs", [[], [[1, 2]], [[5, 5], [5, 9]], [[5, 9], [7, 9]], [[1], [2]]])
def test_pairs_that_say_nothing_give_no_time(pairs: list[list[int]]) -> None:
    assert clock_of(pairs) is None


EVENT = SpeEventInfo("arm_spe_0", "arm_spe_0/ts_enable=0x1,jitter=0x1/", [0], {"ernd": 0})


def test_a_record_stands_for_the_population_over_what_was_taken_and_lost() -> None:
    counted = {"SAMPLE_POP": [1_000_000, 20, 10], "SAMPLE_FEED": [200, 20, 10], "SAMPLE_FILTRATE": [100, 20, 10]}
    weight = weight_of(SpeInfo(4096, [EVENT], sampling=counted), records=100)
    assert weight is not None
    # 5,000 operations a sample; 200 passed the filters in all the time, 100 were decoded.
    assert weight.value == 10_000
    assert weight.relative_standard_error == pytest.approx(400**-0.5)


@pytest.mark.parametrize(
    ("event", "caps", "interval"),
    [
        ("jitter=0x1/", {"ernd": 0}, 4224),
        ("jitter=0x1/", {"ernd": 1}, 4097),
        ("ts_enable=0x1/", {}, 4097),
        # As perf names its events.
        ("ts_enable=1,jitter=1/u", {}, 4224),
        ("jitter,ts_enable/", {}, 4224),
        ("jitter=0/", {}, 4097),
        # A period below the hardware's least is that.
        ("jitter=0x1/", {"min_interval": 8192}, 8320),
        ("jitter=0x1/", {"min_interval": 1024}, 4224),
    ],
)
def test_without_counts_it_is_the_mean_interval_with_no_known_error(event: str, caps: dict, interval: int) -> None:
    info = SpeInfo(
        4100, [SpeEventInfo("arm_spe_0", f"arm_spe_0/{event}", [0], caps)], sampling={"SAMPLE_POP": [0, 5, 0]}
    )
    weight = weight_of(info, records=10)
    assert weight is not None
    assert (weight.value, weight.relative_standard_error) == (interval, None)


def test_nothing_known_is_no_weight() -> None:
    assert weight_of(SpeInfo(0, [EVENT]), 10) is weight_of(SpeInfo(4096, []), 10) is None
