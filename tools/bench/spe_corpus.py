#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write seeded SPE recordings for benches: perf.data that perf accepts, and an ELF file that its samples fall into.

    tools/bench/spe_corpus.py OUT.data --layout slots --records 4000000 [--functions 1000] [--damage 0.001] [--seed 1]

Layouts: slots (64 bytes, Neoverse N1), packed (back to back), wide (8-byte events, SVE and SME operations, packed).
Shares no code with the decoder.
"""

import argparse
import itertools
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FUNCTIONS = 1000  # of 64 instructions each
FUNCTION_BYTES = 256
TEXT_ADDRESS = 0x400000
CPUS = 2
BLOB_BYTES = 4 << 20
CHUNK_RECORDS = 1 << 18
PID = 4242
ATTR_BYTES = 128  # PERF_ATTR_SIZE_VER7: perf 6.1 reads no longer one
SPE_PMU_TYPE = 9
LAYOUTS = ("slots", "packed", "wide")

LOAD, STORE, BRANCH, OTHER = range(4)


def _field(header: int, values: np.ndarray, size: int, where: np.ndarray) -> np.ndarray:
    """One packet for each record as rows of bytes; int16 with -1 where the record has none."""
    rows = np.empty((len(values), 1 + size), np.int16)
    rows[:, 0] = header
    rows[:, 1:] = values.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :size]
    rows[~where] = -1
    return rows


def _records(
    count: int, rng: np.random.Generator, now: int, functions: int, *, is_wide: bool
) -> tuple[dict[str, np.ndarray], int]:
    """The packets of `count` records by name, and the time of the last."""
    kind = rng.choice(4, count, p=[0.35, 0.15, 0.2, 0.3])
    is_memory, is_load, is_branch = kind <= STORE, kind == LOAD, kind == BRANCH
    # Half of the samples fall into a tenth of the functions, as in real programs.
    function = np.where(
        rng.random(count) < 0.5, rng.integers(0, max(functions // 10, 1), count), rng.integers(0, functions, count)
    )
    pc = TEXT_ADDRESS + function * FUNCTION_BYTES + 4 * rng.integers(0, FUNCTION_BYTES // 4, count)
    user = -1 << 63  # top byte 0x80 of int64: EL0, non-secure
    issue = rng.choice([1, 2, 3, 5, 9, 30], count)
    missed = is_memory & (rng.random(count) < 0.08)
    total = np.minimum(issue + np.where(missed, rng.integers(20, 900, count), rng.integers(1, 12, count)), 4095)
    events = np.full(count, 0x02) | np.where(is_memory, 0x14, 0) | np.where(missed, 0x108, 0)
    events |= np.where(missed & (rng.random(count) < 0.5), 0x220, 0)
    events |= np.where(is_branch, rng.choice([0, 0, 0, 0x40, 0x80], count), 0)
    operation = np.where(
        is_memory,
        np.where(rng.random(count) < 0.3, 0x04, 0) | (kind == STORE),
        np.where(is_branch, rng.choice([0, 1, 1, 2], count), rng.choice([0, 0, 1, 2], count)),
    )
    if is_wide:
        vector = rng.random(count) < 0.4
        operation = np.where(vector & is_memory, 0x28 | (kind == STORE) | rng.choice([0, 4, 0x84], count), operation)
        operation = np.where(vector & (kind == OTHER), rng.choice([0x28, 0x2E, 0x9E], count), operation)
        events |= np.where(vector, rng.choice([0, 1 << 17, 3 << 17], count), 0)
        events |= np.where(missed, 1 << 19 | 1 << 20, 0)
    source = np.where(missed, rng.choice([8, 9, 0xB, 0xD, 0xE], count), 0)
    times = now + np.cumsum(rng.integers(20, 400, count))
    address = np.where(is_memory, (0xFFFF << 32) + 8 * rng.integers(0, 1 << 22, count), pc + 64 | user)
    everywhere = np.ones(count, bool)
    headers = np.where(is_memory, 0xB2, 0xB1)
    packets = {
        "pc": _field(0xB0, pc | user, 8, everywhere),
        "context": _field(0x65, np.full(count, PID), 4, everywhere),
        "operation": _field(0x48, operation, 1, everywhere),
        "events": _field(0x72 if is_wide else 0x52, events, 8 if is_wide else 2, everywhere),
        "issue": _field(0x99, issue, 2, everywhere),
        "total": _field(0x98, total, 2, everywhere),
        "address": _field(0, address, 8, is_memory | is_branch),
        "translation": _field(0x9A, np.where(missed, 30, 1), 2, is_memory),
        "source": _field(0x43, source, 1, is_load),
        "timestamp": _field(0x71, times, 8, everywhere),
    }
    packets["operation"][:, 0] = np.choose(kind, [0x49, 0x49, 0x4A, 0x48])
    has_address = is_memory | is_branch
    packets["address"][has_address, 0] = headers[has_address]
    return packets, int(times[-1])


def _slots(packets: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """64-byte slots as a Neoverse N1 writes them: bytes, and the length of each record."""
    count = len(packets["pc"])
    out = np.zeros((count, 64), np.uint8)
    places = {
        "pc": 0, "context": 14, "operation": 19, "events": 21, "issue": 24, "total": 27, "address": 30,
        "translation": 39, "source": 51, "timestamp": 55,
    }  # fmt: skip
    for name, place in places.items():
        packet = packets[name]
        out[:, place : place + packet.shape[1]] = np.maximum(packet, 0)
    return out.reshape(-1), np.full(count, 64)


def _packed(packets: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Packets back to back."""
    order = ("pc", "issue", "total", "events", "operation", "address", "translation", "context", "source", "timestamp")
    rows = np.concatenate([packets[name] for name in order], axis=1)
    kept = rows >= 0
    return rows[kept].astype(np.uint8), kept.sum(axis=1)


