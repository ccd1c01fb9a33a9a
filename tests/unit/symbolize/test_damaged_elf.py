"""Two hundred damaged copies of a real program: each is read as far as it goes, and what is missing has a reason."""

import random
from pathlib import Path

import numpy as np
import pytest

from builders.programs import compile_program
from tdprof.linux.elf import ElfError, parse_elf, read_build_id
from tdprof.model.addresses import MappedFile, Unknown
from tdprof.symbolize.symbolizer import Symbolizer

COPIES = 200
SPAN_BYTES = 0x400  # of code that is looked up in each copy


def damage(data: bytes, chance: random.Random) -> bytes:
    """Cut off, overwritten in one place, or with a few bytes changed: mostly where the tables and debug data are."""
    kind = chance.randrange(4)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    changed = bytearray(data)
    if kind == 1:  # the ELF header or the program headers
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(6, 64 + 56 * 10)] = chance.choice([0, 1, 0x7F, 0xFF])
    elif kind == 2:  # the section headers, at the end of the file
        for _ in range(chance.randint(1, 8)):
            place = len(data) - 1 - chance.randrange(64 * 36)
            changed[place] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
    else:
        start = chance.randrange(len(data) // 2, len(data))
        for i in range(start, min(len(data), start + chance.randint(1, 200))):
            changed[i] = chance.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("version", ["-gdwarf-4", "-gdwarf-5"])
def test_damaged_copies(tmp_path, version):
    program = compile_program(tmp_path, "gcc", "-O2", "-g", version)
    data = program.read_bytes()
    build_id = read_build_id(program)
    [code] = [section for section in parse_elf(memoryview(data)).sections if section.name == ".text"]
    offsets = np.arange(code.offset, code.offset + SPAN_BYTES, 4, dtype=np.uint64)
    chance = random.Random(version)
    reasons: dict[str, int] = {}
    for number in range(COPIES // 2):
        path = tmp_path / f"copy-{number}"
        path.write_bytes(damage(data, chance))
        with Symbolizer(debug_dirs=[tmp_path]) as symbolizer:
            found = symbolizer.locate(MappedFile(str(path), build_id), offsets)
            notes = symbolizer.notes()
        check(found, path, notes)
        path.unlink()
        for reason in np.unique(found.reason).tolist():
            reasons[Unknown(reason).name] = reasons.get(Unknown(reason).name, 0) + 1
    assert reasons["KNOWN"] > 10
    assert {"KNOWN", "NO_SYMBOL", "DAMAGED"} <= set(reasons)


def check(found, path: Path, notes: list[str]) -> None:
    assert len(found.reason) == SPAN_BYTES // 4
    frames = np.diff(found.frame_start)
    assert ((frames > 0) == (found.reason == Unknown.KNOWN)).all()
    assert (found.function < len(found.strings)).all()
    assert (found.file < len(found.strings)).all()
    if (found.reason == Unknown.DAMAGED).any() or (found.reason == Unknown.WRONG_BUILD_ID).any():
        assert any(note.startswith(f"{path}: ") for note in notes), notes
    try:
        parse_elf(memoryview(path.read_bytes()))
    except ElfError:
        assert (found.reason == Unknown.DAMAGED).all()
