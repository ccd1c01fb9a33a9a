"""Who takes a recording's samples, and who walks their stacks: the BPF programs loaded, or what does without them."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from tdprof.capture.manifest import Rung
from tdprof.errors import TdprofError
from tdprof.recorder.bpf.sampler import BpfSampler
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.cgroups import CgroupNaming
from tdprof.recorder.chain_source import BY_FRAME_POINTERS, ChainSource
from tdprof.recorder.ladder import BpfAttempt, Choice, events_together
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.periods import PeriodControl
from tdprof.recorder.ring_walk import RingWalker, as_frequency, can_walk, chain_source
from tdprof.recorder.table_batch import FirstTables
from tdprof.recorder.targets import Rate
from tdprof.recorder.unwinding import Unwinding, start_unwinding
from tdprof.unwind.tables import TableCache
from tdprof.values import dataclass

_AT_A_PERIOD = (
    "stacks: frame pointers only, so callers may be missing or wrong (samples of a fixed period may come too fast for "
    "more; --call-graph dwarf walks by unwind tables)"
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How samples are taken.

    Attributes:
        choice: the events, and what to say of them.
        rates: of each event.
        sampler: its programs take them; None: perf's rings do.
        rung: where that stands on the ladder.
        reason: why there.
        walker: walks copies of stacks out of the rings; None where BPF or nobody does.
        unwinding: gives whoever walks the programs' tables; None if nobody walks by them.
        chains: what samples in the rings say of their callers; how much is copied is up to the rings, too.
        cgroups: whether and how samples name their control groups.
        notes: what the user should know of how stacks are walked without the programs.
    """

    choice: Choice
    rates: list[Rate]
    sampler: BpfSampler | None
    rung: Rung
    reason: str
    walker: RingWalker | None
    unwinding: Unwinding | None
    chains: ChainSource
    cgroups: CgroupNaming
    notes: list[str]

    @property
    def programs(self) -> Sequence[int] | None:
        """Of each event, for `AttachedEvents`."""
        return self.sampler.programs if self.sampler else None

    def await_walk(self, *, is_deep: bool) -> None:
        """Wait for the programs that walk stacks.

        Args:
            is_deep: also for those that walk the deepest stacks, of which only so many can be copied.
        """
        if self.sampler and is_deep:
            self.sampler.await_walk()
        elif self.sampler:
            self.sampler.await_first_walk()


def start_sampling(
    options: RecordOptions,
    choice: Choice,
    attempt: BpfAttempt,
    cgroups: CgroupNaming,
    first: FirstTables,
    control: PeriodControl | None,
    stack: contextlib.ExitStack,
) -> Sampling:
    """Finish the load, or fall back to perf's rings, and start who walks the stacks.

    Args:
        options: what to record.
        choice: the events.
        attempt: at the programs.
        cgroups: how samples name their control groups, if the programs do.
        first: tables of the files that the command will map first.
        control: of the events' periods; None: the rate that was asked for.
        stack: what is started ends with it.

    Raises:
        TdprofError: what was asked for cannot be had without the programs.
    """
    together = events_together(options, choice)
    sampler, rung, reason = attempt.finish(choice)
    if sampler is None:
        _check_without_programs(options, reason, attempt.cure)
    else:
        stack.enter_context(sampler)
    cgroups = cgroups.on_rung(has_bpf=sampler is not None)
    asked = as_frequency(options.rate, choice.events)
    walker = RingWalker() if sampler is None and can_walk(options.call_graph, together, asked) else None
    periods = control.periods if control else [0] * len(choice.events)
    rates = [Rate(period=period) if period else options.rate for period in periods]
    chains = replace(
        chain_source(options.stack_bytes, rates[0] if control else asked, together) if walker else BY_FRAME_POINTERS,
        is_leaf_only=options.call_graph is CallGraph.NONE,
        has_cgroups=cgroups.is_told,
    )
    by_kernel = sampler is None and walker is None and options.call_graph is CallGraph.AUTO
    unwinding = _start_unwinding(options, sampler, walker)
    if unwinding:
        stack.enter_context(unwinding)
        if first.paths:
            unwinding.prepare_files(first)
    return Sampling(
        choice,
        rates,
        sampler,
        rung,
        reason,
        walker,
        unwinding,
        chains,
        cgroups,
        [_AT_A_PERIOD] if by_kernel and asked.period else [],
    )


def _check_without_programs(options: RecordOptions, reason: str, cure: str) -> None:
    """Before the kernel is asked for events, whose refusal would name a cure that does not suffice."""
    by_programs = (
        (options.off_cpu_period_ns, "time off a CPU is sampled by BPF alone"),
        (options.segments, "a recording is cut into segments (--switch-output) by BPF alone"),
    )
    for is_asked, words in by_programs:
        if is_asked:
            raise TdprofError(f"{words}; {reason}", hint=cure)


def _start_unwinding(options: RecordOptions, sampler: BpfSampler | None, walker: RingWalker | None) -> Unwinding | None:
    if sampler:
        return start_unwinding(sampler, has_interpreted=options.has_interpreted)
    return Unwinding(walker, None, TableCache()) if walker else None
