"""Which language runtimes a profile's processes have, and which of them told no names."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import DELETED, FileKind, Unknown
from tdprof.model.arrays import U64, distinct
from tdprof.model.profile import Profile
from tdprof.model.runtimes import (
    INTERPRETED_LANGUAGES,
    JAVA_LANGUAGE,
    PYTHON_LANGUAGE,
    RUNTIMES,
    Runtime,
    runtimes_of,
)
from tdprof.profile.frames import have_any, leaf_locations

_JAVA_INTERPRETER = "Interpreter"  # as HotSpot's map names its code
PYTHON_LOOP = "_PyEval_EvalFrameDefault"  # what CPython runs functions in; some compilers set parts of it aside


def runtimes_without_map(profile: Profile) -> list[Runtime]:
    """Those of the processes that ran code without a map."""
    leaf = leaf_locations(profile)
    is_nameless = np.zeros(len(leaf), bool)
    is_nameless[leaf >= 0] = profile.locations.reason[leaf[leaf >= 0]] == Unknown.NO_PERF_MAP
    stacks = distinct(profile.samples.stack[is_nameless[profile.samples.stack]])
    files = distinct(profile.locations.mapped_file[leaf[stacks]])
    makers = {profile.mapped_files[file].pid for file in files[files >= 0].tolist()}
    found = {name for pid in makers for name in profile.runtimes.get(pid, ())}
    return [runtime for runtime in RUNTIMES if runtime.called in found]


def runtime_bits(paths: Sequence[str]) -> U64:
    """uint64[n]: a bit for each of ``RUNTIMES`` that each of some files holds."""
    return np.fromiter(map(_bits, paths), np.uint64, len(paths))


def names_of(bits: int) -> list[str]:
    """What those of some bits of ``RUNTIMES`` are called, in their order."""
    return [runtime.called for number, runtime in enumerate(RUNTIMES) if bits >> number & 1]


def language_of_run_time_code(names: Sequence[str]) -> str | None:
    """In which language these runtimes of one process have its code from; None if that cannot be said."""
    seen = [runtime for runtime in RUNTIMES if runtime.called in names]
    found = {runtime.language for runtime in seen if runtime.is_compiler} or {runtime.language for runtime in seen}
    return found.pop() if len(found) == 1 else None


def hidden_languages(profile: Profile) -> list[tuple[Runtime, int]]:
    """Interpreters whose functions nothing walks, and how many samples have them in their call stacks.

    Samples with a named function that was compiled as the program ran are none of them.
    """
    held = runtime_bits([file.path for file in profile.mapped_files])
    asked = [each for each in RUNTIMES if not each.is_compiler and each.language != PYTHON_LANGUAGE]
    is_asked = [(held & np.uint64(1 << RUNTIMES.index(runtime))).astype(bool) for runtime in asked]
    if not any(files.any() for files in is_asked):
        return []
    is_hidden, samples, found = _have_no_function_of_a_language(profile), profile.samples, []
    for runtime, files in zip(asked, is_asked, strict=True):
        runs = have_any(profile, np.append(files, False)[profile.locations.mapped_file]) & is_hidden
        if count := int(samples.count[runs[samples.stack]].sum()):
            found.append((runtime, count))
    return found


def python_hidden(profile: Profile) -> int:
    """How many samples have CPython's loop in their call stacks, and none of the functions that it runs."""
    locations, samples = profile.locations, profile.samples
    is_loop = np.array([name.startswith(PYTHON_LOOP) for name in profile.functions.name], bool)
    if not is_loop.any():
        return 0
    outermost = locations.frame_start[1:].astype(np.int64) - 1
    has_loop = have_any(profile, is_loop[locations.frame_function[outermost]])
    return int(samples.count[(has_loop & _have_no_function_of_a_language(profile))[samples.stack]].sum())


def _have_no_function_of_a_language(profile: Profile) -> NDArray[np.bool_]:
    """bool[stacks]: which have no named function that was compiled as the program ran, nor one that is interpreted."""
    locations, files = profile.locations, profile.mapped_files
    is_language = [file.kind is FileKind.ANONYMOUS or file.path in INTERPRETED_LANGUAGES for file in files]
    is_named = np.array([*is_language, False])[locations.mapped_file] & (locations.reason == Unknown.KNOWN)
    return ~have_any(profile, is_named)


def java_without_lines(profile: Profile) -> int:
    """How many samples are in methods that a JVM compiled of which it did not tell line and inlined methods there."""
    locations = profile.locations
    innermost = locations.frame_start[:-1].astype(np.int64)
    has_file = np.array([bool(file) for file in profile.functions.file], bool)[locations.frame_function[innermost]]
    return _taken_in_java(profile, has_file & (locations.frame_line[innermost] == 0))


def java_interpreted(profile: Profile) -> int:
    """How many samples are in a JVM's interpreter, which runs methods that nothing names."""
    is_interpreter = np.array([name == _JAVA_INTERPRETER for name in profile.functions.name], bool)
    innermost = profile.locations.frame_start[:-1].astype(np.int64)
    return _taken_in_java(profile, is_interpreter[profile.locations.frame_function[innermost]])


def _taken_in_java(profile: Profile, is_meant: NDArray[np.bool_]) -> int:
    """How many samples were taken at locations (bool[locations]) in what a JVM has made as it ran."""
    samples, files = profile.samples, profile.mapped_files
    of_java = {pid for pid, names in profile.runtimes.items() if JAVA_LANGUAGE in names}
    is_java = np.array([*(file.kind is FileKind.ANONYMOUS and file.pid in of_java for file in files), False])
    is_counted = np.append(is_java[profile.locations.mapped_file] & is_meant, False)
    return int(samples.count[is_counted[leaf_locations(profile)][samples.stack]].sum())


def _bits(path: str) -> int:
    """A bit for each of ``RUNTIMES`` that this file holds."""
    return sum(1 << RUNTIMES.index(runtime) for runtime in runtimes_of(path.removesuffix(DELETED)))
