"""Names where code took other code's place, and nobody can say which of them a sample is of."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.arrays import U64, distinct
from tdprof.symbolize.symbol_table import Cells

# Of a name beside another: one long name may be replaced by, or replace, any number of short ones.
_LONGEST_BESIDE = 256
# The functions that a sample may be of, the latest first. Of three or more the third only says that there are others.
Meant = tuple[str, ...]
OTHERS: Meant = ("",)
_MOST = 3


def either(*all_meant: Meant) -> Meant:
    """What a sample may be of that is of one of these."""
    return tuple(dict.fromkeys(name for meant in all_meant for name in meant))[:_MOST]


def is_within(meant: Meant, whole: Meant) -> bool:
    """Whether a name that says the second says the first, too."""
    return len(whole) == _MOST or set(meant) <= set(whole)


def shown(meant: Meant) -> str:
    """The name that says it."""
    if len(meant) == 1:
        return meant[0]
    latest, replaced = (name if len(name) <= _LONGEST_BESIDE else f"{name[:_LONGEST_BESIDE]}…" for name in meant[:2])
    return f"{latest} [or what it replaced: {replaced}{' or others' * (len(meant) == _MOST)}]"


def meant_in_any_order(start: U64, size: U64, names: Sequence[str]) -> list[Meant]:
    """What a sample within each range may be of for who does not know when it came to stand there.

    Args:
        start, size: uint64[n], ranges of addresses, in time order: samples show in the latest there.
        names: theirs.
    """
    meant: list[Meant] = [(name,) for name in names]
    cells = Cells(start, size)
    if not len(cells.edges):
        return meant
    number = {name: at for at, name in enumerate(dict.fromkeys(names))}
    known = [*number, *OTHERS]
    name = np.array([number[names[row]] for row in cells.row.tolist()], np.int64)
    last = len(number) - 1
    owner, highest, lowest = cells.owner(), cells.highest(name), last - cells.highest(last - name)
    shared = np.flatnonzero((owner >= 0) & (highest != lowest))
    # The sum of (name - lowest) * (highest - name): any in between make it more than 0.
    between = (lowest + highest) * cells.total(name) - cells.total(name**2) - lowest * highest * cells.total(name**0)
    rows = cells.row[owner[shared]]
    others = np.concatenate([lowest[shared], highest[shared], np.where(between[shared] != 0, last + 1, lowest[shared])])
    pairs = distinct(np.tile(rows, 3) * len(known) + others)
    for row, other in zip((pairs // len(known)).tolist(), (pairs % len(known)).tolist(), strict=True):
        if len(meant[row]) < _MOST:
            meant[row] = either(meant[row], (known[other],))
    return meant
