"""Which cache lines several threads or processes contend for, and what each of them does there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from arm_spe.turns import join_views
from tdprof.decode.spe.line_uses import NO_CPU, CacheLines, LineUses, look_at_lines
from tdprof.decode.spe.row_sums import LINE_BYTES
from tdprof.decode.spe.spans import SpeInput
from tdprof.model.arrays import I64, U32, U64, distinct_rows, group_of_row, group_rows
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID, LineAccess, LineSharing
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_memory import KERNEL_MEMORY, MemoryOwners, memory_user
from tdprof.pipeline.spe_rows import CodeDetail, SymbolizedRows

_WORDS, _WORD_BYTES = LINE_BYTES // 8, 8


def find_sharing(
    data: SpeInput, lines: CacheLines, owners: MemoryOwners, capture: OpenCapture | None
) -> Callable[[int], LineSharing | None]:
    """Who shares each of some cache lines: of its position among them; None where nobody does.

    "false": several threads touch it, one of them stores, and no word of it is touched by two threads; "true": a word
    is touched by several threads and stored to. Of a line of a data address only threads of one process, or in the
    kernel, count; of a physical one also those of processes that were seen to have it at the same time.

    Args:
        data: the records, which are read once more.
        lines: those that may be shared.
        owners: whose memory it is.
        capture: names functions; None: nothing does.
    """
    uses = look_at_lines(data, lines)
    is_told = (uses.tid != NO_TID)[uses.user]
    owner = owners.of(uses.tid, uses.address_line, LINE_BYTES)
    # A view: a line as one process, or the kernel, knows it.
    view = group_of_row(*group_rows(uses.line, owner[uses.user], uses.address_line[uses.user]))
    memory, turns, looked_at = _joined_views(uses, view, owner, len(lines.number))
    memory = memory[view]
    shared = _touched_by_several(uses.line, memory, uses, owner, is_told)
    shared_words = _touched_by_several(uses.line * _WORDS + uses.word, memory, uses, owner, is_told)
    is_true = np.zeros(len(lines.number), bool)
    is_true[shared_words[0] // _WORDS] = True
    is_shared = is_true.copy()
    is_shared[shared[0]] = True
    is_contended = np.isin(uses.line << 32 | memory, shared[0] << 32 | shared[1])
    accesses = _Accesses(uses, np.flatnonzero(is_told & is_contended), owner, owners, capture)

    def sharing_of(line: int) -> LineSharing | None:
        if not is_shared[line]:
            return None
        how = "true" if is_true[line] else "false"
        return LineSharing(how, accesses.of(line), int(turns[line]), int(looked_at[line]))

    return sharing_of


def _touched_by_several(place: I64, memory: I64, uses: LineUses, owner: U64, is_told: NDArray[np.bool_]) -> I64:
    """int64[2, n]: places and memories that several threads touched, the kernel's from several CPUs, and one stored."""
    rows = np.flatnonzero(is_told)
    user = uses.user[rows]
    tid, cpu = uses.tid[user], uses.cpu[user]
    # Whatever thread a CPU runs touches the CPU's own data, its interrupts' stack for one.
    cpu = np.where((owner[user] == KERNEL_MEMORY) & (cpu != NO_CPU), cpu, tid)
    first, group = distinct_rows(place[rows], memory[rows])
    found = np.bincount(group, uses.is_store[rows], len(first)) > 0
    for each in (tid, cpu):
        distinct, _ = distinct_rows(group, each)
        found &= np.bincount(group[distinct], minlength=len(first)) > 1
    return np.stack([place, memory])[:, rows[first[found]]]


def _joined_views(uses: LineUses, view: I64, owner: U64, lines: int) -> tuple[I64, U32, U32]:
    """int64[views]: which memory each is of; and of lines that processes share, turns and accesses looked at."""
    kept = uses.kept[(owner < NO_ID)[uses.kept["user"]]]
    keys = uses.line << 32 | uses.user
    order = np.argsort(keys)
    at = np.searchsorted(keys, kept["line"].astype(np.int64) << 32 | kept["user"].astype(np.int64), sorter=order)
    views = int(view.max(initial=-1)) + 1
    return join_views(kept["line"], view[order[at]], kept["time"], kept["is_store"], lines, views)


class _Accesses:
    """What is done in some cache lines: by process and its address, eight bytes, and function.

    Args:
        rows: of ``uses``, which count.
        owner: uint64[users], in whose memory each user's accesses are.
    """

    def __init__(
        self, uses: LineUses, rows: I64, owner: U64, owners: MemoryOwners, capture: OpenCapture | None
    ) -> None:
        function, self._names = _functions(uses, rows, capture)
        user = uses.user[rows]
        address = uses.address_line[user]
        order, start = group_rows(uses.line[rows], owner[user], address, uses.word[rows], function)
        group = group_of_row(order, start)
        first = order[start]
        stores = np.bincount(group, np.where(uses.is_store, uses.count, 0)[rows], len(first)).astype(np.int64)
        loads = np.bincount(group, np.where(uses.is_store, 0, uses.count)[rows], len(first)).astype(np.int64)
        each_thread, _ = distinct_rows(group, uses.tid[user])
        threads = np.bincount(group[each_thread], minlength=len(first))
        line, word = uses.line[rows[first]], uses.word[rows[first]]
        by_line = np.lexsort((function[first], address[first], word, -loads - stores, line))
        self._line = line[by_line]
        self._columns = [
            each[by_line]
            for each in (owner[user[first]], address[first], threads, word, function[first], loads, stores)
        ]
        self._processes = owners.names(owner[user[first]])

    def of(self, line: int) -> list[LineAccess]:
        """Those with most operations first."""
        start, end = np.searchsorted(self._line, [line, line + 1]).tolist()
        found = []
        for owner, number, threads, word, function, loads, stores in zip(
            *(each[start:end].tolist() for each in self._columns), strict=True
        ):
            user = memory_user(owner, self._processes, number * LINE_BYTES, threads)
            found.append(LineAccess(user, word * _WORD_BYTES, self._names[function], loads, stores))
        return found


def _functions(uses: LineUses, rows: I64, capture: OpenCapture | None) -> tuple[I64, list[str]]:
    """int64[rows]: the function of each, a position in the names, which are sorted; "" is unknown."""
    codes, code_of_row = np.unique(uses.code[rows], return_inverse=True)
    if capture is None or not len(codes):
        return np.zeros(len(rows), np.int64), [""]
    code = SymbolizedRows(capture, CodeDetail.LINE)
    places = code.place(uses.pc[codes], uses.pc_thread[codes])
    names = ["", *(each.name for each in code.functions)]
    distinct = sorted({*names})
    position = {name: number for number, name in enumerate(distinct)}
    function = np.array([position[name] for name in names])[code.lines()[places, 0] + 1]
    return function[code_of_row], distinct
