"""Facts about this machine, read from /proc and /sys."""

import ctypes
import errno
import mmap
import os
import re
from pathlib import Path

from tdprof.capture.manifest import Host

MAX_SAMPLE_RATE = "/proc/sys/kernel/perf_event_max_sample_rate"
KALLSYMS = Path("/proc/kallsyms")
_CPUS = Path("/sys/devices/system/cpu")
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO, include/linux/proc_ns.h: the same in every kernel


def read_text(path: str | Path) -> str:
    """A small system file's text without its line end, or "" where it does not exist or may not be read.

    Raises:
        OSError: we have too many files open to say.
    """
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return ""


def read_setting(path: str | Path) -> int | None:
    """A numeric system setting, or None where there is none."""
    text = read_text(path)
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def parse_cpu_list(text: str) -> list[int]:
    """``0-3,8`` to [0, 1, 2, 3, 8]; anything else to []."""
    cpus: list[int] = []
    for part in text.split(","):
        if match := re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()):
            cpus.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus


def online_cpus() -> list[int]:
    """Numbers of the CPUs that are up."""
    # Containers may hide /sys; a CPU that is left out would lose its samples without a trace.
    listed = re.findall(r"^cpu([0-9]+) ", read_text("/proc/stat"), re.MULTILINE)
    return parse_cpu_list(read_text(_CPUS / "online")) or [int(n) for n in listed] or sorted(os.sched_getaffinity(0))


def own_vdso() -> bytes:
    """This process's vDSO, which is every process's, an ELF file; empty where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[vdso]"):
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            return ctypes.string_at(start, end - start)
    return b""


def is_in_initial_pid_namespace(namespace: str | Path = "/proc/self/ns/pid") -> bool:
    """Whether the ids that the hardware sees, which are the initial namespace's, are those that we see.

    False where it cannot be told: what is not known to be right is not used.
    """
    try:
        return Path(namespace).stat().st_ino == _INITIAL_PID_NAMESPACE
    except OSError:
        return False


def midr_by_cpu() -> dict[str, str]:
    """MIDR_EL1 of each CPU in hex, by CPU number; empty where the kernel shows none (any machine but arm64)."""
    found = {}
    for path in sorted(_CPUS.glob("cpu[0-9]*/regs/identification/midr_el1")):
        if text := read_text(path):
            found[path.parts[-4].removeprefix("cpu")] = text
    return found


def cpu_model() -> str:
    """What the processor calls itself, or "" where /proc/cpuinfo does not say."""
    match = re.search(r"^model name\s*:\s*(.+)$", read_text("/proc/cpuinfo"), re.MULTILINE)
    return match[1] if match else ""


def perf_event_paranoid() -> int | None:
    """The setting that decides what an ordinary user may record; None where perf events are not built in."""
    return read_setting("/proc/sys/kernel/perf_event_paranoid")


def has_pmu_nmi(machine: str, command_line: str) -> bool | None:
    """Whether the core PMU's interrupts reach code that masks interrupts; None where that is not known.

    arm64 has that with pseudo-NMIs only, which are off unless asked for (arch/arm64/kernel/cpufeature.c,
    ``early_enable_pseudo_nmi``), and even then need a kernel and a GICv3 whose firmware allow them.

    Args:
        machine: as uname -m.
        command_line: the kernel's, of /proc/cmdline.
    """
    if machine == "x86_64":
        return True
    if machine != "aarch64" or not command_line:
        return None
    asked = re.findall(r"(?:^|\s)irqchip\.gicv3_pseudo_nmi=(\S+)", command_line)
    return None if asked and re.match(r"[1yYtT]|[oO][nN]", asked[-1]) else False


def describe_host() -> Host:
    """Everything a capture keeps about its machine."""
    return Host(
        hostname=os.uname().nodename,
        machine=os.uname().machine,
        kernel=os.uname().release,
        boot_id=read_text("/proc/sys/kernel/random/boot_id"),
        cpu_model=cpu_model(),
        cpus_online=len(online_cpus()),
        page_bytes=mmap.PAGESIZE,
        midr_el1=midr_by_cpu(),
        perf_event_paranoid=perf_event_paranoid(),
        kptr_restrict=read_setting("/proc/sys/kernel/kptr_restrict"),
        has_pmu_nmi=has_pmu_nmi(os.uname().machine, read_text("/proc/cmdline")),
    )
