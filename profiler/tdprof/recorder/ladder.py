"""The ladder of fallbacks: which events a recording takes when none is named, and which rung it stands on."""

from collections.abc import Sequence

from tdprof.capture.manifest import Rung
from tdprof.recorder.bpf.load import BpfLoad, BpfUnavailableError
from tdprof.recorder.bpf.off_cpu import OffCpuPlan
from tdprof.recorder.bpf.sampler import BpfSampler, TableSizes
from tdprof.recorder.bpf.settings import NO_CGROUPS, Setting
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.capabilities import may_load_bpf, why_no_bpf
from tdprof.recorder.events import Event, core_pmus, parse_event
from tdprof.recorder.host import perf_event_paranoid
from tdprof.recorder.permitted import can_open, restrict_to_permitted
from tdprof.values import dataclass


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
        off_cpu: OffCpuPlan | None = None,
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

    def finish(self, choice: Choice) -> tuple[BpfSampler | None, Rung, str]:
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
