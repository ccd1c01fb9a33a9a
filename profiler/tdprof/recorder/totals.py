"""What a recording has counted: of each of its segments, and in the end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tdprof.capture.manifest import Manifest
from tdprof.model.events import TopdownInfo
from tdprof.model.losses import NOT_FOLLOWED, NOT_TIMED, WAITS_NOT_SAMPLED, WAKERS_NOT_KEPT
from tdprof.recorder.perf_event import Count

MAX_CLOCK_PAIRS = 512
_OTHER_LOSSES = {
    "threads_not_followed": NOT_FOLLOWED,
    "waits_not_sampled": WAITS_NOT_SAMPLED,
    "threads_not_timed": NOT_TIMED,
    "wakers_not_kept": WAKERS_NOT_KEPT,
}


@dataclass(frozen=True, slots=True)
class RunningCounts:
    """What counted since the recording began, up to some moment.

    Attributes:
        events: each event; empty: nothing yet.
        ending: of each event, what samples of ending threads stand for.
        lost_samples: in the rings.
        by_programs: as `bpf.sampler.BpfSampler.counters`.
        drained: samples that went into spools.
    """

    events: Sequence[Count | None] = ()
    ending: Sequence[int] = ()
    lost_samples: int = 0
    by_programs: dict[str, int] = field(default_factory=dict)
    drained: int = 0


def idle_groups(topdown: TopdownInfo | None, totals: Sequence[Count | None]) -> Iterator[str]:
    """What to say of counter groups that were never on the PMU while there was something to count."""
    for group in topdown.groups if topdown else ():
        counts = [count for count in (totals[row] for row in group.events) if count]
        if any(count.enabled_ns for count in counts) and not any(count.running_ns for count in counts):
            metrics = ", ".join(group.metrics)
            yield (
                f"the counters were never free for {', '.join(group.names)}: {metrics} have no value "
                "(record longer, or with --counters N for smaller groups, or with --passes)"
            )


def with_totals(manifest: Manifest, now: RunningCounts, before: RunningCounts) -> Manifest:
    """The manifest with what the events counted between two moments."""
    totals = [
        count - earlier if count and earlier else count
        for count, earlier in zip(now.events, before.events or [None] * len(now.events), strict=True)
    ]
    ending = [
        weight - earlier for weight, earlier in zip(now.ending, before.ending or [0] * len(now.ending), strict=True)
    ]
    lost = now.lost_samples - before.lost_samples
    return replace(
        manifest,
        events=[
            replace(info, total=count.value + uncounted, enabled_ns=count.enabled_ns, running_ns=count.running_ns)
            if count
            else info
            for info, count, uncounted in zip(manifest.events, totals, ending, strict=True)
        ],
        losses=replace(manifest.losses, samples_ring_full=manifest.losses.samples_ring_full + lost),
        notes=[*manifest.notes, *idle_groups(manifest.topdown, totals)],
    )


def with_clock_pair(manifest: Manifest, pair: tuple[int, int] | None) -> Manifest:
    """The manifest with what two clocks said at one moment, if it is about SPE, which has one of its own."""
    if pair is None or manifest.spe is None:
        return manifest
    pairs = [*manifest.spe.clock_pairs, list(pair)]
    # However long the recording: the clocks drift apart so slowly that every other pair will do.
    kept = pairs if len(pairs) <= MAX_CLOCK_PAIRS else [*pairs[:-1:2], pairs[-1]]
    return replace(manifest, spe=replace(manifest.spe, clock_pairs=kept))


def with_losses(manifest: Manifest, counters: dict[str, int]) -> Manifest:
    """The manifest with what the BPF programs counted, by the names of `sampler.COUNTERS`."""
    return replace(
        manifest,
        samples_counted=counters["samples"],
        losses=replace(
            manifest.losses,
            samples_map_full=counters["samples_map_full"],
            samples_outside_namespace=counters["samples_outside_namespace"],
            user_stacks_unreadable=counters["user_stacks_unreadable"],
            kernel_stacks_unreadable=counters["kernel_stacks_unreadable"],
            stacks_truncated=counters["stacks_truncated"],
            by_reason={reason: counters[name] for name, reason in _OTHER_LOSSES.items() if counters[name]},
        ),
    )
