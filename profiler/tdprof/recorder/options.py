"""What a recording is asked for, and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from tdprof.errors import TdprofError
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.duty import Duties
from tdprof.recorder.events import Event
from tdprof.recorder.targets import Rate
from tdprof.text import printable
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.capture.manifest import Manifest
    from tdprof.model.events import TopdownInfo
    from tdprof.recorder.held_programs import HeldPrograms
    from tdprof.recorder.rotation import Segments
    from tdprof.recorder.spe_options import SpeOptions

USUAL_INTERVAL_NS = 900_000_000  # a capture knows time to the second, whatever the scheduler does to us
# Where groups take turns, what one did not see is judged by how unlike each other its moments were.
TURNS_INTERVAL_NS = 200_000_000
LEAST_INTERVAL_NS, MOST_INTERVAL_NS = 100_000_000, 60_000_000_000
_INTERVALS = "--interval 0.1s for times as fine as can be, up to 60s for small captures"
NO_INTERVALS = "--interval has no meaning here: without BPF every sample has its own time"


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What ``tdprof record`` was asked for. Exactly one of command, pids and is_system_wide is set.

    Attributes:
        meanwhile: a command that runs while others are recorded, until it ends.
        cgroups: of the whole system only what runs in these control groups.
        topdown: which of the events to sample together as groups; None: each by itself.
        has_interpreted: walk the frames of interpreters, too.
        off_cpu_period_ns: of a thread's time off a CPU, each with a sample; 0: none is sampled.
        has_wakers: say of these samples who ended the sleep.
        has_cpus: samples say on which CPU they were taken; without BPF they always do.
        stack_bytes: of each user stack, where they are copied; 0: as many as suit the rate.
        variables: of the command's environment, beside our own.
        notes: what the user should know of the plan, kept in the capture.
        segments: how to cut the recording, which then goes into several captures.
        asked_interval_ns: how long, at most, the BPF rungs add samples up before they note the time.
        duty: what is on for a part of the time only.
        on_begun: called once events count, and the capture has its name.
        on_waiting: called once recording has ended, where the command goes on.
        on_pass: told the number, from 1, of each run of the command, and how many there will be.
    """

    events: Sequence[Event] = ()
    rate: Rate = field(default_factory=lambda: Rate(frequency_hz=999))
    command: Sequence[str] = ()
    meanwhile: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: Sequence[int] = ()
    is_system_wide: bool = False
    cgroups: Sequence[str] = ()
    duration_s: float | None = None
    asked_interval_ns: int = USUAL_INTERVAL_NS
    use_bpf: bool = True
    call_graph: CallGraph = CallGraph.AUTO
    has_interpreted: bool = True
    off_cpu_period_ns: int = 0
    has_wakers: bool = False
    has_cpus: bool = False
    stack_bytes: int = 0
    spe: "SpeOptions | None" = None
    topdown: "TopdownInfo | None" = None
    notes: Sequence[str] = ()
    on_begun: Callable[[], None] = lambda: None
    on_waiting: Callable[[], None] = lambda: None
    on_pass: Callable[[int, int], None] = lambda _number, _total: None
    segments: "Segments | None" = None
    duty: Duties = field(default_factory=Duties)

    @property
    def interval_ns(self) -> int:
        """The same, shorter where groups take turns, and where segments are to be cut in time."""
        takes_turns = self.duty.topdown is None and any(groups and len(groups) > 1 for groups in self.passes)
        most_ns = TURNS_INTERVAL_NS if takes_turns else USUAL_INTERVAL_NS if self.segments else MOST_INTERVAL_NS
        return min(self.asked_interval_ns, most_ns)

    @property
    def passes(self) -> list[list[list[int]] | None]:
        """The counter groups of each run of the command; None: no groups, every event by itself."""
        if self.topdown is None:
            return [None]
        groups = [group.events for group in self.topdown.groups]
        grouped = {row for group in groups for row in group}
        groups = [*([row] for row in range(len(self.events)) if row not in grouped), *groups]
        return [[group] for group in groups] if self.topdown.is_pass_per_group else [groups]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recording ended.

    Attributes:
        manifest: as written.
        failure: what stopped it early, with everything up to then kept; None if nothing did.
        held: programs that may be gone by now; for ``finish_capture``, and to be closed after it.
    """

    manifest: "Manifest"
    failure: TdprofError | None
    held: "HeldPrograms"


def parse_interval(text: str) -> int:
    """Nanoseconds of what ``--interval`` was given.

    Raises:
        TdprofError: no length of time, or one that is too short or too long.
    """
    from tdprof.model.time_range import parse_span_ns  # slow to load

    interval_ns = parse_span_ns(text)
    if interval_ns is None:
        raise TdprofError(f"--interval takes a length of time, not '{printable(text)}'", hint=_INTERVALS, status=2)
    if not LEAST_INTERVAL_NS <= interval_ns <= MOST_INTERVAL_NS:
        raise TdprofError(f"--interval is from 0.1s to 60s, not {printable(text)}", hint=_INTERVALS, status=2)
    return interval_ns
