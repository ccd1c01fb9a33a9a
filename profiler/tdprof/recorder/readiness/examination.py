"""All checks in order, and the rung that recording stands on."""

import os
import platform
from dataclasses import replace

from tdprof.capture.manifest import Rung
from tdprof.recorder.bpf.compiler_process import bpf_interpreters
from tdprof.recorder.bpf.kernel import is_map_memory_short
from tdprof.recorder.bpf.sources import folder_of_sources, shipped_object
from tdprof.recorder.capabilities import is_other_namespace, may_load_bpf, own_user_namespace
from tdprof.recorder.host import online_cpus
from tdprof.recorder.readiness import pmus, settings, software
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine
from tdprof.recorder.readiness.runtimes import check_runtimes
from tdprof.recorder.readiness.trial import check_bpf, check_recording, check_stacks, try_recording
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Examination:
    """What a machine can record.

    Attributes:
        rung: as ``tdprof record`` without options would state it; None if it cannot record at all.
        reason: why this one.
        checks: from the kernel up.
    """

    rung: Rung | None
    reason: str
    checks: list[Check]


def examine(machine: Machine) -> Examination:
    """Check the whole chain; takes about a second."""
    architecture = platform.machine()
    trial = try_recording()
    shipped = shipped_object(folder_of_sources(), architecture)
    bcc = software.check_bcc(machine, bpf_interpreters(), shipped)
    is_allowed = may_load_bpf()
    is_hindered = trial.rung is None or (trial.rung is Rung.RING_BUFFER and is_allowed and bcc.status is CheckStatus.OK)
    container = settings.check_container(machine, is_hindered=is_hindered)
    checks = [
        settings.check_kernel(machine, architecture),
        settings.check_paranoid(machine, can_record=trial.rung is not None),
        settings.check_capabilities(machine),
        container,
        settings.check_sampling_rate(machine),
        settings.check_locked_memory(
            machine, len(online_cpus()), settings.memlock_limit_bytes(), has_spe=pmus.has_spe(machine)
        ),
        settings.check_kernel_symbols(machine),
        settings.check_btf(machine),
        bcc,
        check_bpf(trial, is_allowed=is_allowed, bcc=bcc, is_memory_short=is_map_memory_short()),
        check_stacks(trial),
        *pmus.check_core_pmus(machine, pmus.count_together),
        *pmus.check_pmu_interrupts(machine, architecture),
        pmus.check_other_pmus(machine),
        pmus.check_spe(machine, architecture),
        software.check_debug_data(machine),
        software.check_compiled_parts(),
        check_runtimes(machine),
        check_recording(trial, container),
    ]
    if os.geteuid() == 0 and not is_other_namespace(own_user_namespace()):  # sudo need not even be installed
        checks = [replace(check, fix=check.fix.replace("sudo ", "")) for check in checks]
    return Examination(trial.rung, trial.reason, checks)
