"""Where a load's data came from: the data source packet by core, or the events where the core has no known encoding.

The encodings are data: `catalogs/spe/data_sources.json`.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arm_spe import Kind, RecordBatch
from arm_spe.tally import Lane, Rules, event_index
from tdprof.catalog.folder import catalog_folder
from tdprof.values import dataclass

_VALUES = 256
_MEMORY_CLASS = 1  # operation packets of class 1: loads and stores
_STORE = 1  # bit 0 of their payload


class Level(StrEnum):
    """Where in the memory hierarchy a source lies."""

    L1 = "l1"
    L2 = "l2"
    LLC = "llc"
    PEER = "peer"  # another core's or cluster's cache on the chip
    DRAM = "dram"
    REMOTE = "remote"  # anything on another chip
    DEVICE = "device"
    UNKNOWN = "unknown"


LEVEL_ORDER = tuple(Level)


@dataclass(frozen=True, slots=True)
class Source:
    """One place that data comes from.

    Attributes:
        name: for people.
        level: for shares.
        is_snooped: another cache gave the line.
    """

    name: str
    level: Level
    is_snooped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """A core's meaning of data source values."""

    name: str
    sources: Mapping[int, Source]


# Deepest evidence first: event bit, and what it says when no data source can be read. Cores of SPEv1.0 write no L2
# events, so a first-level miss that did not reach the last level is only known to be beyond the first.
_BY_EVENTS: tuple[tuple[int, Source], ...] = (
    (10, Source("remote (by events)", Level.REMOTE)),
    (23, Source("snooped (by events)", Level.PEER, is_snooped=True)),
    (21, Source("snooped, modified (by events)", Level.PEER, is_snooped=True)),
    (9, Source("memory (by events)", Level.DRAM)),
    (8, Source("LLC (by events)", Level.LLC)),
    (20, Source("beyond L2 (by events)", Level.UNKNOWN)),
    (19, Source("L2 (by events)", Level.L2)),
    (22, Source("fill in flight (by events)", Level.UNKNOWN)),
    (3, Source("beyond L1D (by events)", Level.UNKNOWN)),
    (2, Source("L1D (by events)", Level.L1)),
)
_NOT_TOLD = len(_BY_EVENTS)  # code of a load without evidence
_FIRST_VALUE = _NOT_TOLD + 1  # code of data source value 0


@functools.cache
def _file() -> dict[str, Any]:
    text = (catalog_folder() / "spe/data_sources.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


def _number(core: Mapping[str, str]) -> tuple[int, int]:
    return int(core["implementer"], 0), int(core["part"], 0)


@functools.cache
def _encodings() -> dict[tuple[int, int], Encoding]:
    found = {}
    for entry in _file()["encodings"]:
        sources = {
            source["value"]: Source(source["name"], Level(source["level"]), source.get("snooped", False))
            for source in entry["sources"]
        }
        encoding = Encoding(entry["name"], sources)
        for core in entry["cores"]:
            found[_number(core)] = encoding
    return found


def encoding_of(midr: int | None) -> Encoding | None:
    """The encoding of the core with this MIDR_EL1; None if it is not known."""
    return None if midr is None else _encodings().get(_part(midr))


def _part(midr: int) -> tuple[int, int]:
    return midr >> 24 & 0xFF, midr >> 4 & 0xFFF


def caveats_of(midrs: Iterable[int | None]) -> list[str]:
    """What a user should know of the SPE of these cores, each thing once."""
    known = {midr for midr in midrs if midr is not None}
    return [
        caveat["text"]
        for caveat in _file()["caveats"]
        if any(_part(midr) == _number(caveat) and _revision(midr) < _revision_of(caveat["below"]) for midr in known)
    ]


def _revision(midr: int) -> tuple[int, int]:
    return midr >> 20 & 0xF, midr & 0xF


def _revision_of(text: str) -> tuple[int, int]:
    """Of "r4p1"."""
    major, _, minor = text.removeprefix("r").partition("p")
    return int(major), int(minor)


def unknown_encodings(midrs: Iterable[int | None]) -> list[str]:
    """A sentence for each kind of core whose data source packets nobody outside can read, in order."""
    names = {_number(core): core["core"] for core in _file()["not_known"]}
    parts = sorted({_part(midr) for midr in midrs if midr is not None and encoding_of(midr) is None})
    return [
        f"what {names.get(part, f'the core {part[0]:#x}/{part[1]:#x}')} writes into data source packets is not known: "
        "sources of its loads are told by events"
        for part in parts
    ]


@functools.cache
def sources(encoding: Encoding | None) -> list[Source]:
    """What the codes of `source_codes` mean; the same length for every encoding."""
    known = encoding.sources if encoding else {}
    values = [known.get(value, Source(f"unknown 0x{value:x}", Level.UNKNOWN)) for value in range(_VALUES)]
    return [source for _, source in _BY_EVENTS] + [Source("not told", Level.UNKNOWN), *values]


@functools.cache
def source_of_events() -> NDArray[np.int16]:
    """Code of a load without a data source packet, by `arm_spe.tally.event_index` of its events."""
    codes = np.full(1024, _NOT_TOLD, np.int16)
    for code in reversed(range(len(_BY_EVENTS))):
        # The index holds ten bits of the events; a bit's place in it is where the event alone is found.
        codes[np.arange(1024) & int(event_index(np.array([1 << _BY_EVENTS[code][0]], np.uint64))[0]) != 0] = code
    return codes


def fill_source_rules(rules: Rules, encoding: Encoding | None) -> None:
    """Say in `arm_spe.tally.Rules` how loads of a core with this encoding tell their source, and its level."""
    rules.first_source, rules.known_sources = _FIRST_VALUE, _VALUES if encoding else 0
    level_lanes = {level: 1 << Lane.LOADS_BY_LEVEL + number for number, level in enumerate(LEVEL_ORDER)}
    lanes = [level_lanes[source.level] | source.is_snooped << Lane.SNOOPED for source in sources(encoding)]
    rules.set_sources(source_of_events().tolist(), lanes)


def source_codes(batch: RecordBatch, encoding: Encoding | None) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """For each record the index into `sources`, and whether it is a load that has one.

    Stores have none: what cores write there has no meaning. A load's data source packet counts if the core's encoding
    is known; otherwise its events say what they can.
    """
    is_load = (batch["op_class"] == _MEMORY_CLASS) & ((batch["op"].view(np.uint8) & _STORE) == 0)
    codes = np.full(len(batch), _NOT_TOLD, np.int16)
    untold = is_load
    if encoding is not None:
        values: NDArray[np.uint16] = batch["data_source"].view(np.uint16)
        is_told = is_load & batch.has(Kind.SOURCE) & (values < _VALUES)
        codes = np.where(is_told, values.astype(np.int16) + np.int16(_FIRST_VALUE), codes)
        untold = is_load & ~is_told
    rows = np.flatnonzero(untold)  # few, or all loads: to look at events takes several times as long as all else
    codes[rows] = source_of_events()[event_index(batch["events"].view(np.uint64)[rows])]
    return codes, is_load
