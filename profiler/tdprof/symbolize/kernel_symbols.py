"""The recorded machine's kernel symbols, as the capture saved them; never another machine's."""

from collections.abc import Callable, Sequence

from tdprof.model.arrays import U64
from tdprof.symbolize.symbol_table import EMPTY_TABLE, SymbolTable, make_table, pack_names
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class KernelSymbols:
    """Code symbols of a kernel and its modules.

    Attributes:
        address: uint64[n], run-time address; all 0 where ``kptr_restrict`` hid them.
        size: uint64[n], bytes; 0 where unknown (kallsyms has none): the symbol reaches to the next.
        name: the n names.
        module: the module of each, or empty for the kernel's own.
    """

    address: U64
    size: U64
    name: Sequence[str]
    module: Sequence[str]


KernelLookup = Callable[[U64], KernelSymbols]
"""The symbols that some addresses fall into, of a list that has all."""


def make_kernel_table(symbols: KernelSymbols | None) -> SymbolTable:
    """Sorted for look-up. A module's function is named as in ``/proc/kallsyms``: ``name [module]``."""
    if symbols is None or not symbols.address.any():
        return EMPTY_TABLE
    pairs = zip(symbols.name, symbols.module, strict=True)
    name_bytes, offsets = pack_names([f"{name} [{module}]" if module else name for name, module in pairs])
    return make_table(symbols.address, symbols.size, offsets, name_bytes)
