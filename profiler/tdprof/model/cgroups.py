"""A control group, and whose it is as far as its path tells."""

import re

from tdprof.text import printable
from tdprof.values import dataclass

# Docker, containerd, CRI-O and podman name a container by 64 hexadecimal digits, with or without a scope around it.
_CONTAINER = re.compile(r"(?:^|[-:.])([0-9a-f]{64})(?:\.scope)?$")
_ECS_CONTAINER = re.compile(r"^[0-9a-f]{32}-[0-9]+$")
# A scope of systemd-nspawn and libvirt; of a container that a unit starts, the unit (machinectl start).
_NAMED_CONTAINER = re.compile(r"^(?:lxc\.payload\.(.+)|machine-(.+)\.scope|systemd-nspawn@(.+)\.service)$")
_ABOVE_NAMES = ("lxc", "lxc.payload")  # of older versions of LXC
# kubelet with the systemd driver writes the uid's dashes as underscores; a containerd that has the other driver takes
# what it is given (SLICE:cri-containerd:ID) for a name.
_POD = re.compile(
    r"(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?::|$)"
)
_UNITS = (".service", ".scope", ".socket", ".mount", ".swap", ".slice")
_OF_V1 = 1 << 31  # bpf/sample.h
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A control group.

    Attributes:
        id: the kernel's, the first where it was removed and made again; None where the samples do not tell it.
        path: below the root of its hierarchy; None where the recording does not tell it.
    """

    id: int | None
    path: str | None

    @property
    def is_v1(self) -> bool:
        """Whether it is of a hierarchy of version 1, as far as the recording tells."""
        return self.id is not None and self.id & _OF_V1 != 0

    @property
    def container(self) -> str | None:
        """The id, or for LXC and systemd-nspawn the name, of the innermost container; None: the path names none."""
        parts = self._parts()
        for at in range(len(parts) - 1, -1, -1):
            if found := _CONTAINER.search(parts[at]) or _NAMED_CONTAINER.search(parts[at]):
                return _unescaped(next(filter(None, found.groups())))
            above = parts[at - 1] if at else ""
            if above in _ABOVE_NAMES or (_ECS_CONTAINER.search(parts[at]) and "ecs" in parts):
                return parts[at]
        return None

    @property
    def pod(self) -> str | None:
        """The uid of the Kubernetes pod; None: the path names none."""
        for part in reversed(self._parts()):
            if "pod" in part and (found := _POD.search(part)):
                return found[1].replace("_", "-")
        return None

    @property
    def unit(self) -> str | None:
        """systemd's innermost service, else its innermost scope and so on, else its slice; None: there is none."""
        parts = self._parts()
        for suffix in _UNITS:
            if found := next((part for part in reversed(parts) if part.endswith(suffix) and part != suffix), None):
                return _unescaped(found)
        return None

    def _parts(self) -> list[str]:
        return [part for part in (self.path or "").split("/") if part]


def _unescaped(name: str) -> str:
    """A unit's name as users write it (systemd.unit(5): \\xNN for a byte, of UTF-8); printable."""
    return printable(
        _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace("\\x", "")).decode(errors="replace"), name)
    )
