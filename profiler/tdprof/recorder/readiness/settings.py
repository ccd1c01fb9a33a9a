"""Checks of the kernel, its settings, and what this process may do."""

import re
import resource
from itertools import islice

from tdprof.recorder.capabilities import (
    CAP_BPF,
    CAP_IPC_LOCK,
    CAP_PERFMON,
    CAP_SYS_ADMIN,
    CAP_SYSLOG,
    capabilities_that_count,
    is_other_namespace,
)
from tdprof.recorder.locked_memory import MLOCK_KB, RingSizes, budget_bytes, fit
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine

DEFAULT_FREQUENCY_HZ = 999
# Gives a command what BPF and perf need and nothing else of root's power, without leaving the user.
AS_USER_WITH_CAPABILITIES = (
    "sudo setpriv --reuid=$(id -u) --regid=$(id -g) --init-groups --inh-caps=+bpf,+perfmon,+syslog"
    " --ambient-caps=+bpf,+perfmon,+syslog $(command -v tdprof) record -- CMD"
)
_NEEDED = {CAP_BPF: "CAP_BPF", CAP_PERFMON: "CAP_PERFMON"}


def check_kernel(machine: Machine, architecture: str) -> Check:
    """The kernel and whether this architecture is one tdprof knows the system calls of."""
    release = machine.text("/proc/sys/kernel/osrelease") or "release unknown"
    detail = f"Linux {release} on {architecture}"
    if architecture not in ("x86_64", "aarch64"):
        return Check("kernel", CheckStatus.WARN, detail, "tdprof is made and tested for x86-64 and aarch64 only")
    return Check("kernel", CheckStatus.OK, detail)


def capabilities_of(machine: Machine, kind: str = "CapEff") -> int | None:
    """This process's effective capability bits (or ``CapBnd``, the ones it could get); None if /proc hides them."""
    return capabilities_that_count(machine.text("/proc/self/status"), _user_namespace(machine), kind)


def _user_namespace(machine: Machine) -> str:
    return machine.link("/proc/self/ns/user")


def _has(capabilities: int | None, *wanted: int) -> bool:
    """Whether all wanted ones are there; CAP_SYS_ADMIN stands for those that were once a part of it."""
    if capabilities is None:
        return False
    return bool(capabilities >> CAP_SYS_ADMIN & 1) or all(capabilities >> bit & 1 for bit in wanted)


def check_capabilities(machine: Machine) -> Check:
    """CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN: what loading BPF programs takes."""
    capabilities = capabilities_of(machine)
    if capabilities is None:
        return Check("capabilities", CheckStatus.UNKNOWN, "/proc/self/status does not show them")
    if _has(capabilities, *_NEEDED):
        held = "CAP_SYS_ADMIN" if capabilities >> CAP_SYS_ADMIN & 1 else "CAP_BPF and CAP_PERFMON"
        return Check("capabilities", CheckStatus.OK, held)
    missing = " and ".join(name for bit, name in _NEEDED.items() if not capabilities >> bit & 1)
    where = ", for those of a user namespace do not count" if is_other_namespace(_user_namespace(machine)) else ""
    return Check(
        "capabilities",
        CheckStatus.WARN,
        f"without {missing}{where}",
        "no BPF: samples go through ring buffers; other users' processes and -a only as far as"
        " kernel.perf_event_paranoid allows",
        AS_USER_WITH_CAPABILITIES,
    )


