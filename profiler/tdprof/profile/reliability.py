"""What a reader of a profile should know before trusting it, in a sentence each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tdprof.model.addresses import FileKind
from tdprof.model.arrays import distinct
from tdprof.model.events import CLOCKS, OFF_CPU, SOFTWARE_EVENTS, EventInfo, Unit
from tdprof.model.losses import NEVER_REACHED, Losses
from tdprof.model.profile import Profile
from tdprof.text import percent_of, plural

# Samples and exact totals differ by what the last period of each task leaves over, which is much of a few samples; more
# than this has another cause.
TOLERANCE = 0.1
# Of a profile; less of it in the kernel is not worth a sentence.
LEAST_KERNEL_SHARE = 0.01
_OF_USERS_ALONE = re.compile(r"[:/](?=[a-zA-Z]*u)[uhGHpPSDIWeb]+$")  # perf's modifiers, of which k is none


def event_doubts(
    events: Sequence[EventInfo], samples: Sequence[int], weights: Sequence[int], losses: Losses
) -> Iterator[str]:
    """Events whose samples do not stand for what was counted, and why that is or usually is.

    Args:
        events: as recorded.
        samples, weights: number of samples of each, and the sum of their weights.
        losses: of the recording.
    """
    others = losses.samples_outside_namespace
    lost = lost_samples(losses) - others
    for event, count, weight in zip(events, samples, weights, strict=True):
        tolerance = TOLERANCE + count**-0.5 if count else 0
        if not event.total or not count or abs(weight / event.total - 1) <= tolerance:
            continue
        share = f"the samples of {event.name} stand for {weight / event.total:.0%} of what was counted"
        if others and weight < event.total:
            rest = "the rest is mostly of processes outside the recorder's pid namespace, which no row has"
            yield f"{share}: {rest}" + (f"; and {_of_lost(lost)}" if lost else "")
        elif lost and weight < event.total and _with_lost(weight, sum(samples), lost) >= event.total * (1 - tolerance):
            yield f"{share}: {_of_lost(lost)}"
        elif lost and weight < event.total:
            yield f"{share}: {_of_lost(lost)}, and that is not all that is missing"
        elif losses.throttled and weight < event.total:
            yield f"{share}: {_of_throttled(losses)}"
        elif event.unit is Unit.NANOSECONDS and re.search(r":[ukhpP]+$", event.name):
            yield f"{share}: the kernel's clock counts user space and kernel together, whichever is sampled"
        elif event.unit is Unit.NANOSECONDS and weight < event.total:
            yield (
                f"{share}: idle CPUs, and processes that live shorter than a sampling interval, are seldom sampled; "
                "shares favour the others, which ± does not cover (a higher -F helps)"
            )
        elif event.frequency_hz:
            yield (
                f"{share}: at a frequency the kernel guesses the periods of bursty events; trust neither counts nor "
                "intervals (-c PERIOD gives samples of one weight)"
            )
        else:
            yield f"{share}: samples are missing or stand for too much; shares may be off by more than ± says"


def turns_doubt(part: Profile, whole: Profile) -> Iterator[str]:
    """What the intervals of metrics leave out of a stretch of time, whose samples these are.

    Nothing if it is all of the recording's, whose metrics those are.
    """
    took_turns = any((event.running_ns or 0) < (event.enabled_ns or 0) for event in whole.events)
    if not took_turns or part.has_sample_times or len(part.samples.time_ns) == len(whole.samples.time_ns):
        return
    if len(distinct(part.samples.time_ns)) == 1:
        yield (
            "± of metrics is of sampling alone: one interval of the recording does not tell how the "
            "turns of the counter groups scatter (record --interval 0.1s knows time more finely)"
        )


def lost_samples(losses: Losses) -> int:
    """Samples that were taken and are not in the capture."""
    return (
        losses.samples_map_full
        + losses.samples_ring_full
        + losses.samples_outside_namespace
        + losses.by_reason.get(NEVER_REACHED, 0)
    )


def _with_lost(weight: int, kept: int, lost: int) -> float:
    """What all samples would stand for, if the lost ones were like those that were kept."""
    return weight * (1 + lost / kept)


def _of_lost(lost: int) -> str:
    return (
        f"{plural(lost, 'sample', 's')} lost on the way; shares are right only if those were like the others "
        "(a lower -F loses fewer)"
    )


def _of_throttled(losses: Losses) -> str:
    """For how long each time, and which of the events, is not told: what else there is cannot be told apart."""
    return (
        f"the kernel paused events {plural(losses.throttled, 'time', 's')} for interrupting too often, which may "
        "be all that is missing or a part of it (a lower -F, or a higher kernel.perf_event_max_sample_rate)"
    )


def group_doubt(
    events: Sequence[EventInfo], samples: Sequence[int], weights: Sequence[int], losses: Losses
) -> Iterator[str]:
    """Those events of a Topdown recording, of which there are many, together.

    Args:
        events: as recorded.
        samples, weights: number of samples of each, and the sum of their weights.
        losses: of the recording.
    """
    short = [
        event.name
        for event, count, weight in zip(events, samples, weights, strict=True)
        if event.total and count and weight < event.total * (1 - TOLERANCE - count**-0.5)
    ]
    if short:
        cause = (
            "threads that end within a period are seldom sampled; shares favour the others, which ± does not cover "
            "(a higher -F helps)"
        )
        if lost := lost_samples(losses):
            cause = _of_lost(lost)
        elif losses.throttled:
            cause = _of_throttled(losses)
        which = f"the samples of {len(short)} of {len(events)} events (such as {short[0]})"
        yield f"{which} stand for less than counted: {cause}"


def interrupting_event(events: Sequence[EventInfo]) -> int | None:
    """The first event of kernel code, too, whose samples interrupts bring: a PMU's or a timer's; None if there is none.

    What the kernel counts itself, such as context switches, it samples where it happens, whatever is masked there.
    """
    at_once = {OFF_CPU, *SOFTWARE_EVENTS}.difference(CLOCKS)
    for number, event in enumerate(events):
        if event.name.split(":")[0] not in at_once and not _OF_USERS_ALONE.search(event.name):
            return number
    return None


def kernel_share(profile: Profile) -> float:
    """Of the first event's weight whose samples wait for interrupts, the share whose innermost code is the kernel's.

    0 without such an event: of one that counts user code alone, a sample may come only in the kernel that was entered
    meanwhile.
    """
    if (event := interrupting_event(profile.events)) is None:
        return 0.0
    is_kernel_file = [file.kind in (FileKind.KERNEL, FileKind.KERNEL_MODULE) for file in profile.mapped_files]
    of_location = np.append(is_kernel_file, [False]).astype(bool)[profile.locations.mapped_file]
    start = profile.stacks.start.astype(np.int64)
    has_leaf = start[1:] > start[:-1]
    is_kernel = np.zeros(len(has_leaf), bool)
    is_kernel[has_leaf] = of_location[profile.stacks.location[start[:-1][has_leaf]]]
    rows = profile.samples.event == event
    weight = profile.samples.weight[rows].astype(np.float64)
    total = weight.sum()
    return float(weight[is_kernel[profile.samples.stack[rows]]].sum() / total) if total else 0.0


def masked_doubt(profile: Profile, *, has_pmu_nmi: bool | None) -> Iterator[str]:
    """Kernel code that interrupts do not reach, and so samples neither.

    Args:
        has_pmu_nmi: samples come even where interrupts are masked; None: not known.
    """
    if has_pmu_nmi is False and (share := kernel_share(profile)) >= LEAST_KERNEL_SHARE:
        yield (
            f"{share:.1%} is in the kernel, where samples wait while interrupts are masked: what runs then is "
            "charged to where they are unmasked (_raw_spin_unlock_irqrestore and its like). SPE does not wait, nor do "
            "the PMU's events after booting with irqchip.gicv3_pseudo_nmi=1; cpu-clock always does"
        )


def cut_doubt(cut: int, total: int) -> Iterator[str]:
    """Samples whose callers are no code, out of all."""
    if cut:
        yield (
            f"at least {plural(cut, 'sample', 's')} ({percent_of(cut, total)}) without all callers: the next is "
            "outside any mapping, where the call stack ends (build with -fno-omit-frame-pointer)"
        )


def container_doubts(missing: Sequence[str], unsure: Sequence[str]) -> Iterator[str]:
    """Files that only processes in another mount namespace than the recorder's had mapped.

    Args:
        missing: paths that are not found here.
        unsure: paths without a build-id, whose names come from this machine's file of that path.
    """
    who = "only processes in another mount namespace than perf's (a container's) mapped"
    if missing:
        yield f"not found here, and {who}: {_listed(missing)} (--symfs names a folder with the container's files)"
    if unsure:
        yield f"without a build-id, and {who}: {_listed(unsure)}; this machine's may be others, and names wrong"


def _listed(paths: Sequence[str]) -> str:
    return f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else paths[0]


def count_doubt(counted: int | None, losses: Losses, held: int) -> Iterator[str]:
    """A table of samples that is not the one that was recorded: cut, filtered or from another capture.

    Args:
        counted: samples that the kernel counted; None where it did not.
        losses: of the recording, which account for samples that the table never had.
        held: samples that the table holds.
    """
    if counted is None:
        return
    # Only BPF programs count, and what they take never was in a ring buffer.
    lost = lost_samples(replace(losses, samples_ring_full=0))
    if held != counted - lost:
        yield (
            f"samples.parquet holds {plural(held, 'sample', 's')}, but {counted - lost:,} were recorded: "
            "it was changed since, or is another capture's"
        )
