"""The files that say what machine this is, under a root folder so that tests can make machines up."""

import os
import re
from pathlib import Path

from tdprof.recorder.host import read_setting, read_text
from tdprof.values import dataclass

# By os-release's ID or ID_LIKE: how packages are installed, and what bcc's and the C library's debug data are called.
_PACKAGES = {
    "debian": ("apt-get install", "python3-bpfcc", "libc6-dbg"),
    "ubuntu": ("apt-get install", "python3-bpfcc", "libc6-dbg"),
    "fedora": ("dnf install", "python3-bcc", "glibc-debuginfo"),
    "rhel": ("dnf install", "python3-bcc", "glibc-debuginfo"),
    "suse": ("zypper install", "python3-bcc", "glibc-debuginfo"),
    "arch": ("pacman -S", "python-bcc", ""),
    "alpine": ("apk add", "py3-bcc", "musl-dbg"),
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A file system to look at; nothing in it needs to exist."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """Where a file of the machine stands; a NUL out of a damaged file must not become an exception here."""
        return self.root / name.lstrip("/").replace("\0", "?")

    def text(self, name: str) -> str:
        """A small file's text, or "" where it cannot be read."""
        return read_text(self.path(name))

    def number(self, name: str) -> int | None:
        """A numeric setting, or None."""
        return read_setting(self.path(name))

    def names(self, folder: str) -> list[str]:
        """What a folder holds, sorted; empty where it cannot be read."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def link(self, name: str) -> str:
        """Where a symbolic link leads, or "" where it cannot be read."""
        try:
            return str(self.path(name).readlink())
        except OSError:
            return ""

    def has(self, name: str) -> bool:
        """Whether a path is there and visible."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def install_command(self, package: str) -> str:
        """How the distribution installs ``bcc`` or the C library's ``debug`` data; "" where that is not known."""
        release = self.text("/etc/os-release")
        identities = re.findall(r"^ID(?:_LIKE)?=[\"']?([^\"'\n]*)", release, re.MULTILINE)
        for identity in " ".join(identities).split():
            if identity in _PACKAGES:
                install, bcc, debug = _PACKAGES[identity]
                name = bcc if package == "bcc" else debug
                return f"sudo {install} {name}" if name else ""
        return ""

    def container(self) -> str:
        """What shows that this is a container, or "" where nothing does."""
        for mark in ("/.dockerenv", "/run/.containerenv", "/run/systemd/container"):
            if self.has(mark):
                return mark
        cgroup = self.text("/proc/1/cgroup")
        if match := re.search(r"docker|kubepods|containerd|libpod|lxc", cgroup):
            return f"/proc/1/cgroup names {match[0]}"
        return ""

    def hypervisor(self) -> str:
        """What shows that this is a virtual machine, or "" where nothing does (which proves nothing)."""
        if re.search(r"^flags\s*:.*\bhypervisor\b", self.text("/proc/cpuinfo"), re.MULTILINE):
            return "the CPU's hypervisor flag"
        if kind := self.text("/sys/hypervisor/type"):
            return kind
        if self.has("/proc/device-tree/hypervisor"):
            return "the device tree"
        vendor = self.text("/sys/class/dmi/id/sys_vendor")
        product = self.text("/sys/class/dmi/id/product_name")
        # A cloud's bare-metal instances carry its vendor name, too, and say so in the product name.
        if re.search(r"QEMU|KVM|VMware|Xen|innotek|Parallels|Virtual|Amazon EC2|Google", f"{vendor} {product}"):
            return "" if "metal" in product else f"{vendor} {product}".strip()
        return ""
