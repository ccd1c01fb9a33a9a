"""The feature sections of perf.data: what the recording says about its machine, command and files.

Format: the perf tool's ``Documentation/perf.data-file-format.txt``.
A section that does not parse is left out and named.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import IntEnum

from tdprof.decode.perf.attr import SMALLEST_ATTR
from tdprof.values import dataclass

FEATURE_BITS = 256
_MISC_BUILD_ID_SIZE = 1 << 15


class Feature(IntEnum):
    """Feature bits (``HEADER_*``) whose sections are read here."""

    BUILD_ID = 2
    HOSTNAME = 3
    OSRELEASE = 4
    VERSION = 5
    ARCH = 6
    NRCPUS = 7
    CPUDESC = 8
    CPUID = 9
    CMDLINE = 11
    EVENT_DESC = 12
    PMU_MAPPINGS = 16
    SAMPLE_TIME = 21
    DIR_FORMAT = 24
    COMPRESSED = 27
    CLOCK_DATA = 29


@dataclass(frozen=True, slots=True)
class EventDescription:
    """An event's name and ids, from ``HEADER_EVENT_DESC``."""

    name: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClockData:
    """One instant on the wall clock and on the recording's clock, in nanoseconds."""

    clockid: int
    wall_clock_ns: int
    clockid_time_ns: int


@dataclass(frozen=True, slots=True)
class Features:
    """What the feature sections say; empty or None where they do not.

    Attributes:
        build_ids: path to build-id in hex.
        pmus: number of a PMU to its name.
        unreadable: features whose sections are damaged.
    """

    hostname: str = ""
    osrelease: str = ""
    version: str = ""
    arch: str = ""
    cpudesc: str = ""
    cpuid: str = ""
    cpus_online: int = 0
    cmdline: tuple[str, ...] = ()
    events: tuple[EventDescription, ...] = ()
    build_ids: dict[str, str] = field(default_factory=dict)
    pmus: Mapping[int, str] = field(default_factory=dict)
    clock_data: ClockData | None = None
    unreadable: tuple[str, ...] = ()


class _Section:
    def __init__(self, data: bytes, order: str) -> None:
        self.data = data
        self.order = order
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            raise ValueError("section ends early")
        self.at += count
        return self.data[self.at - count : self.at]

    def numbers(self, format_: str) -> tuple[int, ...]:
        return struct.unpack(self.order + format_, self.take(struct.calcsize(self.order + format_)))

    def u32(self) -> int:
        return self.numbers("I")[0]

    def text(self) -> str:
        return self.take(self.u32()).split(b"\0", 1)[0].decode(errors="replace")


def _string(name: str) -> Callable[[_Section, Features], Features]:
    return lambda section, features: replace(features, **{name: section.text()})  # type: ignore[arg-type]  # by name


def _nrcpus(section: _Section, features: Features) -> Features:
    _available, online = section.numbers("II")
    return replace(features, cpus_online=online)


def _cmdline(section: _Section, features: Features) -> Features:
    return replace(features, cmdline=tuple(section.text() for _ in range(section.u32())))


def _event_desc(section: _Section, features: Features) -> Features:
    count, attr_bytes = section.numbers("II")
    events = []
    for _ in range(count):
        if attr_bytes < SMALLEST_ATTR:
            raise ValueError("impossible attr size")
        section.take(attr_bytes)
        ids = section.u32()
        name = section.text()
        events.append(EventDescription(name, struct.unpack(f"{section.order}{ids}Q", section.take(8 * ids))))
    return replace(features, events=tuple(events))


def _build_ids(section: _Section, features: Features) -> Features:
    while len(section.data) - section.at >= 8:
        _type, misc, size = section.numbers("IHH")
        body = _Section(section.take(size - 8), section.order)
        add_build_id(features.build_ids, misc, body.take(4 + 24)[4:], body.take(len(body.data) - body.at))
    return features


def add_build_id(found: dict[str, str], misc: int, identity: bytes, path: bytes) -> None:
    """One ``struct perf_record_header_build_id``: without its size bit the build-id is 20 bytes."""
    size = identity[20] if misc & _MISC_BUILD_ID_SIZE else 20
    if 0 < size <= 20 and any(identity[:size]):
        found[path.split(b"\0", 1)[0].decode(errors="surrogateescape")] = identity[:size].hex()


def _pmu_mappings(section: _Section, features: Features) -> Features:
    pmus = {}
    for _ in range(section.u32()):
        number = section.u32()
        pmus[number] = section.text()
    return replace(features, pmus=pmus)


def _clock_data(section: _Section, features: Features) -> Features:
    _version, clockid, wall, clock = section.numbers("IIQQ")
    return replace(features, clock_data=ClockData(clockid, wall, clock))


_PARSERS: dict[Feature, Callable[[_Section, Features], Features]] = {
    Feature.BUILD_ID: _build_ids,
    Feature.HOSTNAME: _string("hostname"),
    Feature.OSRELEASE: _string("osrelease"),
    Feature.VERSION: _string("version"),
    Feature.ARCH: _string("arch"),
    Feature.NRCPUS: _nrcpus,
    Feature.CPUDESC: _string("cpudesc"),
    Feature.CPUID: _string("cpuid"),
    Feature.CMDLINE: _cmdline,
    Feature.EVENT_DESC: _event_desc,
    Feature.PMU_MAPPINGS: _pmu_mappings,
    Feature.CLOCK_DATA: _clock_data,
}


def is_wanted(bit: int) -> bool:
    """Whether a feature's section is read at all."""
    return bit in set(_PARSERS)


def add_feature(features: Features, bit: int, data: bytes, byteorder: str) -> Features:
    """``features`` with one more section; sections that nobody needs are ignored, damaged ones named."""
    if not is_wanted(bit):
        return features
    feature = Feature(bit)
    try:
        return _PARSERS[feature](_Section(data, "<" if byteorder == "little" else ">"), features)
    except (ValueError, struct.error):
        unreadable = dict.fromkeys([*features.unreadable, feature.name.lower()])
        return replace(features, unreadable=tuple(unreadable))
