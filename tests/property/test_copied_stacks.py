"""Copies of user stacks in perf.data: whatever they hold, each becomes a stack that begins where it was sampled."""

import platform
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import Sample
from tdprof.capture.manifest import read_manifest
from tdprof.capture.tables import read_table
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.elf import open_elf
from tdprof.linux.perf_abi import SampleType
from tdprof.model.stack_ends import StackEnd
from tdprof.native import unwind_api
from tdprof.pipeline.import_perf import import_perf_data

pytestmark = [
    pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="registers and programs of x86-64"),
]

SAMPLE_TYPE = (
    SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.PERIOD | SampleType.REGS_USER | SampleType.STACK_USER
)
REGISTERS = 0xFF0FFF  # what perf asks for on x86-64
SP, PC = 7, 8
BASE, STACK = 0x7F0000000000, 0x7FFF00000000
u64 = st.integers(0, 2**64 - 1)


def library() -> tuple[Path, int, int, str]:
    """A real library: path, file offset and size of its text, build-id."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    path = next(Path(line.split()[5]) for line in maps if "/libc.so" in line)
    elf = open_elf(path)
    text = next(s for s in elf.segments if s.type == 1 and s.flags & 1)
    return path, text.offset, text.file_size, elf.build_id


@st.composite
def samples(draw: st.DrawFn, text: int) -> list[Sample]:
    """Registers and stacks in which addresses of code, of the stack, and anything else stand anywhere."""
    word = st.one_of(st.integers(BASE, BASE + text - 1), st.integers(STACK - 64, STACK + 512), st.integers(0, 64), u64)
    found = []
    for number in range(draw(st.integers(1, 6))):
        registers = draw(st.lists(word, min_size=20, max_size=20))
        registers[SP] = draw(st.just(STACK) | word)
        words = draw(st.lists(word, max_size=40))
        stack = struct.pack(f"<{len(words)}Q", *words) + draw(st.sampled_from([b"", b"\1\2\3"]))
        filled = draw(st.none() | st.integers(0, 400) | u64)
        time_ns = draw(st.integers(1, 50))
        found.append(
            Sample(
                ip=registers[PC] % 2**48,
                pid=7,
                tid=7 + number,
                time_ns=time_ns,
                regs_user=registers,
                stack=stack,
                stack_filled=filled,
            )
        )
    return found


def recording(taken: list[Sample], build_id: bytes) -> bytes:
    made = PerfDataWriter([Event(RecordLayout(SAMPLE_TYPE, sample_regs_user=REGISTERS, ids=(1,)))])
    made.features = {6: made.string("x86_64")}
    w = made.records
    path, offset, size, _ = library()
    # Mapped, and later something else in the middle of it: what is mapped depends on the time.
    side_band = w.mmap2(7, BASE, size, offset, str(path).encode(), build_id=build_id, trailer=w.sample_id(time_ns=0))
    side_band += w.mmap2(7, BASE + (size >> 13 << 12), 4096, 0, b"//anon", trailer=w.sample_id(time_ns=20))
    return made.file(side_band + b"".join(w.sample(sample) for sample in taken))


def imported(data: bytes, folder: Path) -> dict[int, dict]:
    """The stack of each thread."""
    (folder / "perf.data").write_bytes(data)
    import_perf_data(str(folder / "perf.data"), folder / "capture")
    stacks = read_table(folder / "capture", "stacks", ("end", "guessed_from", "by_table", "by_fp", "by_lr")).to_pylist()
    of_identity = {row["stack"]: row for row in stacks}
    rows = read_table(folder / "capture", "samples").to_pylist()
    return {row["tid"]: of_identity[row["user_stack"]] for row in rows if row["user_stack"] is not None}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_copy_becomes_a_stack_that_begins_at_its_program_counter(data: st.DataObject) -> None:
    _, _, size, build_id = library()
    taken = data.draw(samples(size))
    with tempfile.TemporaryDirectory() as folder:
        found = imported(recording(taken, bytes.fromhex(build_id)), Path(folder))
    for sample in taken:
        assert sample.regs_user is not None
        if not sample.stack:
            continue  # nothing was copied
        stack = found[sample.tid]
        assert stack["addresses"][0] == sample.regs_user[PC] % 2**48
        assert len(stack["addresses"]) <= 255
        assert stack["end"] in {end.word for end in StackEnd}
        # Each further address is code that was mapped; nothing is taken from behind what the kernel filled.
        assert all(BASE < address <= BASE + size for address in stack["addresses"][1:])
        filled = min(len(sample.stack), len(sample.stack) if sample.stack_filled is None else sample.stack_filled)
        assert len(stack["addresses"]) <= 2 + filled // 8


def test_another_file_than_the_recorded_is_not_used(tmp_path: Path) -> None:
    _, _, size, _ = library()
    sample = Sample(ip=BASE + 64, pid=7, tid=7, time_ns=5, regs_user=[BASE + size // 2] * 20, stack=b"\0" * 64)
    found = imported(recording([sample], b"\xcd" * 20), tmp_path)
    assert (found[7]["end"], len(found[7]["addresses"])) == ("no-table", 1)
    assert any("not the recorded ones" in note for note in read_manifest(tmp_path / "capture").notes)
