"""tdprof doctor's checks, against made-up machines."""

import resource
from functools import partial
from pathlib import Path

import pytest

from tdprof.capture.manifest import Rung
from tdprof.linux.elf import open_elf
from tdprof.recorder.bpf.object_file import BpfObject, Compiler
from tdprof.recorder.readiness import pmus, settings, software
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.recorder.readiness.trial import Trial, check_bpf, check_recording, check_stacks

PARANOID = "proc/sys/kernel/perf_event_paranoid"
STATUS = "proc/self/status"
ROOT = "CapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\nSeccomp:\t0\n"
USER = "CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\nSeccomp:\t0\n"
BPF_AND_PERFMON = f"CapEff:\t{1 << 38 | 1 << 39:016x}\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put(machine: Machine, **files: str) -> None:
    """Write files; keys are not paths, so they come as one mapping through ``**{path: text}``."""
    for name, text in files.items():
        path = machine.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("value", "status", "can_record", "expected", "fix"),
    [
        ("-1", USER, True, CheckStatus.OK, ""),
        ("0", USER, True, CheckStatus.OK, ""),
        ("1", USER, True, CheckStatus.WARN, "sudo sysctl kernel.perf_event_paranoid=0"),
        ("2", USER, True, CheckStatus.WARN, "sudo sysctl kernel.perf_event_paranoid=0"),
        ("4", USER, False, CheckStatus.FAIL, "sudo sysctl kernel.perf_event_paranoid=0"),
        # A kernel without the distributions' level 3 treats it as 2: what was tried counts.
        ("3", USER, True, CheckStatus.WARN, "sudo sysctl kernel.perf_event_paranoid=0"),
        ("4", ROOT, True, CheckStatus.OK, ""),
        ("2", BPF_AND_PERFMON, True, CheckStatus.OK, ""),
        # Debian's kernels ask for CAP_SYS_ADMIN at their level 3, others for CAP_PERFMON: again, what was tried counts.
        ("3", BPF_AND_PERFMON, True, CheckStatus.OK, ""),
        ("3", BPF_AND_PERFMON, False, CheckStatus.FAIL, "sudo sysctl kernel.perf_event_paranoid=2"),
        ("3", ROOT, False, CheckStatus.OK, ""),
        ("much", USER, True, CheckStatus.UNKNOWN, ""),
        ("9" * 5000, USER, True, CheckStatus.UNKNOWN, ""),
    ],
)
def test_paranoid(machine: Machine, value: str, status: str, can_record: bool, expected: CheckStatus, fix: str) -> None:
    put(machine, **{PARANOID: value, STATUS: status})
    check = settings.check_paranoid(machine, can_record=can_record)
    assert (check.status, check.fix) == (expected, fix)
    assert bool(check.cost) == (expected in (CheckStatus.WARN, CheckStatus.FAIL))


def test_kernel_without_perf_events_differs_from_hidden_proc(machine: Machine) -> None:
    assert settings.check_paranoid(machine, can_record=False).status is CheckStatus.UNKNOWN
    put(machine, **{"proc/sys/kernel/osrelease": "6.1.0"})
    assert settings.check_paranoid(machine, can_record=False).status is CheckStatus.FAIL


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (ROOT, (CheckStatus.OK, "CAP_SYS_ADMIN")),
        (BPF_AND_PERFMON, (CheckStatus.OK, "CAP_BPF and CAP_PERFMON")),
        (f"CapEff:\t{1 << 39:016x}\n", (CheckStatus.WARN, "without CAP_PERFMON")),
        (USER, (CheckStatus.WARN, "without CAP_BPF and CAP_PERFMON")),
        ("", (CheckStatus.UNKNOWN, "/proc/self/status does not show them")),
    ],
)
def test_capabilities(machine: Machine, status: str, expected: tuple[CheckStatus, str]) -> None:
    put(machine, **{STATUS: status})
    check = settings.check_capabilities(machine)
    assert (check.status, check.detail) == expected


