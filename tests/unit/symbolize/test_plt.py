"""Names of the procedure linkage table's entries."""

from dataclasses import replace
from pathlib import Path

from builders.elf import ElfFile, Symbol
from tdprof.linux.elf import open_elf
from tdprof.symbolize import plt


def test_sections_that_lie_over_each_other_are_read_up_to_a_few_times_the_file(tmp_path: Path) -> None:
    path = tmp_path / "app"
    path.write_bytes(ElfFile(symbols=[Symbol("main", 0x401000, 16)], sections={".plt": bytes(4096)}).to_bytes())
    elf = open_elf(path)
    section = elf.section(".plt")
    assert section is not None
    copies = replace(elf, sections=(section,) * 1000)
    read = list(plt._within_file(copies, copies.sections))
    assert 1 < len(read) * section.size <= 4 * path.stat().st_size
