"""The debug sections of an ELF file, uncompressed."""

from collections.abc import Collection

from tdprof.linux.elf import SHT_NOBITS, Elf, ElfSection
from tdprof.linux.elf_compression import CompressionError, check_sizes, is_compressed, uncompressed
from tdprof.native.dwarf_api import SECTIONS
from tdprof.symbolize.dwarf import Buffer, Section

_READ_IN_PARTS = ("info", "line", "str")  # what is large, and a few functions need little of


class DebugDataError(ValueError):
    """A section of debug data cannot be read; says which, and why."""


def has_debug_info(elf: Elf) -> bool:
    """Whether the file itself holds DWARF (rather than another file that it points to)."""
    return any(
        section is not None and elf.holds(section)
        for section in (elf.section(".debug_info"), elf.section(".zdebug_info"))
    )


def read_debug_sections(elf: Elf, suffix: str = "", leave_out: Collection[str] = ()) -> dict[str, Buffer]:
    """The sections that the DWARF reader takes, by its names; with ``suffix`` ``.dwo`` those of a split unit.

    Raises:
        DebugDataError: one is compressed in a way that cannot be undone, or they are too large.
    """
    found = {
        name: elf.section(f".debug_{name}{suffix}") or elf.section(f".zdebug_{name}{suffix}")
        for name in SECTIONS
        if name not in leave_out
    }
    present = [(name, section) for name, section in found.items() if section is not None]
    if not any(is_compressed(section) for _, section in present):
        return {name: elf.section_data(section) for name, section in present}
    try:
        check_sizes(elf, [section for _, section in present])
    except CompressionError as error:
        raise DebugDataError(str(error)) from error
    from concurrent.futures import ThreadPoolExecutor  # slow to load

    # zlib lets other threads run meanwhile.
    with ThreadPoolExecutor(max_workers=4) as pool:
        return dict(pool.map(lambda item: (item[0], read_section(elf, item[1])), present))


def reserve_debug_sections(elf: Elf) -> dict[str, Section]:
    """The same, but the largest are left to be read as far as they are needed, if they are not compressed.

    Raises:
        DebugDataError: as above.
    """
    found = {name: elf.section(f".debug_{name}") for name in _READ_IN_PARTS}
    reserved: dict[str, Section] = {
        name: elf.content.reserve(section.offset, section.size)
        for name, section in found.items()
        if section is not None and section.type != SHT_NOBITS and not is_compressed(section)
    }
    return read_debug_sections(elf, leave_out=reserved) | reserved


def read_section(elf: Elf, section: ElfSection) -> Buffer:
    """A section's bytes, uncompressed.

    Raises:
        DebugDataError: it is compressed in a way that cannot be undone, or too large.
    """
    try:
        return uncompressed(elf, section)
    except CompressionError as error:
        raise DebugDataError(str(error)) from error
