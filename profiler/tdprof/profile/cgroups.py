"""Which control group each sample was taken in, for reports and for choosing samples."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import I32
from tdprof.model.cgroups import Cgroup
from tdprof.text import printable

NOT_TOLD = "[not recorded]"
_SHORTEST_ID = 12  # of a container's id, as docker ps prints it


def cgroup_name(cgroup: Cgroup | None) -> str:
    """What a control group is called in a report; printable."""
    if cgroup is None:
        return NOT_TOLD
    return f"[no path] {cgroup.id}" if cgroup.path is None else printable(cgroup.path)


def cgroup_names(cgroups: Sequence[Cgroup | None]) -> list[str]:
    """The same of all that a profile has: where both versions have a group of one path, that of the first says so."""
    of_v2 = {each.path for each in cgroups if each and not each.is_v1}
    return [
        f"{cgroup_name(each)} (version 1)" if each and each.is_v1 and each.path in of_v2 - {None} else cgroup_name(each)
        for each in cgroups
    ]


def is_named(cgroup: Cgroup, name: str) -> bool:
    """Whether a name means a control group: a path from the root that it is at or below, with or without the first
    slash, its container (12 digits do), pod or unit."""
    above = "/" + name.strip("/")
    if cgroup.path is not None and f"{printable(cgroup.path)}/".startswith(above.rstrip("/") + "/"):
        return True
    container = cgroup.container
    if container is not None and (name == container or (len(name) >= _SHORTEST_ID and container.startswith(name))):
        return True
    return name in (cgroup.pod, cgroup.unit, cgroup_name(cgroup))


def of_cgroups(cgroups: Sequence[Cgroup], of_sample: I32, names: Sequence[str]) -> NDArray[np.bool_]:
    """bool[samples]: which were taken in a control group that one of the names means."""
    is_meant = [any(is_named(cgroup, name) for name in names) for cgroup in cgroups]
    chosen: NDArray[np.bool_] = np.array([*is_meant, NOT_TOLD in names])[of_sample]  # the last: -1, not told
    return chosen
