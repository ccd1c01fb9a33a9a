"""What a recording has counted: of each of its segments, and in the end."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import field, replace

from tdprof.capture.manifest import Manifest
from tdprof.model.events import TopdownInfo
from tdprof.model.losses import NOT_FOLLOWED, NOT_TIMED, WAITS_NOT_SAMPLED, WAKERS_NOT_KEPT
from tdprof.recorder.perf_event import Count
from tdprof.values import dataclass

MAX_CLOCK_PAIRS = 512
_MOST_LONG_INTERVALS = 1000
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
        at_cut: of each event, what counted while a segment was cut off; empty: none was.
    """

    events: Sequence[Count | None] = ()
    ending: Sequence[int] = ()
    lost_samples: int = 0
    by_programs: dict[str, int] = field(default_factory=dict)
    drained: int = 0
    at_cut: Sequence[int] = ()


def counted_between(earlier: Sequence[Count | None], later: Sequence[Count | None]) -> list[int]:
    """What each event counted between two moments."""
    return [after.value - before.value if before and after else 0 for before, after in zip(earlier, later, strict=True)]


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
    nothing = [0] * len(totals)
    at_cuts = [sum(each) for each in zip(now.at_cut or nothing, before.at_cut or nothing, strict=True)]
    return replace(
        manifest,
        events=[
            replace(
                info,
                total=count.value + uncounted,
                enabled_ns=count.enabled_ns,
                running_ns=count.running_ns,
                counted_at_cuts=at_cut,
            )
            if count
            else info
            for info, count, uncounted, at_cut in zip(manifest.events, totals, ending, at_cuts, strict=True)
        ],
        losses=replace(manifest.losses, samples_ring_full=manifest.losses.samples_ring_full + lost),
        notes=[*manifest.notes, *idle_groups(manifest.topdown, totals)],
    )


def with_start_now(manifest: Manifest) -> Manifest:
    """The manifest, which begins at this moment by both clocks."""
    return replace(manifest, start_realtime_ns=time.time_ns(), start_monotonic_ns=time.monotonic_ns())


def with_long_interval(manifest: Manifest, end_ns: int) -> Manifest:
    """The manifest, which says up to when samples were added up, once they were until then; CLOCK_MONOTONIC.

    Readers take an interval for twice as long as it should be at most, since there may have been one without samples.
    """
    begin_ns = max(manifest.start_monotonic_ns, manifest.end_monotonic_ns)
    known = manifest.long_intervals
    if end_ns - begin_ns >= 2 * manifest.interval_ns and len(known) < _MOST_LONG_INTERVALS:
        known = [*known, [begin_ns, end_ns]]
    return replace(manifest, long_intervals=known)


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


@dataclass(slots=True)
class SegmentCounts:
    """What belongs to one segment, of all that has counted and was noted since the recording began.

    Attributes:
        first: the manifest with which every segment begins.
    """

    first: Manifest
    _before: RunningCounts = field(default_factory=RunningCounts)  # up to this segment
    _told: frozenset[str] = frozenset()  # of all so far, with the last totals
    _said: frozenset[str] = frozenset()  # of that in the segments before, of what may have been long ago

    @property
    def is_first(self) -> bool:
        """Whether the recording was never cut."""
        return not self._before.events

    def with_losses(self, manifest: Manifest, by_programs: dict[str, int]) -> Manifest:
        """The manifest with what the BPF programs counted since the segment began."""
        before = self._before.by_programs
        return with_losses(manifest, {name: count - before.get(name, 0) for name, count in by_programs.items()})

    def with_totals(self, manifest: Manifest, now: RunningCounts, notes: Sequence[str]) -> Manifest:
        """The manifest with what the events counted since the segment began, and with notes that are news."""
        manifest = with_totals(manifest, now, self._before)
        self._told = frozenset(notes)
        return replace(manifest, notes=[*manifest.notes, *(note for note in notes if note not in self._said)])

    def cut(self, manifest: Manifest, now: RunningCounts) -> Manifest:
        """The manifest of a segment that ends while the programs go on counting.

        Of the samples it has those that the table at rest held, and those for which there was no room.
        """
        losses = manifest.losses
        lost = losses.samples_map_full + losses.samples_outside_namespace
        return replace(manifest, samples_counted=now.drained - self._before.drained + lost)

    def begin_next(self, ended: Manifest, now: RunningCounts) -> Manifest:
        """The manifest of the segment that follows the one that was cut, from the moment of its end on."""
        samples = self._before.by_programs.get("samples", 0) + (ended.samples_counted or 0)
        self._before = replace(now, by_programs=now.by_programs | {"samples": samples})
        # Not those of all segments: notes with numbers are others each time, and would add up.
        self._said = self._told.difference(self.first.notes)
        cut_ns = ended.end_monotonic_ns
        return replace(
            self.first,
            record_ids=ended.record_ids,
            start_realtime_ns=time.time_ns() - (time.monotonic_ns() - cut_ns),
            start_monotonic_ns=cut_ns,
            end_monotonic_ns=cut_ns,
        )
