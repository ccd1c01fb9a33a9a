"""Spools of interrupted recordings, of which each part once cost more than it weighs; see `costly_files`."""

import random
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from builders import bpf_spool
from builders.captures import write_manifest
from builders.cost import tdprof
from builders.costly_files import builder
from builders.hosts import HOST
from builders.perf_records import RecordWriter
from tdprof.capture.manifest import Manifest, Rung
from tdprof.decode.perf.layout import RecordLayout
from tdprof.linux.perf_abi import RecordType
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses

PID = 42


def write_spool(
    folder: Path, files: dict[str, bytes], *, rung: Rung = Rung.BPF_SOFTWARE, followed: bool = False
) -> None:
    """An interrupted recording: a manifest and some files of its spool."""
    events = [EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999)]
    manifest = Manifest(HOST, ["app"], [], False, events, rung, "", 0, 0, 10**9, Losses())
    write_manifest(folder, replace(manifest, record_ids=[[1], [2]], followed=[PID] if followed else []))
    (folder / "spool").mkdir()
    plain = {"stacks.bpf": bpf_spool.stack_record(1, [0x1010]), "rows.bpf": one_row()}
    for name, data in (plain | files).items():
        (folder / "spool" / name).write_bytes(data)


def one_row() -> bytes:
    return bpf_spool.rows_frame(5, [(1, 0, PID, PID, 0, b"app", 1, 1)])


def _report(folder: Path) -> list[str]:
    return tdprof("report", folder)


def frame(rows: int, payload: bytes, time_ns: int = 5) -> bytes:
    header = struct.pack("<4sIQI", b"TDR1", rows, time_ns, len(payload))
    return header + struct.pack("<I", zlib.crc32(header + payload)) + payload


