"""Functions' names as they are on all hosts: without what a recording, a process or a build has for itself."""

from tdprof.model.addresses import PYTHON, FileKind, MappedFile
from tdprof.model.python_names import without_line
from tdprof.profile.naming import names_place, without_place

_BUILD_DIGITS = 12  # as many as tell all builds apart that anybody has


def fleet_name(name: str, file: MappedFile | None) -> str:
    """What a function of a recording is called in a store, where equal names of a file's are one function.

    Python's functions of one name and file are one to a fleet: by lines each version would have others, and which of
    them a recording has is chance. A place without a function is the same in files of one build alone; of a file whose
    build is not known, and of the kernel, which lies elsewhere after each boot, all that has no name is one.

    Args:
        name: as the recording has it.
        file: that it is in, if any.
    """
    if file is None:
        return name
    if file.path == PYTHON:
        return without_line(name)[0]
    if file.build_id and file.kind is not FileKind.KERNEL and names_place(name):
        return f"{name} of build {file.build_id[:_BUILD_DIGITS]}"
    return without_place(name)
