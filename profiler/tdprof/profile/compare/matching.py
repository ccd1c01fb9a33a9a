"""Which function of one profile is which of another, as far as names, build-ids and source lines tell."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import PYTHON, FileKind
from tdprof.model.arrays import F64, I32
from tdprof.model.profile import FrameStacks, Profile
from tdprof.model.python_names import without_line
from tdprof.profile.frames import frame_stacks, function_names, module_names
from tdprof.profile.naming import base_name, names_place
from tdprof.values import dataclass

# Two functions of one file are one that was renamed if their sampled lines cover at least this much of each other.
_RENAMED_OVERLAP = 0.5
# Of the self time in user space: two programs may well share the C library.
_LEAST_IN_COMMON = 0.1
_FEWEST_LINES = 3  # fewer say too little of where a function stands


class Match(StrEnum):
    """How a row's functions were found to be the same, surest first."""

    SAME = "same"  # name and module
    INLINED = "inlined"  # the same, but one of the profiles has it only inlined into others
    CLONE = "clone"  # a piece or version of it that the compiler made in one of the profiles only: .cold, .isra
    MOVED = "moved"  # same name in another module, or elsewhere in a file whose functions are named by their places
    RENAMED = "renamed"  # another name at the same source lines
    ONLY_A = "only in A"
    ONLY_B = "only in B"


@dataclass(frozen=True, slots=True)
class MatchedFunctions:
    """Rows of functions that are the same in two profiles, A and B.

    Attributes:
        names, modules: of each row, as B has them where it does; printable.
        names_a: as A has them; "" where A has none.
        match: of each row.
        is_kernel: bool[n], code of the kernel or its modules.
        is_known: bool[n], whether it has a name.
        row_of_a, row_of_b: int32[functions + 1]: row of each function id of ``FrameStacks``, -1 for ids that no stack
            has; the last stands for samples without a call stack, so that id -1 finds it.
    """

    names: Sequence[str]
    modules: Sequence[str]
    names_a: Sequence[str]
    match: Sequence[Match]
    is_kernel: NDArray[np.bool_]
    is_known: NDArray[np.bool_]
    row_of_a: I32
    row_of_b: I32

    def __len__(self) -> int:
        return len(self.names)

    def are_of_one_program(self, share_a: F64, share_b: F64) -> bool:
        """False where hardly a function in user space is in both, though most have names: two different programs.

        Args:
            share_a, share_b: float64[n], each row's self share of all samples.
        """
        is_common = np.array([match not in (Match.ONLY_A, Match.ONLY_B) for match in self.match], bool) & self.is_known
        # Neither a shared library nor [vdso].
        is_own = np.array(
            [".so" not in PurePath(each).name and not each.startswith("[") for each in self.modules], bool
        )
        # main and _start, the same in every program, stand in another one's file.
        if (
            is_common & is_own & ~self.is_kernel & np.array([match is not Match.MOVED for match in self.match], bool)
        ).any():
            return True
        for share in (share_a, share_b):
            in_user_space = share[~self.is_kernel].sum()
            if not in_user_space:
                return True
            if share[~self.is_kernel & self.is_known].sum() < in_user_space / 2:
                return self._share_files(share_a, share_b)  # what has no names may be the same
        return all(
            share[is_common & ~self.is_kernel].sum() >= _LEAST_IN_COMMON * share[~self.is_kernel].sum()
            for share in (share_a, share_b)
        )

    def _share_files(self, share_a: F64, share_b: F64) -> bool:
        """Whether files of one name have some of the user space of both."""
        names = [PurePath(each).name for each in self.modules]
        of_side = [
            {name for name, part, is_kernel in zip(names, share, self.is_kernel, strict=True) if part and not is_kernel}
            for share in (share_a, share_b)
        ]
        is_common = np.array([name in of_side[0] & of_side[1] for name in names], bool) & ~self.is_kernel
        return all(
            share[is_common].sum() >= _LEAST_IN_COMMON * share[~self.is_kernel].sum() for share in (share_a, share_b)
        )


@dataclass(frozen=True, slots=True)
class _Side:
    """One profile's functions, those without a call stack last.

    Attributes:
        ids: those that stacks have.
        images: what makes the places of each function's file mean the same in another profile; empty: nothing does.
        is_inlined: whether all the code a function has is inlined elsewhere.
        lines: first and last sampled line of each function, (0, 0) where too few are known.
    """

    ids: Sequence[int]
    names: Sequence[str]
    modules: Sequence[str]
    images: Sequence[str]
    files: Sequence[str]
    is_known: Sequence[bool]
    is_inlined: Sequence[bool]
    is_kernel: Sequence[bool]
    lines: Sequence[tuple[int, int]]


