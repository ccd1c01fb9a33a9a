"""The running kernel's symbols, for the addresses that were sampled."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tdprof.model.arrays import U64, distinct
from tdprof.recorder.host import KALLSYMS


@dataclass(frozen=True, slots=True)
class KernelSymbolTable:
    """Code symbols that some addresses fall into.

    Attributes:
        address: uint64[n], sorted.
        size: uint64[n], bytes up to the next symbol.
        name: n names.
        module: the module of each, None for the kernel itself.
    """

    address: U64
    size: U64
    name: list[str]
    module: list[str | None]


def read_kernel_symbols(addresses: U64, path: Path = KALLSYMS) -> KernelSymbolTable:
    """The symbols that cover ``addresses``; none where kptr_restrict hides them (all are then at address 0)."""
    starts: list[int] = []
    lines: list[str] = []
    try:
        with path.open(errors="replace") as file:
            for line in file:
                # "address type name [module]"; t, T, w and W are code.
                if line[17] in "tTwW":
                    starts.append(int(line[:16], 16))
                    lines.append(line)
    except (OSError, ValueError, IndexError):
        starts = []
    if not any(starts):
        return KernelSymbolTable(np.empty(0, np.uint64), np.empty(0, np.uint64), [], [])
    start = np.array(starts, np.uint64)
    order = np.argsort(start, kind="stable")
    start = start[order]
    at = np.searchsorted(start, addresses, side="right") - 1
    # Of several names at one address the first that kallsyms lists stays.
    used = distinct(np.searchsorted(start, start[at[at >= 0]]))
    borders = distinct(start)
    following = np.searchsorted(borders, start[used], side="right")
    end = np.append(borders, borders[-1])[following]
    names, modules = [], []
    for row in order[used].tolist():
        fields = lines[row].split()
        names.append(fields[2])
        modules.append(fields[3].strip("[]") if len(fields) > 3 else None)
    return KernelSymbolTable(start[used], end - start[used], names, modules)
