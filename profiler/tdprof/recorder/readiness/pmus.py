"""Checks of the performance monitoring units: the cores' own, how many counters run together, SPE, the others."""

import os
from collections.abc import Callable

from tdprof.errors import TdprofError
from tdprof.recorder.events import core_pmus, parse_event
from tdprof.recorder.host import has_pmu_nmi
from tdprof.recorder.pmu import free_counters, probe_counters, read_core_pmu
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.values import dataclass

PSEUDO_NMI = "irqchip.gicv3_pseudo_nmi=1"
SYSFS_PMUS = "/sys/bus/event_source/devices"


@dataclass(frozen=True, slots=True)
class LargestGroup:
    """How many events of a PMU count at the same time.

    Attributes:
        together: the largest group that ran; None if that could not be found out.
        why: what stood in the way, if None.
    """

    together: int | None
    why: str = ""


def count_together(machine: Machine, pmu: str) -> LargestGroup:
    """Try it out as ``record`` and ``stat`` do, with what other users leave free at this moment."""
    folder = machine.path(SYSFS_PMUS)
    if not machine.names(f"{SYSFS_PMUS}/{pmu}/events"):
        return LargestGroup(None, "it names no events")
    try:
        core = read_core_pmu(pmu, folder)
        if core.cpus and not core.cpus & os.sched_getaffinity(0):
            return LargestGroup(None, "none of its CPUs is ours to use")
        if pmu.startswith("arm"):
            counters = probe_counters(core)
        else:
            instructions, cycles = (parse_event(f"{pmu}/{name}/", folder) for name in ("instructions", "cpu-cycles"))
            counters = free_counters(instructions, cycles, core.cpus)
    except ValueError as error:
        return LargestGroup(None, f"its sysfs files cannot be read: {error}")
    except TdprofError as error:
        return LargestGroup(None, error.message)
    except OSError as error:
        return LargestGroup(None, error.strerror or "")
    return LargestGroup(counters.programmable + counters.has_cycle_counter if counters else 0)


def check_core_pmus(machine: Machine, count: Callable[[Machine, str], LargestGroup]) -> list[Check]:
    """One check for each PMU of the cores, or one that says there is none."""
    pmus = core_pmus(machine.path(SYSFS_PMUS))
    if pmus:
        return [_check_core_pmu(machine, pmu, count(machine, pmu)) for pmu in pmus]
    cost = "no cycles, no instructions, no Topdown: cpu-clock is sampled instead"
    if not machine.names(SYSFS_PMUS):
        return [Check("pmu", CheckStatus.UNKNOWN, f"{SYSFS_PMUS} is not visible here", cost)]
    if guest := machine.hypervisor():
        return [
            Check(
                "pmu",
                CheckStatus.WARN,
                f"the CPU cores show no PMU; this is a virtual machine ({guest})",
                cost,
                "let the hypervisor pass the PMU through (QEMU: -cpu host,pmu=on), or use a bare-metal machine",
            )
        ]
    return [Check("pmu", CheckStatus.WARN, "the CPU cores show no PMU", cost, "sudo dmesg | grep -iE 'pmu|perf'")]


def _check_core_pmu(machine: Machine, pmu: str, counters: LargestGroup) -> Check:
    name = f"pmu:{pmu}"
    cpus = machine.text(f"{SYSFS_PMUS}/{pmu}/cpus")
    detail = f"{len(machine.names(f'{SYSFS_PMUS}/{pmu}/events'))} named events"
    detail += f" on CPUs {cpus}; " if cpus else "; "
    if counters.together is None:
        detail += f"how many counters run together could not be tried: {counters.why}"
        return Check(name, CheckStatus.UNKNOWN, detail)
    if counters.together == 0:
        cost = "no event of it counts now: something holds every counter"
        return Check(name, CheckStatus.WARN, f"{detail}no counter is free", cost, "end other profilers, then try again")
    detail += f"{counters.together} counters run together"
    if machine.number("/proc/sys/kernel/nmi_watchdog") == 1:
        # It takes one where it is built on perf; other hard-lockup detectors answer to the same setting.
        detail += "; the NMI watchdog may hold one more (sudo sysctl kernel.nmi_watchdog=0)"
    return Check(name, CheckStatus.OK, detail)


