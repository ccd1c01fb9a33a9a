"""Control groups on this machine: which hierarchies there are, what PATH means, and the names of ids as they come."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path

from tdprof.capture.spool import CGROUPS_FILE, SpoolWriter
from tdprof.errors import TdprofError
from tdprof.recorder import perf_event as pe
from tdprof.recorder.bpf.settings import Cgroups, Setting
from tdprof.recorder.host import read_text
from tdprof.recorder.ring import write_all
from tdprof.values import dataclass

V2 = "v2"
CGROUP_OF_V1 = 1 << 31  # of bpf/sample.h
MOST_CGROUPS = 64
_ID_BITS = 0x7FFFFFFF
# In this order where several of version 1 have as many groups; perf counts by the first.
_CONTROLLERS = ("perf_event", "memory", "cpu", "cpuacct", "pids", "blkio", "cpuset", "devices", "freezer", "net_cls")
_STRUCTURES = ("task_struct", "css_set", "cgroup_subsys_state", "cgroup", "kernfs_node")
_POINTER_BYTES = 8
_HINT = "ls /sys/fs/cgroup; or /proc/PID/cgroup of a process in it"


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted hierarchy: ``controllers`` is ``("v2",)``, or those of version 1."""

    mount: Path
    controllers: tuple[str, ...]

    @property
    def is_v2(self) -> bool:
        """Whether it is the unified one."""
        return self.controllers == (V2,)


@dataclass(frozen=True, slots=True)
class ChosenCgroups:
    """Control groups of one hierarchy that a recording is of, open as folders.

    Attributes:
        hierarchy: theirs.
        paths: below its mount, as the user may name them.
        folders: descriptors.
    """

    hierarchy: Hierarchy
    paths: tuple[str, ...]
    folders: tuple[int, ...]

    @property
    def is_perfs(self) -> bool:
        """Whether perf's own events can be of them."""
        return perf_counts_by(self.hierarchy)

    def are_known_to_perf(self) -> bool:
        """Whether the kernel keeps what perf's events need of each, where they can be of this hierarchy."""
        return all(map(pe.is_known_group, self.folders))

    def processes(self) -> list[int]:
        """Who is in them, or below one, now."""
        return self._listed("cgroup.procs")

    def threads(self) -> frozenset[int]:
        """Likewise: of a process not all need be."""
        return frozenset(self._listed("cgroup.threads" if self.hierarchy.is_v2 else "tasks"))

    def _listed(self, name: str) -> list[int]:
        found = []
        for path in self.paths:
            for folder, _ in _folders(self.hierarchy.mount / path.lstrip("/")):
                found += [int(number) for number in read_text(Path(folder, name)).split()]
        return found

    def are_gone(self) -> bool:
        """Whether all have been removed."""
        return not any(map(_exists, self.folders))


def _exists(folder: int) -> bool:
    try:
        os.stat("cgroup.procs", dir_fd=folder)
    except OSError:
        return False
    return True


def mounted_hierarchies(mountinfo: str | None = None) -> list[Hierarchy]:
    """Hierarchies with controllers that this process sees, by proc_pid_mountinfo(5)."""
    found: dict[tuple[str, ...], Hierarchy] = {}
    for line in (read_text("/proc/self/mountinfo") if mountinfo is None else mountinfo).splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4]))
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            found.setdefault((V2,), Hierarchy(mount, (V2,)))
        elif kind == "cgroup" and (names := tuple(name for name in _CONTROLLERS if name in options.split(","))):
            found.setdefault(names, Hierarchy(mount, names))
    return list(found.values())


def perf_counts_by(hierarchy: Hierarchy) -> bool:
    """Whether perf's events can be of the groups of a hierarchy: that of its controller, else version 2."""
    rows = [line.split() for line in read_text("/proc/cgroups").splitlines()]
    # proc_cgroups: name, number of the hierarchy (0: version 2), groups, whether it is enabled
    number = next((row[1] for row in rows if row[0] == "perf_event"), "0")
    return hierarchy.is_v2 if number == "0" else "perf_event" in hierarchy.controllers


