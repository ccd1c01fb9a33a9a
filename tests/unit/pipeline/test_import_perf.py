"""perf.data into a capture's tables."""

import contextlib
import os
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tdprof.decode.perf.data as perf_data
import tdprof.decode.perf.windows as perf_windows
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_KERNEL, CONTEXT_USER, Read, Sample
from tdprof.capture.manifest import Manifest, Rung, read_manifest
from tdprof.capture.tables import read_table
from tdprof.decode.perf.layout import RecordLayout
from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.perf_abi import ReadFormat, RecordType, SampleType
from tdprof.pipeline import import_perf
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture

SAMPLE_TYPE = (
    SampleType.IDENTIFIER
    | SampleType.IP
    | SampleType.TID
    | SampleType.TIME
    | SampleType.CPU
    | SampleType.PERIOD
    | SampleType.CALLCHAIN
)
KERNEL_BASE = 0xFFFF800008000000


def writer() -> PerfDataWriter:
    events = [
        Event(RecordLayout(SAMPLE_TYPE, ids=(1,)), "cycles:ppp"),
        Event(RecordLayout(SAMPLE_TYPE, ids=(2,)), "dummy:HG", 1, 9),
        Event(RecordLayout(SAMPLE_TYPE, ids=(3,)), "cpu-clock", 1, 0),
    ]
    made = PerfDataWriter(events)
    made.features = {
        2: made.build_id("/bin/app", b"\xab" * 20),
        3: made.string("arm-box"),
        4: made.string("5.10.0"),
        5: made.string("5.10"),
        6: made.string("aarch64"),
        9: made.string("0x00000000410fd0c0"),
        11: made.pack("I", 3) + made.string("perf") + made.string("record") + made.string("-a"),
    }
    return made


def recording(made: PerfDataWriter) -> bytes:
    """A process that runs, execs and maps another file at the same address; kernel and user stacks of two events."""
    w = made.records

    def trailer(time_ns: int) -> bytes:
        return w.sample_id(pid=7, tid=7, time_ns=time_ns, id_=1)

    def sample(time_ns: int, id_: int, chain: list[int], period: int = 100) -> bytes:
        return w.sample(Sample(ip=chain[1], pid=7, tid=7, time_ns=time_ns, id=id_, chain=chain, period=period))

    kernel = w.mmap(
        0xFFFFFFFF, KERNEL_BASE, 1 << 20, KERNEL_BASE, b"[kernel.kallsyms]_text", misc=1, trailer=trailer(0)
    )
    deep = [CONTEXT_KERNEL, KERNEL_BASE + 0x110, CONTEXT_USER, 0x1010, 0x1020]
    return (
        kernel
        + w.comm(7, 7, b"before", trailer=trailer(0))
        + w.mmap2(7, 0x1000, 0x1000, 0, b"/bin/app", trailer=trailer(0))
        # Both sides of the exec in one interval, the later sample first, as another CPU's buffer may come first.
        + sample(2_000, 1, [CONTEXT_USER, 0x1010])
        + sample(1_000, 1, [CONTEXT_USER, 0x1010])
        + sample(1_100, 1, [CONTEXT_USER, 0x1010])
        + sample(1_200, 3, deep, 250)
        + w.comm(7, 7, b"after", exec_=True, trailer=trailer(1_500))
        + w.mmap2(7, 0x1000, 0x1000, 0, b"/bin/other", build_id=b"\xcd" * 20, trailer=trailer(1_600))
        + w.record(RecordType.LOST, w.words([1, 12]) + trailer(1_700))
        + w.record(RecordType.LOST_SAMPLES, w.words([10]) + trailer(1_800))
        + w.record(RecordType.THROTTLE, w.words([1_900, 1, 1]) + trailer(1_900))
    )


def imported(tmp_path: Path, content: bytes, **options: Any) -> tuple[Path, Manifest]:
    tmp_path.mkdir(exist_ok=True)
    source, folder = tmp_path / "perf.data", tmp_path / "capture"
    source.write_bytes(content)
    manifest = import_perf_data(str(source), folder, **options)
    assert read_manifest(folder) == manifest
    return folder, manifest


def rows(folder: Path, name: str) -> list[dict[str, object]]:
    return read_table(folder, name).to_pylist()


