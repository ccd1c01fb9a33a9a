"""Our samples against those of the perf tool, from files that it recorded with many options."""

import subprocess
from pathlib import Path
from typing import Literal

import pytest

from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_KERNEL, CONTEXT_USER, Sample
from builders.perf_script import RawSample, raw_samples
from builders.perf_tool import NO_PERF, find_perf, run_perf
from tdprof.decode.perf.columns import NO_CHAIN
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.reads import ReadDeltas
from tdprof.linux.perf_abi import SampleType

pytestmark = [pytest.mark.needs_perf, pytest.mark.skipif(find_perf() is None, reason=NO_PERF)]

# Enough work for some dozen samples, in several processes, in and out of the kernel, with an exec.
_PIPE, _COPY = "dd if=/dev/zero bs=1k count=20000 | cksum", "dd if=/dev/zero of=/dev/null bs=1k count=100000"
_WORK = ["sh", "-c", f"({_PIPE}) >/dev/null 2>&1; exec {_COPY} 2>/dev/null"]

OPTIONS = {
    "plain": "-F 999",
    "callchains": "-F 999 -g",
    "system-wide": "-a -F 499 -g",
    "compressed": "-z -F 999 -g",
    "compressed system-wide": "-a -z -F 999 -g",
    "many events": "-e page-faults,minor-faults,context-switches -c 50 -g",
    "group": "-e {cpu-clock,page-faults} -F 999 -g",
    "group read": "-e {cpu-clock,page-faults,context-switches}:S -F 999",
    "tracepoint": "-e sched:sched_switch -e cpu-clock -R -a",
    "addresses": "-d -W --phys-data --data-page-size --code-page-size -T --sample-cpu --sample-identifier -F 999",
    "registers": "--intr-regs --user-regs=sp -F 999 -g",
    "side-band": "--switch-events --namespaces --all-cgroups -a -F 999 -g",
    "build-ids in mappings": "--buildid-mmap -F 999 -g",
    "inherit stat": "-s -F 999",
    "clock": "-k monotonic -F 999 -g",
    "overwrite": "--overwrite -F 999 -g",
    "tail synthesis": "--tail-synthesize -F 999 -g",
    "asynchronous": "--aio -a -F 999 -g",
}


