"""Whatever /proc and /sys hold, doctor's checks answer."""

import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tdprof.recorder.readiness import pmus, software
from tdprof.recorder.readiness import settings as system
from tdprof.recorder.readiness.check import CheckStatus
from tdprof.recorder.readiness.machine import Machine

PMU = "sys/bus/event_source/devices/armv8_pmuv3_0"
FILES = (
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/perf_event_paranoid",
    "proc/sys/kernel/perf_event_max_sample_rate",
    "proc/sys/kernel/perf_event_mlock_kb",
    "proc/sys/kernel/kptr_restrict",
    "proc/sys/kernel/nmi_watchdog",
    "proc/self/status",
    "proc/self/maps",
    "proc/1/cgroup",
    "proc/kallsyms",
    "proc/cpuinfo",
    "etc/os-release",
    "sys/class/dmi/id/sys_vendor",
    "sys/class/dmi/id/product_name",
    "sys/devices/system/cpu/vulnerabilities/meltdown",
    "sys/bus/platform/devices/arm,spe-v1",
    "sys/bus/event_source/devices/arm_spe_0/cpumask",
    "sys/bus/event_source/devices/arm_spe_0/caps/min_interval",
    f"{PMU}/type",
    f"{PMU}/cpus",
    f"{PMU}/events/cpu_cycles",
    f"{PMU}/format/event",
)
NUMBERS = st.one_of(st.integers().map(str), st.sampled_from(["0", "1", "2", "-1", "4294967295", "0-3,8", "1" * 5000]))
LINES = st.sampled_from(
    ["CapEff:\tffffffffffffffff", "Seccomp:\t2", "ID=debian", "event=0x11", "config:0-7,32", "config9:x", "/libc.so.6"]
)
CONTENT = st.one_of(st.binary(max_size=80), NUMBERS.map(str.encode), LINES.map(str.encode))


@settings(max_examples=150, deadline=None)
@example({"proc/sys/kernel/osrelease": b"\0", "sys/bus/platform/devices/arm,spe-v1": b""})
@given(st.dictionaries(st.sampled_from(FILES), CONTENT))
def test_no_content_is_too_odd(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        for name, content in files.items():
            machine.path(name).parent.mkdir(parents=True, exist_ok=True)
            machine.path(name).write_bytes(content)
        checks = [
            system.check_kernel(machine, "aarch64"),
            system.check_paranoid(machine, can_record=False),
            system.check_capabilities(machine),
            system.check_container(machine, is_hindered=True),
            system.check_sampling_rate(machine),
            system.check_locked_memory(machine, 8, 0, has_spe=True),
            system.check_kernel_symbols(machine),
            system.check_btf(machine),
            *pmus.check_core_pmus(machine, pmus.count_together),
            pmus.check_other_pmus(machine),
            pmus.check_spe(machine, "aarch64"),
            software.check_bcc(machine, [], None),
            software.check_debug_data(machine),
        ]
    for check in checks:
        # A finding that says something is missing says what is missed by it.
        assert check.cost or check.status in (CheckStatus.OK, CheckStatus.UNKNOWN)
        assert check.detail
