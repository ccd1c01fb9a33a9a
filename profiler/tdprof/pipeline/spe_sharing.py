"""Which cache lines several threads or processes contend for, and what each of them does there."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from tdprof.decode.spe.line_uses import NO_CPU, CacheLines, LineUses, look_at_lines
from tdprof.decode.spe.row_sums import LINE_BYTES
from tdprof.decode.spe.spans import SpeInput
from tdprof.model.arrays import I64, U64, distinct_rows, group_of_row, group_rows
from tdprof.model.profile import NO_ID
from tdprof.model.spe import NO_TID, LineAccess, LineSharing, MemoryUser
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_memory import KERNEL_MEMORY, MemoryOwners
from tdprof.pipeline.spe_rows import CodeDetail, SymbolizedRows

_WORDS, _WORD_BYTES = LINE_BYTES // 8, 8
# Memory that one process gave back and another was given, and that came back once more, is no sharing: of one pair of
# processes it takes more than there and back.
_LEAST_TURNS = 4
_LEAST_EACH = 2


def find_sharing(
    data: SpeInput, lines: CacheLines, owners: MemoryOwners, capture: OpenCapture | None
) -> list[LineSharing | None]:
    """Who shares each of some cache lines.

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
    memory, turns = _joined_views(uses, view, owner)
    memory = memory[view]
    shared_lines = _touched_by_several(uses.line, memory, uses, owner, is_told)
    shared_words = _touched_by_several(uses.line * _WORDS + uses.word, memory, uses, owner, is_told)
    how = {line: "false" for line, _ in shared_lines} | {word // _WORDS: "true" for word, _ in shared_words}
    contended = {*shared_lines}
    chosen = np.flatnonzero(
        is_told & np.array([pair in contended for pair in zip(uses.line.tolist(), memory.tolist(), strict=True)], bool)
    )
    accesses = _accesses(uses, chosen, owner, owners, capture)
    return [
        LineSharing(how[line], accesses[line], *turns.get(line, (0, 0))) if line in how else None
        for line in range(len(lines.number))
    ]


def _touched_by_several(
    place: I64, memory: I64, uses: LineUses, owner: U64, is_told: NDArray[np.bool_]
) -> list[tuple[int, int]]:
    """Places and memories that several threads touched, the kernel's from several CPUs, where one of them stored."""
    rows = np.flatnonzero(is_told)
    # From many instructions, which do not matter here.
    rows = rows[distinct_rows(place[rows], memory[rows], uses.user[rows], uses.is_store[rows])[0]]
    user = uses.user[rows]
    tid, cpu = uses.tid[user], uses.cpu[user]
    # Whatever thread a CPU runs touches the CPU's own data, its interrupts' stack for one.
    cpu = np.where((owner[user] == KERNEL_MEMORY) & (cpu != NO_CPU), cpu, tid)
    pairs = np.stack([place, memory])[:, rows]
    stored = np.unique(pairs[:, uses.is_store[rows]], axis=1)
    several = [_used_by_several(np.vstack([pairs, each.astype(np.int64)])) for each in (tid, cpu)]
    # What comes from all three has each place once.
    everything, times = np.unique(np.concatenate([stored, *several], axis=1), axis=1, return_counts=True)
    return [(at, which) for at, which in everything[:, times == 3].T.tolist()]


def _used_by_several(uses: I64) -> I64:
    """int64[2, n]: places and memories of more than one user, of int64[3, m]: place, memory, user."""
    places, users = np.unique(np.unique(uses, axis=1)[:2], axis=1, return_counts=True)
    found: I64 = places[:, users > 1]
    return found


def _joined_views(uses: LineUses, view: I64, owner: U64) -> tuple[I64, dict[int, tuple[int, int]]]:
    """int64[views]: which memory each is of; and of lines that processes share, turns and accesses looked at."""
    memory = np.arange(int(view.max(initial=-1)) + 1)
    turns: dict[int, tuple[int, int]] = {}
    kept = uses.kept
    of_process = owner < NO_ID
    kept = kept[of_process[kept["user"]]]
    if not len(kept):
        return memory, turns
    keys = uses.line << 32 | uses.user
    order = np.argsort(keys)
    at = np.searchsorted(keys[order], kept["line"].astype(np.int64) << 32 | kept["user"].astype(np.int64))
    kept_view = view[order[at]]
    starts = np.flatnonzero(np.append(True, kept["line"][1:] != kept["line"][:-1]))
    for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(kept)], strict=True):
        rows = slice(first, end)
        views, time, is_store = kept_view[rows], kept["time"][rows], kept["is_store"][rows]
        if not is_store.any():
            continue
        for joined in _join(views, time, is_store):
            members = views[joined]
            memory[members] = members.min()
            line = int(kept["line"][first])
            found = _changes(members, time[joined]), int(joined.sum())
            turns[line] = max(turns.get(line, (0, 0)), found)
    return memory, turns


