"""Each kind of file that is read, cut at every byte: a refusal in words at worst, and what is before the cut stays."""

import contextlib
import json
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from arm_spe import RecordDecoder
from builders import bpf_spool, spe
from builders.catalogs import small_catalog
from builders.costly_captures import write_capture
from builders.costly_debug_data import ADDR, DATA4, FUNCTION, HIGH, LOW, NAME, STRP, UNIT, abbreviation, unit
from builders.elf import ElfFile, Symbol
from builders.perf_data import Event, PerfDataWriter
from builders.perf_records import CONTEXT_USER, Sample
from tdprof.capture.manifest import read_manifest
from tdprof.capture.tables import read_table
from tdprof.catalog.load import load_catalog
from tdprof.decode.bpf_aggregates import read_ring_file, read_rows, read_stacks
from tdprof.decode.bpf_copies import decode_copies
from tdprof.decode.perf.data import PerfData
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.python.records import read_codes, read_processes
from tdprof.decode.python.records import read_stacks as read_python_stacks
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import SampleType
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.native.library import load_native
from tdprof.recorder.bpf.cache import BpfCache
from tdprof.recorder.bpf.object_file import BpfObject, Compiler, MapSpec, Program
from tdprof.recorder.kallsyms import read_code_symbols, symbols_at
from tdprof.symbolize.cache import CachedSymbols, SymbolCache
from tdprof.symbolize.symbolizer import Symbolizer
from tdprof.unwind.tables import build_file_table
from unit.symbolize.test_jitdump import DUMP
from unit.unwind.test_tables import TEXT, frames

Facts = list[object]
"""What was read of a file, in its order."""
CODE = 0x401000
PADDING = 64  # what may stand behind the last column of the cache
USUAL = SampleType.IDENTIFIER | SampleType.IP | SampleType.TID | SampleType.TIME | SampleType.CALLCHAIN


def check(read: Callable[[bytes], Facts], whole: bytes, lengths: Iterable[int] | None = None) -> None:
    """Each cut gives the beginning of what the whole gives, and a longer one no less."""
    everything, before = read(whole), 0
    assert everything
    for length in range(len(whole)) if lengths is None else lengths:
        found = read(whole[:length])
        assert found == everything[: len(found)], length
        assert len(found) >= before, length
        before = len(found)


@pytest.mark.parametrize(("order", "is_pipe"), [("little", False), ("big", True)])
def test_perf_data(tmp_path: Path, order: Literal["little", "big"], *, is_pipe: bool) -> None:
    writer = PerfDataWriter([Event(RecordLayout(USUAL, ids=(1,)), "cycles")], order)
    data = writer.records.comm(7, 7, b"app", trailer=writer.records.sample_id(pid=7, tid=7, id_=1))
    for i in range(4):
        data += writer.records.sample(Sample(ip=i, pid=7, tid=7, time_ns=i, id=1, chain=[CONTEXT_USER, i, 9]))
    path = tmp_path / "perf.data"

    def read(cut: bytes) -> Facts:
        path.write_bytes(cut)
        found: Facts = []
        with contextlib.suppress(TdprofError), PerfData(path) as opened:
            for batch in opened.batches():
                found += batch.samples.ip.tolist()
        return found

    check(read, writer.pipe(data) if is_pipe else writer.file(data))


def test_spooled_rows_and_stacks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    rows = [bpf_spool.rows_frame(n, [(n, 0, 42, 42, 0, b"app", 1, n)]) for n in range(1, 5)]
    stacks = [bpf_spool.stack_record(n, [n] * 3) for n in range(1, 5)]

    def rows_of(cut: bytes) -> Facts:
        path.write_bytes(cut)
        return [row for batch in read_rows(path, SpoolDamage()) for row in batch.keys["user_stack"].tolist()]

    def stacks_of(cut: bytes) -> Facts:
        path.write_bytes(cut)
        damage = SpoolDamage()
        found = [each for batch in read_stacks(path, damage, chunk_bytes=64) for each in batch.hash.tolist()]
        assert damage.bytes == len(cut) - sum(map(len, stacks[: len(found)]))
        return found

    check(rows_of, b"".join(rows))
    check(stacks_of, b"".join(stacks))


