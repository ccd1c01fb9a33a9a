"""Build-id and file offset to frames: kernel, ELF, DWARF, run-time code."""

from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.demangling import demangle
from tdprof.symbolize.kernel_symbols import KernelSymbols
from tdprof.symbolize.symbolizer import Symbolizer

__all__ = ["KernelSymbols", "SymbolCache", "Symbolizer", "demangle"]
