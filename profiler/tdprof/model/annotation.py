"""An annotated function: what each of its source lines and instructions took."""

from collections.abc import Sequence
from dataclasses import field

from tdprof.model.arrays import U64
from tdprof.model.events import EventInfo
from tdprof.model.findings import MetricValue
from tdprof.model.machine_code import Instruction
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """What SPE measured of a line's operations: cycles from dispatch to completion."""

    operations: int
    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What code took. ``own`` is of the function's own instructions, ``inlined`` of functions inlined there.

    Attributes:
        own_weight, inlined_weight: uint64[events], in each event's unit.
        own_samples, inlined_samples: uint64[events].
    """

    own_weight: U64
    own_samples: U64
    inlined_weight: U64
    inlined_samples: U64

    @property
    def weight(self) -> U64:
        """uint64[events]: both."""
        return self.own_weight + self.inlined_weight

    @property
    def samples(self) -> U64:
        """uint64[events]: both."""
        return self.own_samples + self.inlined_samples


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of a source file.

    Attributes:
        text: None where the file could not be read.
        cost: None for a line without samples.
        metrics: (name, value) of the line's own instructions.
        latency: of the operations that SPE sampled in it.
    """

    line: int
    text: str | None
    cost: Cost | None = None
    metrics: Sequence[tuple[str, MetricValue]] = ()
    latency: Latency | None = None


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The lines of one file that a function has code from; line 0 stands for code without a line."""

    path: str
    lines: Sequence[SourceLine]


@dataclass(frozen=True, slots=True)
class CodeLine:
    """An instruction with what it took.

    Attributes:
        frames: functions inlined there, innermost first, ending with the function itself: (name, file, line).
        cost: None without samples; ``own`` where the annotated function itself is innermost.
        target: what a direct branch or call goes to, or "".
    """

    instruction: Instruction
    frames: Sequence[tuple[str, str, int]]
    cost: Cost | None
    target: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """A piece of code: a symbol of a file, or addresses of which only samples are known."""

    name: str
    module: str
    lines: Sequence[CodeLine]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Everything about one function.

    Attributes:
        name, module: the function's.
        events: the profile's.
        totals: uint64[events], weight of all samples.
        cost: of the whole function.
        sources: its lines, file by file.
        code: its instructions; empty unless asked for.
        texts: lines of source files by (path, line), for code that was inlined from elsewhere.
        notes: what is missing, or not to be relied on, a sentence each.
    """

    name: str
    module: str
    events: Sequence[EventInfo]
    totals: U64
    cost: Cost
    sources: Sequence[SourcePart]
    code: Sequence[Code]
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    notes: Sequence[str] = ()