def check_pmu_interrupts(machine: Machine, architecture: str) -> list[Check]:
    """Whether the PMU samples kernel code that masks interrupts; nothing where there is no question of it."""
    if architecture != "aarch64" or not core_pmus(machine.path(SYSFS_PMUS)):
        return []
    name = "pmu-interrupts"
    command_line = machine.text("/proc/cmdline")
    if has_pmu_nmi(architecture, command_line) is False:
        return [
            Check(
                name,
                CheckStatus.WARN,
                "no pseudo-NMI",
                "kernel code that masks interrupts is charged to where it unmasks them; SPE does not have that bias",
                f"boot with {PSEUDO_NMI}",
            )
        ]
    asked = f"{PSEUDO_NMI} was asked for; whether it is on stands in the kernel's log (using NMIs)"
    return [Check(name, CheckStatus.UNKNOWN, asked if command_line else "/proc/cmdline is not visible here")]


def check_other_pmus(machine: Machine) -> Check:
    """What else is registered: system PMUs, breakpoints, tracepoints."""
    pmus = machine.names(SYSFS_PMUS)
    if not pmus:
        return Check("other-pmus", CheckStatus.UNKNOWN, f"{SYSFS_PMUS} is not visible here")
    core = core_pmus(machine.path(SYSFS_PMUS))
    others = [name for name in pmus if name not in core and not name.startswith("arm_spe_")]
    return Check("other-pmus", CheckStatus.OK, ", ".join(others) or "none")


def has_spe(machine: Machine) -> bool:
    """Whether the kernel offers SPE."""
    return any(name.startswith("arm_spe_") for name in machine.names(SYSFS_PMUS))


def check_spe(machine: Machine, architecture: str) -> Check:
    """Arm's Statistical Profiling Extension, and if it is missing the link that is."""
    found = [name for name in machine.names(SYSFS_PMUS) if name.startswith("arm_spe_")]
    if found:
        described = []
        for pmu in found:
            cpus = machine.text(f"{SYSFS_PMUS}/{pmu}/cpumask") or "unknown"
            interval = machine.number(f"{SYSFS_PMUS}/{pmu}/caps/min_interval")
            described.append(f"{pmu} on CPUs {cpus}" + (f", minimum interval {interval}" if interval else ""))
        return Check("spe", CheckStatus.OK, "; ".join(described))
    cost = "no exact addresses and latencies of loads, stores and branches"
    if architecture != "aarch64":
        return Check("spe", CheckStatus.WARN, f"SPE is a part of Arm cores; this is {architecture}", cost)
    detail, fix = _why_no_spe(machine)
    return Check("spe", CheckStatus.WARN, detail, cost, fix)


def _why_no_spe(machine: Machine) -> tuple[str, str]:
    """The first missing link from firmware to driver, and what mends it (drivers/perf/arm_spe_pmu.c)."""
    # The kernel makes this platform device when ACPI's MADT or the device tree describes SPE's interrupt.
    devices = machine.names("/sys/bus/platform/devices")
    is_described = any(name.startswith(("arm,spe-v1", "spe-pmu", "spe_pmu")) for name in devices)
    if not is_described:
        if guest := machine.hypervisor():
            return f"a virtual machine ({guest}): hypervisors do not pass SPE through", "use a bare-metal machine"
        return (
            "the firmware describes no SPE interrupt: the cores have none, or it is switched off in the firmware",
            "enable SPE in the firmware's set-up, or update the firmware",
        )
    if not machine.has("/sys/bus/platform/drivers/arm_spe_pmu"):
        release = machine.text("/proc/sys/kernel/osrelease")
        if "arm_spe_pmu.ko" in machine.text(f"/lib/modules/{release}/modules.dep"):
            return "the driver arm_spe_pmu is not loaded", "sudo modprobe arm_spe_pmu"
        extra = "sudo apt-get install linux-modules-extra-$(uname -r) && sudo modprobe arm_spe_pmu"
        is_ubuntu = "ID=ubuntu" in machine.text("/etc/os-release").splitlines()
        return (
            "this kernel has no driver arm_spe_pmu (CONFIG_ARM_SPE_PMU)",
            extra if is_ubuntu else "use a kernel with CONFIG_ARM_SPE_PMU",
        )
    if "PTI" in machine.text("/sys/devices/system/cpu/vulnerabilities/meltdown"):
        return (
            "the driver refuses while the kernel unmaps itself in user space (KPTI)",
            "add kpti=off to the kernel's command line and reboot",
        )
    return "the driver is loaded and found no usable SPE", "sudo dmesg | grep arm_spe"