def test_spooled_copies_and_python_frames(tmp_path: Path) -> None:
    """Copies of stacks; Python's frames, code objects and processes."""
    ring = {
        "copies.bpf": [bpf_spool.stack_copy(n, n, 7, [n] * 17, bytes(24)) for n in range(1, 4)],
        "python_stacks.bpf": [bpf_spool.python_stack(n, 7, [(n, 1, 0)] * 2) for n in range(1, 4)],
        "codes.bpf": [bpf_spool.python_code(n, 7, b"f", b"f.py", b"\x80") for n in range(1, 4)],
    }
    process = {"process": 7, "version": [3, 11], "mapped": 1, "time_ns": 2, "loops": [[1, 2]]}
    lines = b"".join(json.dumps(process | {"process": pid}).encode() + b"\n" for pid in (7, 8, 9))

    def copies(damage: SpoolDamage) -> Facts:
        batches = read_ring_file(tmp_path / "copies.bpf", damage, decode_copies, 512)
        return [each for batch in batches for each in batch.identity.tolist()]

    def of(name: str, read: Callable[[SpoolDamage], Facts]) -> Callable[[bytes], Facts]:
        def read_cut(cut: bytes) -> Facts:
            (tmp_path / name).write_bytes(cut)
            damage = SpoolDamage()
            found = read(damage)
            if name in ring:
                assert damage.bytes == len(cut) - sum(map(len, ring[name][: len(found)]))
            return found

        return read_cut

    if load_native() is not None:
        check(of("copies.bpf", copies), b"".join(ring["copies.bpf"]))
    frames_of = of("python_stacks.bpf", lambda damage: read_python_stacks(tmp_path, damage).stack.tolist())
    check(frames_of, b"".join(ring["python_stacks.bpf"]))
    codes_of = of("codes.bpf", lambda damage: [*read_codes(tmp_path, damage, {7: (3, 11)}).items()])
    whole = b"".join(ring["codes.bpf"])
    borders = [at + near for at in range(0, len(whole) + 1, len(ring["codes.bpf"][0])) for near in range(-40, 40)]
    check(codes_of, whole, sorted({*range(0, len(whole), 29), *borders} & {*range(len(whole))}))
    check(of("python.jsonl", lambda damage: [*read_processes(tmp_path, damage, {}).items()]), lines)


def test_the_kernels_symbols(tmp_path: Path) -> None:
    """Of half a line nothing is taken: its name is another function's."""
    whole = b"".join(b"%016x T vfs_read_%d\t[mod]\n" % (0x1000 * n, n) for n in range(1, 5))

    def read(cut: bytes) -> Facts:
        (tmp_path / "kallsyms").write_bytes(cut)
        return [
            *symbols_at(
                np.arange(0x1000, 0x6000, 0x1000, dtype=np.uint64), read_code_symbols(tmp_path / "kallsyms")
            ).name
        ]

    assert read(whole) == [f"vfs_read_{n}" for n in range(1, 5)]
    check(read, whole)
    # A line that is none costs no other.
    assert read(b"?\n" + whole + b"zz T t\n") == read(whole)


def test_a_catalog(tmp_path: Path) -> None:
    """All of it or a refusal in words."""
    whole, path = json.dumps(small_catalog()), tmp_path / "catalog.json"
    for length in range(len(whole)):
        path.write_text(whole[:length])
        with pytest.raises(TdprofError, match="catalog"):
            load_catalog(path)
    path.write_text(whole)
    assert load_catalog(path).metrics


def test_a_kept_bpf_object(tmp_path: Path) -> None:
    """Loaded whole or compiled again."""
    bcc = tmp_path / "bcc.py"
    bcc.touch()
    compiler = Compiler(str(bcc), "0.26.0", bcc.stat().st_mtime_ns, 0)
    cache, key = BpfCache(tmp_path / "cache"), {"machine": "x86_64"}
    cache.store(key, BpfObject([MapSpec("rows", 1, 48, 16, 1, 0)], [Program("f", b"\x95" + bytes(7))], compiler))
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cache.load(key) is None, length
    path.write_bytes(whole)
    assert cache.load(key) is not None