def test_root_of_a_user_namespace_has_no_capabilities_that_count(machine: Machine) -> None:
    put(machine, **{STATUS: ROOT, PARANOID: "2", "run/.containerenv": "", "proc/self/ns/mnt": ""})
    link = machine.path("/proc/self/ns/user")
    link.symlink_to("user:[4026531837]")  # the first one's number in every kernel
    assert settings.check_capabilities(machine).status is CheckStatus.OK
    link.unlink()
    link.symlink_to("user:[4026532262]")
    check = settings.check_capabilities(machine)
    assert (check.status, check.detail) == (
        CheckStatus.WARN,
        "without CAP_BPF and CAP_PERFMON, for those of a user namespace do not count",
    )
    assert settings.check_paranoid(machine, can_record=True).status is CheckStatus.WARN
    assert settings.check_container(machine, is_hindered=False).fix.startswith("sudo docker run --userns=host ")


def test_sampling_rate_below_the_default_costs_the_default(machine: Machine) -> None:
    put(machine, **{"proc/sys/kernel/perf_event_max_sample_rate": "500\n"})
    check = settings.check_sampling_rate(machine)
    assert check.status is CheckStatus.WARN
    assert "500" in check.cost
    assert check.fix.startswith("sudo sysctl kernel.perf_event_max_sample_rate=")


def test_locked_memory_counts_what_the_kernel_counts(machine: Machine) -> None:
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": "516", PARANOID: "2", STATUS: USER})
    page_kb = resource.getpagesize() >> 10
    if page_kb == 4:  # the kernel's default is made for this page size
        assert settings.check_locked_memory(machine, 64, 0, has_spe=False).status is CheckStatus.OK
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": "100"})
    check = settings.check_locked_memory(machine, 64, 1 << 20, has_spe=False)
    assert check.status is CheckStatus.WARN
    # The fix must be enough by the check's own arithmetic, even with nothing left of RLIMIT_MEMLOCK.
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": check.fix.rpartition("=")[2]})
    assert settings.check_locked_memory(machine, 64, 0, has_spe=False).status is CheckStatus.OK
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": "0"})
    assert settings.check_locked_memory(machine, 64, resource.RLIM_INFINITY, has_spe=False).status is CheckStatus.OK
    # What is enough without SPE is not with it.
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": check.fix.rpartition("=")[2]})
    with_spe = settings.check_locked_memory(machine, 64, 0, has_spe=True)
    assert with_spe.status is CheckStatus.WARN
    put(machine, **{"proc/sys/kernel/perf_event_mlock_kb": with_spe.fix.rpartition("=")[2]})
    assert settings.check_locked_memory(machine, 64, 0, has_spe=True).status is CheckStatus.OK
    put(machine, **{PARANOID: "-1", "proc/sys/kernel/perf_event_mlock_kb": "0"})
    assert settings.check_locked_memory(machine, 64, 0, has_spe=False).status is CheckStatus.OK


@pytest.mark.parametrize(
    ("kallsyms", "status", "paranoid", "expected", "fix"),
    [
        ("ffffffff81000000 T _stext\n", ROOT, "2", CheckStatus.OK, ""),
        # Per-CPU offsets are not addresses of code.
        (
            "0000000000000000 T _stext\n0000000000001000 A per_cpu\n",
            USER,
            "2",
            CheckStatus.WARN,
            "sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1",
        ),
        ("0000000000000000 T _stext\n", USER, "1", CheckStatus.WARN, "sudo sysctl kernel.kptr_restrict=0"),
        ("0000000000000000 T _stext\n", ROOT, "2", CheckStatus.WARN, "sudo sysctl kernel.kptr_restrict=0"),
        ("\x00\xffnonsense", USER, "0", CheckStatus.WARN, "sudo sysctl kernel.kptr_restrict=0"),
    ],
)
def test_kernel_symbols(
    machine: Machine, kallsyms: str, status: str, paranoid: str, expected: CheckStatus, fix: str
) -> None:
    put(machine, **{"proc/kallsyms": kallsyms, STATUS: status, PARANOID: paranoid})
    check = settings.check_kernel_symbols(machine)
    assert (check.status, check.fix) == (expected, fix)


def test_type_data_costs_what_reads_kernel_structures(machine: Machine) -> None:
    assert settings.check_btf(machine).status is CheckStatus.UNKNOWN
    put(machine, **{"sys/kernel/notes": ""})
    absent = settings.check_btf(machine)
    assert absent.status is CheckStatus.WARN
    assert "--off-cpu" in absent.cost
    assert absent.fix
    put(machine, **{"sys/kernel/btf/vmlinux": ""})
    assert settings.check_btf(machine) == Check("btf", CheckStatus.OK, "/sys/kernel/btf/vmlinux")


