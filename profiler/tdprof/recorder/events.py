"""Event names as perf writes them, to what perf_event_open(2) takes."""

import re
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import ReadFormat
from tdprof.model.events import CLOCKS, OFF_CPU, SOFTWARE_EVENTS, Unit
from tdprof.recorder import perf_event as pe
from tdprof.values import dataclass

SYSFS_PMUS = Path("/sys/bus/event_source/devices")
_FASTEST_CPU_HZ = 4_000_000_000  # few are faster, and those not by much

# perf_hw_id of include/uapi/linux/perf_event.h, under perf's names.
HARDWARE_EVENTS = {
    "cycles": 0,
    "cpu-cycles": 0,
    "instructions": 1,
    "cache-references": 2,
    "cache-misses": 3,
    "branches": 4,
    "branch-instructions": 4,
    "branch-misses": 5,
    "bus-cycles": 6,
    "stalled-cycles-frontend": 7,
    "stalled-cycles-backend": 8,
    "ref-cycles": 9,
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event to open.

    Attributes:
        name: as the user wrote it, modifiers included.
        type, config, config1, config2, config3: of struct perf_event_attr.
        exclude_user, exclude_kernel: the part of execution that is left out.
        precise: 0 to 3, perf_event_attr's precise_ip.
        unit: what it counts.
    """

    name: str
    type: int
    config: int
    config1: int = 0
    config2: int = 0
    config3: int = 0
    exclude_user: bool = False
    exclude_kernel: bool = False
    precise: int = 0
    unit: Unit = Unit.COUNT

    @property
    def most_hz(self) -> int:
        """About so often can it happen on a CPU in a second; 0: nobody can say."""
        if self.unit is Unit.NANOSECONDS:
            return 1_000_000_000
        is_cycles = (self.type, self.config) == (pe.PERF_TYPE_HARDWARE, HARDWARE_EVENTS["cycles"])
        return _FASTEST_CPU_HZ if is_cycles else 0

    @property
    def is_software(self) -> bool:
        """Whether the kernel itself counts it, with no PMU."""
        return self.type == pe.PERF_TYPE_SOFTWARE

    @property
    def is_clock(self) -> bool:
        """Whether a timer of the kernel's samples it."""
        return self.is_software and self.config in {SOFTWARE_EVENTS[name] for name in CLOCKS}

    @property
    def is_run_time(self) -> bool:
        """Whether it counts how long threads run, all of it."""
        return self.is_clock and not self.exclude_user and not self.exclude_kernel

    def attr(self) -> pe.PerfEventAttr:
        """A fresh attribute structure for it, with no sampling set."""
        return pe.PerfEventAttr(
            type=self.type,
            config=self.config,
            config1=self.config1,
            config2=self.config2,
            config3=self.config3,
            exclude_user=self.exclude_user,
            exclude_kernel=self.exclude_kernel,
            exclude_hv=self.exclude_kernel,
            precise_low=self.precise & 1,
            precise_high=self.precise >> 1,
            read_format=ReadFormat.TOTAL_TIME_ENABLED | ReadFormat.TOTAL_TIME_RUNNING,
        )

    def user_only(self) -> "Event":
        """The same event, restricted to user space, with a name that says so."""
        if self.exclude_kernel:
            return self
        separator = "" if self.name.endswith("/") else ":"
        return replace(self, name=f"{self.name}{separator}u", exclude_kernel=True)


def split_events(text: str) -> list[str]:
    """Split a ``-e`` list at its commas, but not at those between the slashes of ``pmu/term,term/``."""
    names, current, inside = [], "", False
    for character in text:
        if character == "/":
            inside = not inside
        if character == "," and not inside:
            names.append(current.strip())
            current = ""
        else:
            current += character
    return [name for name in [*names, current.strip()] if name]


def parse_events(text: str, pmus: Path = SYSFS_PMUS) -> list[Event]:
    """Every event of a ``-e`` list, in order.

    Raises:
        TdprofError: an empty list, or a name that nothing on this machine answers to.
    """
    events = [parse_event(name, pmus) for name in split_events(text)]
    if not events:
        raise TdprofError("the event list is empty", hint="name one, as -e cpu-clock, or leave -e away", status=2)
    names = [event.name for event in events]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TdprofError(f"the event {twice} is named twice", hint="name each event once", status=2)
    return events


def parse_event(text: str, pmus: Path = SYSFS_PMUS) -> Event:
    """One event: ``cycles``, ``page-faults:u``, ``r1b``, ``armv8_pmuv3_0/l1d_cache_refill/k`` or such.

    Raises:
        TdprofError: with the closest known names.
    """
    text = text.removesuffix(":")  # modifiers that perf, too, may have none of
    if text.startswith("{"):
        raise TdprofError(f"event groups in braces are not taken: {text}", hint="name the events with commas", status=2)
    if "/" in text:
        match = re.fullmatch(r"([\w.-]+)/([^/]*)/:?(\w*)", text)
        if not match:
            raise TdprofError(f"cannot read the event '{text}'", hint="write it as pmu/event/ or pmu/event/u", status=2)
        event = _sysfs_event(text, match[1], match[2], pmus)
        return _with_modifiers(event, match[3])
    name, _, modifiers = text.partition(":")
    if re.search(r"[^ukhpGHP]", modifiers):
        raise TdprofError(
            f"'{text}' names a tracepoint or has an unknown modifier; tdprof samples counters",
            hint="use :u, :k or both; perf list shows what a counter is called",
            status=2,
        )
    return _with_modifiers(_plain_event(text, name, pmus), modifiers)


def _plain_event(text: str, name: str, pmus: Path) -> Event:
    if name in SOFTWARE_EVENTS:
        unit = Unit.NANOSECONDS if name in CLOCKS else Unit.COUNT
        return Event(text, pe.PERF_TYPE_SOFTWARE, SOFTWARE_EVENTS[name], unit=unit)
    if name in HARDWARE_EVENTS:
        return Event(text, pe.PERF_TYPE_HARDWARE, HARDWARE_EVENTS[name])
    if match := re.fullmatch(r"r([0-9a-fA-F]{1,16})", name):
        return Event(text, pe.PERF_TYPE_RAW, int(match[1], 16))
    for pmu in core_pmus(pmus):
        if (pmus / pmu / "events" / name).is_file():
            return _sysfs_event(text, pmu, name, pmus)
    if name == OFF_CPU:
        raise TdprofError(f"'{name}' is no event that is counted", hint="tdprof record --off-cpu", status=2)
    known = [*SOFTWARE_EVENTS, *HARDWARE_EVENTS]
    for pmu in core_pmus(pmus):
        known += _names(pmus / pmu / "events")
    close = get_close_matches(name, known, n=3)
    hint = (
        f"did you mean {', '.join(close)}?" if close else "tdprof doctor lists the PMUs; rNNNN takes a raw event code"
    )
    raise TdprofError(f"unknown event '{name}'", hint=hint, status=2)


def core_pmus(pmus: Path = SYSFS_PMUS) -> list[str]:
    """The CPU cores' own PMUs on this machine, by sysfs name; empty where there is none.

    Arm's register under their core's name with a ``cpus`` file, x86's is ``cpu``.
    """
    return [name for name in _names(pmus) if re.match(r"armv[89]_|cpu$|cpu_(core|atom)$", name)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _sysfs_event(text: str, pmu: str, terms: str, pmus: Path) -> Event:
    folder = pmus / pmu
    type_text = _read(folder / "type")
    if not type_text:
        close = get_close_matches(pmu, _names(pmus), n=3) or _names(pmus)
        raise TdprofError(f"no PMU named '{pmu}'", hint=f"this machine has {', '.join(close)}", status=2)
    config = [0, 0, 0, 0]
    for term in terms.split(","):
        if term:
            _apply_term(folder, term, config, nested=False)
    return Event(text, int(type_text), config[0], config[1], config[2], config[3])


def _apply_term(folder: Path, term: str, config: list[int], *, nested: bool) -> None:
    """Set the bits of one ``name`` or ``name=value`` term; an event's alias file holds more terms."""
    name, _, value_text = term.partition("=")
    alias = _read(folder / "events" / name)
    if alias and not value_text and not nested:
        for inner in alias.split(","):
            _apply_term(folder, inner, config, nested=True)
        return
    try:
        value = int(value_text, 0) if value_text else 1
    except ValueError as error:
        raise TdprofError(f"'{value_text}' is not a number in '{term}'", status=2) from error
    if match := re.fullmatch(r"config([123]?)", name):
        config[int(match[1] or 0)] |= value
        return
    layout = _read(folder / "format" / name)
    if not layout:
        known = [*_names(folder / "events"), *_names(folder / "format")]
        close = get_close_matches(name, known, n=3) or known[:8]
        raise TdprofError(
            f"PMU {folder.name} has no event or field '{name}'", hint=f"it has {', '.join(close)}", status=2
        )
    register, _, ranges = layout.partition(":")
    index = int(register.removeprefix("config") or 0)
    if index >= len(config):
        raise TdprofError(f"tdprof cannot set {folder.name}'s field {name}: it lies in {register}", status=2)
    remaining = value
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        width = int(high or low) - int(low) + 1
        config[index] |= (remaining & ((1 << width) - 1)) << int(low)
        remaining >>= width
    if remaining:
        raise TdprofError(f"{value:#x} does not fit into {folder.name}'s field {name} ({layout})", status=2)


def _with_modifiers(event: Event, modifiers: str) -> Event:
    """perf's modifiers: u, k and h name what is counted, everything if none is given; p asks for less skid.

    As in perf each is given once, but p up to three times.
    """
    if twice := next((each for each in modifiers if modifiers.count(each) > (3 if each == "p" else 1)), None):
        raise TdprofError(f"the modifier '{twice}' stands too often in '{event.name}'", hint="use u, k or p", status=2)
    if bad := re.sub(r"[ukhpGHP]", "", modifiers):
        raise TdprofError(f"unknown modifier '{bad[0]}' in '{event.name}'", hint="use u, k or p", status=2)
    domains = set(modifiers) & set("ukh")
    return replace(
        event,
        exclude_user=bool(domains) and "u" not in domains,
        exclude_kernel=bool(domains) and "k" not in domains,
        precise=modifiers.count("p"),
    )