def check_paranoid(machine: Machine, *, can_record: bool) -> Check:
    """kernel.perf_event_paranoid: what a process without CAP_PERFMON may record.

    Args:
        machine: where the setting stands.
        can_record: a recording was tried and worked, whatever the setting says.
    """
    name, value = "perf-event-paranoid", machine.number("/proc/sys/kernel/perf_event_paranoid")
    if value is None:
        if machine.names("/proc/sys/kernel") and not can_record:
            return Check(
                name, CheckStatus.FAIL, "absent: the kernel was built without perf events", "nothing is recorded"
            )
        return Check(name, CheckStatus.UNKNOWN, "/proc/sys is not visible here")
    fix = "sudo sysctl kernel.perf_event_paranoid=0"
    if value < 0:
        return Check(name, CheckStatus.OK, f"{value}")
    if _has(capabilities_of(machine), CAP_PERFMON):
        if value > 2 and not can_record and not _has(capabilities_of(machine), CAP_SYS_ADMIN):
            detail = f"{value}: CAP_PERFMON may not be enough, Debian's kernels then ask for CAP_SYS_ADMIN"
            return Check(
                name, CheckStatus.FAIL, detail, "nothing is recorded", "sudo sysctl kernel.perf_event_paranoid=2"
            )
        return Check(name, CheckStatus.OK, f"{value}; not binding for this process")
    if value > 2 and not can_record:  # a level of Debian's and Ubuntu's kernels; to others it is no more than 2
        return Check(name, CheckStatus.FAIL, f"{value}: ordinary users may record nothing", "nothing is recorded", fix)
    if value >= 2:
        return Check(
            name, CheckStatus.WARN, f"{value}: your own programs, user space only", "no kernel functions, no -a", fix
        )
    if value == 1:
        return Check(name, CheckStatus.WARN, f"{value}: your own programs with their kernel part", "no -a", fix)
    return Check(name, CheckStatus.OK, f"{value}: your own programs and the whole system")


def check_sampling_rate(machine: Machine) -> Check:
    """kernel.perf_event_max_sample_rate, which the kernel itself lowers when interrupts take too long."""
    name, limit = "sampling-rate", machine.number("/proc/sys/kernel/perf_event_max_sample_rate")
    if limit is None:
        return Check(name, CheckStatus.UNKNOWN, "kernel.perf_event_max_sample_rate is not visible here")
    detail = f"up to {limit} samples per second and CPU"
    if limit < DEFAULT_FREQUENCY_HZ:
        cost = f"-F above {limit}, and so the default of {DEFAULT_FREQUENCY_HZ}, becomes {limit}"
        return Check(name, CheckStatus.WARN, detail, cost, "sudo sysctl kernel.perf_event_max_sample_rate=100000")
    return Check(name, CheckStatus.OK, detail)


def check_locked_memory(machine: Machine, cpus: int, memlock_bytes: int, *, has_spe: bool) -> Check:
    """Whether the ring buffers get their full size.

    Args:
        machine: where the settings stand.
        cpus: CPUs that are up; each has its own buffers.
        memlock_bytes: the soft RLIMIT_MEMLOCK; resource.RLIM_INFINITY for none.
        has_spe: there is SPE, which takes larger ones.
    """
    name, kilobytes = "locked-memory", machine.number(MLOCK_KB)
    if kilobytes is None:
        return Check(name, CheckStatus.UNKNOWN, "kernel.perf_event_mlock_kb is not visible here")
    limit = "unlimited" if memlock_bytes == resource.RLIM_INFINITY else f"{memlock_bytes >> 10} kB"
    detail = f"{kilobytes} kB a CPU for ring buffers, then ulimit -l: {limit}"
    paranoid = machine.number("/proc/sys/kernel/perf_event_paranoid")
    is_free = _has(capabilities_of(machine), CAP_IPC_LOCK) or (paranoid is not None and paranoid < 0)
    budget = budget_bytes(cpus, kilobytes, memlock_bytes, is_free=is_free)
    short = {
        what: wanted
        for what, wanted in (("", RingSizes.wanted(has_spe=False)), (" of --spe", RingSizes.wanted(has_spe=True)))
        if (has_spe or not what) and fit(wanted, cpus, budget) != wanted
    }
    if not short:
        return Check(name, CheckStatus.OK, detail)
    sizes = (
        f"{fit(wanted, cpus, budget).locked_bytes >> 10} kB a CPU{what} instead of {wanted.locked_bytes >> 10}"
        for what, wanted in short.items()
    )
    cost = f"smaller ring buffers ({', '.join(sizes)}): records are lost sooner when the machine is busy"
    wanted_kb = max(wanted.locked_bytes for wanted in short.values()) >> 10
    return Check(name, CheckStatus.WARN, detail, cost, f"sudo sysctl kernel.perf_event_mlock_kb={wanted_kb}")