def match_functions(a: Profile, b: Profile, stacks_a: FrameStacks, stacks_b: FrameStacks) -> MatchedFunctions:
    """Match the functions of two profiles.

    A key that several functions of a side share decides nothing. Code without a name is the same only at the same
    offset of a file with the same build-id, or address of the kernel in the same boot, but for what is added up
    whatever its place (`[no mapping]`).
    """
    side_a, side_b = _side(a, stacks_a), _side(b, stacks_b)
    lines_a, lines_b = _lines_of_names(side_a), _lines_of_names(side_b)
    (side_a, first_a), (side_b, first_b) = _joined(side_a, lines_a, lines_b), _joined(side_b, lines_b, lines_a)
    pairs: dict[int, int] = {}  # of ids, A to B
    found: dict[int, Match] = {}  # by id of A
    for match, key in _KEYS:
        left = [id_ for id_ in side_a.ids if id_ not in pairs]
        taken = set(pairs.values())
        right = [id_ for id_ in side_b.ids if id_ not in taken]
        for id_a, id_b in _pair(_unique(side_a, left, key), _unique(side_b, right, key)):
            pairs[id_a], found[id_a] = id_b, match
    _match_renamed(side_a, side_b, pairs, found)
    matched = _rows(side_a, side_b, pairs, found)
    for row_of, first in ((matched.row_of_a, first_a), (matched.row_of_b, first_b)):
        row_of[list(first)] = row_of[list(first.values())]
    return matched


_Lines = dict[tuple[str, str], dict[int, int]]


def _lines_of_names(side: _Side) -> _Lines:
    """Of Python's functions, by name and file: the lines that those of that name begin at, 0 of only one; their ids."""
    found: _Lines = defaultdict(dict)
    for id_ in side.ids:
        if side.modules[id_] == PYTHON:
            name, line = without_line(side.names[id_])
            found[name, side.files[id_]][line] = id_
    return found


def _joined(side: _Side, lines: _Lines, others: _Lines) -> tuple[_Side, dict[int, int]]:
    """With functions of one name as one, where the other profile has not the same, and the first of each of these.

    Lines change with what stands above, and what has few samples is there by chance: nobody knows which is which.
    """
    names, first = [*side.names], {}
    for key, ids in lines.items():
        if ids.keys() != others.get(key, {}).keys():
            for id_ in ids.values():
                names[id_], first[id_] = key[0], min(ids.values())
    return replace(side, names=names, ids=[id_ for id_ in side.ids if first.get(id_, id_) == id_]), first


def _side(profile: Profile, stacks: FrameStacks) -> _Side:
    functions = profile.functions
    mapped = [*functions.mapped_file.tolist(), -1]
    modules, names = module_names(profile), function_names(profile)
    kinds = [*(file.kind for file in profile.mapped_files), None]
    # The kernel is not at its build's addresses, but at those of its boot.
    images = [
        *(profile.boot_id if file.kind is FileKind.KERNEL else file.build_id for file in profile.mapped_files),
        "",
    ]
    return _Side(
        ids=[id_ % len(names) for id_ in np.unique(stacks.function).tolist()],
        names=names,
        modules=[modules[row] for row in mapped],
        images=[images[row] for row in mapped],
        files=[*functions.file, ""],
        is_known=[not name.startswith("[") or name == names[-1] for name in names],
        is_inlined=[*(value != 0 for value in functions.is_inlined.tolist()), False],
        is_kernel=[kinds[row] in (FileKind.KERNEL, FileKind.KERNEL_MODULE) for row in mapped],
        lines=_line_ranges(profile, stacks, len(names)),
    )


def _line_ranges(profile: Profile, stacks: FrameStacks, functions: int) -> list[tuple[int, int]]:
    known = (stacks.line > 0) & (frame_stacks(profile, of_lines=True).function == stacks.function)  # of its own file
    function, line = stacks.function[known] % functions, stacks.line[known].astype(np.int64)
    first, last = np.full(functions, np.iinfo(np.int64).max), np.zeros(functions, np.int64)
    np.minimum.at(first, function, line)
    np.maximum.at(last, function, line)
    pairs = np.unique(np.stack([function.astype(np.int64), line]), axis=1)
    enough = np.bincount(pairs[0], minlength=functions) >= _FEWEST_LINES
    return [(int(start), int(end)) if ok else (0, 0) for start, end, ok in zip(first, last, enough, strict=True)]


_Key = Callable[[_Side, int], Hashable]

# But a function without a name: "JS: /srv/app.js:1:1". Node 18 tells no column.
_SCRIPT = re.compile(r"([A-Za-z]+:[^ ].*):[0-9]+:[0-9]+|((?:Eval|Function|LazyCompile|Script):[^ ].*):[0-9]+")


def _by_file(side: _Side, id_: int) -> Hashable:
    return (side.names[id_], side.files[id_], side.modules[id_]) if side.is_known[id_] else None


def _by_module(side: _Side, id_: int) -> Hashable:
    return (side.names[id_], side.modules[id_]) if side.is_known[id_] else None


def _by_image(side: _Side, id_: int) -> Hashable:
    return (side.names[id_], side.files[id_], side.images[id_]) if side.images[id_] else None


def _by_reason(side: _Side, id_: int) -> Hashable:
    """What is no place but all that has no name for one reason."""
    return None if side.is_known[id_] or names_place(side.names[id_]) else (side.names[id_], side.modules[id_])


