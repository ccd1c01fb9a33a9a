"""perf.data files of which each part once cost more than it weighs; see `costly_files`."""

import struct
from pathlib import Path

import numpy as np

from builders.cost import tdprof
from builders.costly_files import builder
from builders.perf_data import AUXTRACE, AUXTRACE_INFO, Event, PerfDataWriter
from builders.perf_records import CONTEXT_USER, Read, Sample
from builders.spe_perf_data import CPU_MAGIC
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import ReadFormat, RecordType, SampleType

IP_TID_TIME_PERIOD = SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.PERIOD
FINISHED_ROUND = 68
PARTIAL = 4


def _writer(sample_type: int = IP_TID_TIME_PERIOD, branch_sample_type: int = 0) -> PerfDataWriter:
    layout = RecordLayout(sample_type, branch_sample_type=branch_sample_type, sample_id_all=False)
    return PerfDataWriter([Event(layout)])


def _report(folder: Path, data: bytes, *options: str) -> list[str]:
    path = folder / "perf.data"
    path.write_bytes(data)
    return tdprof("report", path, *options)


def _records(size: int, record: bytes, *numbers: int) -> bytes:
    """Copies of a record, in each of which the uint64 or uint32 at some places counts up.

    Args:
        size: of all together, in bytes.
        record: one.
        numbers: where the numbers are, uint32 each.
    """
    count = max(1, size // len(record))
    rows = np.tile(np.frombuffer(record, np.uint8), (count, 1))
    for at in numbers:
        rows[:, at : at + 4] = np.arange(1, count + 1, dtype="<u4")[:, None].view(np.uint8)
    return rows.tobytes()


def _sample(writer: PerfDataWriter, **fields: object) -> bytes:
    return writer.records.sample(Sample(**{"ip": 0x1010, "pid": 42, "tid": 42, "time_ns": 5, **fields}))  # type: ignore[arg-type]


@builder
def perf_records_of_eight_bytes(folder: Path, size: int) -> list[str]:
    """Records of the perf tool, each of which the compiled decoder hands back."""
    writer = _writer()
    return _report(folder, writer.file(_sample(writer) + writer.tool_record(FINISHED_ROUND, b"") * (size // 8)))


@builder
def perf_buffers_without_bytes(folder: Path, size: int) -> list[str]:
    """AUX buffers that hold nothing, of SPE."""
    writer = _writer()
    empty = writer.tool_record(AUXTRACE, struct.pack("<QQQIiiI", 0, 0, 7, 0, -1, 0, 0))
    info = writer.tool_record(AUXTRACE_INFO, struct.pack("<II4Q", 4, 0, 2, 4, 9, 0))
    return _report(folder, writer.file(_sample(writer) + info + empty * (size // len(empty))))


@builder
def perf_spans_of_few_bytes(folder: Path, size: int) -> list[str]:
    """SPE's bytes, cut into as many spans as the kernel's records of losses say."""
    writer = _writer()
    info = writer.tool_record(AUXTRACE_INFO, struct.pack("<II8Q", 4, 0, 2, 4, 9, 1, CPU_MAGIC, 0, 1, 0))
    count = size // 2 // 32
    rows = np.zeros((count, 4), "<u8")
    rows[:, 0] = RecordType.AUX | 32 << 48
    rows[:, 1], rows[:, 2], rows[:, 3] = np.arange(count) * 16, 16, PARTIAL
    payload = bytes(16 * count)
    aux = writer.auxtrace(payload, cpu=-1, tid=-1)
    return _report(folder, writer.file(_sample(writer) + info + rows.tobytes() + aux))


@builder
def perf_side_band_that_shrinks(folder: Path, size: int) -> list[str]:
    """Compressed mappings, all alike: what is unpacked is thousands of times larger."""
    writer = _writer()
    record = writer.records.mmap(42, 0x1000, 0x1000, 0, b"/n")
    data = writer.compressed(record * (min(size * 400, 256 << 20) // len(record)), piece_bytes=1 << 20)
    return _report(folder, writer.file(_sample(writer) + data[:size]))


@builder
def perf_samples_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed samples, all alike."""
    writer = _writer()
    record = _sample(writer)
    data = writer.compressed(record * (min(size * 400, 256 << 20) // len(record)), piece_bytes=1 << 20)
    return _report(folder, writer.file(data[:size]))


@builder
def perf_tool_records_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed records of the perf tool, where none belongs."""
    writer = _writer()
    data = writer.compressed(writer.tool_record(FINISHED_ROUND, b"") * (min(size * 400, 64 << 20) // 8))
    return _report(folder, writer.file(_sample(writer) + data[:size]))


@builder
def perf_unknown_records_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed records of a type that is not known."""
    writer = _writer()
    record = writer.records.record(60, b"")
    data = writer.compressed(record * (min(size * 3000, 1 << 30) // 8), piece_bytes=1 << 20)
    return _report(folder, writer.file(_sample(writer) + data[:size]))


@builder
def perf_mappings(folder: Path, size: int) -> list[str]:
    """Mappings of many processes, each file with a name of its own."""
    writer = _writer()
    record = writer.records.mmap2(42, 0x1000, 0x1000, 0, b"/nnnn")
    return _report(folder, writer.file(_sample(writer) + _records(size, record, 8, 8 + 64 + 1)))


@builder
def perf_processes(folder: Path, size: int) -> list[str]:
    """Forks of forks, names, and a sample of each process."""
    writer = _writer()
    fork = writer.records.task(RecordType.FORK, 1, 0, 1, 0, 1, b"")
    forks = np.frombuffer(_records(size // 3, fork, 8, 16), np.uint8).reshape(-1, len(fork)).copy()
    parents = np.arange(len(forks), dtype="<u4")[:, None].view(np.uint8)
    forks[:, 12:16] = forks[:, 20:24] = parents
    names = _records(size // 3, writer.records.comm(1, 1, b"nnnn"), 8, 12, 16)
    samples = _records(size // 3, _sample(writer), 16, 20)
    return _report(folder, writer.file(forks.tobytes() + names + samples))


@builder
def perf_mappings_between_samples(folder: Path, size: int) -> list[str]:
    """Half mappings of one process, half samples of it, each at a time of its own."""
    writer = PerfDataWriter([Event(RecordLayout(sample_type=IP_TID_TIME_PERIOD, sample_id_all=True))])
    trailer = writer.records.sample_id(pid=42, tid=42, time_ns=7)
    record = writer.records.mmap(42, 0x1000, 0x1000, 0, b"/n", trailer=trailer)
    mappings = _records(size // 2, record, len(record) - 8)
    return _report(folder, writer.file(mappings + _records(size // 2, _sample(writer), 24)))


@builder
def perf_call_chains(folder: Path, size: int) -> list[str]:
    """Chains of thousands of addresses that differ in one."""
    writer = _writer(IP_TID_TIME_PERIOD | SampleType.CALLCHAIN)
    chain = [CONTEXT_USER, *range(0x1000, 0x1000 + 8000)]
    record = _sample(writer, chain=chain)
    return _report(folder, writer.file(_records(size, record, len(record) - 8)))


@builder
def perf_short_call_chains(folder: Path, size: int) -> list[str]:
    """As many distinct chains as fit."""
    writer = _writer(SampleType.IP | SampleType.CALLCHAIN)
    record = _sample(writer, chain=[0x1010])
    return _report(folder, writer.file(_records(size, record, len(record) - 8)))


@builder
def perf_branches(folder: Path, size: int) -> list[str]:
    """Branches, each of its own."""
    writer = _writer(IP_TID_TIME_PERIOD | SampleType.BRANCH_STACK, branch_sample_type=1)
    entries = np.zeros((2000, 3), "<u8")
    count = max(1, size // (48 + entries.nbytes))
    head = _sample(writer, branches=[(0, 0, 0)] * len(entries))[: -entries.nbytes]
    out = []
    for number in range(count):
        entries[:, 0] = entries[:, 1] = np.arange(1, len(entries) + 1) + number * len(entries)
        out.append(head + entries.tobytes())
    return _report(folder, writer.file(b"".join(out)), "--branches")


@builder
def perf_counters_of_threads(folder: Path, size: int) -> list[str]:
    """Samples with counter values, each of another thread."""
    layout = RecordLayout(
        sample_type=IP_TID_TIME_PERIOD | SampleType.READ,
        read_format=ReadFormat.GROUP | ReadFormat.ID,
        sample_id_all=False,
        ids=tuple(range(1, 9)),
    )
    writer = PerfDataWriter([Event(layout, flags=("inherit", "mmap", "comm", "task"))])
    record = _sample(writer, read=Read([(1, id_, 0) for id_ in layout.ids]))
    return _report(folder, writer.file(_records(size, record, 20)))


@builder
def perf_namespaces(folder: Path, size: int) -> list[str]:
    """Namespaces of threads that were all the recording program's."""
    writer = _writer()
    names = _records(size // 4, writer.records.comm(1, 1, b"perf"), 8, 12)
    record = writer.records.namespaces(1, 1, [(4, number) for number in range(7)])
    places = [8, 12, *range(8 + 16 + 8, len(record), 16)]
    return _report(folder, writer.file(names + _records(3 * size // 4, record, *places) + _sample(writer)))


@builder
def perf_namespaces_between_mappings(folder: Path, size: int) -> list[str]:
    """A mapping of one file in each of many processes of another mount namespace."""
    writer = _writer()
    record = writer.records.namespaces(1, 1, [(4, number) for number in range(7)])
    mapping = writer.records.mmap(1, 0x1000, 0x1000, 0, b"/nowhere")
    samples = _records(size // 3, _sample(writer), 16, 20)
    return _report(
        folder, writer.file(_records(size // 3, record, 8, 12) + _records(size // 3, mapping, 8, 12) + samples)
    )


@builder
def perf_control_groups(folder: Path, size: int) -> list[str]:
    """Control groups, and a sample of each."""
    writer = _writer(IP_TID_TIME_PERIOD | SampleType.CGROUP)
    groups = _records(size // 2, writer.records.cgroup(1, b"/nnnn"), 8, 17)
    sample = _sample(writer, cgroup=1)
    return _report(folder, writer.file(groups + _records(size // 2, sample, len(sample) - 8)), "--by", "cgroup")


@builder
def perf_events(folder: Path, size: int) -> list[str]:
    """As many events as fit, with names and ids."""
    layouts = [RecordLayout(IP_TID_TIME_PERIOD | SampleType.IDENTIFIER, ids=(i + 1,)) for i in range(size // 370)]
    writer = PerfDataWriter([Event(layout, name="x") for layout in layouts])
    record = writer.records.sample(Sample(ip=0x1010, pid=42, tid=42, id=1))
    return _report(folder, writer.file(record))


@builder
def perf_descriptions_in_a_pipe(folder: Path, size: int) -> list[str]:
    """Features, each of which says the same again, of a recording in a pipe."""
    writer = _writer()
    words = b"".join(writer.string("") for _ in range(10))
    feature = writer.tool_record(80, struct.pack("<QI", 11, 10) + words)
    return _report(folder, writer.pipe(feature * (size // 2 // len(feature)) + _pmus(writer, size // 2)))


def _pmus(writer: PerfDataWriter, size: int) -> bytes:
    feature = writer.tool_record(80, struct.pack("<QII", 16, 1, 5) + writer.string("x"))
    return feature * (size // len(feature))


@builder
def perf_build_ids(folder: Path, size: int) -> list[str]:
    """Build-ids of files, and mappings of them."""
    writer = _writer()
    ids = writer.build_id("/nnnn", b"\1" * 20)
    mapping = writer.records.mmap2(42, 0x1000, 0x1000, 0, b"/nnnn")
    writer.features[2] = _records(size // 2, ids, 8 + 4 + 24 + 1)
    return _report(folder, writer.file(_sample(writer) + _records(size // 2, mapping, 8, 8 + 64 + 1)))


def _copied_stack() -> tuple[PerfDataWriter, bytes]:
    """A file of samples with copied user stacks, and one of them."""
    layout = RecordLayout(
        sample_type=IP_TID_TIME_PERIOD | SampleType.REGS_USER | SampleType.STACK_USER,
        sample_regs_user=0xFF0FFF,
        sample_id_all=False,
    )
    writer = PerfDataWriter([Event(layout)])
    writer.features[6] = writer.string("x86_64")
    return writer, _sample(writer, regs_user=[0x7000] * layout.sample_regs_user.bit_count(), stack=bytes(16))


@builder
def perf_copied_stacks(folder: Path, size: int) -> list[str]:
    """Copies of user stacks of few bytes, with registers."""
    writer, record = _copied_stack()
    return _report(folder, writer.file(_records(size, record, 20)))


@builder
def perf_lists_that_overlap(folder: Path, size: int) -> list[str]:
    """A file whose header says that it is all events, and all of it their ids."""
    data = bytearray(np.random.default_rng(1).integers(1, 255, size, np.uint8).tobytes())
    words = [80 + 0, 104, size - 104, 104, size - 104, 0, 0]
    data[:8] = b"PERFILE2"
    struct.pack_into("<8Q", data, 8, 104, *words)
    struct.pack_into("<4Q", data, 72, *[2**64 - 1] * 4)
    rows = np.frombuffer(bytes(data[104 : 104 + (size - 104) // 80 * 80]), np.uint8).reshape(-1, 80).copy()
    rows[:] = 0
    rows[:, 4:8] = np.frombuffer(struct.pack("<I", 64), np.uint8)
    rows[:, 64:80] = np.frombuffer(struct.pack("<QQ", 104, size - 104), np.uint8)
    data[104 : 104 + rows.size] = rows.tobytes()
    return _report(folder, bytes(data))


@builder
def perf_call_chains_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed samples, each of a long chain of its own."""
    writer = _writer(IP_TID_TIME_PERIOD | SampleType.CALLCHAIN)
    record = _sample(writer, chain=[CONTEXT_USER, *range(0x1000, 0x1000 + 8000)])
    data = writer.compressed(_records(60 * size, record, len(record) - 8), piece_bytes=1 << 16)
    return _report(folder, writer.file(data[:size]))


@builder
def perf_branches_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed branch stacks."""
    writer = _writer(IP_TID_TIME_PERIOD | SampleType.BRANCH_STACK, branch_sample_type=1)
    record = _sample(writer, branches=[(1, 2, 0)] * 10)
    data = writer.compressed(_records(60 * size, record, len(record) - 24, len(record) - 40), piece_bytes=1 << 16)
    return _report(folder, writer.file(data[:size]), "--branches")


@builder
def perf_stacks_that_shrink(folder: Path, size: int) -> list[str]:
    """Compressed copies of user stacks, each walked."""
    writer, record = _copied_stack()
    data = writer.compressed(_records(60 * size, record, 20), piece_bytes=1 << 16)
    return _report(folder, writer.file(data[:size]))