def test_container_matters_only_where_it_hinders(machine: Machine) -> None:
    put(machine, **{".dockerenv": "", STATUS: ROOT})
    assert settings.check_container(machine, is_hindered=False).status is CheckStatus.OK
    assert "docker run" in settings.check_container(machine, is_hindered=True).fix
    bounded = ROOT.replace("CapBnd:\t000001ffffffffff", "CapBnd:\t00000000a80425fb").replace(
        "Seccomp:\t0", "Seccomp:\t2"
    )
    put(machine, **{STATUS: bounded})
    check = settings.check_container(machine, is_hindered=False)
    assert check.status is CheckStatus.WARN
    assert "with a seccomp filter" in check.detail


def test_seccomp_filter_outside_a_container(machine: Machine) -> None:
    put(machine, **{STATUS: ROOT.replace("Seccomp:\t0", "Seccomp:\t2")})
    assert settings.check_container(machine, is_hindered=False).status is CheckStatus.OK
    check = settings.check_container(machine, is_hindered=True)
    assert check.status is CheckStatus.WARN
    assert "docker" not in check.fix


@pytest.mark.parametrize("cgroup", ["0::/kubepods.slice/pod1\n", "12:cpu:/docker/0123\n", "0::/lxc/box\n"])
def test_containers_are_known_by_their_control_group(machine: Machine, cgroup: str) -> None:
    put(machine, **{"proc/1/cgroup": cgroup})
    assert machine.container()


def arm_pmu(machine: Machine, *events: str, cpus: str = "0-3") -> None:
    folder = "sys/bus/event_source/devices/armv8_pmuv3_0"
    put(machine, **{f"{folder}/type": "8", f"{folder}/cpus": cpus, f"{folder}/format/event": "config:0-15"})
    put(machine, **{f"{folder}/events/{name}": f"event={code:#06x}" for code, name in enumerate(events, 0x8)})


def test_core_pmu_tells_how_many_counters_run_together(machine: Machine) -> None:
    arm_pmu(machine, "cpu_cycles", "inst_retired")
    [check] = pmus.check_core_pmus(machine, lambda _machine, _pmu: pmus.LargestGroup(7))
    assert (check.name, check.status) == ("pmu:armv8_pmuv3_0", CheckStatus.OK)
    assert check.detail == "2 named events on CPUs 0-3; 7 counters run together"
    [check] = pmus.check_core_pmus(machine, lambda _machine, _pmu: pmus.LargestGroup(None, "Permission denied"))
    assert check.status is CheckStatus.UNKNOWN
    assert "0 counters" not in check.detail
    [check] = pmus.check_core_pmus(machine, lambda _machine, _pmu: pmus.LargestGroup(0))
    assert check.status is CheckStatus.WARN
    put(machine, **{"proc/sys/kernel/nmi_watchdog": "1"})
    [check] = pmus.check_core_pmus(machine, lambda _machine, _pmu: pmus.LargestGroup(6))
    assert check.status is CheckStatus.OK
    assert "6 counters run together; the NMI watchdog may hold one more" in check.detail


def test_no_core_pmu_is_not_zero_counters(machine: Machine) -> None:
    [check] = pmus.check_core_pmus(machine, pmus.count_together)
    assert (check.name, check.status) == ("pmu", CheckStatus.UNKNOWN)
    put(machine, **{"sys/bus/event_source/devices/software/type": "1"})
    [check] = pmus.check_core_pmus(machine, pmus.count_together)
    assert check.status is CheckStatus.WARN
    put(machine, **{"proc/cpuinfo": "flags\t\t: fpu vme hypervisor lm\n"})
    [check] = pmus.check_core_pmus(machine, pmus.count_together)
    assert "virtual machine" in check.detail


def test_counting_on_a_pmu_that_cannot_be_used_is_unknown(machine: Machine) -> None:
    arm_pmu(machine)
    assert pmus.count_together(machine, "armv8_pmuv3_0").together is None
    arm_pmu(machine, "cpu_cycles", cpus="4000-4001")
    assert pmus.count_together(machine, "armv8_pmuv3_0") == pmus.LargestGroup(None, "none of its CPUs is ours to use")
    put(machine, **{"sys/bus/event_source/devices/armv8_pmuv3_0/type": "nonsense"})
    assert "cannot be read" in pmus.count_together(machine, "armv8_pmuv3_0").why


