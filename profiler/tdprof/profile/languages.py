"""The language of each piece of code, and call stacks of nothing but the functions of languages that runtimes run."""

import re
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.arrays import I32, I64
from tdprof.model.profile import KeptStacks, Profile, StackTable
from tdprof.profile.frames import leaf_locations
from tdprof.profile.runtimes import language_of_run_time_code
from tdprof.text import plural

KERNEL = "kernel"
NATIVE = "native"
PYTHON_LANGUAGE = "Python"
OTHER_RUN_TIME_CODE = "[run-time code]"  # of no runtime that is known, or of one of several in its process
NOT_KNOWN = "[not known]"
# What `perf inject --jit` makes a file of.
_JITTED = re.compile(r"jitted-([0-9]{1,10})-[0-9]+\.so")


def sample_languages(profile: Profile) -> tuple[list[str], I32]:
    """Names of languages, and int32[samples]: which of them each sample was taken in."""
    names, of_file = _file_languages(profile)
    leaf = leaf_locations(profile)
    file = np.where(leaf >= 0, np.append(profile.locations.mapped_file, -1)[leaf], -1)
    return names, of_file[file][profile.samples.stack]


def fold_native(profile: Profile) -> Profile:
    """The profile with nothing but functions of a runtime's language where a call stack has any.

    What these call, native code and the kernel's part included, counts as theirs; what calls the outermost of them is
    left out. Other stacks stay as they are, and so does what says that callers are missing.
    """
    names, of_file = _file_languages(profile)
    is_run = np.array([name not in (KERNEL, NATIVE, NOT_KNOWN) for name in names])[of_file]
    locations, stacks = profile.locations, profile.stacks
    is_kept = is_run[locations.mapped_file]
    is_marker = (locations.mapped_file < 0) & (locations.reason == Unknown.KNOWN)
    lengths: I64 = np.diff(stacks.start.astype(np.int64)).astype(np.int64)
    count = len(lengths)
    owner = np.repeat(np.arange(count), lengths)
    has_run: NDArray[np.bool_] = np.bincount(owner, is_kept[stacks.location], count) > 0
    chosen = (is_kept | is_marker)[stacks.location] | ~has_run[owner]
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[chosen], minlength=count))]).astype(np.uint32)
    folded = int(profile.samples.count[has_run[profile.samples.stack]].sum())
    note = (
        f"native code that Python, Java and the like call counts as theirs (--no-native): "
        f"in {folded:,} of {plural(int(profile.samples.count.sum()), 'sample', 's')}"
    )
    return replace(
        profile,
        stacks=StackTable(start, stacks.location[chosen]),
        notes=[note, *profile.notes],
        kept_stacks=KeptStacks(),
    )


def _file_languages(profile: Profile) -> tuple[list[str], I32]:
    """Names of languages, and int32[mapped files + 1]: that of each, the last for what lies in none."""
    owners = [_jit_owner(file) for file in profile.mapped_files]
    numbers: dict[str, int] = {}
    found = []
    for file, owner in zip(profile.mapped_files, owners, strict=True):
        name = NATIVE
        if owner is not None:
            name = language_of_run_time_code(profile.runtimes.get(owner, ())) or OTHER_RUN_TIME_CODE
        elif file.kind is FileKind.INTERPRETED:
            name = PYTHON_LANGUAGE
        elif file.kind in (FileKind.KERNEL, FileKind.KERNEL_MODULE):
            name = KERNEL
        found.append(numbers.setdefault(name, len(numbers)))
    found.append(numbers.setdefault(NOT_KNOWN, len(numbers)))
    return list(numbers), np.array(found, np.int32)


def _jit_owner(file: MappedFile) -> int | None:
    """The process that made this code as it ran; None for any other code."""
    if file.kind is FileKind.ANONYMOUS:
        return file.pid
    jitted = _JITTED.fullmatch(PurePath(file.path).name)
    return int(jitted[1]) if jitted else None
