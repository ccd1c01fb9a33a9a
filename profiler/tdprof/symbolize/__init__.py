"""Build-id and file offset to frames: kernel, ELF, DWARF, run-time code."""

from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.debuginfod import Debuginfod
from tdprof.symbolize.kernel_symbols import KernelSymbols
from tdprof.symbolize.names import demangle
from tdprof.symbolize.saved import SavedSymbols, make_symbol_table
from tdprof.symbolize.symbolizer import Symbolizer

__all__ = ["Debuginfod", "KernelSymbols", "SavedSymbols", "SymbolCache", "Symbolizer", "demangle", "make_symbol_table"]
