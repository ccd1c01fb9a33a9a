"""What this process may do, by its capabilities. Apart from `host`, because a recording asks this before all else."""

import os
import re
from pathlib import Path

# Bits of the capability sets in /proc/PID/status (include/uapi/linux/capability.h).
CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYSLOG, CAP_PERFMON, CAP_BPF = 14, 21, 34, 38, 39


def _status() -> str:
    try:
        return Path("/proc/self/status").read_text()
    except OSError:
        return ""


def effective_capabilities() -> int:
    """This process's effective capability bits."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", _status(), re.MULTILINE)
    return int(match[1], 16) if match else 0


def may_load_bpf() -> bool:
    """Whether the kernel lets this process load perf-event programs."""
    capabilities = effective_capabilities()
    return bool(capabilities >> CAP_SYS_ADMIN & 1 or (capabilities >> CAP_BPF & 1 and capabilities >> CAP_PERFMON & 1))


def is_privileged_for_perf() -> bool:
    """Whether perf_event_paranoid does not bind this process."""
    capabilities = effective_capabilities()
    return bool(capabilities >> CAP_SYS_ADMIN & 1 or capabilities >> CAP_PERFMON & 1 or os.geteuid() == 0)