def _join(views: I64, time: U64, is_store: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Of one line's accesses in order: those of each group of views that had it at the same time."""
    each, count = np.unique(views, return_counts=True)
    apart: list[NDArray[np.bool_]] = []
    for view in each[count >= _LEAST_EACH].tolist():
        mine = views == view
        touching = [group for group in apart if _take_turns(mine, group, time, is_store)]
        apart = [group for group in apart if not any(group is other for other in touching)]
        apart.append(np.logical_or.reduce([mine, *touching]))
    return [group for group in apart if (views[group] != views[group][0]).any()]


def _take_turns(one: NDArray[np.bool_], other: NDArray[np.bool_], time: U64, is_store: NDArray[np.bool_]) -> bool:
    """Whether both had the memory at once: a store of one between accesses of the other tells.

    After a fork both have a page until one stores to it, who then has a copy, so that nobody stores to it between what
    the other does there.
    """
    either = one | other
    if _changes(one[either], time[either]) < _LEAST_TURNS:
        return False
    for stores, accesses in ((one & is_store, time[other]), (other & is_store, time[one])):
        if ((time[stores] > accesses[0]) & (time[stores] < accesses[-1])).any():
            return True
    return False


def _changes(who: NDArray[np.generic], time: U64) -> int:
    """How often somebody else comes next; what came in the same tick has no order."""
    return int(np.count_nonzero((who[1:] != who[:-1]) & (time[1:] != time[:-1])))


def _accesses(
    uses: LineUses, rows: I64, owner: U64, owners: MemoryOwners, capture: OpenCapture | None
) -> dict[int, list[LineAccess]]:
    """What is done in these rows, by line."""
    codes = np.unique(uses.code[rows])
    function = np.zeros(len(uses.pc), np.int64)
    names = [""]
    if capture is not None and len(codes):
        code = SymbolizedRows(capture, CodeDetail.LINE)
        places = code.place(uses.pc[codes], uses.pc_thread[codes])
        function[codes] = code.lines()[places, 0] + 1
        names += [each.name for each in code.functions]
    user = uses.user[rows]
    process = owners.names(owner[user])
    keys = uses.line[rows], owner[user], uses.address_line[user], uses.word[rows], function[uses.code[rows]]
    order, start = group_rows(*keys)
    found: dict[int, list[LineAccess]] = defaultdict(list)
    for part in np.split(order, start[1:]) if len(order) else ():
        line, pid, number, word, which = (int(key[part[0]]) for key in keys)
        count, is_store = uses.count[rows[part]], uses.is_store[rows[part]]
        found[line].append(
            LineAccess(
                MemoryUser(
                    pid if 0 < pid < NO_ID else None,
                    process[pid],
                    number * LINE_BYTES % 2**64,
                    len(np.unique(uses.tid[user[part]])),
                ),
                word * _WORD_BYTES,
                names[which],
                loads=int(count[~is_store].sum()),
                stores=int(count[is_store].sum()),
            )
        )
    for accesses in found.values():
        accesses.sort(key=lambda each: (-each.loads - each.stores, each.offset, each.user.address, each.function))
    return found
