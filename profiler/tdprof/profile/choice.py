"""Which function of a profile a user means: by its name, a part of it, or with the module in front."""

import difflib
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePath

import numpy as np

from tdprof.errors import TdprofError
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names, leaf_locations, module_names
from tdprof.profile.naming import base_name
from tdprof.text import printable
from tdprof.values import dataclass

_MOST_CANDIDATES = 6
_WHERE_NAMES_STAND = "names as tdprof report --limit 0 prints them"


@dataclass(frozen=True, slots=True)
class ChosenFunction:
    """One function with the pieces and versions that compilers made of it.

    Attributes:
        name: without tags; printable.
        module: path of its file; printable.
        ids: its function ids, as in ``FunctionTable``.
        files: the source file of each id.
    """

    name: str
    module: str
    ids: Sequence[int]
    files: Sequence[str]

    def has_part(self, name: str, path: str) -> bool:
        """Whether a function of this shown name, in the file mapped from this path, is one of the pieces."""
        return base_name(printable(name)) == self.name and printable(path) == self.module


def choose_function(profile: Profile, text: str, event: int = 0) -> ChosenFunction:
    """The function that ``text`` names: its exact name, with or without tags, else the only name that it is part of.

    ``MODULE:NAME``, with the base name of the file or its path, tells functions of one name apart.

    Raises:
        TdprofError: none, and what of the capture could not be read; or several: the likeliest are named with their
            shares.
    """
    if not text.strip():
        raise TdprofError("the function's name is empty", hint=_WHERE_NAMES_STAND, status=2)
    groups = _groups(profile)
    share = _shares(profile, groups, event)
    bare = base_name(text)  # as reports print it, tags of what compilers split off stand behind
    ways: Sequence[Callable[[str, str], bool]] = (
        lambda name, module: name in (text, bare),
        lambda name, module: any(f"{where}:{name}" in (text, bare) for where in (module, PurePath(module).name)),
        lambda name, module: text in name,
        lambda name, module: text.lower() in name.lower(),
    )
    for is_meant in ways:
        found = [key for key in groups if is_meant(*key)]
        if len(found) == 1:
            name, module = found[0]
            ids = groups[found[0]]
            return ChosenFunction(name, module, ids, [profile.functions.file[id_] for id_ in ids])
        if found:
            raise _ambiguous(text, found, share)
    names = [name for name, _ in groups]
    close = difflib.get_close_matches(text, names, n=1) or difflib.get_close_matches(
        text, [name.partition("(")[0] for name in names], n=1
    )
    raise TdprofError(
        f"the capture has no samples in a function '{printable(text)}'"
        + "".join(f"; {reason}" for reason in profile.unreadable),
        hint=f"did you mean {close[0]}?" if close else _WHERE_NAMES_STAND,
        status=2,
    )


def _groups(profile: Profile) -> dict[tuple[str, str], list[int]]:
    """Function ids by name without tags, and module."""
    modules, names = module_names(profile), function_names(profile)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for id_, row in enumerate(profile.functions.mapped_file.tolist()):
        groups[base_name(names[id_]), modules[row]].append(id_)
    return groups


def _shares(profile: Profile, groups: dict[tuple[str, str], list[int]], event: int) -> dict[tuple[str, str], float]:
    """The part of an event's samples that fell into each group's code, inlined calls included."""
    locations, samples = profile.locations, profile.samples
    leaf = leaf_locations(profile)
    chosen = (samples.event == event) & (leaf[samples.stack] >= 0)
    at = np.bincount(leaf[samples.stack[chosen]], samples.weight[chosen], minlength=len(locations.address))
    function = locations.frame_function[locations.frame_start[:-1]]
    by_function = np.bincount(function, at, minlength=len(profile.functions.name))
    total = max(float(at.sum()), 1.0)
    return {key: float(by_function[ids].sum()) / total for key, ids in groups.items()}


def _ambiguous(text: str, found: Sequence[tuple[str, str]], share: dict[tuple[str, str], float]) -> TdprofError:
    ranked = sorted(found, key=lambda key: (-share[key], key))
    same_name = len({name for name, _ in found}) == 1
    listed = [
        f"{PurePath(module).name}:{name} {share[name, module]:.1%}"
        if same_name
        else f"{name} {share[name, module]:.1%}"
        for name, module in ranked[:_MOST_CANDIDATES]
    ]
    more = f", and {len(found) - _MOST_CANDIDATES} more" if len(found) > _MOST_CANDIDATES else ""
    example = f"{PurePath(ranked[0][1]).name}:{ranked[0][0]}"
    return TdprofError(
        f"{len(found)} functions match '{printable(text)}': {', '.join(listed)}{more}",
        hint=f"the whole name, or MODULE:NAME, such as '{example}'",
        status=2,
    )
