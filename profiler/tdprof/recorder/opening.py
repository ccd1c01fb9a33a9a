"""Opens a recording's events, with ring buffers as large as this user may lock."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.locked_memory import RingRefusedError, RingSizes, fit, locked_memory_budget, shrunk_note
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.sampling import Sampling
from tdprof.recorder.targets import MOST_LOOKS, SamplingTarget
from tdprof.recorder.wanted_events import WantedEvents
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.spe import SpeEvents
    from tdprof.recorder.spe_options import SpeOptions

_KEEP_STARTING = "threads kept starting while their process was attached to: what some of them did may be missing"


@dataclass(frozen=True, slots=True)
class OpenedEvents:
    """What a recording has open.

    Attributes:
        attached: its events and their rings.
        spe: SPE's, if it was asked for.
        sizes: of the buffers that were to be had.
        notes: what the user should know of them.
    """

    attached: AttachedEvents
    spe: "SpeEvents | None"
    sizes: RingSizes
    notes: list[str]

    def close(self) -> None:
        """Close everything."""
        if self.spe:
            self.spe.close()
        self.attached.close()


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens events as one recording wants them.

    Attributes:
        options: what to record.
        sampling: how.
        cpus: that are up.
    """

    options: RecordOptions
    sampling: Sampling
    cpus: Sequence[int]

    @property
    def _needs_switches(self) -> bool:
        """Whether context switches are told from beginning to end, for SPE's records."""
        return self.options.spe is not None and self.options.duty.spe is None

    @property
    def spe_tells_switches(self) -> bool:
        """Whether they come through SPE's rings: those of others are full of samples with copied stacks."""
        return self._needs_switches and self.sampling.sampler is None

    def attach(self, target: SamplingTarget, groups: list[list[int]] | None, sizes: RingSizes) -> AttachedEvents:
        """Open the events, stopped. Raises as `AttachedEvents` does."""
        wanted = WantedEvents(
            self.sampling.choice.events,
            target,
            self.sampling.rates,
            self.sampling.programs,
            groups,
            sizes=sizes,
            # Who ran when, for SPE records that no context packet names the thread of: the kernel swaps the events of
            # tasks that inherited the same ones instead of stopping them, so a buffer's records may be of many tasks.
            has_switches=self._needs_switches and not self.spe_tells_switches,
            has_cgroups=self.sampling.cgroups.is_told,
            call_graph=self.sampling.chains,
            by_turns=self.options.duty.topdown_rows,
            has_switches_by_turns=self.options.duty.spe is not None,
        )
        return AttachedEvents(wanted, self.cpus)

    def open_settled(
        self, target: SamplingTarget, newer: Callable[[SamplingTarget], SamplingTarget | None]
    ) -> tuple[SamplingTarget, OpenedEvents]:
        """Open the events of all threads that there are by then; returns of which.

        A thread inherits events that its starter had. Of one that is new once all are open nobody knows whether its
        starter had them already, so they are opened anew.

        Args:
            target: what to open first.
            newer: the same with threads that have come; None if none have.

        Raises:
            TdprofError: as `open_first`.
        """
        opened = self.open_first(target)
        for _ in range(MOST_LOOKS):
            later = newer(target)
            if later is None:
                return target, opened
            opened.close()
            target = later
            opened = self.open_first(target)
        opened.notes.append(_KEEP_STARTING)
        return target, opened

    def open_first(self, target: SamplingTarget) -> OpenedEvents:
        """Open the events of the first pass, and SPE's, with smaller buffers as long as larger ones are refused.

        Raises:
            TdprofError: the kernel refuses an event, or the smallest buffers.
        """
        wanted = RingSizes.wanted(has_spe=self.options.spe is not None)
        budget = locked_memory_budget(len(self.cpus))
        sizes = fit(wanted, len(self.cpus), budget)
        if self.sampling.sampler is None and sizes == wanted:
            has_copies = self.sampling.chains.stack_bytes > 0
            sizes = wanted.with_room_for_switches(len(self.cpus), budget) if self.spe_tells_switches else wanted
            sizes = sizes.with_room_for_samples(len(self.cpus), budget, has_copies=has_copies)
        while True:
            try:
                attached, spe = self._open_all(target, sizes)
            except RingRefusedError:  # this user's other programs lock memory, too
                smaller = sizes.smaller()
                if smaller is None:
                    raise
                sizes = smaller
            else:
                notes = list(filter(None, [shrunk_note(wanted, sizes, len(self.cpus))]))
                return OpenedEvents(attached, spe, sizes, notes)

    def _open_all(self, target: SamplingTarget, sizes: RingSizes) -> tuple[AttachedEvents, "SpeEvents | None"]:
        with contextlib.ExitStack() as opening:
            attached = opening.enter_context(self.attach(target, self.options.passes[0], sizes))
            if attached.ring_bytes < sizes.side_band:  # all CPUs' are to be alike, and what is missing to be said
                raise RingRefusedError("there is no memory to lock for the last ring buffers")
            spe = None
            if self.options.spe:
                spe = self.open_spe(self.options.spe, target, sizes, is_told_per_cpu=attached.is_told_per_cpu)
            opening.pop_all()
        return attached, spe

    def open_spe(
        self,
        asked: "SpeOptions",
        target: SamplingTarget,
        sizes: RingSizes,
        first_number: int = 0,
        *,
        is_told_per_cpu: bool = False,
    ) -> "SpeEvents":
        """Open SPE's events, stopped. Raises as `SpeEvents` and `choose_threads` do."""
        # Few recordings have any.
        from tdprof.recorder.spe import SpeEvents
        from tdprof.recorder.spe_options import MOST_TASK_EVENTS, find_spe_pmus

        threads, notes = None, list[str]()
        if len(target.tasks) * len(self.cpus) > MOST_TASK_EVENTS:
            # Not before: it takes NumPy.
            from tdprof.recorder.spe_threads import choose_threads

            has_turns = self.options.duty.spe is not None
            threads, notes = choose_threads(
                target, self.cpus, self.options.pids, is_told_per_cpu=is_told_per_cpu, takes_turns=has_turns
            )
        events = SpeEvents(
            find_spe_pmus(),
            asked,
            target,
            self.cpus,
            sizes,
            has_counters=self.options.topdown is None,
            first_number=first_number,
            threads=threads,
        )
        events.notes += notes
        with contextlib.ExitStack() as opening:
            opening.enter_context(events)
            if self.spe_tells_switches:
                events.tell_switches()
            opening.pop_all()
        return events