def test_samples_of_a_small_recording_keep_their_times(tmp_path: Path) -> None:
    made = writer()
    folder, manifest = imported(tmp_path, made.file(recording(made)))
    found = sorted((row["time_ns"], row["event"], row["count"], row["weight"]) for row in rows(folder, "samples"))
    assert found == [(1_000, 0, 1, 100), (1_100, 0, 1, 100), (1_200, 1, 1, 250), (2_000, 0, 1, 100)]
    assert manifest.has_sample_times
    with OpenCapture(folder) as opened:
        assert load_profile(opened).has_sample_times


def test_without_times_there_is_no_order(tmp_path: Path) -> None:
    timeless = PerfDataWriter([Event(RecordLayout(SAMPLE_TYPE & ~SampleType.TIME, ids=(1,)), "cycles")])
    sample = timeless.records.sample(Sample(ip=0x1010, pid=7, tid=7, time_ns=0, id=1, chain=[CONTEXT_USER, 0x1010]))
    _, manifest = imported(tmp_path, timeless.file(sample * 3))
    assert not manifest.has_sample_times


def test_samples_are_added_up_up_to_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.pipeline.import_perf._MOST_EXACT_BYTES", 0)
    made = writer()
    folder, manifest = imported(tmp_path, made.file(recording(made)))
    assert not manifest.has_sample_times
    stacks = {(row["stack"], row["is_kernel"]): row["addresses"] for row in rows(folder, "stacks")}
    found = sorted(
        (
            row["time_ns"],
            row["event"],
            stacks[row["user_stack"], False],
            stacks.get((row["kernel_stack"], True)),
            row["count"],
            row["weight"],
        )
        for row in rows(folder, "samples")
    )
    assert found == [
        (1_499, 0, [0x1010], None, 2, 200),
        (1_499, 1, [0x1010, 0x1020], [KERNEL_BASE + 0x110], 1, 250),
        (999_999_999, 0, [0x1010], None, 1, 100),
    ]
    assert [event.name for event in manifest.events] == ["cycles", "cpu-clock"]
    assert [event.unit for event in manifest.events] == ["count", "nanoseconds"]


def test_side_band_tables(tmp_path: Path) -> None:
    made = writer()
    folder, manifest = imported(tmp_path, made.file(recording(made)))
    mappings = [(row["time_ns"], row["path"], row["build_id"]) for row in rows(folder, "mappings")]
    assert mappings == [(0, "/bin/app", "ab" * 20), (1_600, "/bin/other", "cd" * 20)]
    processes = [(row["time_ns"], row["kind"], row["name"]) for row in rows(folder, "processes")]
    assert processes == [(0, "name", "swapper"), (0, "name", "before"), (1_500, "exec", "after")]
    assert manifest.losses.samples_ring_full == 12
    assert manifest.losses.throttled == 1


def test_samples_that_a_filter_left_out_are_not_lost(tmp_path: Path) -> None:
    """perf record --filter counts them in a record of lost samples, with a bit of its own."""
    made = writer()
    w = made.records
    filtered = w.record(RecordType.LOST_SAMPLES, w.words([5_000]) + w.sample_id(id_=1), misc=1 << 15)
    _, manifest = imported(tmp_path, made.file(recording(made) + filtered))
    assert manifest.losses.samples_ring_full == 12
    assert "5,000 samples were left out as they were recorded (perf record --filter)" in manifest.notes


