"""User stacks that perf copied: what we find in them against what ``perf script`` does."""

import subprocess
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import pytest

from builders.call_paths import build_program, make_program
from builders.perf_tool import NO_PERF, find_perf
from tdprof.capture.tables import read_table
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.walked import FIRST_WALKED, WalkedStacks
from tdprof.linux.elf import MACHINES
from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.walk_copies import CopyWalker, FileTables

pytestmark = [
    pytest.mark.needs_perf,
    pytest.mark.skipif(find_perf() is None, reason=NO_PERF),
    pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built"),
]

_PERL = (
    "sub f { my $n = shift; $n < 2 ? 1 : f($n - 1) + f($n - 2) } f(24); my @a = sort map { $_ * 7 % 999 } 1 .. 200000"
)
_PYTHON = "import json\nfor i in range(500): json.loads(json.dumps({str(k): [k] * 5 for k in range(300)}))"
COMMANDS = {"perl": ["perl", "-e", _PERL], "python": ["/usr/bin/python3", "-c", _PYTHON]}


class Stack(NamedTuple):
    """A sample's user stack: offsets in files, of callers one byte before where they go on; and whether it is whole."""

    offsets: list[int]
    is_complete: bool


def perf_stacks(path: Path) -> dict[tuple[int, int], Stack]:
    """By thread and time, as perf unwinds them; only those with user addresses."""
    command = ["perf", "script", "--no-inline", "--ns", "-F", "tid,time,ip,sym", "-i", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stacks = {}
    for block in text.split("\n\n"):
        head, *frames = block.strip().splitlines() or [""]
        if not head:
            continue
        tid, time = head.replace(":", " ").split()[:2]
        seconds, nanoseconds = time.split(".")
        parsed = [(int(line.split()[0], 16), line.split(maxsplit=1)[1]) for line in frames]
        user = [(address, symbol) for address, symbol in parsed if address < 1 << 47]
        if user:
            key = int(tid), int(seconds) * 10**9 + int(nanoseconds)
            stacks[key] = Stack([address for address, _ in user], user[-1][1] == "_start")
    return stacks


def our_stacks(path: Path, capture: Path) -> dict[tuple[int, int], Stack]:
    """The same out of our walk of each copy."""
    mappings, processes = read_table(capture, "mappings"), read_table(capture, "processes")
    of_pid: dict[int, list[tuple[int, int, int]]] = {}
    for row in mappings.to_pylist():
        of_pid.setdefault(row["pid"], []).append((row["address"], row["length"], row["file_offset"]))
    stacks = {}
    with PerfData(path, keep_copies=True) as data:
        files = FileTables(None, is_here=True)
        machine = MACHINES[data.features.arch]
        walked = WalkedStacks(CopyWalker(mappings, processes, machine, files, is_leaf_known=True).walk)
        for batch in data.batches():
            walked.replace(batch.samples, batch.copies)
            rows = batch.copies.sample.astype(int)
            numbers = FIRST_WALKED - batch.samples.user_chain[rows].astype(int)
            found, lengths, chains = walked.rows(numbers)
            ends = chains.offsets[numbers + 1].astype(int)
            for at, row in enumerate(rows.tolist()):
                frames = chains.frames[ends[at] - lengths[at] : ends[at]].tolist()
                looked_up = [address - (place > 0) for place, address in enumerate(frames)]
                mapped = sorted(of_pid[int(batch.samples.pid[row])])
                key = int(batch.samples.tid[row]), int(batch.samples.time_ns[row])
                stacks[key] = Stack([in_file(mapped, a) for a in looked_up], found["end"][at] == StackEnd.COMPLETE)
    return stacks


def in_file(mapped: list[tuple[int, int, int]], address: int) -> int:
    """Offset in the file that holds an address, of mappings that do not overlap."""
    start, length, offset = mapped[max(bisect_right(mapped, (address, 2**64, 0)) - 1, 0)]
    return address - start + offset if start <= address < start + length else address


def recorded(folder: Path, command: list[str], size: int) -> Path:
    options = [
        "-q",
        "-F",
        "1999",
        "-e",
        "cpu-clock:u",
        "--call-graph",
        f"dwarf,{size}",
        "-o",
        str(folder / "perf.data"),
    ]
    result = subprocess.run(["perf", "record", *options, "--", *command], capture_output=True, check=False, timeout=300)
    if result.returncode:
        pytest.skip(f"perf record --call-graph dwarf: {result.stderr.decode().strip().splitlines()[-1:]}")
    return folder / "perf.data"


@pytest.mark.parametrize("program", ["gcc -O2", *COMMANDS])
@pytest.mark.parametrize("size", [8192, 32768])
def test_same_stacks_where_those_of_perf_are_complete(tmp_path: Path, program: str, size: int) -> None:
    command = COMMANDS.get(program)
    if command is None:
        command = [str(build_program(make_program(seed=size), tmp_path / "program")), "0.5"]
    path = recorded(tmp_path, command, size)
    import_perf_data(str(path), tmp_path / "capture")
    ours, theirs = our_stacks(path, tmp_path / "capture"), perf_stacks(path)
    whole = [key for key, stack in theirs.items() if stack.is_complete and key in ours]
    both = [(ours[key], theirs[key]) for key in whole if ours[key].is_complete]
    assert len(whole) > 20
    assert [pair for pair in both if pair[0].offsets != pair[1].offsets] == []
    # The first and last instructions of what lazy binding calls end early, and say so (docs/unwinding.md).
    assert len(both) >= 0.98 * len(whole)