def perf_record(options: str, output: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    return run_perf("record", "-q", *options.split(), "-o", output, "--", *_WORK, cwd=folder)


def our_samples(path: Path) -> list[RawSample]:
    """As ``raw_samples``."""
    rows = []
    with PerfData(path) as data:
        for batch in data.batches():
            s = batch.samples
            columns = (s.time_ns, s.cpu, s.pid, s.tid, s.ip, s.misc, s.period, s.kernel_chain, s.user_chain)
            rows += list(zip(*(column.tolist() for column in columns), strict=True))
        chains = data.chains()
        assert data.record_losses.malformed == 0
        assert data.losses.unreadable_bytes == 0
        assert not data.losses.unknown_tool_records
    offsets, frames = chains.offsets.tolist(), chains.frames.tolist()
    with_chains = any(attr.sample_type & SampleType.CALLCHAIN for attr in data.attrs)

    def of(chain: int) -> list[int]:
        return [] if chain == NO_CHAIN or not with_chains else frames[offsets[chain] : offsets[chain + 1]]

    return sorted(RawSample(*row[:7], chain=(*of(row[7]), *of(row[8]))) for row in rows)  # type: ignore[misc]  # seven of nine


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_same_samples_as_perf(tmp_path: Path, options: str) -> None:
    result = perf_record(options, "perf.data", tmp_path)
    if result.returncode:
        pytest.skip(f"perf record {options}: {result.stderr.decode().strip().splitlines()[-1:]}")
    path = tmp_path / "perf.data"
    ours = our_samples(path)
    assert ours == raw_samples(path)
    assert ours


@pytest.mark.parametrize("options", ["-F 999 -g", "-z -F 999 -g"], ids=["plain", "compressed"])
def test_same_samples_as_perf_from_a_pipe(tmp_path: Path, options: str) -> None:
    result = perf_record(options, "-", tmp_path)
    if result.returncode:
        pytest.skip(f"perf record {options} -o -: {result.stderr.decode().strip().splitlines()[-1:]}")
    path = tmp_path / "pipe.data"
    path.write_bytes(result.stdout)
    ours = our_samples(path)
    assert ours == raw_samples(path)
    assert ours


def test_group_reads_become_the_samples_that_perf_makes_of_them(tmp_path: Path) -> None:
    """With ``:S`` perf shows one sample for each counter that grew, weighted by what it grew."""
    result = perf_record("-e {cpu-clock,page-faults,context-switches}:S -F 999", "perf.data", tmp_path)
    if result.returncode:
        pytest.skip(f"perf record :S: {result.stderr.decode().strip().splitlines()[-1:]}")
    fields = ["--ns", "-F", "time,period,event"]
    shown = run_perf("script", *fields, "-i", "perf.data", cwd=tmp_path, text=True).stdout
    theirs = sorted(tuple(line.replace(":", " ").split()) for line in shown.splitlines() if line.strip())
    ours = []
    with PerfData(tmp_path / "perf.data") as data:
        deltas = ReadDeltas()
        for batch in data.batches():
            s = deltas.expand(batch.samples, batch.reads)
            for time_ns, period, event in zip(s.time_ns.tolist(), s.period.tolist(), s.event.tolist(), strict=True):
                seconds = f"{time_ns // 10**9}.{time_ns % 10**9:09d}"
                ours.append((seconds, str(period), data.attrs[event].name))
    assert sorted(ours) == theirs
    assert len(ours) > len({time for time, _, _ in ours}) > 0


# Not big-endian pipes: there perf 6.1 forgets to swap the halves of pid and tid.
@pytest.mark.parametrize(("form", "byteorder"), [("file", "little"), ("file", "big"), ("pipe", "little")])
@pytest.mark.parametrize("id_bit", [SampleType.IDENTIFIER, SampleType.ID], ids=["identifier", "perf before 3.12"])
def test_built_files_read_as_perf_reads_them(
    tmp_path: Path, byteorder: Literal["little", "big"], form: str, id_bit: SampleType
) -> None:
    """What this machine's perf cannot record: the other byte order, and the layouts of old kernels."""
    common = SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.ADDR | id_bit | SampleType.CPU
    layouts = [
        RecordLayout(common | SampleType.PERIOD | SampleType.CALLCHAIN | SampleType.WEIGHT, ids=(11, 12)),
        RecordLayout(common | SampleType.PERIOD | SampleType.RAW | SampleType.DATA_SRC, ids=(13,)),
    ]
    writer = PerfDataWriter([Event(layouts[0], "cycles"), Event(layouts[1], "instructions", 0, 1)], byteorder)
    w = writer.records
    data = w.comm(5, 5, b"old", trailer=w.sample_id(pid=5, tid=5, time_ns=1, id_=11))
    data += w.mmap(5, 0x1000, 0x1000, 0, b"/bin/old", trailer=w.sample_id(pid=5, tid=5, time_ns=2, id_=11))
    for i in range(40):
        id_ = (11, 13, 12)[i % 3]
        chain = [CONTEXT_KERNEL, 2**64 - 2**20 - i, CONTEXT_USER, 0x1000 + i, 0x1100]
        sample = Sample(
            ip=chain[1], pid=5, tid=5 + i % 2, time_ns=100 + i, id=id_, cpu=i % 4, period=7 + i, chain=chain, misc=1
        )
        data += w.sample(sample, event=id_ == 13)
    path = tmp_path / f"{form}.data"
    path.write_bytes(writer.file(data) if form == "file" else writer.pipe(data))
    theirs = raw_samples(path)
    ours = our_samples(path)
    # The second event has no chain; the sample's own address stands in for it.
    assert [row[:7] for row in ours] == [row[:7] for row in theirs]
    assert [row.chain for row in ours if row.period % 3 != 2] == [row.chain for row in theirs if row.period % 3 != 2]
    assert len(ours) == 40


def test_dwarf_call_graphs_keep_the_kernels_part_and_add_the_users_leaf(tmp_path: Path) -> None:
    """perf unwinds the saved stack itself; the chain in the record ends at the kernel's border."""
    result = perf_record("--call-graph dwarf,1024 -F 999", "perf.data", tmp_path)
    if result.returncode:
        pytest.skip(f"perf record: {result.stderr.decode().strip().splitlines()[-1:]}")
    ours, theirs = our_samples(tmp_path / "perf.data"), raw_samples(tmp_path / "perf.data")
    assert len(ours) == len(theirs) > 0
    for our, their in zip(ours, theirs, strict=True):
        assert our[:7] == their[:7]
        assert our.chain[: len(their.chain)] == their.chain
        assert len(our.chain) - len(their.chain) in (0, 1)


def test_threads_directory_has_no_fewer_samples_than_perf_reads(tmp_path: Path) -> None:
    """perf 6.1 drops some samples of its own directories, more of compressed ones; every one it shows we have.

    Call chains are left out: of a dropped sample its dump may show the frames without the head.
    """
    result = perf_record("--threads -a -F 999 -g", "perf.data", tmp_path)
    if result.returncode:
        pytest.skip(f"perf record --threads: {result.stderr.decode().strip().splitlines()[-1:]}")
    ours = {sample[:7] for sample in our_samples(tmp_path / "perf.data")}
    assert {sample[:7] for sample in raw_samples(tmp_path / "perf.data")} <= ours