@pytest.mark.parametrize("time_ns", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_times_up_to_the_last_that_a_clock_has(tmp_path: Path, time_ns: int) -> None:
    made = writer()
    late = made.records.comm(7, 7, b"late", trailer=made.records.sample_id(pid=7, tid=7, time_ns=time_ns, id_=1))
    folder, _ = imported(tmp_path, made.file(recording(made) + late))
    assert [row["time_ns"] for row in rows(folder, "processes") if row["name"] == "late"] == [time_ns]


@pytest.mark.parametrize("embeds", [False, True], ids=["before Linux 6.16", "since"])
def test_time_off_a_cpu(tmp_path: Path, embeds: bool) -> None:
    """perf record --off-cpu writes what its program added up at the end, with times that no clock has.

    Since 6.16 each sample's raw data is the sample, and those that lasted long come at once, with pid and tid swapped.
    """
    kinds = SAMPLE_TYPE & ~SampleType.CALLCHAIN | SampleType.RAW if embeds else SAMPLE_TYPE
    events = [
        Event(RecordLayout(SAMPLE_TYPE, ids=(1,)), "cpu-clock", 1, 0),
        Event(RecordLayout(kinds, ids=(2,)), "offcpu-time", 1, 10, 1, ("freq",)),
    ]
    made = PerfDataWriter(events)
    w, chain, at_end_ns = made.records, [CONTEXT_USER, 0x1010, 0x1020], 2**64 - 2**32

    def sample(time_ns: int, pid: int, tid: int, period: int) -> bytes:
        if not embeds:
            return w.sample(Sample(chain[1], pid, tid, time_ns, id=2, period=period, chain=chain), event=1)
        raw = struct.pack("<IIQQ3QQ", pid, tid, period, len(chain), *chain, 0)
        return w.sample(Sample(KERNEL_BASE, 99, 99, time_ns, id=2, raw=raw, misc=1), event=1)

    data = (
        w.comm(7, 7, b"app", trailer=w.sample_id(pid=7, tid=7, time_ns=100, id_=1))
        + w.mmap2(7, 0x1000, 0x1000, 0, b"/bin/app", trailer=w.sample_id(pid=7, tid=7, time_ns=100, id_=1))
        + w.sample(Sample(0x1010, 7, 8, 1_000, id=1, period=100, chain=chain))
        + (sample(2_000, 8, 7, 600_000_000) if embeds else b"")
        + w.sample(Sample(0x1010, 7, 8, 3_000, id=1, period=100, chain=chain))
        + sample(at_end_ns, 7, 8, 5_000_000)
        + sample(at_end_ns + 1, 7, 7, 4_000_000)
    )
    folder, manifest = imported(tmp_path, made.file(data))
    assert [(event.name, event.unit.value, event.frequency_hz) for event in manifest.events][1:] == [
        ("offcpu-time", "nanoseconds", 0)
    ]
    assert (manifest.start_monotonic_ns, manifest.end_monotonic_ns) == (1_000, 3_000)
    stacks = {(row["stack"], row["is_kernel"]): row["addresses"] for row in rows(folder, "stacks")}
    found = sorted(
        (row["time_ns"], row["pid"], row["tid"], row["weight"], row["kernel_stack"], stacks[row["user_stack"], False])
        for row in rows(folder, "samples")
        if row["event"] == 1
    )
    at_once = [(2_000, 7, 8, 600_000_000, None, chain[1:])] if embeds else []
    assert found == [*at_once, (3_000, 7, 7, 4_000_000, None, chain[1:]), (3_000, 7, 8, 5_000_000, None, chain[1:])]


def test_group_reads_of_a_buffer_that_was_written_backward(tmp_path: Path) -> None:
    layout = RecordLayout(
        SAMPLE_TYPE & ~SampleType.CALLCHAIN | SampleType.READ, ReadFormat.GROUP | ReadFormat.ID, ids=(1,)
    )
    events = [Event(layout, "cycles", flags=("write_backward",)), Event(replace(layout, ids=(2,)), "faults", 1, 2)]
    made = PerfDataWriter(events)
    data = b"".join(
        made.records.sample(Sample(0x1010, 7, 7, time_ns, id=1, read=Read([(cycles, 1, 0), (faults, 2, 0)])))
        for time_ns, cycles, faults in [(3_000, 700, 9), (2_000, 300, 9), (1_000, 100, 4)]
    )
    folder, _ = imported(tmp_path, made.file(data))
    found = sorted((row["time_ns"], row["event"], row["weight"]) for row in rows(folder, "samples"))
    assert found == [(1_000, 0, 100), (1_000, 1, 4), (2_000, 0, 200), (2_000, 1, 5), (3_000, 0, 400)]


def test_manifest_says_where_it_is_from(tmp_path: Path) -> None:
    made = writer()
    _, manifest = imported(tmp_path, made.file(recording(made)))
    assert manifest.rung is Rung.PERF_DATA
    assert manifest.rung_reason == "recorded by perf 5.10 on arm-box"
    assert (manifest.host.machine, manifest.host.kernel) == ("aarch64", "5.10.0")
    assert manifest.host.midr_el1 == {"0": "0x00000000410fd0c0"}
    assert manifest.is_system_wide
    assert (manifest.start_monotonic_ns, manifest.end_monotonic_ns) == (1_000, 2_000)


@pytest.mark.parametrize(
    ("kept", "said"), [((3, 5), "perf 5.10 on arm-box"), ((5,), "perf 5.10"), ((3,), "perf on arm-box"), ((), "perf")]
)
def test_a_file_without_its_end_says_nothing_of_its_origin(tmp_path: Path, kept: tuple[int, ...], said: str) -> None:
    made = writer()
    made.features = {bit: made.features[bit] for bit in kept}
    _, manifest = imported(tmp_path, made.file(recording(made)))
    assert manifest.rung_reason == f"recorded by {said}"


def test_a_file_cut_anywhere_leaves_a_capture_or_nothing(tmp_path: Path) -> None:
    made = writer()
    whole = made.file(recording(made))
    for size in range(0, len(whole), 29):
        (tmp_path / "perf.data").write_bytes(whole[:size])
        folder = tmp_path / str(size)
        with contextlib.suppress(TdprofError):
            import_perf_data(str(tmp_path / "perf.data"), folder)
        assert not folder.exists() or read_manifest(folder).rung is Rung.PERF_DATA


def test_an_option_of_the_command_does_not_make_it_system_wide(tmp_path: Path) -> None:
    made = writer()
    made.events = [replace(made.events[0], flags=("enable_on_exec",)), *made.events[1:]]
    _, manifest = imported(tmp_path, made.file(recording(made)))
    assert not manifest.is_system_wide


def test_kernel_symbols_of_this_machine_are_not_used_for_another(tmp_path: Path) -> None:
    made = writer()
    folder, manifest = imported(tmp_path, made.file(recording(made)))
    assert rows(folder, "kernel_symbols") == []
    assert any("--kallsyms" in note for note in manifest.notes)


def kernel_note(manifest: Manifest) -> str:
    return next(note for note in manifest.notes if "--kallsyms" in note)


def test_why_the_kernel_has_no_names_is_said_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, data = writer(), recording(writer())
    whole = made.file(data)
    _, manifest = imported(tmp_path / "another", whole)
    assert kernel_note(manifest).startswith("this machine does not run the recorded kernel, ")
    # All that follows the records is gone, though all of these are there.
    _, manifest = imported(tmp_path / "cut", whole[: whole.index(data) + len(data)])
    assert kernel_note(manifest).startswith("the file does not say which kernel was recorded (perf writes that last), ")
    cut = next(note for note in manifest.notes if note.startswith("header sections that are damaged or cut off"))
    assert "hostname, osrelease" in cut
    here = {"/proc/sys/kernel/hostname": "arm-box", "/proc/sys/kernel/osrelease": "5.10.0"}
    monkeypatch.setattr("tdprof.pipeline.import_perf.read_text", lambda path: here[path])
    made.features.pop(2)
    _, manifest = imported(tmp_path / "restarted", made.file(data))
    assert kernel_note(manifest).startswith("this machine was started again since the recording, or hides ")


def test_given_kallsyms_name_the_kernel_if_they_are_of_that_boot(tmp_path: Path) -> None:
    made = writer()
    kallsyms = tmp_path / "kallsyms"
    lines = [(KERNEL_BASE, "T", "_text"), (KERNEL_BASE + 0x100, "t", "do_work"), (KERNEL_BASE + 0x200, "T", "other")]
    kallsyms.write_text("".join(f"{address:016x} {kind} {name}\n" for address, kind, name in lines))
    folder, _ = imported(tmp_path, made.file(recording(made)), kallsyms=kallsyms)
    assert [row["name"] for row in rows(folder, "kernel_symbols")] == ["do_work"]


def test_symbols_beside_a_recording_are_not_waited_for(tmp_path: Path) -> None:
    """`perf record` leaves them in a folder of the directory; a pipe there has no writer."""
    made = writer()
    (tmp_path / "recording/kcore_dir").mkdir(parents=True)
    (tmp_path / "recording/data").write_bytes(made.file(recording(made)))
    os.mkfifo(tmp_path / "recording/kcore_dir/kallsyms")
    manifest = import_perf_data(str(tmp_path / "recording"), tmp_path / "capture")
    assert "--kallsyms" in kernel_note(manifest)


def test_kallsyms_of_another_boot_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    made = writer()
    kallsyms = tmp_path / "kallsyms"
    kallsyms.write_text(f"{KERNEL_BASE + 0x10000:016x} T _text\n")
    with pytest.raises(TdprofError, match="does not belong to the recorded kernel"):
        imported(tmp_path, made.file(recording(made)), kallsyms=kallsyms)
    assert not (tmp_path / "capture").exists()


def test_damage_is_counted(tmp_path: Path) -> None:
    made = writer()
    content = made.records.record(40, b"\0" * 8) + recording(made) + b"\xff" * 64 + recording(made)[:-3]
    _, manifest = imported(tmp_path, made.file(content))
    losses = manifest.losses
    assert losses.bytes_damaged >= 64
    assert losses.by_reason["stretches of damaged perf records"] == 1
    assert losses.by_reason["perf records of unknown type"] == 1


def test_an_empty_recording_is_a_capture_that_says_so(tmp_path: Path) -> None:
    folder, manifest = imported(tmp_path, writer().file(b""))
    assert read_table(folder, "samples").num_rows == 0
    assert "the file holds no samples" in manifest.notes


def test_big_endian_recordings_make_the_same_capture(tmp_path: Path) -> None:
    tables: list[pa.Table] = []
    for order in ("little", "big"):
        made = writer()
        made.byteorder = order
        made.features = {}
        (tmp_path / order).mkdir()
        folder, _ = imported(tmp_path / order, made.pipe(recording(made)))
        tables.append([read_table(folder, name).to_pylist() for name in ("samples", "stacks", "mappings", "processes")])
    assert tables[0] == tables[1]


def test_processes_that_began_after_the_recording_only_have_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the maps that are in /tmp now say nothing of it."""
    ends = list[int]()

    def save(folder: OwnFolder, pids: set[int], until_ns: int) -> list[str]:
        ends.append(until_ns)
        return []

    monkeypatch.setattr(import_perf, "_write_kernel_symbols", lambda *_: import_perf.KALLSYMS)
    monkeypatch.setattr(import_perf, "save_run_time_code", save)
    path, made, hour_ns = tmp_path / "perf.data", writer(), 3_600_000_000_000
    path.write_bytes(made.file(recording(made)))
    os.utime(path, ns=(0, time.time_ns() - hour_ns))
    import_perf_data(str(path), tmp_path / "capture")
    (until_ns,) = ends
    assert until_ns <= time.monotonic_ns() - hour_ns
    os.utime(path, ns=(0, time.time_ns()))
    import_perf_data(str(path), tmp_path / "another")
    assert ends[1] - until_ns >= hour_ns


def test_process_numbers_that_none_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A perf.data says any; whether such a process is here is asked of the kernel."""
    monkeypatch.setattr(import_perf, "_write_kernel_symbols", lambda *_: import_perf.KALLSYMS)
    made, number = writer(), 1 << 31
    trailer = made.records.sample_id(pid=number, tid=number, time_ns=5, id_=1)
    mapped = made.records.mmap2(number, 0x1000, 0x1000, 0, b"/tmp/jit-1.dump", trailer=trailer)
    folder, _ = imported(tmp_path, made.file(mapped))
    assert [row["pid"] for row in rows(folder, "mappings")] == [number]


def test_tables_are_the_same_for_any_number_of_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer()
    content = recording(made) + b"".join(
        made.records.sample(
            Sample(ip=ip, pid=7, tid=7, time_ns=3_000 + ip, id=1 + ip % 2 * 2, chain=[CONTEXT_USER, ip, ip // 7 % 50])
        )
        for ip in range(3_000)
    )
    path = tmp_path / "perf.data"
    path.write_bytes(made.file(content))
    monkeypatch.setattr(perf_data, "_WINDOW_BYTES", 8192)
    threads: list[int] = []

    class Noted(perf_windows.WindowsAhead):
        def __init__(self, *given: Any) -> None:
            threads.append(given[-1])
            super().__init__(*given)

    monkeypatch.setattr(perf_data, "WindowsAhead", Noted)
    tables = []
    for cpus in (1, 2, 3):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid, cpus=cpus: set(range(cpus)))
        folder = tmp_path / f"{cpus}.capture"
        import_perf_data(str(path), folder)
        tables.append({each.name: each.read_bytes() for each in sorted(folder.glob("*.parquet"))})
    assert threads == [2, 3]
    assert len(tables[0]) > 3
    assert tables[1] == tables[0]
    assert tables[2] == tables[0]
