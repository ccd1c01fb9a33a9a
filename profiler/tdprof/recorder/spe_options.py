"""What ``--spe=…`` asks for, and the SPE of this machine: its PMUs in sysfs, and the options as an event of one.

The driver's interface: sysfs ``format/`` and ``caps/`` (drivers/perf/arm_spe_pmu.c).
"""

from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.recorder.events import SYSFS_PMUS, Event, parse_event, split_events
from tdprof.recorder.host import parse_cpu_list, read_setting, read_text
from tdprof.recorder.spe_rate import DEFAULT_BYTES_A_SECOND, parse_rate
from tdprof.values import dataclass

MOST_TASK_EVENTS = 4096
"""SPE events of tasks that nobody minds: 5 MB of the kernel's memory, and some hundredths of a second to open."""

# option: the driver's format attribute
_FLAGS = {
    "load": "load_filter",
    "store": "store_filter",
    "branch": "branch_filter",
    "simd": "simd_filter",
    "float": "float_filter",
    "pa": "pa_enable",
    "jitter": "jitter",
}
_NUMBERS = {
    "min_latency": "min_latency",
    "event": "event_filter",
    "inv_event": "inv_event_filter",
    "inv_data_src": "inv_data_src_filter",
}
# On unless switched off, where the driver has them: without timestamps records cannot be ordered, without jitter a
# fixed interval locks on to loops.
_DEFAULTS = ("ts_enable", "jitter")


@dataclass(frozen=True, slots=True)
class SpeOptions:
    """What ``--spe=…`` asks for.

    Attributes:
        period: operations between samples, of which the driver clears the low eight bits; 0: as the rate says.
        bytes_a_second: that may be written; 0: as many as come.
        terms: format attributes and their values.
        modifiers: "u", "k" or both, as with events; empty for all that is permitted.
    """

    period: int = 0
    bytes_a_second: int = DEFAULT_BYTES_A_SECOND
    terms: tuple[tuple[str, int], ...] = ()
    modifiers: str = ""


def parse_spe_options(text: str) -> SpeOptions:
    """Read ``load,store,min_latency=30,period=2048,rate=64M,jitter=0,event=0x2,u``.

    A period alone is taken as it is, however much it writes.

    Raises:
        TdprofError: an unknown option or a value that is no number.
    """
    period, rate, modifiers = 0, 0, ""
    terms: dict[str, int] = {}
    for item in split_events(text):
        name, has_value, value_text = item.partition("=")
        if name == "rate":
            rate = parse_rate(value_text)
            continue
        try:
            value = int(value_text, 0) if has_value else 1
        except ValueError as error:
            raise TdprofError(f"'{value_text}' is not a number in --spe={text}", status=2) from error
        if name == "period":
            if value < 256:
                raise TdprofError(
                    f"SPE's period is at least 256 operations, not {value}", hint="--spe=period=256", status=2
                )
            period = value
        elif name in ("u", "k", "uk", "ku") and not has_value:
            modifiers += name
        elif name in _FLAGS and value in (0, 1):
            terms[_FLAGS[name]] = value
        elif name in _NUMBERS and has_value:
            terms[_NUMBERS[name]] = value
        else:
            known = ", ".join([*_FLAGS, "period=N", "rate=BYTES", *(f"{number}=N" for number in _NUMBERS), "u", "k"])
            raise TdprofError(f"--spe does not take '{item}'", hint=f"it takes {known}", status=2)
    return SpeOptions(period, rate or (0 if period else DEFAULT_BYTES_A_SECOND), tuple(terms.items()), modifiers)


@dataclass(frozen=True, slots=True)
class SpePmu:
    """One ``arm_spe_N`` in sysfs: the SPE of one kind of core.

    Attributes:
        name: its folder.
        cpus: the CPUs that have it.
        attributes: names of its ``format/`` files.
        caps: its ``caps/`` files as numbers.
    """

    name: str
    cpus: tuple[int, ...]
    attributes: frozenset[str]
    caps: dict[str, int]


def find_spe_pmus(pmus: Path = SYSFS_PMUS) -> list[SpePmu]:
    """Every SPE PMU of this machine; empty where the driver is absent."""
    return [
        SpePmu(
            folder.name,
            tuple(parse_cpu_list(read_text(folder / "cpumask"))),
            frozenset(entry.name for entry in folder.glob("format/*")),
            {entry.name: value for entry in folder.glob("caps/*") if (value := read_setting(entry)) is not None},
        )
        for folder in sorted(pmus.glob("arm_spe_*"))
    ]


def spe_event(pmu: SpePmu, options: SpeOptions, pmus: Path = SYSFS_PMUS) -> Event:
    """The options as one PMU's event.

    Raises:
        TdprofError: this hardware or kernel lacks something that was asked for.
    """
    values = {name: 1 for name in _DEFAULTS if name in pmu.attributes} | dict(options.terms)
    for name in values:
        if name not in pmu.attributes:
            raise TdprofError(
                f"{pmu.name} has no '{name}': this core's SPE version or this kernel lacks it",
                hint=f"it has {', '.join(sorted(pmu.attributes))}",
            )
    terms = ",".join(f"{name}={value:#x}" for name, value in values.items() if value)
    return parse_event(f"{pmu.name}/{terms}/{options.modifiers}", pmus)
