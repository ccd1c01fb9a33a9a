"""The language of each piece of code, and call stacks of nothing but the functions of languages that runtimes run."""

import re
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from tdprof.model.addresses import PYTHON, FileKind, MappedFile, Unknown
from tdprof.model.arrays import I32
from tdprof.model.profile import Profile
from tdprof.model.runtimes import INTERPRETED_LANGUAGES
from tdprof.profile.frames import have_any, leaf_locations, only_frames
from tdprof.profile.runtimes import language_of_run_time_code
from tdprof.text import plural

KERNEL = "kernel"
NATIVE = "native"
GO = "Go"
OTHER_RUN_TIME_CODE = "[run-time code]"  # of no runtime that is known, or of one of several in its process
NOT_KNOWN = "[not known]"
# Below every goroutine, and what a thread begins with before it runs one.
_OF_GO = {"runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go"}
_TRAMPOLINE = "py::"
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
    is_run = np.array([name not in (KERNEL, NATIVE, GO, NOT_KNOWN) for name in names])[of_file]
    locations, lengths = profile.locations, np.diff(profile.stacks.start.astype(np.int64)).astype(np.int64)
    is_kept = is_run[locations.mapped_file]
    is_marker = (locations.mapped_file < 0) & (locations.reason == Unknown.KNOWN)
    has_run = have_any(profile, is_kept)
    chosen = (is_kept | is_marker)[profile.stacks.location] | np.repeat(~has_run, lengths)
    folded = int(profile.samples.count[has_run[profile.samples.stack]].sum())
    note = (
        f"native code that Python, Java and the like call counts as theirs (--no-native): "
        f"in {folded:,} of {plural(int(profile.samples.count.sum()), 'sample', 's')}"
    )
    return replace(only_frames(profile, chosen), notes=[note, *profile.notes])


def without_trampolines(profile: Profile) -> Profile:
    """The profile without what CPython puts between its loop and a function for perf, in stacks with functions of its.

    With ``-X perf`` a function has a piece of machine code of its own that is named ``py::NAME:FILE``.
    """
    locations, files = profile.locations, profile.mapped_files
    kinds = np.array([*(file.kind is FileKind.ANONYMOUS for file in files), False])
    if not kinds.any():
        return profile
    outermost = locations.frame_function[locations.frame_start[1:].astype(np.int64) - 1]
    named = np.array([name.startswith(_TRAMPOLINE) for name in profile.functions.name], bool)
    is_trampoline = kinds[locations.mapped_file] & named[outermost]
    if not is_trampoline.any():
        return profile
    is_python = np.array([*(file.path == PYTHON for file in files), False])[locations.mapped_file]
    lengths = np.diff(profile.stacks.start.astype(np.int64)).astype(np.int64)
    has_python = np.repeat(have_any(profile, is_python), lengths)
    return only_frames(profile, ~(is_trampoline[profile.stacks.location] & has_python))


def _file_languages(profile: Profile) -> tuple[list[str], I32]:
    """Names of languages, and int32[mapped files + 1]: that of each, the last for what lies in none."""
    owners = [_jit_owner(file) for file in profile.mapped_files]
    functions = profile.functions
    of_go = {file for name, file in zip(functions.name, functions.mapped_file.tolist(), strict=True) if name in _OF_GO}
    numbers: dict[str, int] = {}
    found = []
    for number, (file, owner) in enumerate(zip(profile.mapped_files, owners, strict=True)):
        name = GO if number in of_go else NATIVE
        if owner is not None:
            name = language_of_run_time_code(profile.runtimes.get(owner, ())) or OTHER_RUN_TIME_CODE
        elif file.kind is FileKind.INTERPRETED:
            name = INTERPRETED_LANGUAGES[file.path]
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
