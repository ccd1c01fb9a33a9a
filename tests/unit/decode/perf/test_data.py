"""perf.data containers: both forms, both byte orders, compressed, cut off and damaged."""

import os
from pathlib import Path
from typing import Literal

import pytest

from builders.perf_data import AUXTRACE_INFO, TIME_CONV, Event, PerfDataWriter
from builders.perf_records import CONTEXT_USER, Sample
from tdprof.decode.perf.auxtrace import SpeCpu, TimeConversion
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.layout import RecordLayout
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import SampleType

ByteOrder = Literal["little", "big"]
USUAL = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CPU | SampleType.PERIOD


@pytest.fixture(params=["little", "big"])
def byteorder(request: pytest.FixtureRequest) -> ByteOrder:
    order: ByteOrder = request.param
    return order


def two_events(byteorder: ByteOrder = "little") -> PerfDataWriter:
    return PerfDataWriter(
        [
            Event(RecordLayout(USUAL, ids=(1, 2)), "cycles"),
            Event(RecordLayout(USUAL | SampleType.CALLCHAIN, ids=(3, 4)), "my-event", 4, 0x1B, flags=("freq",)),
        ],
        byteorder,
    )


def samples_of(writer: PerfDataWriter, count: int = 100) -> bytes:
    return b"".join(
        writer.records.sample(
            Sample(ip=i, pid=7, tid=8, time_ns=i, id=1 + i % 4, chain=[CONTEXT_USER, i, i + 1]), event=i % 4 // 2
        )
        for i in range(count)
    )


