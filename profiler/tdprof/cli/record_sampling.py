"""What `tdprof record` samples beside Topdown, how often, and with which call stacks."""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tdprof.cli.option_groups import adding, list_option
from tdprof.cli.record_topdown import DEFAULT_HZ as TOPDOWN_HZ
from tdprof.errors import TdprofError
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.targets import Rate

DEFAULT_HZ = 999
DEFAULT_OFF_CPU = "10ms"

_EVENT_HELP = (
    "Events to sample: cpu-clock, page-faults, cycles, instructions, r1b (a raw code), "
    "armv8_pmuv3_0/l1d_cache_refill/ (a sysfs name); with :u or :k only user space or the kernel. "
    "Default: cycles, or cpu-clock where no PMU interrupts."
)
_SPE_HELP = (
    "Also record Arm SPE: load, store, branch, min_latency=N, period=N, rate=BYTES, jitter=0, event=MASK, "
    "inv_event=MASK, pa, u or k, joined by commas; without options every kind of operation, as often as 64 MB a second "
    "(rate=64M) allow."
)
_WAKERS_HELP = (
    "Of each sample of sleep also who woke the thread, with its call stack: report --by waker, and exports have both. "
    "Implies --off-cpu."
)
_OFF_CPU_HELP = (
    "Also sample the time in which threads are on no CPU: one sample for each PERIOD of it that a thread adds up, such "
    f"as 500us, 10ms or 1s ({DEFAULT_OFF_CPU}). As root, where BPF works."
)
_CALL_GRAPH_HELP = (
    "How user call stacks are taken: auto (by the programs' unwind tables: in the kernel where BPF works, else from "
    "BYTES of the stack that are copied), dwarf (the same), fp (along frame pointers) or no (only where the sample was "
    "taken). "
    "Default: auto, with as many BYTES as the rate leaves room for."
)
_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_LEAST_OFF_CPU_NS, _MOST_OFF_CPU_NS = 10_000, 4_000_000_000  # bpf/settings.h has 32 bits for it


class _Frequency(click.IntRange):
    """A number, or as in perf ``max``: all that the kernel admits now."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; see ``click.ParamType.convert``."""
        if value == "max":
            from tdprof.recorder.host import MAX_SAMPLE_RATE, read_setting

            value = read_setting(MAX_SAMPLE_RATE)
            if value is None:
                self.fail(f"{MAX_SAMPLE_RATE} is not visible here", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class EventOptions:
    """As they were typed; see ``event_options``, ``interval_option`` and ``sample_options``."""

    events: str | None
    frequency_hz: int | None
    period: int | None
    interval: str | None
    spe_text: str | None
    off_cpu: str | None
    has_wakers: bool
    has_cpus: bool

    @property
    def has_spe(self) -> bool:
        """Whether SPE was asked for."""
        return self.spe_text is not None

    @property
    def has_off_cpu(self) -> bool:
        """Whether time off CPUs was asked for: asking for wakers does as well."""
        return self.off_cpu is not None or self.has_wakers

    def rate(self, *, is_topdown: bool) -> "Rate":
        """How often to sample.

        Raises:
            TdprofError: two ways to say it.
        """
        from tdprof.recorder.targets import Rate

        if self.frequency_hz is not None and self.period is not None:
            raise TdprofError("-F and -c exclude each other", hint="give one of them", status=2)
        if self.period is not None:
            return Rate(period=self.period)
        return Rate(frequency_hz=self.frequency_hz or (TOPDOWN_HZ if is_topdown else DEFAULT_HZ))

    def off_cpu_period_ns(self) -> int:
        """Time off CPUs with a sample each; 0: none is sampled.

        Raises:
            TdprofError: it is no time, or too short or too long.
        """
        if not self.has_off_cpu:
            return 0
        text = DEFAULT_OFF_CPU if self.off_cpu is None else self.off_cpu
        match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s)", text)
        period_ns = round(float(match[1]) * _UNITS_NS[match[2]]) if match else 0
        if not _LEAST_OFF_CPU_NS <= period_ns <= _MOST_OFF_CPU_NS:
            raise TdprofError(
                f"--off-cpu takes a time from 10us to 4s, not '{text}'", hint=f"--off-cpu={DEFAULT_OFF_CPU}", status=2
            )
        return period_ns


@dataclass(frozen=True, slots=True)
class StackOptions:
    """As they were typed; see ``stack_options``."""

    call_graph: str | None
    no_interpreters: bool
    has_perf_maps: bool
    no_bpf: bool

    def check(self, *, has_command: bool) -> None:
        """Raises TdprofError: there is no environment to set."""
        if self.has_perf_maps and not has_command:
            raise TdprofError(
                "--perf-maps sets the environment of a command; processes that run have theirs",
                hint="tdprof record --perf-maps -- CMD",
                status=2,
            )

    def variables(self) -> Mapping[str, str]:
        """Of the command's environment, beside our own."""
        if not self.has_perf_maps:
            return {}
        from tdprof.recorder.runtime_options import with_perf_maps

        return with_perf_maps(os.environ, has_python=self.no_bpf or self.no_interpreters)


event_options = adding(
    list_option("-e", "--event", "events", metavar="EVENT,…", help=_EVENT_HELP),
    click.option(
        "-F",
        "--freq",
        "frequency_hz",
        type=_Frequency(1, 2**31),
        metavar="HZ",
        help=f"Samples of each event a second and CPU ({DEFAULT_HZ}; with --topdown {TOPDOWN_HZ}); max: as many as the "
        "kernel admits.",
    ),
    click.option(
        "-c",
        "--count",
        "period",
        type=click.IntRange(1, 2**63 - 1),
        metavar="PERIOD",
        help="A sample every PERIOD events; nanoseconds for cpu-clock.",
    ),
)
interval_option = click.option(
    "--interval",
    metavar="TIME",
    help="How finely the capture knows time where samples are added up in the kernel: 0.1s to 60s (0.9s).",
)
sample_options = adding(
    click.option("--spe", "spe_text", is_flag=False, flag_value="", metavar="[=OPTION,…]", help=_SPE_HELP),
    click.option(
        "--off-cpu", "off_cpu", is_flag=False, flag_value=DEFAULT_OFF_CPU, metavar="[=PERIOD]", help=_OFF_CPU_HELP
    ),
    click.option("--wakers", "has_wakers", is_flag=True, help=_WAKERS_HELP),
    click.option(
        "--sample-cpu",
        "has_cpus",
        is_flag=True,
        help="Samples say on which CPU they were taken: report --by cpu. The kernel's sums are then of one CPU each, "
        "and the capture is larger; without BPF samples always say it.",
    ),
)
stack_options = adding(
    click.option("-g", is_flag=True, expose_value=False, help="Take call stacks: nothing else is the default here."),
    click.option("--call-graph", metavar="auto|fp|dwarf[,BYTES]|no", help=_CALL_GRAPH_HELP),
    click.option(
        "--no-interpreters",
        is_flag=True,
        help="No functions of Python programs, and JVMs are not asked for the names of theirs.",
    ),
    click.option(
        "--perf-maps",
        "has_perf_maps",
        is_flag=True,
        help="Set what makes Java, Node and .NET name the code they make in the command's environment; with --no-bpf "
        "and --no-interpreters also Python.",
    ),
    click.option("--no-bpf", is_flag=True, help="Use perf ring buffers even where BPF works."),
)
