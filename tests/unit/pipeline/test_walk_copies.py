"""Where the tables for walking recorded stacks come from."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest

from builders.call_frames import entry, frames
from builders.capture_tables import mappings, processes
from builders.elf import ElfFile
from tdprof.model.addresses import MappedFile
from tdprof.native import unwind_api as binding
from tdprof.pipeline import walk_copies
from tdprof.unwind import tables
from tdprof.unwind.walk import MappingKind

pytestmark = pytest.mark.skipif(not binding.is_available(), reason="the compiled library was not built")


def test_files_behind_one_at_which_a_worker_dies_have_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["first", "deadly", "second", "deadly too", "third"]
    for number, name in enumerate(names):
        file = ElfFile(build_id=bytes([number + 1]) * 20, sections={".eh_frame": frames((0x401000, 0x10, b""))})
        (tmp_path / name).write_bytes(file.to_bytes())
    build = tables.build_file_table

    def deadly(path: Path) -> bytes | None:
        if "deadly" in path.name:
            os._exit(1)
        return build(path)

    monkeypatch.setattr(tables, "build_file_table", deadly)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = walk_copies.FileTables(tmp_path, is_here=False)
    files = [MappedFile(f"/{name}", (bytes([number + 1]) * 20).hex()) for number, name in enumerate(names)]
    found.find(files)
    assert len(found.tables) == 3
    none = np.empty(0, np.uint64)
    assert [found.number(file, none, none)[0] for file in files] == [0, 0xFFFFFFFF, 1, 0xFFFFFFFF, 2]


def test_damaged_call_frame_information_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The last instruction is the bad one: no padding follows.
    file = ElfFile(build_id=b"\x12" * 20, sections={".eh_frame": frames((0x401000, 0x10, b"\0\0\x3f"))})
    (tmp_path / "damaged").write_bytes(file.to_bytes())
    for _ in range(2):  # built, and from the cache
        found = walk_copies.FileTables(tmp_path, is_here=False)
        found.find([MappedFile("/damaged", "12" * 20)])
        assert list(found.notes()) == [
            "the call-frame information of /damaged is damaged and not used: callers are guessed from its instructions"
        ]


def test_of_debug_data_only_the_functions_that_are_damaged_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cie = entry(b"\xff\xff\xff\xff\x04\0\x08\0\x01\x78\x10\x0c\x07\x08\x90\x01")
    functions = [
        entry(struct.pack("<IQQ", 0, 0x401000 + 16 * at, 16) + program)
        for at, program in enumerate((b"", b"\0\0\0\x3f"))
    ]
    file = ElfFile(build_id=b"\x12" * 20, sections={".debug_frame": b"".join([cie, *functions])})
    (tmp_path / "partly").write_bytes(file.to_bytes())
    found = walk_copies.FileTables(tmp_path, is_here=False)
    found.find([MappedFile("/partly", "12" * 20)])
    assert list(found.notes()) == [
        "a part of the call-frame information of /partly is damaged and not used: its functions' callers are guessed "
        "from instructions, or missing"
    ]


def test_few_of_many_damaged_files_are_named() -> None:
    assert list(tables.damage_notes({f"/{number:02}": tables.TableDamage.ALL for number in range(19, -1, -1)}))[7:] == [
        "the call-frame information of /07 is damaged and not used: callers are guessed from its instructions",
        "that of 12 more files is damaged, too",
    ]


def elf_at(file_offset: int) -> bytes:
    """A program whose code lies there; of any place the same build-id."""
    data = bytearray(ElfFile(build_id=b"\x12" * 20, sections={".eh_frame": frames((0x401000, 0x10, b""))}).to_bytes())
    (headers,) = struct.unpack_from("<Q", data, 32)
    struct.pack_into("<Q", data, headers + 8, file_offset)
    return bytes(data).ljust(0x4000, b"\0")


@pytest.mark.parametrize("is_there", [False, True])
def test_of_two_files_with_one_build_id_the_mapped_one_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cached").write_bytes(elf_at(0x1000))
    with tables.TableWorker([tmp_path / "cached"], tables.TableCache()) as worker:
        ((_, cached),) = worker.results()
    if is_there:
        (tmp_path / "program").write_bytes(elf_at(0x2000))
    files = walk_copies.FileTables(tmp_path, is_here=False)
    listed = []
    for file_offset in (0x1000, 0x2000, 0x1000):
        mapped = mappings((1, 7, 0x500000, 0x1000, file_offset, "/program", "12" * 20))
        walker = walk_copies.CopyWalker(mapped, processes(), 62, files, is_leaf_known=True)
        space = walker._spaces.space_of_samples(np.array([7], np.uint32), np.array([2], np.uint64), None)
        listed += walker._list(int(space[0]), 2)["kind"].tolist()
    if is_there:
        assert files.missing == []
        assert files.tables == [tables.build_file_table(tmp_path / "program")] != [cached]
    else:
        assert files.missing == ["/program"]
        # Each process by its own mappings, whatever another did with the file.
        assert listed == [MappingKind.TABLE, MappingKind.NO_TABLE, MappingKind.TABLE]