def _by_base_name(side: _Side, id_: int) -> Hashable:
    return (base_name(side.names[id_]), side.modules[id_]) if side.is_known[id_] else None


def _by_name(side: _Side, id_: int) -> Hashable:
    return side.names[id_] if side.is_known[id_] else None


def _by_script(side: _Side, id_: int) -> Hashable:
    """Of a function of JavaScript, whose name ends with where it begins, what stands before; if it has a name there."""
    match = _SCRIPT.fullmatch(side.names[id_])
    return (match[1] or match[2], side.files[id_]) if match and side.files[id_] else None


# In this order; a key of None matches nothing.
_KEYS: Sequence[tuple[Match, _Key]] = (
    (Match.SAME, _by_file),
    (Match.SAME, _by_image),
    (Match.SAME, _by_module),
    (Match.SAME, _by_reason),
    (Match.CLONE, _by_base_name),
    (Match.MOVED, _by_name),
    (Match.MOVED, _by_script),
)


def _unique(side: _Side, ids: Iterable[int], key: _Key) -> dict[Hashable, int]:
    """The functions whose key no other one has."""
    all_: dict[Hashable, list[int]] = defaultdict(list)
    for id_ in ids:
        all_[key(side, id_)].append(id_)
    all_.pop(None, None)
    return {name: ids[0] for name, ids in all_.items() if len(ids) == 1}


def _pair(a: dict[Hashable, int], b: dict[Hashable, int]) -> list[tuple[int, int]]:
    return [(id_, b[key]) for key, id_ in a.items() if key in b]


def _match_renamed(a: _Side, b: _Side, pairs: dict[int, int], found: dict[int, Match]) -> None:
    """Pair what is left by source file and lines, where each is the other's only candidate."""
    taken = set(pairs.values())
    right = defaultdict(list)
    for id_ in b.ids:
        if id_ not in taken and b.files[id_] and b.lines[id_][1]:
            right[b.files[id_], PurePath(b.modules[id_]).name].append(id_)
    candidates: dict[int, list[int]] = {}
    claims: dict[int, int] = defaultdict(int)
    for id_a in a.ids:
        if id_a in pairs or not a.lines[id_a][1]:
            continue
        same_file = right.get((a.files[id_a], PurePath(a.modules[id_a]).name), [])
        candidates[id_a] = [id_b for id_b in same_file if _overlap(a.lines[id_a], b.lines[id_b]) >= _RENAMED_OVERLAP]
        for id_b in candidates[id_a]:
            claims[id_b] += 1
    for id_a, ids_b in candidates.items():
        if len(ids_b) == 1 and claims[ids_b[0]] == 1:
            pairs[id_a], found[id_a] = ids_b[0], Match.RENAMED


def _overlap(first: tuple[int, int], second: tuple[int, int]) -> float:
    """What two line ranges share of what they cover together."""
    shared = min(first[1], second[1]) - max(first[0], second[0]) + 1
    together = max(first[1], second[1]) - min(first[0], second[0]) + 1
    return max(0, shared) / together


def _rows(a: _Side, b: _Side, pairs: dict[int, int], found: dict[int, Match]) -> MatchedFunctions:
    names, modules, names_a, matches, is_kernel, is_known = [], [], [], [], [], []
    row_of_a, row_of_b = np.full(len(a.names), -1, np.int32), np.full(len(b.names), -1, np.int32)

    def add(side: _Side, id_: int, name_a: str, match: Match) -> int:
        names.append(side.names[id_])
        modules.append(side.modules[id_])
        is_kernel.append(side.is_kernel[id_])
        is_known.append(side.is_known[id_])
        names_a.append(name_a)
        matches.append(match)
        return len(names) - 1

    for id_a, id_b in pairs.items():
        match = found[id_a]
        if match is Match.SAME and a.is_inlined[id_a] != b.is_inlined[id_b]:
            match = Match.INLINED
        row = add(b, id_b, a.names[id_a], match)
        row_of_a[id_a] = row_of_b[id_b] = row
    # A clone that only one side has is part of the function that both have, if that is one.
    homes: dict[Hashable, list[int]] = defaultdict(list)
    for side, rows in ((a, row_of_a), (b, row_of_b)):
        for id_ in np.flatnonzero(rows >= 0).tolist():
            key = _by_base_name(side, id_)
            if key is not None and int(rows[id_]) not in homes[key]:
                homes[key].append(int(rows[id_]))
    for side, rows, only in ((a, row_of_a, Match.ONLY_A), (b, row_of_b, Match.ONLY_B)):
        for id_ in side.ids:
            if rows[id_] >= 0:
                continue
            home = homes.get(_by_base_name(side, id_), []) if base_name(side.names[id_]) != side.names[id_] else []
            if len(home) == 1:
                rows[id_] = home[0]
                matches[home[0]] = Match.CLONE
            else:
                rows[id_] = add(side, id_, side.names[id_] if side is a else "", only)
    flags = np.array(is_kernel, bool), np.array(is_known, bool)
    return MatchedFunctions(names, modules, names_a, matches, *flags, row_of_a, row_of_b)
