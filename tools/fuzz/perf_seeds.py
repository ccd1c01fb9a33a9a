# SPDX-License-Identifier: Apache-2.0
"""Seeds for the record fuzzer, and damaged perf.data files for the container reader (see tools/fuzz/perf-data)."""

import random
import shutil
import struct
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "profiler")]

from builders.perf_data import AUXTRACE_INFO, TIME_CONV, Event, PerfDataWriter  # noqa: E402  # the builders are the tests'
from builders.perf_records import CONTEXT_KERNEL, CONTEXT_USER, Read, RecordWriter, Sample  # noqa: E402
from tdprof.decode.perf.data import PerfData  # noqa: E402
from tdprof.decode.perf.layout import RecordLayout  # noqa: E402
from tdprof.errors import TdprofError  # noqa: E402
from tdprof.linux.perf_abi import RecordType, SampleType  # noqa: E402
from tdprof.pipeline.import_perf import import_perf_data  # noqa: E402

IDENTIFIER = SampleType.IDENTIFIER


def record_seeds(folder: Path) -> None:
    """One input for each sample field and side-band type, in both byte orders, as perf_records_target.c reads them."""
    number = 0
    for bit in [0, *SampleType, 0x1FFFFFF]:
        for big in (False, True):
            layout = RecordLayout(
                sample_type=IDENTIFIER | SampleType.TIME | SampleType.TID | bit,
                read_format=15,
                branch_sample_type=1 << 17,
                sample_regs_user=3,
                sample_regs_intr=3,
            )
            writer = RecordWriter([layout], "big" if big else "little")
            chain = [CONTEXT_KERNEL, 1, 2, CONTEXT_USER, 3, 4]
            sample = Sample(
                id=1,
                chain=chain,
                read=Read([(1, 1, 0), (2, 2, 0)]),
                branches=[(1, 2, 3), (4, 5, 1), (1, 2, 3)],
                regs_user=[1, 2],
            )
            trailer = writer.sample_id(id_=1)
            body = writer.sample(sample) * 2 + writer.comm(1, 1, b"x", trailer=trailer)
            body += writer.mmap2(1, 2, 3, 4, b"/x", build_id=b"b" * 20, trailer=trailer)
            for type_ in RecordType:
                body += writer.record(type_, b"\1\0\0\0\0\0\0\0" * 5 + trailer)
            head = bytes([0, big | 2 | 4]) + struct.pack("<IBBBB", layout.sample_type, 15 | 1 << 5, 2, 2, 0x80)
            (folder / f"seed{number}").write_bytes(head.ljust(31, b"\0") + b"\x80" + body)
            number += 1


def container_files() -> list[bytes]:
    """perf.data in every form: file, pipe, compressed, with AUX data and features, both byte orders."""
    files = []
    for order in ("little", "big"):
        fields = IDENTIFIER | SampleType.IP | SampleType.TIME | SampleType.CALLCHAIN
        layout = RecordLayout(fields | SampleType.BRANCH_STACK | SampleType.CGROUP, ids=(1, 2))
        writer = PerfDataWriter([Event(layout), Event(layout)], order)  # type: ignore[arg-type]
        writer.features = {
            2: writer.build_id("/bin/x", b"b" * 20),
            3: writer.string("host"),
            7: writer.pack("II", 2, 2),
            11: writer.pack("I", 1) + writer.string("perf"),
            16: writer.pack("II", 1, 9) + writer.string("arm_spe_0"),
        }
        data = b"".join(
            writer.records.sample(
                Sample(
                    ip=i, id=1, time_ns=i, chain=[CONTEXT_USER, i, 2], branches=[(i % 9, 5, i << 18)] * 3, cgroup=i % 3
                )
            )
            for i in range(50)
        )
        data += writer.records.namespaces(1, 1, [(4, 77)] * 7) + writer.records.cgroup(1, b"/x")
        data += writer.records.comm(1, 1, b"x") + writer.auxtrace(b"\x99" * 64)
        data += writer.tool_record(AUXTRACE_INFO, writer.pack("IIQQQQ", 4, 0, 2, 4, 9, 1))
        data += writer.tool_record(TIME_CONV, writer.pack("QQQ", 1, 2, 3)) + writer.tool_record(68, b"")
        files += [writer.file(data), writer.pipe(data), writer.file(writer.compressed(data))]
        files.append(writer.file(writer.compressed(data, version=2)))
    return files


def damaged(random_: random.Random, content: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or set to extremes, mostly in the headers."""
    data = bytearray(content)
    for _ in range(random_.randint(1, 6)):
        at = (
            min(int(random_.expovariate(1 / 200)), len(data) - 1)
            if random_.random() < 0.5
            else random_.randrange(len(data))
        )
        kind = random_.randrange(4)
        if kind == 0:
            data[at] ^= 1 << random_.randrange(8)
        elif kind == 1:
            data[at : at + 8] = random_.choice([b"\xff" * 8, b"\0" * 8, random_.randbytes(8)])
        elif kind == 2:
            del data[at : at + random_.randint(1, 64)]
        else:
            data = data[: at + 1] if random_.random() < 0.2 else data[:at] + data[at : at + 32] + data[at:]
        if not data:
            return b""
    return bytes(data)


def fuzz_container(seconds: float) -> None:
    """Read and import damaged files until the time is up; anything but a result or a TdprofError is a finding."""
    random_ = random.Random(1)
    files, end, runs, refused = container_files(), time.monotonic() + seconds, 0, 0
    with tempfile.TemporaryDirectory(prefix="fuzz-perf-data-") as folder:
        path, capture = Path(folder) / "perf.data", Path(folder) / "capture"
        while time.monotonic() < end:
            content = damaged(random_, random_.choice(files))
            path.write_bytes(content)
            runs += 1
            try:
                if runs % 16:
                    with PerfData(path, keep_branches=True) as data:
                        for _ in data.batches():
                            pass
                else:
                    import_perf_data(str(path), capture)
                    shutil.rmtree(capture)
            except TdprofError:
                refused += 1
            except BaseException:
                (ROOT / ".cache" / "fuzz-perf.data").write_bytes(content)
                print(f"fuzz: finding after {runs} files, kept as .cache/fuzz-perf.data", file=sys.stderr)
                raise
    print(f"container: {runs} damaged files read, {refused} of them refused with one line, no other error")


if __name__ == "__main__":
    if sys.argv[1] == "records":
        record_seeds(Path(sys.argv[2]))
    else:
        fuzz_container(float(sys.argv[2]))
