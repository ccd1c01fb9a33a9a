"""The kernel's symbols as a capture keeps them."""

import pyarrow as pa

from tdprof.capture.tables import TableWriter
from tdprof.recorder.kallsyms import KernelSymbolTable


def write_kernel_symbols(writer: TableWriter, symbols: KernelSymbolTable) -> None:
    """Write a capture's table of them."""
    columns = [symbols.address, symbols.size, symbols.name, pa.array(symbols.module, pa.string())]
    writer.write("kernel_symbols", pa.table(columns, names=["address", "size", "name", "module"]))
