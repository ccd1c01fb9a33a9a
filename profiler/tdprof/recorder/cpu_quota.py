"""How much processor time control groups leave to processes: what a container's limit of CPUs is made of."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from tdprof.recorder.cgroups import Hierarchy, mounted_hierarchies
from tdprof.recorder.host import read_text


def cpu_quota(pids: Iterable[int]) -> float:
    """So many CPUs' time, all processes together; infinite where no group has a limit."""
    hierarchies = mounted_hierarchies()
    return sum(least_quota(groups, hierarchies) for groups in {read_text(f"/proc/{pid}/cgroup") for pid in pids})


def least_quota(groups: str, hierarchies: Sequence[Hierarchy]) -> float:
    """That of a process, by its groups and all above them.

    Args:
        groups: as proc_pid_cgroup(5) tells them.
        hierarchies: where they are mounted; of a part alone that can be in a container.
    """
    found = [math.inf]
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        group = PurePosixPath(path.lstrip("/"))
        for each in hierarchies:
            if each.is_v2 if not controllers else "cpu" in each.controllers and "cpu" in controllers.split(","):
                found += [_quota(each.mount / place) for place in (group, *group.parents)]
    return min(found)


def _quota(folder: Path) -> float:
    """Of a group alone, in both versions' files (Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst)."""
    words = read_text(folder / "cpu.max").split()
    words = words or [read_text(folder / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    time, period = [int(word) if word.isdigit() else 0 for word in words]
    return time / period if time and period else math.inf
