"""What a recording is asked for, and how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tdprof.capture.manifest import Manifest
from tdprof.errors import TdprofError
from tdprof.model.events import TopdownInfo
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.events import Event
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.rotation import Segments
from tdprof.recorder.spe import SpeOptions
from tdprof.recorder.targets import Rate


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What ``tdprof record`` was asked for. Exactly one of command, pids and is_system_wide is set.

    Attributes:
        cgroups: of the whole system only what runs in these control groups.
        topdown: which of the events to sample together as groups; None: each by itself.
        has_interpreted: walk the frames of interpreters, too.
        off_cpu_period_ns: of a thread's time off a CPU, each with a sample; 0: none is sampled.
        stack_bytes: of each user stack, where they are copied; 0: as many as suit the rate.
        variables: of the command's environment, beside our own.
        notes: what the user should know of the plan, kept in the capture.
        segments: how to cut the recording, which then goes into several captures.
        on_pass: told the number, from 1, of each run of the command, and how many there will be.
    """

    events: Sequence[Event] = ()
    rate: Rate = field(default_factory=lambda: Rate(frequency_hz=999))
    command: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    pids: Sequence[int] = ()
    is_system_wide: bool = False
    cgroups: Sequence[str] = ()
    duration_s: float | None = None
    use_bpf: bool = True
    call_graph: CallGraph = CallGraph.AUTO
    has_interpreted: bool = True
    off_cpu_period_ns: int = 0
    stack_bytes: int = 0
    spe: SpeOptions | None = None
    topdown: TopdownInfo | None = None
    notes: Sequence[str] = ()
    on_pass: Callable[[int, int], None] = lambda _number, _total: None
    segments: Segments | None = None

    @property
    def passes(self) -> list[list[list[int]] | None]:
        """The counter groups of each run of the command; None: no groups, every event by itself."""
        if self.topdown is None:
            return [None]
        groups = [group.events for group in self.topdown.groups]
        return [[group] for group in groups] if self.topdown.is_pass_per_group else [groups]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a recording ended.

    Attributes:
        manifest: as written.
        failure: what stopped it early, with everything up to then kept; None if nothing did.
        held: programs that may be gone by now; for ``finish_capture``, and to be closed after it.
    """

    manifest: Manifest
    failure: TdprofError | None
    held: HeldPrograms
