"""Branch stacks, control groups and namespaces of an import against what the perf tool reads from the same file.

This machine's software events take no branch stacks: those files are built. The others perf records here.
"""

import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import Sample, branch_flags
from builders.perf_tool import NO_PERF, find_perf, perf_shares
from tdprof.capture.tables import read_table
from tdprof.decode.perf.layout import BRANCH_HW_INDEX, RecordLayout
from tdprof.linux.perf_abi import SampleType
from tdprof.pipeline.import_perf import import_perf_data

pytestmark = [pytest.mark.needs_perf, pytest.mark.skipif(find_perf() is None, reason=NO_PERF)]

FIELDS = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.BRANCH_STACK
_ENTRY = re.compile(r"0x([0-9a-f]+)/0x([0-9a-f]+)/([MP-])/([X-])/([A-])/(\d+)/(\w*)")
# As perf 6.1 prints the types that it knows.
_TYPES = {"": None, "COND": "conditional", "UNCOND": "unconditional", "IND": "indirect", "CALL": "call"} | {
    "IND_CALL": "indirect call",
    "RET": "return",
    "SYSCALL": "system call",
    "SYSRET": "system return",
    "COND_CALL": "conditional call",
    "COND_RET": "conditional return",
    "ERET": "exception return",
    "IRQ": "interrupt",
    "SERROR": "system error",
    "NO_TX": "outside transaction",
}


@pytest.mark.parametrize("branch_sample_type", [0, BRANCH_HW_INDEX], ids=["plain", "with index"])
def test_branches_are_those_of_perf_script(tmp_path: Path, branch_sample_type: int) -> None:
    made = PerfDataWriter([Event(RecordLayout(FIELDS, branch_sample_type=branch_sample_type | 1 << 3, ids=(1,)))])
    chosen = random.Random(branch_sample_type)
    data = b""
    for time_ns in range(200):
        stack = [
            (
                0x1000 + chosen.randrange(6),
                0xFFFF800008000000 + chosen.randrange(3),
                branch_flags(
                    **dict.fromkeys([chosen.choice(["mispredicted", "predicted", "in_transaction"])], True),
                    aborted=chosen.random() < 0.1,
                    cycles=chosen.choice([0, 3, 1000, 0xFFFF]),
                    type_=chosen.randrange(15),
                ),
            )
            for _ in range(chosen.randrange(33))
        ]
        data += made.records.sample(Sample(ip=0x1000, pid=7, tid=7, time_ns=time_ns, id=1, branches=stack))
    path = tmp_path / "perf.data"
    path.write_bytes(made.file(data))
    command = ["perf", "script", "-F", "ip,brstack", "-i", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs: Counter[tuple[object, ...]] = Counter()
    for source, target, prediction, in_transaction, aborted, cycles, type_ in _ENTRY.findall(text):
        flags = (in_transaction == "X", aborted == "A", _TYPES[type_])
        theirs[int(source, 16), int(target, 16), *flags, "count"] += 1
        theirs[int(source, 16), int(target, 16), *flags, "mispredicted"] += prediction == "M"
        theirs[int(source, 16), int(target, 16), *flags, "predicted"] += prediction == "P"
        theirs[int(source, 16), int(target, 16), *flags, "cycles"] += int(cycles)
    import_perf_data(str(path), tmp_path / "capture")
    ours: Counter[tuple[object, ...]] = Counter()
    for row in read_table(tmp_path / "capture", "branches").to_pylist():
        key = tuple(row[name] for name in ("from_address", "to_address", "in_transaction", "aborted", "type"))
        for name in ("count", "mispredicted", "predicted", "cycles"):
            ours[*key, name] += row[name]
    assert ours == theirs
    assert sum(count for key, count in ours.items() if key[-1] == "count") > 1000


@pytest.fixture
def control_group() -> Iterator[Path | None]:
    """A new group of the hierarchy that perf's samples name, None where it cannot be made."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    root = next((Path(words[1]) for words in mounts if words[2] == "cgroup2"), None)
    has_older = any(words[2] == "cgroup" and "perf_event" in words[3] for words in mounts)
    group = None if root is None or has_older else root / "tdprof-test"
    try:
        if group is not None:
            group.mkdir()
    except OSError:
        group = None
    yield group
    if group is not None:
        group.rmdir()


def test_cgroups_and_namespaces_are_those_of_perf(tmp_path: Path, control_group: Path | None) -> None:
    enter = f"echo 0 > {control_group}/cgroup.procs && " if control_group else ""
    work = "dd if=/dev/zero bs=1k count=60000 2>/dev/null | cksum >/dev/null"
    script = f"{work}; (sh -c '{enter}exec unshare -m sh -c \"{work}\"')"
    options = ["-q", "-F", "1999", "--all-cgroups", "--namespaces", "-o", "perf.data"]
    result = subprocess.run(["perf", "record", *options, "--", "sh", "-c", script], cwd=tmp_path, capture_output=True)
    if result.returncode:
        pytest.skip(f"perf record: {result.stderr.decode().strip().splitlines()[-1:]}")
    import_perf_data(str(tmp_path / "perf.data"), tmp_path / "capture")

    paths = {row["cgroup"]: row["path"] for row in read_table(tmp_path / "capture", "cgroups").to_pylist()}
    ours: Counter[str] = Counter()
    for row in read_table(tmp_path / "capture", "samples", ["cgroup"]).to_pylist():
        ours[paths[row["cgroup"]]] += row["weight"]
    assert ours == perf_shares(tmp_path / "perf.data", "cgroup")
    assert ("/tdprof-test" in ours) == (control_group is not None)

    command = ["perf", "script", "--show-namespace-events", "-i", "perf.data"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    said: Counter[tuple[object, ...]] = Counter()
    for record in re.finditer(
        r"PERF_RECORD_NAMESPACES (\d+)/(\d+) - nr_namespaces: \d+\n\s*\[(.*?)\]", text, re.DOTALL
    ):
        for kind, device, inode in re.findall(r"\d+/(\w+): (\d+)/(0x[0-9a-f]+)", record[3]):
            said[int(record[1]), int(record[2]), kind, int(device), int(inode, 16)] += 1
    rows = read_table(tmp_path / "capture", "namespaces").to_pylist()
    held = Counter((row["pid"], row["tid"], row["namespace"], row["device"], row["inode"]) for row in rows)
    assert held == said
    mounts = [row["is_recorders"] for row in rows if row["namespace"] == "mnt"]
    assert {True, False} == set(mounts)