def memlock_limit_bytes() -> int:
    """This process's soft RLIMIT_MEMLOCK."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


def check_kernel_symbols(machine: Machine) -> Check:
    """Whether /proc/kallsyms shows this process real addresses (kptr_restrict, and perf_event_paranoid with it)."""
    name = "kernel-symbols"
    restrict = machine.number("/proc/sys/kernel/kptr_restrict")
    setting = f"kernel.kptr_restrict is {restrict}" if restrict is not None else "kernel.kptr_restrict is not visible"
    try:
        with machine.path("/proc/kallsyms").open(errors="replace") as file:
            # The first symbols of x86-64 are offsets into per-CPU data, 0 even for root; code comes within these.
            is_shown = any(re.match(r"0*[1-9a-f][0-9a-f]* [tT] ", line) for line in islice(file, 5000))
    except OSError as error:
        why = f"/proc/kallsyms cannot be read: {error.strerror}; {setting}"
        return Check(name, CheckStatus.WARN, why, "kernel functions have no names")
    if is_shown:
        return Check(name, CheckStatus.OK, f"readable; {setting}")
    fix = "sudo sysctl kernel.kptr_restrict=0"
    paranoid = machine.number("/proc/sys/kernel/perf_event_paranoid")
    if not _has(capabilities_of(machine), CAP_SYSLOG) and (paranoid is None or paranoid > 1):
        fix += " kernel.perf_event_paranoid=1"  # kernel/kallsyms.c::kallsyms_show_value asks for both
    return Check(name, CheckStatus.WARN, f"addresses are hidden; {setting}", "kernel functions have no names", fix)


def check_btf(machine: Machine) -> Check:
    """The kernel's type data: where its structures have a thread's state, and its control groups of version 1."""
    if machine.has("/sys/kernel/btf/vmlinux"):
        return Check("btf", CheckStatus.OK, "/sys/kernel/btf/vmlinux")
    cost = "no --off-cpu, no control groups of version 1; the rest of the BPF programs does without it"
    if not machine.names("/sys/kernel"):
        return Check("btf", CheckStatus.UNKNOWN, "/sys/kernel is not visible here", cost)
    return Check("btf", CheckStatus.WARN, "absent", cost, "a kernel with CONFIG_DEBUG_INFO_BTF")


def check_container(machine: Machine, *, is_hindered: bool) -> Check:
    """Whether a container or a seccomp filter stands between us and the kernel.

    Args:
        machine: where to look.
        is_hindered: a system call that this process should be allowed did not work.
    """
    mark = machine.container()
    match = re.search(r"^Seccomp:\s*(\d)$", machine.text("/proc/self/status"), re.MULTILINE)
    if not mark and match is None:
        return Check(
            "container", CheckStatus.UNKNOWN, "/proc/self/status does not tell of seccomp; no sign of a container"
        )
    filtered = match is not None and match[1] != "0"
    detail = f"in a container ({mark})" if mark else "no container"
    detail += ", with a seccomp filter" if filtered else ", no seccomp filter"
    bounds = capabilities_of(machine, "CapBnd")
    is_bounded = bounds is not None and not _has(bounds, *_NEEDED)
    if not ((is_hindered or is_bounded) and (mark or filtered)):
        return Check("container", CheckStatus.OK, detail)
    if mark:
        run = "sudo docker run --userns=host" if is_other_namespace(_user_namespace(machine)) else "docker run"
        return Check(
            "container",
            CheckStatus.WARN,
            detail,
            "it may hide system calls and capabilities; kernel settings are the host's, change them there",
            f"{run} --cap-add PERFMON --cap-add BPF --cap-add SYSLOG --security-opt seccomp=unconfined IMAGE",
        )
    cost = "it may hide perf_event_open and bpf"
    return Check("container", CheckStatus.WARN, detail, cost, "run tdprof outside the sandbox that set the filter")