def streams(layout: str, records: int, seed: int, damage: float, functions: int = FUNCTIONS) -> Iterator[bytes]:
    """AUX data in pieces of whole records; `damage` is the share of records of which eight bytes are overwritten."""
    rng = np.random.default_rng(seed)
    now = 10**12
    for start in range(0, records, CHUNK_RECORDS):
        count = min(CHUNK_RECORDS, records - start)
        packets, now = _records(count, rng, now, functions, is_wide=layout == "wide")
        data, lengths = (_slots if layout == "slots" else _packed)(packets)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        if damage:
            hit = rng.choice(count, max(1, round(count * damage)), replace=False)
            at = starts[hit] + rng.integers(0, 12, len(hit))
            data[at[:, None] + np.arange(8)] = rng.integers(0, 256, (len(hit), 8))
        # A drained piece of the AUX area begins and ends with whole records.
        cuts = [0]
        while cuts[-1] < len(data):
            cuts.append(int(starts[np.searchsorted(starts, cuts[-1] + BLOB_BYTES, side="right") - 1]))
        for begin, end in itertools.pairwise(cuts):
            yield data[begin:end].tobytes()


def _event(type_: int, body: bytes, *, misc: int = 0) -> bytes:
    return struct.pack("<IHH", type_, misc, 8 + len(body)) + body


