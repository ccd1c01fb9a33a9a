"""What this process may do, by its capabilities. Apart from `host`, because a recording asks this before all else."""

import re
from pathlib import Path

# Bits of the capability sets in /proc/PID/status (include/uapi/linux/capability.h).
CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYSLOG, CAP_PERFMON, CAP_BPF = 14, 21, 34, 38, 39
# What /proc/PID/ns/user shows of who is in none but the first (include/linux/proc_ns.h: PROC_USER_INIT_INO).
_FIRST_USER_NAMESPACE = "user:[4026531837]"


def capabilities_that_count(status: str, user_namespace: str, kind: str = "CapEff") -> int | None:
    """A process's capability bits as perf, BPF and /proc/kallsyms see them; None if /proc hides them.

    All three ask for capabilities in the first user namespace (kernel/capability.c::capable): root of another, as of
    a container of an ordinary user, has none there, whatever its status says.

    Args:
        status: its /proc/PID/status.
        user_namespace: where its /proc/PID/ns/user leads; "" if that is not to be seen.
        kind: the set: ``CapEff`` is in effect, ``CapBnd`` could be had.
    """
    match = re.search(rf"^{kind}:\s*([0-9a-f]{{1,16}})$", status, re.MULTILINE)
    if match is None:
        return None
    return 0 if is_other_namespace(user_namespace) else int(match[1], 16)


def is_other_namespace(user_namespace: str) -> bool:
    """Whether that is a user namespace below the first; the argument is as above."""
    return user_namespace not in ("", _FIRST_USER_NAMESPACE)


def own_user_namespace() -> str:
    """Where /proc/self/ns/user leads; "" if that is not to be seen."""
    try:
        return str(Path("/proc/self/ns/user").readlink())
    except OSError:
        return ""


def effective_capabilities() -> int:
    """This process's effective capability bits, as far as they count."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return capabilities_that_count(status, own_user_namespace()) or 0


def may_load_bpf() -> bool:
    """Whether the kernel lets this process load perf-event programs."""
    capabilities = effective_capabilities()
    return bool(capabilities >> CAP_SYS_ADMIN & 1 or (capabilities >> CAP_BPF & 1 and capabilities >> CAP_PERFMON & 1))


def why_no_bpf() -> str:
    """Why not, if it does not."""
    needed = "loading BPF programs needs root, or CAP_BPF and CAP_PERFMON"
    return f"{needed}, outside this user namespace" if is_other_namespace(own_user_namespace()) else needed


def is_privileged_for_perf() -> bool:
    """Whether perf_event_paranoid does not bind this process."""
    capabilities = effective_capabilities()
    return bool(capabilities >> CAP_SYS_ADMIN & 1 or capabilities >> CAP_PERFMON & 1)
