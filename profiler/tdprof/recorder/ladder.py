"""The ladder of fallbacks: which events a recording takes when none is named, and which rung it stands on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tdprof.capture.manifest import Rung
from tdprof.recorder.bpf.array_sizes import OF_A_MACHINE, sizes_for_files
from tdprof.recorder.bpf.load import BpfLoad, BpfUnavailableError
from tdprof.recorder.bpf.settings import NO_CGROUPS, Setting
from tdprof.recorder.bpf.table_sizes import TableSizes
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.capabilities import may_load_bpf, why_no_bpf
from tdprof.recorder.cgroups import CgroupNaming
from tdprof.recorder.events import Event, core_pmus, parse_event
from tdprof.recorder.host import perf_event_paranoid
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.permitted import can_open, restrict_to_permitted
from tdprof.unwind.tables import TableCache
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.bpf.off_cpu import OffCpuPlan
    from tdprof.recorder.bpf.sampler import BpfSampler

SPARE_THREADS = 1024  # that a process may start while it is being looked at


@dataclass(frozen=True, slots=True)
class Choice:
    """What to sample and what the user should know of the choice."""

    events: list[Event]
    notes: list[str]
    has_pmu: bool


def choose_events(named: Sequence[Event]) -> Choice:
    """The named events, or cycles where a PMU can interrupt on them, else the CPU clock.

    Where only the kernel's part is refused, user space is recorded and a note says so.
    """
    notes = []
    cycles = parse_event("cycles")
    has_pmu = any(can_open(event, sampling=True) for event in (cycles, cycles.user_only()))
    events = list(named)
    if not events:
        events = [cycles if has_pmu else parse_event("cpu-clock")]
        if not has_pmu:
            why = "its PMU cannot interrupt here" if core_pmus() else "this machine shows no PMU"
            notes.append(f"cpu-clock instead of cycles: {why} (tdprof doctor)")
    permitted = [restrict_to_permitted(event) for event in events]
    if permitted != events:
        notes.append(f"user space only: kernel.perf_event_paranoid is {perf_event_paranoid()}")
    return Choice(permitted, notes, has_pmu)


class BpfAttempt:
    """Tries for a BPF rung; started early, because the load takes longer than everything else before the start.

    Args:
        events: what will be sampled.
        sizes: capacities of the tables.
        call_graph: how user stacks are taken.
        cgroups: how samples name their control groups.
        off_cpu: how time off a CPU is sampled, if it is.
        has_cpus: whether samples say on which CPU they were taken.
        is_wanted: whether the user lets us.
    """

    def __init__(
        self,
        events: Sequence[Event],
        sizes: TableSizes,
        call_graph: CallGraph,
        cgroups: dict[Setting, int] = NO_CGROUPS,
        off_cpu: "OffCpuPlan | None" = None,
        *,
        has_cpus: bool = False,
        is_wanted: bool,
    ) -> None:
        self._load: BpfLoad | None = None
        self._reason = ""
        self.cure = "tdprof doctor says what it takes"  # should it fail
        if not is_wanted:
            self._reason, self.cure = "asked for with --no-bpf", "record as root, without --no-bpf"
        elif not may_load_bpf():
            self._reason, self.cure = why_no_bpf(), "run tdprof with sudo"
        else:
            with_kernel = [not event.exclude_kernel for event in events]
            self._load = BpfLoad(with_kernel, sizes, call_graph, cgroups, off_cpu, has_cpus=has_cpus)

    def finish(self, choice: Choice) -> tuple["BpfSampler | None", Rung, str]:
        """The loaded sampler or None, the rung, and why it is this one."""
        reason = self._reason
        if self._load is not None:
            try:
                sampler = self._load.finish()
            except BpfUnavailableError as error:
                reason = str(error)
            else:
                if all(event.is_software for event in choice.events):
                    why = "only software events were asked for" if choice.has_pmu else "no PMU interrupts here"
                    return sampler, Rung.BPF_SOFTWARE, why
                return sampler, Rung.BPF_PMU, "BPF and the PMU both work"
        return None, Rung.RING_BUFFER, f"no BPF: {reason}"

    def close(self) -> None:
        """Reap what helped with the load; wanted once the events run."""
        if self._load is not None:
            self._load.close()


def events_together(options: RecordOptions, choice: Choice) -> int:
    """How many events count at a time."""
    first = options.passes[0]
    return max(len(group) for group in first) if first else len(choice.events)


def begin_load(
    options: RecordOptions,
    choice: Choice,
    cgroups: CgroupNaming,
    files: Sequence[Path],
    *,
    cpus: int,
    named_threads: int,
) -> BpfAttempt:
    """Begin to load the BPF programs, with tables of the sizes that this recording asks for.

    Args:
        options: what to record.
        choice: the events.
        cgroups: how samples name their control groups.
        files: that the command will map first.
        cpus: that are up.
        named_threads: of the processes that were named.

    Raises:
        TdprofError: the kernel does not tell what timing threads needs.
    """
    # Time off a CPU takes about as many rows as an event: samples of many waits, but of much fewer threads than wait.
    events = events_together(options, choice) + (options.off_cpu_period_ns > 0)
    # Where much else runs the recorder itself may have to wait for seconds; one program's samples are mostly alike.
    waits_s = 8 if options.is_system_wide else 2
    sizes = TableSizes.for_rate(max(options.rate.frequency_hz, 1000) * cpus * events, waits_s=waits_s)
    if options.is_system_wide:
        sizes = replace(sizes, arrays=OF_A_MACHINE)
    else:
        sizes = replace(sizes, arrays=sizes_for_files(files, TableCache()))
        if options.topdown is None:
            sizes = replace(sizes, named_threads=SPARE_THREADS + 2 * named_threads)
    off_cpu = None
    if options.off_cpu_period_ns:
        from tdprof.recorder.bpf.off_cpu import OffCpuPlan

        off_cpu = OffCpuPlan.make(
            len(choice.events),
            options.off_cpu_period_ns,
            has_wakers=options.has_wakers,
            of_groups=cgroups.structures() if options.cgroups else None,
        )
    return BpfAttempt(
        choice.events,
        sizes,
        options.call_graph,
        cgroups.settings,
        off_cpu,
        has_cpus=options.has_cpus,
        is_wanted=options.use_bpf,
    )
