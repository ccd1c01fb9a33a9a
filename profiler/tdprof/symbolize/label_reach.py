"""How far labels without a size reach, by the instructions behind them."""

import numpy as np

from tdprof.linux.elf import EM_AARCH64, EM_X86_64, Elf
from tdprof.model.arrays import I64, U64
from tdprof.native.library import load_native

_FARTHEST_BYTES = 1 << 16  # that one label is followed
_GAP_BYTES = 1 << 16  # of code between labels that is read along: cheaper than to read once more


def label_ends(elf: Elf, start: U64, section: I64, limit: U64) -> U64:
    """uint64[n]: where the code that begins at each label ends, within its limit; 0 where its instructions do not tell.

    Args:
        start: uint64[n], addresses of labels, different ones.
        section: int64[n], the row of the file's sections in which each one stands.
        limit: uint64[n], where other code begins, or nothing is any more.
    """
    end = np.zeros(len(start), np.uint64)
    library = load_native()
    if library is None or elf.machine not in (EM_X86_64, EM_AARCH64):
        return end
    order = np.lexsort((start, section))
    first, number = start[order], section[order]
    last = np.minimum(limit[order], first + np.minimum(np.uint64(_FARTHEST_BYTES), ~first))
    last[:-1] = np.where(number[1:] == number[:-1], np.minimum(last[:-1], first[1:]), last[:-1])
    found = np.zeros(len(order), np.uint64)
    is_apart = (number[1:] != number[:-1]) | (first[1:] > np.maximum(last[:-1], first[:-1]) + np.uint64(_GAP_BYTES))
    left = elf.content.size  # sections that lie upon each other are not all read
    for rows in np.split(np.arange(len(order)), np.flatnonzero(is_apart) + 1) if len(order) else []:
        of = elf.sections[int(number[rows[0]])]
        low, high = int(first[rows[0]]), int(last[rows[-1]])
        left -= max(high - low, 0)
        if left < 0 or not elf.holds(of) or not of.address <= low < high <= of.address + of.size:
            continue
        code = np.frombuffer(elf.content.read(of.offset + low - of.address, high - low), np.uint8)
        part, most, ends = (np.ascontiguousarray(each[rows]) for each in (first, last, found))
        library.tdprof_code_reach(
            *(code.ctypes.data, len(code), low, elf.machine == EM_AARCH64),
            *(part.ctypes.data, most.ctypes.data, len(rows), ends.ctypes.data),
        )
        found[rows] = ends
    end[order] = found
    return end