def test_a_captures_manifest_and_tables(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    write_capture(tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")

    def of(name: str, read: Callable[[Path], object]) -> Callable[[bytes], Facts]:
        def read_cut(cut: bytes) -> Facts:
            (tmp_path / "cut" / name).write_bytes(cut)
            with contextlib.suppress(TdprofError):
                return [read(tmp_path / "cut")]
            return []

        return read_cut

    check(of("capture.json", read_manifest), (tmp_path / "whole/capture.json").read_bytes())
    stacks = (tmp_path / "whole/stacks.parquet").read_bytes()
    check(of("stacks.parquet", lambda folder: read_table(folder, "stacks")), stacks)


@pytest.mark.parametrize("make", [spe.packed_record, spe.neoverse_slot])
def test_spe_bytes(make: Callable[[spe.Truth], bytes]) -> None:
    stream, starts = spe.write_stream(spe.program(6, 1), make)

    def read(cut: bytes) -> Facts:
        return [int(offset) for batch in RecordDecoder(cut) for offset in batch["offset"]]

    assert read(stream) == list(starts)[:-1]
    check(read, stream)


def _names(symbolizer: Symbolizer, file: MappedFile, offsets: range) -> list[str]:
    found = symbolizer.locate(file, np.array(offsets, np.uint64))
    return [found.strings[row] for row in found.function[found.frame_start[:-1][found.reason == 0]].tolist()]


@pytest.mark.parametrize(
    ("name", "whole"),
    [("perf-42.map", b"1000 100 alpha\n1100 100 beta\n0x1200 100 gamma ray\n1300 100 delta\n"), ("jit-42.dump", DUMP)],
)
def test_code_made_at_run_time(tmp_path: Path, name: str, whole: bytes) -> None:
    """A function may gain another name when more is known of its memory, but never loses one to the cut."""
    of_whole = _run_time_names(tmp_path, name, whole)
    before = set[str]()
    for length in range(len(whole)):
        found = {each.split(" [or")[0] for each in _run_time_names(tmp_path, name, whole[:length])}
        assert found <= {each.split(" [or")[0] for each in of_whole}, length
        assert before <= found, length
        before = found
    assert len(before) >= 3


def _run_time_names(folder: Path, name: str, data: bytes) -> set[str]:
    (folder / name).write_bytes(data)
    with Symbolizer(perf_map_dir=folder) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        return set(_names(symbolizer, file, range(0x1000, 0x4010, 8)))


def _program() -> bytes:
    table = abbreviation(1, UNIT, True) + abbreviation(2, FUNCTION, False, (NAME, STRP), (LOW, ADDR), (HIGH, DATA4))
    dies = b"".join(b"\x02" + struct.pack("<IQI", 6 * i, CODE + 16 * i, 16) for i in range(3))
    return ElfFile(
        text=b"\x90" * 64,
        build_id=b"\xab" * 20,
        symbols=[Symbol(f"func{i}", CODE + 16 * i, 16) for i in range(3)],
        sections={
            ".debug_info": unit(b"\x01" + dies),
            ".debug_abbrev": table + b"\0",
            ".debug_str": b"func0\0func1\0func2\0",
            ".eh_frame": frames((TEXT, 0x10, b""), (TEXT + 0x10, 0x10, b"")),
        },
    ).to_bytes()


def _lengths(data: bytes) -> list[int]:
    """Of a program: all but those between its headers and its code, where nothing stands."""
    return [*range(256), *range(0x0FFF, len(data))]


def test_a_program(tmp_path: Path) -> None:
    """Names, lines and unwind tables; what a cut leaves without a section header has no names, and no wrong ones."""
    whole, path = _program(), tmp_path / "program"
    for length in _lengths(whole):
        path.write_bytes(whole[:length])
        with Symbolizer() as symbolizer:
            found = _names(symbolizer, MappedFile(str(path)), range(0x1000, 0x1030, 16))
            assert set(found) <= {"func0", "func1", "func2"}
        build_file_table(path)
    path.write_bytes(whole)
    with Symbolizer() as symbolizer:
        assert _names(symbolizer, MappedFile(str(path)), range(0x1000, 0x1030, 16)) == ["func0", "func1", "func2"]


def test_kept_symbols(tmp_path: Path) -> None:
    """A file of the cache is used whole or not at all."""
    sources = []

    class Watched(SymbolCache):
        def store(self, build_id: str, symbols: CachedSymbols) -> None:
            sources.append(symbols.source)
            super().store(build_id, symbols)

    (tmp_path / "program").write_bytes(_program())
    cache = Watched(tmp_path / "cache")
    with Symbolizer(cache=cache) as symbolizer:
        _names(symbolizer, MappedFile(str(tmp_path / "program"), "ab" * 20), range(0x1000, 0x1030, 4))
    (entry,), (source,) = cache.entries(), sources
    whole = entry.path.read_bytes()
    assert cache.load("ab" * 20, source) is not None
    for length in range(len(whole)):
        entry.path.write_bytes(whole[:length])
        assert cache.load("ab" * 20, source) is None or len(whole) - length < PADDING
