"""The kernel's refusals of perf events in words: what each means, and the command that changes it."""

import errno
from enum import StrEnum

from tdprof.errors import TdprofError
from tdprof.recorder.host import MAX_SAMPLE_RATE, online_cpus, perf_event_paranoid, read_setting


class Scope(StrEnum):
    """Whose events are asked for."""

    COMMAND = "your own programs"
    PROCESS = "this process"
    SYSTEM = "the whole system"


def open_error(what: str, error: OSError, scope: Scope, *, frequency_hz: int = 0, verb: str = "record") -> TdprofError:
    """Why an event was not opened.

    Args:
        what: the event.
        frequency_hz: how often it was to be sampled; 0 for a period, or a mere count.
        verb: what it was to be opened for: record or count.
    """
    code = error.errno
    if code in (errno.EMFILE, errno.ENFILE):
        return TdprofError(
            "too many open files for this many events, threads and CPUs",
            hint="record as root, who may have more than ulimit -Hn says; or -a, which needs none for each thread",
        )
    if perf_event_paranoid() is None or code == errno.ENOSYS:
        return TdprofError(
            "perf events are not available: the kernel lacks them, or a container's seccomp filter hides them",
            hint="run outside the container, or with --security-opt seccomp=unconfined",
        )
    if code in (errno.EACCES, errno.EPERM):
        return not_permitted(error, scope, verb=verb)
    if code == errno.ESRCH:
        return TdprofError(f"the process ended before it could be {verb}ed")
    limit = read_setting(MAX_SAMPLE_RATE)
    if code == errno.EINVAL and limit is not None and frequency_hz > limit:
        return TdprofError(
            f"{frequency_hz} Hz is above the kernel's limit of {limit} Hz",
            hint=f"use -F {limit} or less, or raise kernel.perf_event_max_sample_rate",
        )
    if verb == "record" and code in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return TdprofError(
            f"this machine cannot sample '{what}': no PMU here counts it with overflow interrupts ({error.strerror})",
            hint="tdprof record -e cpu-clock -- CMD samples time instead; tdprof doctor shows the PMUs",
        )
    return TdprofError(
        f"the PMU refuses the event '{what}': {error.strerror}",
        hint="check its code and modifiers; tdprof doctor shows the PMUs",
    )


def has_gone_offline(cpu: int, error: OSError) -> bool:
    """Whether an event was refused because its CPU, which was up when CPUs were listed, is not any more."""
    # The same error means a PMU without interrupts, or of other cores (perf_event_open(2)).
    return error.errno == errno.ENODEV and cpu >= 0 and cpu not in online_cpus()


def gone_offline(cpu: int) -> TdprofError:
    """A CPU went offline between its listing and its opening, and nothing would notice that it is back."""
    return TdprofError(f"CPU {cpu} went offline while recording began", hint="record again")


def not_permitted(error: OSError, scope: Scope, *, verb: str) -> TdprofError:
    """The kernel's EACCES or EPERM, with the setting that lifts it.

    An ordinary user may have events of whole CPUs at kernel.perf_event_paranoid 0 and below, of own tasks at 2.
    """
    paranoid = perf_event_paranoid()
    wanted = 0 if scope is Scope.SYSTEM else 2
    if paranoid is not None and (paranoid > wanted or scope is Scope.SYSTEM):
        return TdprofError(
            f"not allowed to {verb} {scope}: kernel.perf_event_paranoid is {paranoid}",
            hint=f"sudo sysctl kernel.perf_event_paranoid={wanted}, or run tdprof with sudo",
        )
    return TdprofError(
        f"not allowed to {verb} {scope}: {error.strerror}",
        hint=f"you can {verb} your own processes; for others run tdprof with sudo",
    )
