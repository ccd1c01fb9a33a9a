"""V8's builtins in a file: found by the table that V8 itself finds them by, or not at all."""

import dataclasses
import functools
import random
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.elf import EM_AARCH64, EM_X86_64, ElfFile
from builders.unwind_table import read_table
from tdprof.linux.elf import parse_elf
from tdprof.linux.file_bytes import MemoryBytes
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections, v8_builtins
from tdprof.unwind.v8_builtins import find_builtins

TEXT = 0x401000
BEFORE = 0x1240  # bytes of other code
COUNT = 600
NAME = b"InterpreterEntryTrampoline\0"


def blob(machine: int, alignment: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Code with padding behind each builtin, and where each is."""
    padding, code, places = b"\xcc" * (1 if machine == EM_X86_64 else 4), b"", []
    chance = random.Random(5)
    for _ in range(COUNT):
        # push %rbp; mov %rsp, %rbp; …; pop %rbp; ret
        builtin = b"\x55\x48\x89\xe5" + b"\x90" * (602 + 4 * chance.randrange(16)) + b"\x5d\xc3"
        places.append((len(code), len(builtin)))
        code += builtin
        rest = -len(code) % alignment or alignment
        code += padding * (rest // len(padding))
    return code, places


def program(machine: int = EM_X86_64, alignment: int = 64, words: int = 3, damage: int = -1) -> ElfFile:
    code, places = blob(machine, alignment)
    text = bytearray(b"\x90" * BEFORE + code + b"\x90" * 256)
    if damage >= 0:
        text[BEFORE + places[damage][0] + places[damage][1]] = 0x90
    rows = b"".join(struct.pack(f"<{words}I", at, size, *[i] * (words - 2)) for i, (at, size) in enumerate(places))
    entries = [TEXT, TEXT + 0x80, TEXT + len(text) - 256]
    header_at = 0x900000
    header = b"\x01\x1b\x03\x3b" + struct.pack("<iI", 0, len(entries))
    header += b"".join(struct.pack("<ii", entry - header_at, 0) for entry in entries)
    return ElfFile(
        text=bytes(text),
        machine=machine,
        sections={".rodata": b"\x07" * 20 + b"\0" * 12 + rows + b"\x01" * 400 + NAME, ".eh_frame_hdr": header},
        section_addresses={".eh_frame_hdr": header_at},
    )


@pytest.mark.parametrize("machine", [EM_X86_64, EM_AARCH64])
@pytest.mark.parametrize(("alignment", "words"), [(64, 3), (32, 4), (64, 8)])
def test_found_without_symbols(machine: int, alignment: int, words: int) -> None:
    found = find_builtins(parse_elf(memoryview(program(machine, alignment, words).to_bytes())))
    assert found
    places = [(TEXT + BEFORE + at, size) for at, size in blob(machine, alignment)[1]]
    assert list(zip(found.starts.tolist(), found.sizes.tolist(), strict=True)) == places
    assert (found.start, found.end) == (places[0][0], sum(places[-1]))


@pytest.mark.parametrize("damage", [0, COUNT // 2, COUNT - 1])
def test_code_without_padding_behind_each_is_not_v8s(damage: int) -> None:
    assert find_builtins(parse_elf(memoryview(program(damage=damage).to_bytes()))) is None


def test_a_table_that_fits_at_many_places_fits_at_none() -> None:
    hostile = program()
    hostile.text = b"\xcc" * (1 << 20)
    assert find_builtins(parse_elf(memoryview(hostile.to_bytes()))) is None


class CountedBytes(MemoryBytes):
    read_bytes = 0

    def read(self, offset: int, size: int) -> memoryview:
        data = super().read(offset, size)
        self.read_bytes += len(data)
        return data


def test_many_tables_and_much_code_are_not_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile, places = program(), blob(EM_X86_64, 64)[1]
    hostile.text = b"\xcc" * (12 << 18)
    hostile.sections[".rodata"] = b"".join(
        struct.pack("<2I", at, size) + bytes(4 * (words - 2)) for words in (3, 4, 8) * 4 for at, size in places
    )
    header_at = hostile.section_addresses[".eh_frame_hdr"]
    hostile.sections[".eh_frame_hdr"] = b"\x01\x1b\x03\x3b" + struct.pack("<iI", 0, 12)
    for number in range(12):
        hostile.sections[".eh_frame_hdr"] += struct.pack("<ii", TEXT + (number << 18) - header_at, 0)
    data = hostile.to_bytes()
    content = CountedBytes(memoryview(data))
    looked: list[int] = []
    place_of = v8_builtins._place_of

    def counted(*arguments):
        place, count = place_of(*arguments)
        looked.append(count)
        return place, count

    monkeypatch.setattr(v8_builtins, "_place_of", counted)
    assert find_builtins(dataclasses.replace(parse_elf(memoryview(data)), content=content)) is None
    assert content.read_bytes <= len(data)
    assert 0 < sum(looked) <= 4 * len(data)


@pytest.mark.parametrize("row", [9, COUNT - 1])
def test_a_table_ends_at_a_size_that_none_has(row: int) -> None:
    file = program()
    rows = bytearray(file.sections[".rodata"])
    struct.pack_into("<I", rows, 32 + 12 * row + 4, 0xFFFF0000)
    file.sections[".rodata"] = bytes(rows)
    found = find_builtins(parse_elf(memoryview(file.to_bytes())))
    assert found is None or len(found.starts) == row


def test_a_table_whose_starts_wrap_ends_there() -> None:
    rows = blob(EM_X86_64, 64)[1][:400]
    rows[-1] = (rows[-1][0], 0xFFFF0000)
    start = sum(rows[-1]) + 64 & 0xFFFFFFC0
    rows += [(start + 1024 * number, 1000) for number in range(150)]
    file = program()
    file.sections[".rodata"] = b"".join(struct.pack("<3I", at, size, 0) for at, size in rows) + bytes(16)
    assert find_builtins(parse_elf(memoryview(file.to_bytes()))) is None


@functools.cache
def _whole(machine: int) -> bytes:
    return program(machine).to_bytes()


def _section_headers(data: bytes) -> st.SearchStrategy[tuple[int, int]]:
    """(offset, bytes) of a field of a section's header: address, offset or size."""
    (headers,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    return st.tuples(st.integers(1, count - 1), st.sampled_from([16, 24, 32])).map(
        lambda field: (headers + 64 * field[0] + field[1], 8)
    )


@given(st.data(), st.sampled_from([EM_X86_64, EM_AARCH64]))
def test_arbitrary_damage(data: st.DataObject, machine: int) -> None:
    damaged = bytearray(_whole(machine))
    (constants,) = struct.unpack_from("<Q", damaged, struct.unpack_from("<Q", damaged, 40)[0] + 64 * 2 + 24)
    words = st.integers(16, len(damaged) // 4 - 3).map(lambda word: (4 * word, 4))
    table = st.integers(0, 3 * COUNT).map(lambda word: (constants + 32 + 4 * word, 4))
    places = st.one_of(words, table, _section_headers(bytes(damaged)))
    for at, size in data.draw(st.lists(places, max_size=6)):
        most = 2 ** (8 * size) - 1
        edges = st.sampled_from([0, 1, 63, 0xFFFF0000, 1 << 31, most >> 1, most]) | st.integers(0, 4 * len(damaged))
        damaged[at : at + size] = data.draw(edges | st.integers(0, most)).to_bytes(8, "little")[:size]
    whole = data.draw(st.just(len(damaged)) | st.integers(64, len(damaged)))
    find_builtins(parse_elf(memoryview(bytes(damaged))))
    # Cut where a section is read; its headers, which lie behind all, are as they were.
    elf = parse_elf(memoryview(bytes(damaged)))
    find_builtins(dataclasses.replace(elf, content=MemoryBytes(memoryview(bytes(damaged[:whole])))))


@pytest.mark.parametrize("name", [".rodata", ".eh_frame_hdr"])
@pytest.mark.parametrize("left", [5, 13, 1001])
def test_sections_that_are_cut(name: str, left: int) -> None:
    data = program().to_bytes()
    elf = parse_elf(memoryview(data))
    section = elf.section(name)
    assert section
    cut = MemoryBytes(memoryview(data)[: section.offset + left])
    found = find_builtins(dataclasses.replace(elf, content=cut))
    # What is left of the header's table may do: the code behind it is looked at all the same.
    assert found is None or (name == ".eh_frame_hdr" and len(found.starts) == COUNT)


@pytest.mark.parametrize("name", [".text", ".eh_frame_hdr"])
@pytest.mark.parametrize("address", [(1 << 62) - 8, 1 << 63, (1 << 64) - 1])
def test_addresses_that_no_program_has(name: str, address: int) -> None:
    file = program()
    if name == ".text":
        file.text_address = address
    else:
        file.section_addresses[name] = address
    assert find_builtins(parse_elf(memoryview(file.to_bytes()))) is None


def test_more_constants_than_any_version_has_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = program().to_bytes()
    elf = parse_elf(memoryview(data))
    constants = elf.section(".rodata")
    assert constants
    assert sections._v8_builtins(elf)
    monkeypatch.setattr(sections, "_MOST_CONSTANTS", constants.size - 1)
    content = CountedBytes(memoryview(data))
    assert sections._v8_builtins(dataclasses.replace(elf, content=content)) is None
    assert content.read_bytes == 0


def test_arbitrary_constants() -> None:
    for seed in range(20):
        file = program()
        values = np.random.default_rng(seed).choice(np.array([0, 1, 63, 64, 128], "<u4"), 20_000)
        file.sections[".rodata"] = values.tobytes()
        assert find_builtins(parse_elf(memoryview(file.to_bytes()))) is None


@pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")
def test_their_rules_are_no_guesses() -> None:
    elf = parse_elf(memoryview(program().to_bytes()))
    table = binding.build_table(sections.table_input(elf, None, b"x"))
    assert table
    rules = read_table(table)
    for at, size in blob(EM_X86_64, 64)[1]:
        start = TEXT + BEFORE + at
        assert rules.text_at(start) == "sp+8 ra=cfa-8"
        assert rules.text_at(start + 1) == "sp+16 fp=cfa-16 ra=cfa-8"
        assert rules.text_at(start + 4) == rules.text_at(start + size - 2) == "fp+16 fp=cfa-16 ra=cfa-8"
        assert rules.text_at(start + size - 1) == "sp+8 ra=cfa-8"