@contextlib.contextmanager
def chosen_cgroups(paths: Sequence[str]) -> Iterator[ChosenCgroups]:
    """Open the control groups that the user names: folders, or paths below a hierarchy's root; without nested ones.

    Raises:
        TdprofError: there is no such group, or they are of several hierarchies.
    """
    hierarchies = mounted_hierarchies()
    if not hierarchies:
        raise TdprofError("no cgroup hierarchy is mounted here", hint="mount -t cgroup2 none /sys/fs/cgroup")
    found = [_find(path, hierarchies) for path in dict.fromkeys(paths)]
    if len({hierarchy for hierarchy, _ in found}) > 1:
        raise TdprofError("--cgroup takes control groups of one hierarchy", hint=_HINT, status=2)
    folders = sorted({folder for _, folder in found})
    outer = [folder for folder in folders if not any(other in folder.parents for other in folders)]
    if len(outer) > MOST_CGROUPS:
        raise TdprofError(
            f"{len(outer)} control groups are more than {MOST_CGROUPS}", hint="name one above them", status=2
        )
    with contextlib.ExitStack() as stack:
        descriptors = []
        for folder in outer:
            try:
                descriptors.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            except OSError as error:
                raise TdprofError(f"cannot open the control group {folder}: {error.strerror}", hint=_HINT) from error
            stack.callback(os.close, descriptors[-1])
        hierarchy = found[0][0]
        names = ("/" + str(folder.relative_to(hierarchy.mount)).removeprefix(".") for folder in outer)
        yield ChosenCgroups(hierarchy, tuple(names), tuple(descriptors))


def _find(path: str, hierarchies: Sequence[Hierarchy]) -> tuple[Hierarchy, Path]:
    if not path:  # a variable of a shell that is not set; whoever means all groups writes /
        raise TdprofError("the control group's path is empty", hint=_HINT, status=2)
    absolute = Path(path).resolve()
    for hierarchy in hierarchies:
        if hierarchy.mount in (absolute, *absolute.parents) and (absolute / "cgroup.procs").exists():
            return hierarchy, absolute
    if elsewhere := _find_by_other_mount(absolute, hierarchies):
        return elsewhere
    below = os.path.normpath("/" + path).lstrip("/")
    candidates = [(each, each.mount / below) for each in sorted(hierarchies, key=lambda each: not each.is_v2)]
    for hierarchy, folder in candidates:
        if (folder / "cgroup.procs").exists():
            return hierarchy, folder
    raise TdprofError(f"there is no control group {path}", hint=_HINT, status=2)


def _find_by_other_mount(absolute: Path, hierarchies: Sequence[Hierarchy]) -> tuple[Hierarchy, Path] | None:
    """The group that a folder is in a hierarchy that is mounted twice, as a part of it may be in a container."""
    try:
        wanted = os.stat(absolute)
    except OSError:
        return None
    for hierarchy in hierarchies:
        with contextlib.suppress(OSError):
            if hierarchy.mount.stat().st_dev == wanted.st_dev:
                for folder, inode in _folders(hierarchy.mount):
                    if inode == wanted.st_ino:
                        return hierarchy, Path(folder)
    return None


@dataclass(frozen=True, slots=True)
class CgroupNaming:
    """By which hierarchies samples name their control groups; by none where neither is set.

    Attributes:
        v2, v1: where there are both, samples of threads in the root of ``v2`` are named by ``v1``.
        settings: what the BPF programs are told.
        notes: what the user should know of it.
    """

    v2: Hierarchy | None = None
    v1: Hierarchy | None = None
    settings: dict[Setting, int] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @classmethod
    def choose(cls, chosen: ChosenCgroups | None, *, is_wanted: bool) -> "CgroupNaming":
        """By the hierarchy of what is recorded, or of the whole machine; by none if nobody wants to know.

        Raises:
            TdprofError: the kernel does not tell what is needed for that of ``chosen``.
        """
        if chosen:
            v2, v1 = (chosen.hierarchy, None) if chosen.hierarchy.is_v2 else (None, chosen.hierarchy)
            return cls(v2, v1, _settings(v2, v1))
        if not is_wanted:
            return cls()
        v2, v1 = _hierarchies_of_machine()
        try:
            settings = _settings(v2, v1)
        except TdprofError as error:
            return cls(v2, None, _settings(v2, None), [f"control groups of version 1 are not told: {error.message}"])
        if v1 is None:
            return cls(v2, v1, settings)
        name = f"the cgroup v1 hierarchy of {v1.controllers[0]}"
        note = f"control groups: of v2, and for threads in its root of {name}" if v2 else f"control groups: of {name}"
        return cls(v2, v1, settings, [note])

    def structures(self) -> dict[Setting, int]:
        """`kernel_structures` of the one hierarchy that the recording is of."""
        hierarchy = self.v1 or self.v2
        return kernel_structures(hierarchy) if hierarchy else {}

    @property
    def is_told(self) -> bool:
        """Whether samples name their control groups."""
        return self.v2 is not None or self.v1 is not None

    def on_rung(self, *, has_bpf: bool) -> "CgroupNaming":
        """As it is with BPF; without, perf names them by its own hierarchy, if this kernel's does."""
        if has_bpf or not self.is_told:
            return self
        perfs = next((each for each in mounted_hierarchies() if perf_counts_by(each)), None)
        return CgroupNaming(perfs if pe.knows_cgroups() else None)

    def names(self) -> "CgroupNames":
        """What writes their paths."""
        return CgroupNames([(each, tag) for each, tag in ((self.v2, 0), (self.v1, CGROUP_OF_V1)) if each])