DRIVER = "sys/bus/platform/drivers/arm_spe_pmu/bind"
DEVICE = "sys/bus/platform/devices/arm,spe-v1/uevent"


@pytest.mark.parametrize(
    ("files", "detail", "fix"),
    [
        ({}, "firmware describes no SPE", "firmware"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, "virtual machine (QEMU)", "bare-metal"),
        (
            {"sys/class/dmi/id/sys_vendor": "Amazon EC2", "sys/class/dmi/id/product_name": "c7g.metal"},
            "firmware describes no SPE",
            "firmware",
        ),
        ({DEVICE: ""}, "no driver arm_spe_pmu", "CONFIG_ARM_SPE_PMU"),
        ({DEVICE: "", "etc/os-release": "ID=ubuntu\nID_LIKE=debian"}, "no driver", "linux-modules-extra"),
        (
            {
                DEVICE: "",
                "proc/sys/kernel/osrelease": "6.1.0\n",
                "lib/modules/6.1.0/modules.dep": "kernel/drivers/perf/arm_spe_pmu.ko.xz:\n",
            },
            "not loaded",
            "sudo modprobe arm_spe_pmu",
        ),
        (
            {DEVICE: "", DRIVER: "", "sys/devices/system/cpu/vulnerabilities/meltdown": "Mitigation: PTI\n"},
            "KPTI",
            "kpti=off",
        ),
        ({DEVICE: "", DRIVER: ""}, "no usable SPE", "dmesg"),
    ],
)
def test_why_spe_is_missing(machine: Machine, files: dict[str, str], detail: str, fix: str) -> None:
    put(machine, **files)
    check = pmus.check_spe(machine, "aarch64")
    assert check.status is CheckStatus.WARN
    assert detail in check.detail
    assert fix in check.fix
    assert check.cost


def test_spe_is_described(machine: Machine) -> None:
    folder = "sys/bus/event_source/devices/arm_spe_0"
    put(machine, **{f"{folder}/type": "9", f"{folder}/cpumask": "0-63", f"{folder}/caps/min_interval": "1024"})
    check = pmus.check_spe(machine, "aarch64")
    assert (check.status, check.detail) == (CheckStatus.OK, "arm_spe_0 on CPUs 0-63, minimum interval 1024")
    assert "arm_spe_0" not in pmus.check_other_pmus(machine).detail


@pytest.mark.parametrize(
    ("release", "fix"),
    [
        ("ID=debian\n", "sudo apt-get install python3-bpfcc"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install python3-bcc"),
        ("ID=plan9\n", "install your distribution's Python package of bcc"),
    ],
)
def test_missing_bcc_names_the_distributions_package(machine: Machine, tmp_path: Path, release: str, fix: str) -> None:
    put(machine, **{"etc/os-release": release})
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'bcc'\" >&2; exit 1\n")
    without.chmod(0o755)
    check = software.check_bcc(machine, [str(without), str(tmp_path / "nowhere")], None)
    assert (check.status, check.fix) == (CheckStatus.WARN, fix)
    assert "No module named 'bcc'" in check.detail


def test_bcc_of_the_second_interpreter_counts(machine: Machine, tmp_path: Path) -> None:
    with_bcc = tmp_path / "python"
    with_bcc.write_text("#!/bin/sh\necho 0.29.1\n")
    with_bcc.chmod(0o755)
    check = software.check_bcc(machine, ["/bin/false", str(with_bcc)], None)
    assert (check.status, check.detail) == (CheckStatus.OK, f"0.29.1 through {with_bcc}")


def test_bcc_is_not_needed_where_compiled_programs_came_with_the_package(machine: Machine) -> None:
    shipped = BpfObject([], [], Compiler("bcc.py", "0.26.0", 0, 0))
    check = software.check_bcc(machine, ["/bin/false"], shipped)
    assert (check.status, check.detail) == (CheckStatus.OK, "not needed: the BPF programs came compiled (bcc 0.26.0)")


def test_debug_data_without_a_libc_in_sight_is_unknown(machine: Machine) -> None:
    assert software.check_debug_data(machine).status is CheckStatus.UNKNOWN
    put(machine, **{"proc/self/maps": "7f00-7f01 r-xp 0 fe:00 1 /lib/libc.so.6\n", "lib/libc.so.6": "no ELF"})
    assert software.check_debug_data(machine).status is CheckStatus.UNKNOWN