def _name(text: str) -> bytes:
    return text.encode().ljust(len(text) // 8 * 8 + 8, b"\0")


def write_perf_data(path: Path, blobs: Iterator[bytes], elf: Path, functions: int = FUNCTIONS) -> int:
    """A perf.data of one SPE event whose process was perf's own and executed `elf`; returns the AUX bytes written."""
    # sample_type IP|TID|TIME|CPU|IDENTIFIER, sample_id_all; of the kernel, too, as root records it.
    sample_type = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 16
    flags = 1 << 1 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 18
    attr = struct.pack("<IIQQQQQ", SPE_PMU_TYPE, ATTR_BYTES, 1, 4096, sample_type, 0, flags).ljust(ATTR_BYTES, b"\0")
    ids = struct.pack(f"<{CPUS}Q", *range(1, CPUS + 1))

    def sample_id(cpu: int, time_ns: int = 1000) -> bytes:
        return struct.pack("<IIQIIQ", PID, PID, time_ns, cpu, 0, cpu + 1)

    def mapping(address: int, size: int, inode: int, name: str, time_ns: int = 1000) -> bytes:
        body = struct.pack("<IIQQQIIQQII", PID, PID, address, size, 0x1000, 8, 1, inode, 0, 5, 2)
        return _event(10, body + _name(name) + sample_id(0, time_ns), misc=2)

    written = 0
    with path.open("wb") as file:
        file.write(b"\0" * 104 + ids)
        attrs_at = file.tell()
        file.write(attr + struct.pack("<QQ", 104, len(ids)))
        data_at = file.tell()
        info = struct.pack("<II", 4, 0) + struct.pack("<QQ", SPE_PMU_TYPE, 1)
        # perf 6.1 copies the conversion when it reads AUXTRACE_INFO, and divides by what is not there.
        file.write(_event(79, struct.pack("<QQQQQBB6x", 0, 10, 0, 0, 2**64 - 1, 1, 0)))
        file.write(_event(70, info))
        file.write(mapping(TEXT_ADDRESS + (1 << 30), 1 << 20, 1, "/usr/bin/perf", time_ns=500))
        file.write(_event(3, struct.pack("<II", PID, PID) + _name("corpus") + sample_id(0), misc=1 << 13))
        file.write(mapping(TEXT_ADDRESS, functions * FUNCTION_BYTES, elf.stat().st_ino, str(elf)))
        offsets = [0] * CPUS
        for number, blob in enumerate(blobs):
            cpu = number % CPUS
            padded = blob + b"\0" * (-len(blob) % 8)
            header = struct.pack("<QQQIIIi", len(padded), offsets[cpu], 0, cpu, 0xFFFFFFFF, cpu, 0)
            file.write(_event(71, header) + padded)
            file.write(_event(11, struct.pack("<QQQ", offsets[cpu], len(padded), 0) + sample_id(cpu)))
            offsets[cpu] += len(padded)
            written += len(padded)
        end = file.tell()
        features = {6: b"aarch64", 9: b"0x00000000410fd0c0"}  # ARCH, CPUID
        section_at = end + 16 * len(features)
        table, bodies = b"", b""
        for body in features.values():
            text_bytes = body + b"\0" * (64 - len(body) % 64)
            string = struct.pack("<I", len(text_bytes)) + text_bytes
            table += struct.pack("<QQ", section_at + len(bodies), len(string))
            bodies += string
        file.write(table + bodies)
        mask = sum(1 << bit for bit in features)
        file.seek(0)
        header = b"PERFILE2" + struct.pack("<QQQQ", 104, ATTR_BYTES + 16, attrs_at, ATTR_BYTES + 16)
        file.write(header + struct.pack("<QQ", data_at, end - data_at) + struct.pack("<QQ4Q", 0, 0, mask, 0, 0, 0))
    return written


def write_elf(path: Path, functions: int = FUNCTIONS) -> None:
    """An aarch64 executable with a symbol for every function of the corpus."""
    names = b"\0" + b"".join(f"function_{number:05d}\0".encode() for number in range(functions))
    symbols = b"\0" * 24
    for number in range(functions):
        symbols += struct.pack(
            "<IBBHQQ", 1 + 15 * number, 0x12, 0, 1, TEXT_ADDRESS + number * FUNCTION_BYTES, FUNCTION_BYTES
        )
    text_bytes = functions * FUNCTION_BYTES
    sections = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    symbols_at = 0x1000 + text_bytes
    names_at = symbols_at + len(symbols)
    sections_at = names_at + len(names)
    table_at = (sections_at + len(sections) + 7) // 8 * 8
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, TEXT_ADDRESS, 64, table_at, 0, 64, 56, 1, 64, 5, 4)
    program = struct.pack("<IIQQQQQQ", 1, 5, 0x1000, TEXT_ADDRESS, TEXT_ADDRESS, text_bytes, text_bytes, 0x1000)

    def section(name: int, type_: int, address: int, offset: int, size: int, link: int, entry: int) -> bytes:
        flags = 6 if address else 0
        return struct.pack("<IIQQQQIIQQ", name, type_, flags, address, offset, size, link, 1, 4, entry)

    out = (header + program).ljust(0x1000, b"\0") + b"\x1f\x20\x03\xd5" * (text_bytes // 4)  # nop
    out += symbols + names + sections
    out = out.ljust(table_at, b"\0") + b"\0" * 64
    out += section(1, 1, TEXT_ADDRESS, 0x1000, text_bytes, 0, 0)
    out += section(7, 2, 0, symbols_at, len(symbols), 3, 24)
    out += section(15, 3, 0, names_at, len(names), 0, 0)
    out += section(23, 3, 0, sections_at, len(sections), 0, 0)
    path.write_bytes(out)


def write_corpus(
    path: Path, layout: str, records: int, *, seed: int = 1, damage: float = 0.0, functions: int = FUNCTIONS
) -> int:
    """Both files, `path` and `path`.elf; returns the AUX bytes."""
    elf = path.resolve().with_suffix(".elf")
    write_elf(elf, functions)
    return write_perf_data(path, streams(layout, records, seed, damage, functions), elf, functions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--layout", choices=LAYOUTS, default="slots")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--damage", type=float, default=0.0, help="share of records that are hit")
    parser.add_argument("--functions", type=int, default=FUNCTIONS, help="distinct code addresses are 64 times as many")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    size = write_corpus(
        args.output, args.layout, args.records, seed=args.seed, damage=args.damage, functions=args.functions
    )
    print(f"{args.output}: {args.records} records, {size} AUX bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
