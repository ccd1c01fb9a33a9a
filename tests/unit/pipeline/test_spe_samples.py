"""SPE records as samples: thread, instruction, latencies and source, in as much detail as fits."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from arm_spe import RecordDecoder
from builders import spe
from builders.opened import operations_of, profile_of
from builders.spe_capture import PID, load, records, write_spe_capture
from tdprof.capture.schema import SWITCHES
from tdprof.decode.perf.auxtrace import TimeConversion
from tdprof.decode.spe.losses import AuxLosses
from tdprof.decode.spe.samples import NO_LATENCY, AddedUp, SampleSums, _round_down
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.decode.spe.switches import switches_of_table
from tdprof.export.pprof import build_pprof
from tdprof.model.spe import NO_TID, SampledOperations
from tdprof.profile.frames import frame_stacks, function_names

V1 = 0x410FD400


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_spe_capture(tmp_path_factory.mktemp("spe") / "capture")


def rows(operations: SampledOperations) -> dict[tuple[object, ...], tuple[int, int]]:
    """(function, source, latencies) to (records, cycles)."""
    profile = operations.profile
    stacks, names = frame_stacks(profile), function_names(profile)
    leaf = [names[function] for function in stacks.function[stacks.start[profile.samples.stack]].tolist()]
    keys = zip(
        leaf, operations.words["data_src"], *(values.tolist() for values in operations.latencies.values()), strict=True
    )
    weights = zip(profile.samples.weight.tolist(), operations.latency_cycles.tolist(), strict=True)
    found: dict[tuple[object, ...], tuple[int, int]] = {}
    for key, (weight, cycles) in zip(keys, weights, strict=True):
        old = found.get(key, (0, 0))
        found[key] = (old[0] + weight, old[1] + cycles)
    return found


def test_alike_records_are_one_sample_with_its_labels(capture: Path) -> None:
    operations = operations_of(capture)
    assert operations is not None
    assert rows(operations) == {
        ("work", "Local DRAM", 200, 3, 1): (60, 60 * 200),
        ("work", "L1", 8, 3, 1): (540, 540 * 8),
        ("work", "L2", 20, 3, 1): (20, 20 * 20),
        ("work", "L1", 20, 3, 1): (180, 180 * 20),
        ("work", None, 9, 2, NO_LATENCY): (200, 200 * 9),
        ("parse", "L1", 20, 3, 1): (90, 90 * 20),
        ("parse", None, 9, 2, NO_LATENCY): (10, 90),
        ("unseen", "Local DRAM", 20, 3, 1): (400, 400 * 20),
    }
    assert operations.detail == ""
    profile = operations.profile
    assert (set(profile.samples.pid.tolist()), profile.process_names[PID]) == ({PID}, "app")


@pytest.mark.parametrize(
    ("most_rows", "detail"),
    [
        (8, "latencies are rounded down to 3 significant bits"),
        (7, "latencies are left out"),
    ],
)
def test_detail_is_given_up_before_records_are(tmp_path: Path, most_rows: int, detail: str) -> None:
    """Nine kinds of record: two differ in a latency's low bits, the others in instruction or source."""
    capture = write_spe_capture(tmp_path / "capture", more=[load(0x401000, source=0, total=9)] * 5)
    operations = operations_of(capture, most_rows=most_rows)
    assert operations is not None
    assert operations.detail == detail
    profile = operations.profile
    assert int(profile.samples.weight.sum()) == len(records()) + 5
    exact = sum(record.total for record in records()) + 45
    assert int(operations.latency_cycles.sum()) == exact


def add_up(source: SpeInput, *, most_rows: int) -> AddedUp:
    sums = SampleSums(source, most_rows)
    for span in source.spans:
        for batch in RecordDecoder(span.data):
            sums.add(batch, span)
    return sums.finish()


def test_memory_is_bounded_by_detail_while_records_come() -> None:
    stream, _ = spe.write_stream((load(0x401000, total=number % 4096) for number in range(100_000)), spe.packed_record)
    source = SpeInput([AuxSpan(memoryview(stream), 0, 0, None, V1)], None, AuxLosses())
    added = add_up(source, most_rows=100)
    assert len(added.table) <= 100
    assert sum(added.table["records"].to_pylist()) == 100_000
    assert sum(added.table["latency_cycles"].to_pylist()) == sum(number % 4096 for number in range(100_000))


def test_context_switches_name_the_thread_where_no_packet_does() -> None:
    records = [load(0x401000, context_el2=None, timestamp=stamp) for stamp in (100, 300)] + [load(0x401000)]
    stream, _ = spe.write_stream(records, spe.packed_record)
    switches = switches_of_table(pa.table([[200], [3], [77]], schema=SWITCHES))
    spans = [AuxSpan(memoryview(stream), 0, 3, None, V1)]
    source = SpeInput(spans, TimeConversion(0, 1, 0), AuxLosses(), switches)
    table = add_up(source, most_rows=10).table
    assert sorted(table["tid"].to_pylist()) == [PID, 77, NO_TID]


def test_no_records_are_an_empty_table() -> None:
    assert len(add_up(SpeInput([]), most_rows=10).table) == 0


def test_rounding_keeps_the_highest_bits() -> None:
    values = np.array([NO_LATENCY, 0, 1, 7, 8, 9, 15, 1000])
    assert _round_down(values, 3).tolist() == [NO_LATENCY, 0, 1, 7, 8, 8, 14, 896]
    assert _round_down(values, 1).tolist() == [NO_LATENCY, 0, 1, 4, 8, 8, 8, 512]
    assert _round_down(values, 0) is values


def test_pprof_has_them_beside_the_samples(capture: Path) -> None:
    message = build_pprof(profile_of(capture), None, operations_of(capture))
    text = message.string_table
    assert [text[each.type] for each in message.sample_type] == ["samples", "cpu-clock", "spe_records", "spe_latency"]
    functions = {each.id: text[each.name] for each in message.function}
    locations = {each.id: functions[each.line[0].function_id] for each in message.location}
    assert len(locations) == len(message.location)
    total = np.array([list(sample.value) for sample in message.sample]).sum(axis=0).tolist()
    assert total == [400, 400_000_000, len(records()), sum(record.total for record in records())]
    labels = [
        {text[label.key]: text[label.str] if label.str else (label.num, text[label.num_unit]) for label in sample.label}
        for sample in message.sample
        if sample.value[2] == 60
    ]
    assert labels == [
        {
            "pid": (PID, ""),
            "tid": (PID, ""),
            "comm": "app",
            "thread_comm": "app",
            "data_src": "Local DRAM",
            "total_latency": (200, "cycles"),
            "issue_latency": (3, "cycles"),
            "translation_latency": (1, "cycles"),
        }
    ]