@builder
def spool_of_small_frames(folder: Path, size: int) -> list[str]:
    """Frames whose rows shrink as far as they may."""
    rows = 200
    keys = np.zeros((rows, 48), np.uint8)
    keys[:, 16:20] = keys[:, 20:24] = np.frombuffer(struct.pack("<I", PID), np.uint8)
    keys[:, 0] = 1
    payload = zlib.compress(keys.tobytes() + np.ones(2 * rows, "<u8").tobytes(), 9)
    data = b"".join(frame(rows, payload, number) for number in range(size // (len(payload) + 24)))
    write_spool(folder, {"rows.bpf": data})
    return _report(folder)


@builder
def spool_of_frames_that_begin_again(folder: Path, size: int) -> list[str]:
    """A frame's beginning every few bytes, each of which says that half of the file is its own."""
    header = struct.pack("<4sIQI", b"TDR1", 1, 5, size // 2)
    write_spool(folder, {"rows.bpf": one_row() + (header + bytes(4)) * (size // 24)})
    return _report(folder)


@builder
def spool_of_magic_numbers(folder: Path, size: int) -> list[str]:
    """Nothing but the four bytes that a frame begins with."""
    write_spool(folder, {"rows.bpf": one_row() + b"TDR1" * (size // 4)})
    return _report(folder)


@builder
def spool_of_distinct_stacks(folder: Path, size: int) -> list[str]:
    """As many stacks as fit."""
    count = size // 48
    stacks = b"".join(bpf_spool.stack_record(2 + i, [0x1000 + i, 0x1010]) for i in range(count))
    write_spool(folder, {"stacks.bpf": bpf_spool.stack_record(1, [0x1010]) + stacks})
    return _report(folder)


@builder
def spool_of_processes(folder: Path, size: int) -> list[str]:
    """Processes that ran before, with a thread and a mapping each, as short as they can be written."""
    lines = (b'{"pid":%d,"threads":{"%d":""},"maps":[[%d,1,0,"",""]]}\n' % (i, i, i) for i in range(size // 56))
    write_spool(folder, {"initial.jsonl": b"".join(lines)})
    return _report(folder)


@builder
def spool_of_mappings_of_one_process(folder: Path, size: int) -> list[str]:
    """One process with mappings of one byte."""
    maps = ",".join(f'[{i},1,0,"",""]' for i in range(size // 17))
    write_spool(folder, {"initial.jsonl": f'{{"pid":{PID},"threads":{{}},"maps":[{maps}]}}\n'.encode()})
    return _report(folder)


@builder
def spool_of_nested_lists(folder: Path, size: int) -> list[str]:
    """Lists in lists, and lists of nothing."""
    nested = b"[" * (size // 3) + b"]" * (size // 3)
    write_spool(folder, {"initial.jsonl": nested + b"\n" + b"[" + b"[]," * (size // 9) + b"[]]"})
    return _report(folder)


@builder
def spool_of_interpreters(folder: Path, size: int) -> list[str]:
    """Processes that run CPython, each told of as briefly as can be, and stacks of theirs."""
    line = '{"process":%d,"version":[3,11],"mapped":1,"time_ns":1,"loops":[[1,2]],"switchers":[]}\n'
    lines = "".join(line % (PID + number) for number in range(size // 2 // 84))
    stacks = b"".join(bpf_spool.python_stack(2 + number, PID, [(1, 1, 0)]) for number in range(size // 2 // 64))
    write_spool(folder, {"python.jsonl": lines.encode(), "python_stacks.bpf": stacks})
    return _report(folder)


@builder
def spool_of_an_interpreters_loops(folder: Path, size: int) -> list[str]:
    """One that has as many evaluation loops as fit."""
    loops = ",".join(f"[{number},{number + 1}]" for number in range(size // 18))
    line = f'{{"process":{PID},"version":[3,11],"mapped":1,"time_ns":1,"loops":[{loops}],"switchers":[]}}\n'
    write_spool(folder, {"python.jsonl": line.encode()})
    return _report(folder)


@builder
def spool_of_forks(folder: Path, size: int) -> list[str]:
    """Forks of forks and mappings of each, on the rung where samples come in perf's rings."""
    writer = RecordWriter([RecordLayout(0x10007)])
    out = []
    for pid in range(PID, PID + size // 180):
        trailer = struct.pack("<IIQQ", pid, pid, pid, 2)
        out.append(writer.task(RecordType.FORK, pid + 1, pid, pid + 1, pid, pid, trailer))
        out.append(writer.mmap(pid, 0x1000 + pid, 0x1000, 0, b"/n", trailer=trailer))
    write_spool(folder, {"ring.0.perf": b"".join(out)}, followed=True)
    return _report(folder)


@builder
def spool_of_many_rings(folder: Path, size: int) -> list[str]:
    """Rings of SPE's events, each with a record."""
    writer = RecordWriter([RecordLayout(0x10007)])
    record = writer.record(RecordType.AUX, struct.pack("<QQQ", 0, 16, 0) + struct.pack("<IIQQ", 1, 1, 1, 2))
    write_spool(folder, {f"spe.{number}.0.perf": record for number in range(size // len(record))})
    return _report(folder)


@builder
def spool_of_copied_stacks(folder: Path, size: int) -> list[str]:
    """Copies of stacks in which every word looks like a return address and every second one like a frame."""
    base = 0x7000
    words = [base + 8 * (i + 2) if i % 2 == 0 else 0x1010 for i in range(64)]
    stack = struct.pack(f"<{len(words)}Q", *words)
    registers = [base] * 17
    count = size // (len(stack) + 176)
    copies = b"".join(bpf_spool.stack_copy(2 + i, 5, PID, registers, stack) for i in range(count))
    rows = bpf_spool.rows_frame(5, [(2 + i, 0, PID, PID, 0, b"app", 1, 1) for i in range(min(count, 60_000))])
    maps = f'{{"pid":{PID},"threads":{{}},"maps":[[4096,4096,0,"/nowhere",""]]}}\n'.encode()
    write_spool(folder, {"copies.bpf": copies, "rows.bpf": rows, "initial.jsonl": maps})
    return _report(folder)


@builder
def spool_of_noise(folder: Path, size: int) -> list[str]:
    """Bytes without sense in every file."""
    chance = random.Random(1)
    names = ("rows.bpf", "stacks.bpf", "copies.bpf", "ring.0.perf", "spe.0.0.perf", "initial.jsonl")
    write_spool(folder, {name: chance.randbytes(size // len(names)) for name in names})
    return _report(folder)
