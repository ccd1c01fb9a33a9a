"""A profile: aggregated tables of stacks and values, made from a capture; what reports and exporters read."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace

import numpy as np
from numpy.typing import NDArray

from tdprof.errors import TdprofError
from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import I32, I64, U8, U32, U64
from tdprof.model.cgroups import Cgroup
from tdprof.model.events import EventInfo, TopdownInfo
from tdprof.model.losses import Losses
from tdprof.model.off_cpu import ThreadTimes
from tdprof.model.stack_ends import StackEnd
from tdprof.values import dataclass

NO_ID = 0xFFFFFFFF  # a process or thread that the recording does not tell


@dataclass(frozen=True, slots=True)
class FunctionTable:
    """Distinct functions. Row = function id.

    Attributes:
        name: shown name, demangled; for an unknown function, the address or the reason in brackets.
        linkage_name: as in the symbol table.
        file: source file or "".
        mapped_file: int32, row in ``Profile.mapped_files``; -1 if no mapping is known.
        is_inlined: uint8, 1 if every appearance is an inlined one (it has no code of its own).
        whole: int32, the row of the function as a whole, whose file is the one that it stands in: a function with lines
            of other files, too, has a row for each of these. None: each row is a whole function.
    """

    name: Sequence[str]
    linkage_name: Sequence[str]
    file: Sequence[str]
    mapped_file: I32
    is_inlined: U8
    whole: I32 | None = None


@dataclass(frozen=True, slots=True)
class LocationTable:
    """Distinct code addresses. Row = location id. Inlined frames stand innermost first.

    Attributes:
        mapped_file: int32, row in ``Profile.mapped_files``, -1 if no mapping is known.
        address: uint64, file offset within the mapped file (run-time address where there is none).
        reason: uint8, an ``Unknown``.
        frame_start: uint32[n + 1]; frames of location i are ``frame_start[i]:frame_start[i + 1]``, never empty.
        frame_function: int32, function id.
        frame_line: uint32, source line or 0.
        is_guess: bool; stacks have it where their walk had to guess their caller. An address that is one in some stacks
            alone has two rows.
    """

    mapped_file: I32
    address: U64
    reason: U8
    frame_start: U32
    frame_function: I32
    frame_line: U32
    is_guess: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StackTable:
    """Distinct call stacks. Row = stack id. Locations stand leaf first, kernel part before user part.

    Attributes:
        start: uint32[n + 1]; locations of stack i are ``location[start[i]:start[i + 1]]``; may be empty.
        location: int32, location id.
    """

    start: U32
    location: I32


@dataclass(frozen=True, slots=True)
class SampleTable:
    """Aggregated samples: one row for each distinct (time, event, pid, tid, thread name, stack, cgroup,
    state).

    Attributes:
        time_ns: uint64, end of the interval in which they fell, CLOCK_MONOTONIC; intervals are at most a second.
        event: uint32, index into ``Profile.events``.
        pid, tid: uint32; ``NO_ID`` where unknown.
        thread_name: int32, index into ``Profile.thread_names``.
        stack: int32, stack id.
        count: uint64, number of samples.
        weight: uint64, sum of the samples' periods, in the event's unit.
        cgroup: int32, index into ``Profile.cgroups``, -1 where the recording does not tell.
        state: uint8, the `ThreadState` that time off a CPU was spent in; 0 of all else.
        cpu: int32, where they were taken; -1 where that is not told, and of time off a CPU.
        waker: int32, row in ``Profile.wakers``, who ended the sleep; -1 where that is not known, and of all else.
    """

    time_ns: U64
    event: U32
    pid: U32
    tid: U32
    thread_name: I32
    stack: I32
    count: U64
    weight: U64
    cgroup: I32
    state: U8
    cpu: I32
    waker: I32


@dataclass(frozen=True, slots=True)
class WakerTable:
    """Who ended sleeps.

    Attributes:
        thread_name: of each; of interrupts what tells that they are none.
        stack: int32, row in ``Profile.stacks``: from what called the scheduler on; of an interrupt no more than that.
    """

    thread_name: Sequence[str]
    stack: I32


@dataclass(frozen=True, slots=True)
class StackWalks:
    """How far the user call stacks reach. Each number counts samples.

    Attributes:
        ends: of the samples with a user call stack of which it is known: how many ended so, the commonest first.
        guessed: those of them with callers that are guesses.
    """

    ends: dict[StackEnd, int]
    guessed: int

    @property
    def total(self) -> int:
        """Samples of which it is known how their stack ended."""
        return sum(self.ends.values())


@dataclass(frozen=True, slots=True)
class FrameStacks:
    """The frames of every stack of a profile, leaf first; read only.

    Attributes:
        start: int64[n + 1]; frames of stack i are ``start[i]:start[i + 1]``, never empty.
        function: int32, function id; -1 stands for a sample whose stack could not be read. Functions that nobody could
            tell apart, of one name, source file and path of the mapped file, have one id, that of the first. Those of
            lines are as said in `profile.frames.frame_stacks`.
        line: uint32, source line or 0.
    """

    start: I64
    function: I32
    line: U32


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """What of a recording's time a profile's samples are of; (begin, end) in nanoseconds since its start, in order.

    Attributes:
        asked: what the user chose.
        covered: whole intervals where samples are added up over these, else the same.
        grain_ns: how long the recording's intervals are, in the middle; None where samples have their own times.
    """

    asked: Sequence[tuple[int, int]]
    covered: Sequence[tuple[int, int]]
    grain_ns: int | None


@dataclass(slots=True)
class KeptStacks:
    """The expanded stacks of a profile's code, which copies of it with other samples share.

    Attributes:
        code: the tables that they were made of.
        stacks: made by `profile.frames.frame_stacks`; None until somebody asks.
        of_lines: the same with the functions of lines.
    """

    code: tuple[object, ...] = ()
    stacks: FrameStacks | None = None
    of_lines: FrameStacks | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything a report or an exporter needs; symbols are already resolved."""

    events: Sequence[EventInfo]
    mapped_files: Sequence[MappedFile]
    mapped_file_ranges: Sequence[tuple[int, int, int]]  # run-time start, length, file offset of one mapping of each
    functions: FunctionTable
    locations: LocationTable
    stacks: StackTable
    samples: SampleTable
    thread_names: Sequence[str]
    process_names: dict[int, str]
    command: Sequence[str]  # empty where ``target`` was recorded instead
    rung: str
    rung_reason: str
    losses: Losses
    start_realtime_ns: int  # wall clock at the start, since the epoch
    duration_ns: int
    notes: Sequence[str] = ()  # what else a reader of the numbers should know, a sentence each
    is_whole_run: bool = False  # a command, from its start to its end: amounts, not only shares, mean something
    target: str = ""  # what was recorded instead of a command, in words
    is_of_hosts: bool = False  # many, whose differences no interval of samples holds: shares have none
    has_sample_times: bool = False  # each row of the samples is one sample, with its own time
    topdown: TopdownInfo | None = None  # of a recording for metrics; its events repeat from group to group
    runtimes: Mapping[int, Sequence[str]] = field(default_factory=dict)  # what each process's runtimes are called
    cgroups: Sequence[Cgroup] = ()  # empty: the recording tells none
    walks: StackWalks | None = None  # None: the recording does not tell
    thread_times: ThreadTimes | None = None  # None: likewise
    start_monotonic_ns: int = 0  # the start in the clock of the samples' times
    interval_ns: int = 1_000_000_000  # that samples were to be added up over, where they have no times of their own
    # Of intervals that took twice as long or longer: when they began, by their ends, both as the samples' times.
    long_intervals: Mapping[int, int] = field(default_factory=dict)
    window: TimeWindow | None = None  # None: samples are of the whole recording
    unreadable: Sequence[str] = ()  # those of the notes that say what of the capture could not be read
    wakers: WakerTable | None = None  # None: nobody asked for them
    boot_id: str = ""  # of the kernel that was sampled, whose addresses mean nothing in another boot; empty: not known
    kept_stacks: KeptStacks = field(default_factory=KeptStacks, repr=False, compare=False)

    def without(self, reason: str) -> "Profile":
        """The profile with a note on something of the capture that could not be read; as it is if it has that note."""
        if reason in self.unreadable:
            return self
        return replace(self, notes=[reason, *self.notes], unreadable=[*self.unreadable, reason])

    def without_spe(self, error: TdprofError) -> "Profile":
        """The profile with a note that SPE's records beside its samples could not be read, and why."""
        return self.without(f"SPE records are left out: {error.message}" + (f" ({error.hint})" if error.hint else ""))

    def total_weight(self) -> U64:
        """uint64[len(events)]: sum of weights of each event's samples."""
        return self._per_event(self.samples.weight)

    def total_samples(self) -> U64:
        """uint64[len(events)]: number of samples of each event."""
        return self._per_event(self.samples.count)

    def only_event(self, event: int) -> "Profile":
        """The profile as if only this event, by its index, had been recorded; stacks and code are kept."""
        chosen = self.samples.event == event
        columns = {each.name: getattr(self.samples, each.name)[chosen] for each in fields(self.samples)}
        columns["event"] = np.zeros_like(columns["event"])
        return replace(self, events=[self.events[event]], samples=SampleTable(**columns))

    def _per_event(self, values: U64) -> U64:
        total = np.zeros(len(self.events), np.uint64)
        np.add.at(total, self.samples.event, values)
        return total
