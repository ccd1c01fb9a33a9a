"""A recording of this very process for a moment: the only proof that the whole chain works."""

import contextlib
import os
import time

from tdprof.capture.manifest import Rung
from tdprof.errors import TdprofError
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.bpf.table_sizes import TableSizes
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.host import MAX_SAMPLE_RATE, online_cpus, read_setting
from tdprof.recorder.ladder import BpfAttempt, choose_events
from tdprof.recorder.locked_memory import RingSizes, fit, locked_memory_budget
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.settings import AS_USER_WITH_CAPABILITIES, DEFAULT_FREQUENCY_HZ
from tdprof.recorder.ring_walk import can_walk
from tdprof.recorder.targets import Rate, SamplingTarget
from tdprof.recorder.wanted_events import WantedEvents
from tdprof.values import dataclass

_RUN_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it.

    Attributes:
        rung: the rung that ``tdprof record`` would stand on; None if it could not record.
        reason: why this rung, or why none.
        event: what was sampled.
        evidence: what arrived.
        fix: if there is no rung, what to try.
        has_tables: whether the BPF programs walk stacks by unwind tables.
        has_copies: whether stacks are copied and walked by unwind tables without them.
        doubt: why the programs do not.
    """

    rung: Rung | None
    reason: str
    event: str
    evidence: str
    fix: str = ""
    has_tables: bool = False
    has_copies: bool = False
    doubt: str = ""


def try_recording() -> Trial:
    """Sample this process as ``tdprof record`` would, with its default event and rate."""
    choice = choose_events(())
    event = ", ".join(event.name for event in choice.events)
    limit = read_setting(MAX_SAMPLE_RATE) or DEFAULT_FREQUENCY_HZ
    rate = Rate(frequency_hz=min(DEFAULT_FREQUENCY_HZ, limit))
    attempt = BpfAttempt(choice.events, TableSizes.for_rate(DEFAULT_FREQUENCY_HZ), CallGraph.AUTO, is_wanted=True)
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(attempt.close)
            sampler, rung, reason = attempt.finish(choice)
            cpus = online_cpus()
            if sampler:
                stack.enter_context(sampler)
                sampler.await_walk()
            programs = sampler.programs if sampler else None
            sizes = fit(RingSizes.wanted(has_spe=False), len(cpus), locked_memory_budget(len(cpus)))
            target, rates = SamplingTarget([os.getpid()]), [rate] * len(choice.events)
            wanted = WantedEvents(choice.events, target, rates, programs, sizes=sizes)
            attached = stack.enter_context(AttachedEvents(wanted, cpus))
            attached.enable()
            until = time.thread_time_ns() + _RUN_NS
            while time.thread_time_ns() < until:
                pass
            attached.disable()
            if sampler:
                arrived = sampler.counters()["samples"]
                evidence = f"{arrived} samples in {_RUN_NS // 1_000_000} ms"
            else:
                arrived = sum(map(len, attached.look()))
                evidence = f"{arrived} bytes of samples in {_RUN_NS // 1_000_000} ms"
    except TdprofError as error:
        return Trial(None, error.message, event, "", error.hint)
    except OSError as error:
        return Trial(None, f"the system refuses it: {error}", event, "", "sudo tdprof doctor")
    if not arrived:
        return Trial(
            None, f"{event} opens, but no sample arrives", event, evidence, "tdprof record -e cpu-clock -- CMD"
        )
    if sampler:
        has_tables = sampler.arrays is not None
        return Trial(rung, reason, event, evidence, has_tables=has_tables, doubt=" ".join(sampler.notes))
    has_copies = can_walk(CallGraph.AUTO, len(choice.events), rate)
    return Trial(rung, reason, event, evidence, has_copies=has_copies)


def check_stacks(trial: Trial) -> Check:
    """Whether call stacks are whole without frame pointers."""
    if trial.rung is None:
        return Check("call-stacks", CheckStatus.UNKNOWN, "not tried, for nothing can be recorded")
    if trial.has_tables:
        return Check("call-stacks", CheckStatus.OK, "walked by the programs' unwind tables, in the kernel")
    if trial.has_copies:
        return Check(
            "call-stacks",
            CheckStatus.OK,
            "copied with each sample, and walked by the programs' unwind tables while recording",
            "what is deeper than a copy reaches ends as copy-ended",
        )
    return Check(
        "call-stacks",
        CheckStatus.WARN,
        trial.doubt or "walked by the kernel, along frame pointers",
        "programs built without frame pointers have callers missing, and which is not known",
        "" if trial.doubt else "sudo tdprof record (unwinding by tables needs BPF)",
    )


def check_recording(trial: Trial, container: Check) -> Check:
    """Whether anything can be recorded; a container that hinders is the likelier cause than the kernel's settings."""
    if trial.rung is None:
        fix = container.fix if container.status is CheckStatus.WARN else trial.fix
        return Check("recording", CheckStatus.FAIL, trial.reason, "nothing is recorded", fix)
    return Check("recording", CheckStatus.OK, f"{trial.rung}: {trial.event}, {trial.evidence}")


def check_bpf(trial: Trial, *, is_allowed: bool, bcc: Check, is_memory_short: bool = False) -> Check:
    """Whether the BPF program loads and counts.

    Args:
        trial: what came of the recording.
        is_allowed: this process has the capabilities.
        bcc: the check of bcc, whose fix is this one's where it failed.
        is_memory_short: its maps are more locked memory than this process may have.
    """
    if trial.rung in (Rung.BPF_PMU, Rung.BPF_SOFTWARE):
        return Check("bpf", CheckStatus.OK, "the sampling program loads and counts")
    if trial.rung is None:
        return Check("bpf", CheckStatus.UNKNOWN, "not tried to the end, for nothing can be recorded")
    if not is_allowed:
        fix = AS_USER_WITH_CAPABILITIES
    elif is_memory_short:
        fix = "ulimit -l unlimited (before Linux 5.11 BPF's maps are locked memory)"
    elif bcc.status is not CheckStatus.OK:
        fix = bcc.fix
    else:
        fix = "sudo dmesg | grep -iE 'bpf|lockdown'"
    return Check(
        "bpf", CheckStatus.WARN, trial.reason, "samples go through ring buffers, which lose more under load", fix
    )
