"""Lets Topdown's events and SPE have their turns in a recording that goes on without them."""

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace

from tdprof.capture.manifest import Manifest
from tdprof.capture.spool import SpoolWriter
from tdprof.errors import TdprofError
from tdprof.model.duty import SPE, TOPDOWN
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.duty import DutyTimer
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.totals import with_clock_pair
from tdprof.values import dataclass


@dataclass(slots=True)
class Turns:
    """Of one recording. SPE's events are opened for each turn: in between nobody's memory is locked for them.

    Attributes:
        timers: of what takes turns.
        attached: the recording's events.
        open_spe: opens SPE's events, whose files have numbers from one on.
        spe: SPE's events while it has its turn.
        notes: on the turns of this capture.
    """

    timers: Sequence[DutyTimer]
    attached: AttachedEvents
    open_spe: Callable[[int], SpeEvents]
    spe: SpeEvents | None = None
    notes: list[str] = field(default_factory=list)
    _sampling: dict[str, list[int]] = field(default_factory=dict)  # in the turns of this capture that are over
    _clock_pairs: list[tuple[int, int]] = field(default_factory=list)  # that the manifest does not have yet
    _next_number: int = 0
    _spe_began_ns: int = 0

    @property
    def has_topdown(self) -> bool:
        """Whether Topdown's events have their turn."""
        return any(timer.is_on for timer in self.timers if timer.what == TOPDOWN)

    def wait_ns(self) -> int:
        """Until something is to be switched."""
        now_ns = time.monotonic_ns()
        return min(timer.wait_ns(now_ns) for timer in self.timers)

    def switch_due(self, spool: SpoolWriter, poller: select.poll) -> bool:
        """Switch what is due; whether Topdown's events begin to count.

        Args:
            spool: takes what SPE has left.
            poller: woken by SPE's buffers.

        Raises:
            OSError: it could not be written.
        """
        begins = False
        for timer in self.timers:
            if timer.is_due(time.monotonic_ns()):
                if timer.is_on:
                    self._end(timer, spool, poller)
                else:
                    self._begin(timer, poller)
                    begins |= timer.what == TOPDOWN
        return begins

    def stop(self, spool: SpoolWriter) -> None:
        """Switch everything off. Raises as `switch_due`."""
        for timer in self.timers:
            if timer.is_on:
                self._end(timer, spool)

    @contextlib.contextmanager
    def between_captures(self, spool: SpoolWriter, poller: select.poll) -> Iterator[None]:
        """Inside one capture ends and the next begins: SPE's turn is interrupted, whose files are of one capture.

        Raises as `switch_due`.
        """
        interrupted = [timer for timer in self.timers if timer.what == SPE and self.spe]
        for timer in interrupted:
            self._end(timer, spool, poller)
        yield
        for timer in interrupted:
            self._begin(timer, poller)

    def begin_capture(self, now_ns: int) -> None:
        """What was before is another capture's."""
        for timer in self.timers:
            timer.begin_capture(now_ns)
        self._sampling, self.notes = {}, []

    def told(self, manifest: Manifest) -> Manifest:
        """The manifest with what is to be said of the turns up to now."""
        now_ns = time.monotonic_ns()
        for pair in self._clock_pairs:
            manifest = with_clock_pair(manifest, pair)
        self._clock_pairs = []
        if manifest.spe:
            manifest = replace(manifest, spe=replace(manifest.spe, sampling=dict(self._sampling)))
        return replace(manifest, duty=[timer.info(now_ns) for timer in self.timers])

    def close(self) -> None:
        """Close what is open."""
        if self.spe:
            self.spe.close()

    def _begin(self, timer: DutyTimer, poller: select.poll) -> None:
        if timer.what == TOPDOWN:
            self.attached.switch(is_on=True)
            timer.switch_on(time.monotonic_ns())
            return
        try:
            self.spe = self.open_spe(self._next_number)
        except TdprofError as error:  # another profiler has it, or there is no memory to lock: the rest goes on
            self._note(f"a turn of SPE came to nothing: {error.message}")
            timer.switch_on(time.monotonic_ns(), is_recording=False)
            return
        self.attached.tell_switches(is_on=True)
        self._spe_began_ns = time.monotonic_ns()
        self._note_clock(self.spe)
        timer.switch_on(self._spe_began_ns)
        self.spe.start()
        for ring in self.spe.rings.values():
            poller.register(ring.fd, select.POLLIN)

    def _end(self, timer: DutyTimer, spool: SpoolWriter, poller: "select.poll | None" = None) -> None:
        if timer.what == TOPDOWN:
            self.attached.switch(is_on=False)
            timer.switch_off(time.monotonic_ns())
            return
        spe, self.spe = self.spe, None
        if spe is None:
            timer.switch_off(time.monotonic_ns())
            return
        with spe:
            spe.disable()
            timer.switch_off(time.monotonic_ns())
            self.attached.tell_switches(is_on=False)
            self._note_clock(spe)
            for name, counts in spe.sampling_counts().items():
                before = self._sampling.get(name, [0] * len(counts))
                self._sampling[name] = [one + other for one, other in zip(before, counts, strict=True)]
            for note in spe.final_notes(self._spe_began_ns):
                self._note(note)
            self._next_number = spe.next_number
            if poller:
                for ring in spe.rings.values():
                    with contextlib.suppress(KeyError):  # it hung up before
                        poller.unregister(ring.fd)
            spe.look()
            spe.drain(spool, goes_on=False)

    def _note_clock(self, spe: SpeEvents) -> None:
        if pair := spe.clock_pair():
            self._clock_pairs.append(pair)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)
