import numpy as np

from builders.elf import STB_LOCAL, STB_WEAK, STT_NOTYPE, STT_OBJECT, ElfFile, Symbol
from tdprof.linux.elf import SHT_SYMTAB, parse_elf
from tdprof.symbolize.symbol_table import (
    EMPTY_TABLE,
    SymbolTable,
    paint_ranges,
    read_elf_symbols,
)

BASE = 0x401000


def table_of(*symbols: Symbol) -> SymbolTable:
    return read_elf_symbols(parse_elf(memoryview(ElfFile(symbols=list(symbols)).to_bytes())), SHT_SYMTAB)


def name_at(table: SymbolTable, address: int) -> str | None:
    (row,) = table.lookup(np.array([address], np.uint64)).tolist()
    return table.names([row])[0] if row >= 0 else None


def test_innermost_symbol_wins_and_the_outer_one_resumes_after_it():
    table = table_of(Symbol("outer", BASE, 100), Symbol("inner", BASE + 10, 5), Symbol("later", BASE + 200, 8))
    names = [name_at(table, BASE + at) for at in (-1, 0, 9, 10, 14, 15, 99, 100, 199, 200, 207, 208)]
    assert names == [None, "outer", "outer", "inner", "inner", "outer", "outer", None, None, "later", "later", None]


def test_symbol_without_size_reaches_to_the_next_but_not_out_of_its_section():
    table = table_of(Symbol("a", BASE, 0), Symbol("b", BASE + 0x10, 4), Symbol("c", BASE + 0x20, 0))
    assert name_at(table, BASE + 0xF) == "a"
    assert name_at(table, BASE + 0x14) is None
    assert name_at(table, BASE + 0xFFF) == "c"
    assert name_at(table, BASE + 0x1000) is None


def test_symbol_without_size_does_not_swallow_what_is_far_behind_it():
    """Local labels of hand-written assembly and data between functions stand in no table."""
    symbols = [Symbol("routine", BASE, 0), Symbol("label", BASE + 0x3000, 0, kind=STT_NOTYPE)]
    content = ElfFile(symbols=symbols, text=b"\x90" * 0x20000).to_bytes()
    table = read_elf_symbols(parse_elf(memoryview(content)), SHT_SYMTAB)
    assert [name_at(table, BASE + at) for at in (0, 0xFFF, 0x1000, 0x2FFF)] == ["routine", "routine", None, None]
    assert [name_at(table, BASE + at) for at in (0x3000, 0x3FFF, 0x4000, 0x1FFFF)] == ["label", "label", None, None]


def test_which_of_several_names_is_shown():
    table = table_of(
        Symbol("label", BASE, 8, kind=STT_NOTYPE),
        Symbol("local", BASE, 8, bind=STB_LOCAL),
        Symbol("malloc", BASE, 8),
        Symbol("__libc_malloc", BASE, 8),
        Symbol("first", BASE + 8, 8, bind=STB_WEAK),
        Symbol("second", BASE + 8, 8),
    )
    assert name_at(table, BASE) == "malloc"
    assert name_at(table, BASE + 8) == "second"


def test_data_undefined_and_mapping_symbols_do_not_count():
    table = table_of(
        Symbol("data", BASE, 8, kind=STT_OBJECT),
        Symbol("import", BASE, 8, section=0),
        Symbol("$x", BASE, 0, kind=STT_NOTYPE),
        Symbol("label_in_code", BASE + 0x100, 4, kind=STT_NOTYPE),
    )
    assert name_at(table, BASE) is None
    assert name_at(table, BASE + 0x100) == "label_in_code"


def test_a_size_that_wraps_around_covers_nothing():
    table = table_of(Symbol("bad", BASE, 2**64 - 8), Symbol("good", BASE + 4, 4))
    assert name_at(table, BASE + 4) == "good"
    assert name_at(table, BASE) is None


def test_empty_table_finds_nothing():
    assert EMPTY_TABLE.lookup(np.array([0, 1], np.uint64)).tolist() == [-1, -1]


def test_painted_ranges_keep_the_latest():
    start = np.array([0, 10, 5], np.uint64)
    size = np.array([20, 4, 7], np.uint64)
    table = paint_ranges(start, size, ["old", "mid", "new"])
    assert [name_at(table, at) for at in (0, 4, 5, 11, 12, 13, 14, 19, 20)] == [
        "old", "old", "new", "new", "mid", "mid", "old", "old", None,
    ]  # fmt: skip
