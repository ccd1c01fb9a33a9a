"""The functions that a page shows: names and what is said beside them, the kind of their code, and the processes."""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import FileKind, Unknown
from tdprof.model.arrays import I32, U8, distinct
from tdprof.model.profile import NO_ID, FunctionTable, Profile
from tdprof.profile.frames import are_elsewhere, function_names, module_names
from tdprof.profile.guesses import guess_words, guessed_shares
from tdprof.profile.naming import REASON_TEXT
from tdprof.text import plural, printable
from tdprof.values import dataclass

MOST_NAME_CHARACTERS = 1000  # a mangled name of a megabyte is no help to anybody
# As model.js names them: what the kernel ran, what a file holds, what was made at run time, what has no name.
KERNEL, NATIVE, RUNTIME, UNKNOWN = range(4)
_KIND_OF_FILE = {
    FileKind.KERNEL: KERNEL,
    FileKind.KERNEL_MODULE: KERNEL,
    FileKind.ANONYMOUS: RUNTIME,
    FileKind.INTERPRETED: RUNTIME,
}


def functions_header(profile: Profile, function: NDArray[np.int32]) -> dict[str, Any]:
    """Names by the page's rows; modules, files and marks as rows of their own lists.

    Args:
        function: the functions of the rows; -1 for samples without a call stack.
    """
    names, reasons, guessed = function_names(profile), _reasons(profile), guess_words(guessed_shares(profile))
    modules, module = np.unique(np.array([*profile.functions.mapped_file, -1])[function], return_inverse=True)
    files: dict[str, int] = {}
    marks: dict[str, int] = {}
    file_of, mark_of, shown = [], [], []
    for each in function.tolist():
        file = profile.functions.file[each] if each >= 0 else ""
        file_of.append(files.setdefault(cut_text(printable(file)), len(files)))
        name, mark = _name_and_mark(names[each], Unknown(reasons[each]), guessed[each])
        mark_of.append(marks.setdefault(mark, len(marks)))
        # A name of blanks could be neither read nor clicked on.
        shown.append(cut_text(name) if name.strip() else "[blank name]")
    module_texts = module_names(profile)
    return {
        "names": shown,
        "modules": [cut_text(module_texts[each]) for each in modules.tolist()],
        "module": module.tolist(),
        "files": list(files),
        "file": file_of,
        "marks": list(marks),
        "mark": mark_of,
        "kind": _kinds(profile, reasons)[function].tolist(),
        "lineFiles": [cut_text(printable(file)) for file in line_files(profile.functions)],
    }


def line_files(functions: FunctionTable) -> list[str]:
    """The source files of lines whose functions stand in others, each once."""
    return list(dict.fromkeys(functions.file[row] for row in np.flatnonzero(are_elsewhere(functions)).tolist()))


def cut_text(text: str) -> str:
    """A text that a page can bear."""
    if len(text) <= MOST_NAME_CHARACTERS:
        return text
    return f"{text[:MOST_NAME_CHARACTERS]}… ({len(text):,} characters)"


def _reasons(profile: Profile) -> U8:
    """uint8[functions + 1]: why each is unknown; the last row is that of -1, samples without a call stack."""
    locations = profile.locations
    reasons = np.full(len(profile.functions.name) + 1, Unknown.KNOWN, np.uint8)
    is_unknown = locations.reason != Unknown.KNOWN
    reasons[locations.frame_function[locations.frame_start[:-1][is_unknown]]] = locations.reason[is_unknown]
    return reasons


def _name_and_mark(name: str, reason: Unknown, guessed: str) -> tuple[str, str]:
    """``[stripped] libz.so+0x10``, guessed, is ``libz.so+0x10`` with the mark ``stripped, guessed``."""
    marks = []
    prefix = f"[{REASON_TEXT[reason]}] "
    if reason is not Unknown.KNOWN and name.startswith(prefix):
        name = name.removeprefix(prefix)
        marks.append(REASON_TEXT[reason])
    if guessed:
        # Of unknown functions those of one mark are one row of the page.
        marks.append(guessed if reason is Unknown.KNOWN or guessed == "guessed" else "partly guessed")
    return name, ", ".join(marks)


def _kinds(profile: Profile, reasons: U8) -> U8:
    """uint8[functions + 1]: the kind of each one's code."""
    of_file = [_KIND_OF_FILE.get(file.kind, NATIVE) for file in profile.mapped_files]
    kinds: U8 = np.array([*of_file, UNKNOWN], np.uint8)[np.append(profile.functions.mapped_file, -1)]
    kinds[reasons != Unknown.KNOWN] = UNKNOWN
    return kinds


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes of a profile's samples, those of one name together.

    Attributes:
        label: printable, most weight first in no event in particular; empty if there is one process alone.
        of_sample: int32[samples], index into ``label``.
    """

    label: list[str]
    of_sample: I32


def find_processes(profile: Profile) -> Processes:
    """What stands at the root of a graph of several processes."""
    pids = distinct(profile.samples.pid)
    if len(pids) < 2:
        return Processes([], np.zeros(len(profile.samples.pid), np.int32))
    members: dict[str, list[int]] = defaultdict(list)
    for pid in pids.tolist():
        members["" if pid == NO_ID else printable(profile.process_names.get(pid, ""))].append(pid)
    number = {pid: row for row, of_name in enumerate(members.values()) for pid in of_name}
    of_pid = np.array([number[pid] for pid in pids.tolist()], np.int32)
    labels = [_label(name, of_name) for name, of_name in members.items()]
    return Processes(labels, of_pid[np.searchsorted(pids, profile.samples.pid)])


def _label(name: str, pids: list[int]) -> str:
    if pids == [NO_ID]:
        return "[unknown process]"
    name = cut_text(name.strip() or "[unnamed process]")
    return f"{name} ({pids[0]})" if len(pids) == 1 else f"{name} ({plural(len(pids), 'process', 'es')})"