@pytest.mark.parametrize(
    ("servers", "placed", "status"),
    [
        ("", False, CheckStatus.WARN),
        ("https://one https://two", False, CheckStatus.UNKNOWN),
        ("", True, CheckStatus.OK),
    ],
)
def test_debug_data_of_the_c_library(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, servers: str, placed: bool, status: CheckStatus
) -> None:
    libc = software.own_libc(Machine())
    if libc is None:
        pytest.skip("this interpreter has no C library of its own in /proc/self/maps")
    build_id = open_elf(libc).build_id
    if not build_id:
        pytest.skip(f"{libc} has no build-id")
    machine.path(str(libc)).parent.mkdir(parents=True)
    machine.path(str(libc)).symlink_to(libc)
    put(machine, **{"proc/self/maps": f"7f00-7f01 r-xp 0 fe:00 1 {libc}\n", "etc/os-release": "ID=debian\n"})
    if placed:
        put(machine, **{f"usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug": ""})
    monkeypatch.setenv("DEBUGINFOD_URLS", servers)
    check = software.check_debug_data(machine)
    assert check.status is status
    assert check.fix == ("sudo apt-get install libc6-dbg" if status is CheckStatus.WARN else "")


def test_bpf_fix_follows_its_cause() -> None:
    ring = Trial(Rung.RING_BUFFER, "no BPF: why", "cpu-clock", "1 byte")
    no_bcc = Check("bcc", CheckStatus.WARN, "", "", "sudo apt-get install python3-bpfcc")
    bcc = Check("bcc", CheckStatus.OK, "0.26")
    assert "setpriv" in check_bpf(ring, is_allowed=False, bcc=bcc).fix
    assert check_bpf(ring, is_allowed=True, bcc=no_bcc).fix == no_bcc.fix
    assert "dmesg" in check_bpf(ring, is_allowed=True, bcc=bcc).fix
    assert "ulimit -l" in check_bpf(ring, is_allowed=True, bcc=bcc, is_memory_short=True).fix
    assert check_bpf(Trial(Rung.BPF_PMU, "", "", ""), is_allowed=True, bcc=bcc).status is CheckStatus.OK


def test_stacks_are_whole_with_the_programs_and_with_copies() -> None:
    ring = partial(Trial, Rung.RING_BUFFER, "no BPF: why", "cpu-clock", "1 byte")
    assert check_stacks(ring()).status is CheckStatus.WARN
    assert "sudo" in check_stacks(ring()).fix
    copied = check_stacks(ring(has_copies=True))
    assert (copied.status, copied.fix) == (CheckStatus.OK, "")
    assert "copy-ended" in copied.cost
    assert check_stacks(Trial(Rung.BPF_PMU, "", "", "", has_tables=True)).status is CheckStatus.OK


def test_recording_blames_the_container_first() -> None:
    refused = Trial(None, "not allowed", "cpu-clock", "", "sudo sysctl kernel.perf_event_paranoid=2")
    assert check_recording(refused, Check("container", CheckStatus.OK, "")).fix == refused.fix
    check = check_recording(refused, Check("container", CheckStatus.WARN, "", "", "docker run …"))
    assert (check.status, check.fix) == (CheckStatus.FAIL, "docker run …")


@pytest.mark.parametrize(
    ("command_line", "status", "word"),
    [
        ("quiet", CheckStatus.WARN, "no pseudo-NMI"),
        ("irqchip.gicv3_pseudo_nmi=1", CheckStatus.UNKNOWN, "using NMIs"),
        ("", CheckStatus.UNKNOWN, "not visible"),
    ],
)
def test_interrupts_of_an_arm_pmu(machine: Machine, command_line: str, status: CheckStatus, word: str) -> None:
    assert pmus.check_pmu_interrupts(machine, "aarch64") == []
    put(machine, **{"sys/bus/event_source/devices/armv8_pmuv3_0/cpus": "0-3", "proc/cmdline": command_line})
    [check] = pmus.check_pmu_interrupts(machine, "aarch64")
    assert check.status is status
    assert word in check.detail
    assert pmus.check_pmu_interrupts(machine, "x86_64") == []