def _settings(v2: Hierarchy | None, v1: Hierarchy | None) -> dict[Setting, int]:
    """Raises TdprofError: version 1 needs to know the kernel's structures, and it does not tell them."""
    if v1 is None:
        return {Setting.CGROUPS: Cgroups.V2 if v2 else Cgroups.NONE}
    return {Setting.CGROUPS: Cgroups.V2_ELSE_V1 if v2 else Cgroups.V1} | kernel_structures(v1)


def kernel_structures(hierarchy: Hierarchy) -> dict[Setting, int]:
    """Where the kernel has what leads from a thread to its group in a hierarchy.

    Raises:
        TdprofError: it does not tell.
    """
    from tdprof.recorder.kernel_types import read_kernel_types  # loads the compiled library's bindings

    types = read_kernel_types(_STRUCTURES, ["cgroup_subsys_id"])
    try:
        if hierarchy.is_v2:
            state = types.offsets["css_set", "dfl_cgrp"] + types.offsets["cgroup", "self"]
        else:
            # The kernel calls blkio io, as version 2 does.
            subsystem = {"blkio": "io"}.get(hierarchy.controllers[0], hierarchy.controllers[0])
            state = types.offsets["css_set", "subsys"] + _POINTER_BYTES * types.enumerators[f"{subsystem}_cgrp_id"]
        return {
            Setting.TASK_CSS_SET: types.offsets["task_struct", "cgroups"],
            Setting.CSS_SET_STATE: state,
            Setting.CSS_CGROUP: types.offsets["cgroup_subsys_state", "cgroup"],
            Setting.CSS_PARENT: types.offsets["cgroup_subsys_state", "parent"],
            Setting.CGROUP_KERNFS: types.offsets["cgroup", "kn"],
            Setting.KERNFS_ID: types.offsets["kernfs_node", "id"],
        }
    except KeyError as error:
        raise TdprofError(f"this kernel has no {error}, by which control groups of version 1 are told apart") from error


def _hierarchies_of_machine() -> tuple[Hierarchy | None, Hierarchy | None]:
    """Version 2, and of version 1 what has most groups, if there are more than its root."""
    hierarchies = mounted_hierarchies()
    v2 = next((each for each in hierarchies if each.is_v2), None)
    groups = {each: sum(1 for _ in _folders(each.mount)) for each in hierarchies if not each.is_v2}
    v1 = max(groups, key=lambda each: groups[each], default=None)
    if v1 is not None and groups[v1] == 1 and v2 is not None:
        v1 = None
    return v2, v1


class CgroupNames:
    """Writes the paths of control groups into the spool as they appear.

    perf's side-band tells those of its own hierarchy that are made while recording, however short they exist; of
    another one a look in time must do.

    Args:
        hierarchies: each with what its ids have beside their own bits.
    """

    def __init__(self, hierarchies: Sequence[tuple[Hierarchy, int]]) -> None:
        self._hierarchies = hierarchies
        self._known: dict[int, str] = {}
        self.misses_new = not all(perf_counts_by(each) for each, _ in hierarchies)

    def anew(self) -> "CgroupNames":
        """For another spool, which knows of none yet."""
        return CgroupNames(self._hierarchies)

    def look(self, spool: SpoolWriter) -> None:
        """Note what is new since the last look."""
        lines = []
        for hierarchy, tag in self._hierarchies:
            for folder, inode in _folders(hierarchy.mount):
                identity = inode & _ID_BITS | tag
                path = "/" + folder[len(str(hierarchy.mount)) :].lstrip("/")
                if self._known.get(identity) != path:
                    self._known[identity] = path
                    lines.append(json.dumps({"cgroup": identity, "path": path}) + "\n")
        if lines:
            write_all(spool.descriptor(CGROUPS_FILE), memoryview("".join(lines).encode()))


def _folders(mount: Path) -> Iterator[tuple[str, int]]:
    """Each group's folder and inode number, which is the kernel's id."""
    waiting = [str(mount)]
    with contextlib.suppress(OSError):
        yield str(mount), os.stat(mount).st_ino
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.path, entry.inode()
                    waiting.append(entry.path)