def write(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "perf.data"
    path.write_bytes(content)
    return path


def read(path: Path) -> tuple[list[int], list[int], PerfData]:
    """Addresses and events of all samples, in file order."""
    ips: list[int] = []
    events: list[int] = []
    with PerfData(path) as data:
        for batch in data.batches():
            ips += batch.samples.ip.tolist()
            events += batch.samples.event.tolist()
    return ips, events, data


def test_file(tmp_path: Path, byteorder: ByteOrder) -> None:
    writer = two_events(byteorder)
    ips, events, data = read(write(tmp_path, writer.file(samples_of(writer))))
    assert ips == list(range(100))
    assert events == [i % 4 // 2 for i in range(100)]
    assert data.byteorder == byteorder
    assert [attr.name for attr in data.attrs] == ["cycles", "my-event"]
    assert [attr.ids for attr in data.attrs] == [(1, 2), (3, 4)]
    assert data.attrs[1].is_frequency
    assert not data.attrs[0].is_frequency
    assert data.attrs[1].config == 0x1B
    assert data.losses.unreadable_bytes == 0


def test_pipe(tmp_path: Path, byteorder: ByteOrder) -> None:
    writer = two_events(byteorder)
    ips, events, data = read(write(tmp_path, writer.pipe(samples_of(writer))))
    assert data.is_pipe
    assert ips == list(range(100))
    assert events == [i % 4 // 2 for i in range(100)]
    assert [attr.name for attr in data.attrs] == ["cycles", "my-event"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("piece_bytes", [37, 1000, 1 << 20])
def test_compressed_records_may_span_pieces(tmp_path: Path, version: int, piece_bytes: int) -> None:
    writer = two_events()
    compressed = writer.compressed(samples_of(writer), piece_bytes=piece_bytes, version=version)
    ips, _, data = read(write(tmp_path, writer.file(compressed)))
    assert ips == list(range(100))
    assert data.losses.compressed_bytes == 0
    assert data.losses.unreadable_bytes == 0


def test_a_broken_compressed_stream_is_counted(tmp_path: Path) -> None:
    writer = two_events()
    compressed = bytearray(writer.compressed(samples_of(writer), piece_bytes=1000))
    second = int.from_bytes(compressed[6:8], "little")
    compressed[second + 8] |= 0b110  # a block of the reserved type
    ips, _, data = read(write(tmp_path, writer.file(bytes(compressed))))
    assert ips == list(range(len(ips)))
    assert 0 < len(ips) < 100
    assert data.losses.compressed_bytes > 0


def test_a_zstd_bomb_does_not_fill_memory(tmp_path: Path) -> None:
    """200 MB of zeros in a few kB: no record, so what is unpacked of it is damage; the rest is not unpacked."""
    writer = two_events()
    compressed = writer.compressed(b"\0" * (200 << 20), piece_bytes=100 << 20)
    assert len(compressed) < 100_000
    _, _, data = read(write(tmp_path, writer.file(compressed)))
    assert 16 << 20 <= data.record_losses.malformed_bytes <= 64 << 20
    assert data.losses.compressed_bytes > 0


@pytest.mark.parametrize(("depth", "stack_bytes"), [(100, 0), (0, 8 << 10), (0, 60 << 10)])
def test_samples_that_are_alike_shrink_to_nearly_nothing(tmp_path: Path, depth: int, stack_bytes: int) -> None:
    """As of a program that stands in one function: perf record -z has made them a thousand times smaller."""
    common = SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.PERIOD
    kinds = SampleType.CALLCHAIN if depth else SampleType.REGS_USER | SampleType.STACK_USER
    writer = PerfDataWriter([Event(RecordLayout(common | kinds, sample_regs_user=0xFF0FFF))])
    writer.features[6] = writer.string("x86_64")
    stack, chain = bytes(range(256)) * (stack_bytes // 256), [CONTEXT_USER, *range(0x1000, 0x1000 + 16 * depth, 16)]
    registers = [0x7000] * (0xFF0FFF).bit_count()
    count = (60 << 20) // (stack_bytes or 8 * depth)
    records = b"".join(
        writer.records.sample(Sample(ip=5, pid=7, tid=7, time_ns=i, chain=chain, regs_user=registers, stack=stack))
        for i in range(count)
    )
    compressed = writer.compressed(records, piece_bytes=1 << 18)
    assert len(compressed) * 80 < len(records)
    with PerfData(write(tmp_path, writer.file(compressed)), keep_copies=True) as data:
        assert sum(len(batch.samples) for batch in data.batches()) == count
        assert data.losses.compressed_bytes == 0


@pytest.mark.parametrize("type_", [60, 68], ids=["unknown", "of the perf tool"])
def test_records_that_belong_in_no_compressed_stream_do_not_fill_time(tmp_path: Path, type_: int) -> None:
    writer = two_events()
    compressed = writer.compressed(writer.tool_record(type_, b"") * (100 << 17), piece_bytes=100 << 20)
    assert len(compressed) < 20_000
    _, _, data = read(write(tmp_path, writer.file(compressed)))
    assert data.losses.compressed_bytes > 0


def test_what_lies_in_a_directory_beside_perfs_own_files_is_not_waited_for(tmp_path: Path) -> None:
    writer = two_events()
    (tmp_path / "data").write_bytes(writer.file(samples_of(writer, 3)))
    (tmp_path / "data.²").write_bytes(b"a digit to some, a number to nobody")
    assert read(tmp_path)[0] == [0, 1, 2]
    os.mkfifo(tmp_path / "data.1")
    with pytest.raises(TdprofError, match="not a regular file"):
        read(tmp_path)


def test_threads_directory(tmp_path: Path) -> None:
    writer = two_events()
    folder = tmp_path / "perf.data"
    folder.mkdir()
    (folder / "data").write_bytes(writer.file(samples_of(writer, 3)))
    (folder / "data.0").write_bytes(samples_of(writer, 2))
    (folder / "data.10").write_bytes(writer.compressed(samples_of(writer, 1)))
    (folder / "data.9").write_bytes(samples_of(writer, 4))
    assert read(folder)[0] == [0, 1, 2, 0, 1, 0, 1, 2, 3, 0]


def test_features(tmp_path: Path, byteorder: ByteOrder) -> None:
    writer = two_events(byteorder)
    writer.features = {
        2: writer.build_id("/bin/x", b"\xab" * 20) + writer.build_id("[vdso]", b"\xcd" * 16),
        3: writer.string("arm-box"),
        4: writer.string("6.1.0"),
        5: writer.string("6.5"),
        6: writer.string("aarch64"),
        7: writer.pack("II", 128, 64),
        9: writer.string("0x00000000410fd0c0"),
        11: writer.pack("I", 2) + writer.string("perf") + writer.string("record"),
        16: writer.pack("II", 1, 9) + writer.string("arm_spe_0"),
        21: writer.pack("QQ", 5, 6),
        29: writer.pack("IIQQ", 1, 1, 1000, 10),
    }
    _, _, data = read(write(tmp_path, writer.file(samples_of(writer, 1))))
    features = data.features
    assert (features.hostname, features.osrelease, features.version, features.arch) == (
        "arm-box",
        "6.1.0",
        "6.5",
        "aarch64",
    )
    assert features.cpus_online == 64
    assert features.cpuid == "0x00000000410fd0c0"
    assert features.cmdline == ("perf", "record")
    assert features.build_ids == {"/bin/x": "ab" * 20, "[vdso]": "cd" * 16}
    assert features.pmus == {9: "arm_spe_0"}
    assert features.clock_data is not None
    assert features.clock_data.wall_clock_ns == 1000
    assert features.unreadable == ()


def test_a_damaged_feature_is_named_and_the_rest_read(tmp_path: Path) -> None:
    writer = two_events()
    writer.features = {3: writer.pack("I", 1 << 30), 4: writer.string("6.1.0"), 11: writer.pack("I", 1 << 31)}
    ips, _, data = read(write(tmp_path, writer.file(samples_of(writer, 5))))
    assert len(ips) == 5
    assert data.features.osrelease == "6.1.0"
    assert data.features.unreadable == ("hostname", "cmdline")


def test_perf_was_killed(tmp_path: Path) -> None:
    """The header's size is written at the end: 0 means everything up to the end of the file, with no features."""
    writer = two_events()
    whole = writer.file(b"", data_size=0)
    writer.features = {}
    data_at = int.from_bytes(whole[40:48], "little")
    ips, _, data = read(write(tmp_path, whole[:data_at] + samples_of(writer)[:-5]))
    assert ips == list(range(99))
    assert data.losses.unreadable_bytes > 0
    assert data.attrs[1].name == "r1b"


@pytest.mark.parametrize("cut", [1, 3, 100, 5000])
def test_a_cut_file_keeps_what_is_there(tmp_path: Path, cut: int) -> None:
    writer = two_events()
    content = writer.file(samples_of(writer))
    ips, _, data = read(write(tmp_path, content[:-cut]))
    assert ips == list(range(len(ips)))
    sections = len(writer.file(b"")) - int.from_bytes(content[40:48], "little")
    missing = max(0, cut - sections)
    assert data.losses.cut_bytes == missing
    assert len(ips) >= 100 - (missing // 40 + 1 if missing else 0)


@pytest.mark.parametrize("size", range(0, 264, 8))
def test_any_cut_of_the_header_is_one_clear_error(tmp_path: Path, size: int) -> None:
    writer = two_events()
    path = write(tmp_path, writer.file(b"")[:size])
    message = str(path)
    try:
        read(path)
    except TdprofError as error:
        message = error.message
    assert str(path) in message


def test_more_events_than_are_read_are_refused_by_name(tmp_path: Path) -> None:
    layout = RecordLayout(sample_type=1)
    for count, is_read in ((1024, True), (1025, False)):
        path = tmp_path / "perf.data"
        path.write_bytes(PerfDataWriter([Event(layout)] * count).file(b""))
        if is_read:
            PerfData(path).close()
        else:
            with pytest.raises(TdprofError, match=rf"{path} is not read: it describes more than 1,024 events"):
                PerfData(path)


@pytest.mark.parametrize("content", [b"PERFFILE" + b"\0" * 200, b"hello", b"\x7fELF" + b"\0" * 100])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TdprofError, match=r"not a perf\.data file"):
        read(write(tmp_path, content))


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="is empty"):
        read(write(tmp_path, b""))


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="cannot read"):
        PerfData(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(TdprofError, match="cannot read"):
        PerfData(tmp_path / "folder")


@pytest.mark.parametrize("attr_bytes", [64, 72, 96, 112, 136, 200])
def test_attrs_of_old_and_new_kernels(tmp_path: Path, attr_bytes: int) -> None:
    writer = two_events()
    writer.attr_bytes = attr_bytes
    assert len(read(write(tmp_path, writer.file(samples_of(writer))))[0]) == 100


def test_tool_records_between_others(tmp_path: Path) -> None:
    writer = two_events()
    samples = samples_of(writer, 2)
    data = samples + writer.tool_record(68, b"") + samples + writer.tool_record(90, b"\0" * 16) + samples
    ips, _, read_data = read(write(tmp_path, writer.file(data)))
    assert ips == [0, 1] * 3
    assert read_data.losses.unknown_tool_records == {90: 1}


def test_a_sample_whose_type_was_damaged_does_not_pass_unseen(tmp_path: Path) -> None:
    writer = two_events()
    samples = bytearray(samples_of(writer, 10))
    samples[0] |= 64  # 9 becomes 73, a type of the perf tool that is ignored
    ips, _, data = read(write(tmp_path, writer.file(bytes(samples))))
    assert ips == list(range(1, 10))
    assert data.losses.unknown_tool_records == {73: 1}


def test_auxtrace_stays_in_the_file(tmp_path: Path, byteorder: ByteOrder) -> None:
    writer = two_events(byteorder)
    samples = samples_of(writer, 2)
    payloads = [bytes(range(256)) * 3, b"\x99" * 12]
    data = (
        samples
        + writer.auxtrace(payloads[0], aux_offset=4096, cpu=5, idx=1)
        + samples
        + writer.auxtrace(payloads[1], cpu=-1, tid=77)
        + samples
    )
    ips, _, read_data = read(write(tmp_path, writer.file(data)))
    assert ips == [0, 1] * 3
    first, second = read_data.aux_buffers
    assert (first.cpu, first.tid, first.idx, first.aux_offset, first.size_bytes) == (5, None, 1, 4096, 768)
    assert (second.cpu, second.tid, second.size_bytes) == (None, 77, 16)
    assert bytes(read_data.aux_data(first)) == payloads[0]
    assert bytes(read_data.aux_data(second)) == payloads[1] + b"\0" * 4


def test_a_cut_aux_buffer_keeps_its_beginning(tmp_path: Path) -> None:
    writer = two_events()
    content = writer.file(writer.auxtrace(b"\x55" * 800))
    data_at = int.from_bytes(content[40:48], "little")
    _, _, data = read(write(tmp_path, content[: data_at + 48 + 300]))
    assert data.aux_buffers[0].size_bytes == 300
    assert data.aux_buffers[0].is_cut
    assert data.losses.truncated_aux_buffers == 1


@pytest.mark.parametrize(
    ("words", "version", "cpus"),
    [
        ([9, 1], 1, {}),
        (
            [
                2,
                4,
                9,
                2,
                0x1010101010101010,
                0,
                4,
                0x410FD0C0,
                9,
                256,
                0xF,
                0x1010101010101010,
                3,
                4,
                0x410FD4F0,
                2**64 - 1,
                0,
                0,
            ],
            2,
            {0: SpeCpu(0x410FD0C0, 9, 256, 0xF), 3: SpeCpu(0x410FD4F0, None)},
        ),
        # an older writer with two parameters, a longer header, and a CPU that is cut off
        (
            [2, 5, 9, 9, 0, 0x1010101010101010, 1, 2, 0x410FD490, 7, 0x1010101010101010, 2],
            2,
            {1: SpeCpu(0x410FD490, 7)},
        ),
    ],
)
def test_spe_metadata(
    tmp_path: Path, byteorder: ByteOrder, words: list[int], version: int, cpus: dict[int, SpeCpu]
) -> None:
    writer = two_events(byteorder)
    body = writer.pack("II", 4, 0) + writer.pack(f"{len(words)}Q", *words)
    _, _, data = read(write(tmp_path, writer.file(writer.tool_record(AUXTRACE_INFO, body))))
    info = data.auxtrace_info
    assert info is not None
    assert (info.type, info.version, info.pmu_type, info.cpus) == (4, version, 9, cpus)


def test_time_conversion(tmp_path: Path, byteorder: ByteOrder) -> None:
    writer = two_events(byteorder)
    short = writer.pack("QQQ", 10, 1000, 2**64 - 5)
    _, _, data = read(write(tmp_path, writer.file(writer.tool_record(TIME_CONV, short))))
    assert data.time_conversion == TimeConversion(10, 1000, 2**64 - 5)
    long = short + writer.pack("QQ", 77, 2**56 - 1) + bytes([1, 1, 0, 0, 0, 0, 0, 0])
    _, _, data = read(write(tmp_path, writer.file(writer.tool_record(TIME_CONV, long))))
    assert data.time_conversion == TimeConversion(10, 1000, 2**64 - 5, 77, 2**56 - 1, True)
