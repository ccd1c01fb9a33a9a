"""capture.json: what a capture is, what was measured, on which rung, and what was lost."""

import dataclasses
import functools
import json
import os
import types
import typing
import zlib
from dataclasses import field
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

from tdprof.capture.files import MANIFEST_FILE, STORE_MARKER, last_folder, near_folder
from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_own
from tdprof.linux.folder_path import whose
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.duty import DutyInfo
from tdprof.model.events import MOST_EVENTS, EventInfo, TopdownInfo
from tdprof.model.losses import Losses
from tdprof.values import dataclass

# Raised whenever an older reader would misread a newer capture; added columns and keys do not raise it.
SCHEMA_VERSION = 1
MOST_MANIFEST_BYTES = 16 << 20  # notes, counts by CPU, and events of real recordings fill some kilobytes

_LONGEST_NS = 1 << 62  # 146 years
_CHECKSUM = "checksum"  # the key of it, beside those of Manifest


class Rung(StrEnum):
    """How a capture was taken, best first."""

    BPF_PMU = "bpf-pmu"
    BPF_SOFTWARE = "bpf-software"
    RING_BUFFER = "ring-buffer"
    PERF_DATA = "perf-data"  # by the perf tool, imported


class State(StrEnum):
    """How far a capture got."""

    RECORDING = "recording"  # in progress, or its recorder was killed: the tables are made from the spool when read
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine of the recording."""

    hostname: str
    machine: str  # as uname -m
    kernel: str  # as uname -r
    boot_id: str  # of this boot: kernel addresses mean nothing in another
    cpu_model: str
    cpus_online: int
    page_bytes: int
    midr_el1: dict[str, str] = field(default_factory=dict)  # CPU number: MIDR_EL1 in hex; empty off Arm
    perf_event_paranoid: int | None = None
    kptr_restrict: int | None = None
    # Whether the core PMU interrupts code that masks interrupts, too; null: not known.
    has_pmu_nmi: bool | None = None


@dataclass(frozen=True, slots=True)
class SpeEventInfo:
    """One arm_spe_N event as it was opened."""

    pmu: str
    event: str  # with every format attribute that was set
    cpus: list[int]
    caps: dict[str, int]  # the driver's caps/ files


@dataclass(frozen=True, slots=True)
class SpeInfo:
    """What was recorded with SPE. The raw bytes are spe/cpuCPU.N.aux; spe_spans.parquet says whose they are.

    ``clock_pairs`` are (counter, CLOCK_MONOTONIC ns) of the same moments: SPE timestamps become times between them.
    ``sampling`` holds [count, enabled ns, running ns] of SAMPLE_POP, SAMPLE_FEED, SAMPLE_FILTRATE and SAMPLE_COLLISION
    over the recording; without those the PMU lacks, or empty. ``has_switches``: every context switch of what was
    recorded is in switches.parquet, so that where there is none the thread stayed the same. ``contexts_name_threads``:
    context packets hold the ids of the other tables; in a PID namespace they hold the initial one's.
    """

    period: int  # operations between samples, as asked for
    events: list[SpeEventInfo]
    clock_pairs: list[list[int]] = field(default_factory=list)
    sampling: dict[str, list[int]] = field(default_factory=dict)
    has_switches: bool = False
    contexts_name_threads: bool = True


@dataclass(frozen=True, slots=True)
class Manifest:
    """capture.json. Times are nanoseconds; ``monotonic`` ones are CLOCK_MONOTONIC, as are the tables'."""

    host: Host
    command: list[str]  # empty when a running process or the whole system was recorded
    pids: list[int]  # processes given with -p
    is_system_wide: bool
    events: list[EventInfo]
    rung: Rung
    rung_reason: str  # why not a better one, or what makes it the best
    start_realtime_ns: int
    start_monotonic_ns: int
    end_monotonic_ns: int
    losses: Losses
    meanwhile: list[str] = field(default_factory=list)  # the command whose end was to end the recording of others
    has_cgroups: bool = False  # samples tell their control groups
    has_thread_times: bool = False  # its last event is time off a CPU; thread_times.parquet says where time went
    has_cpus: bool = False  # samples say on which CPU they were taken
    has_wakers: bool = False  # samples of sleep say who ended it
    cgroups: list[str] = field(default_factory=list)  # given with --cgroup: nothing else was recorded
    followed: list[int] = field(default_factory=list)  # with all they start; then the spool's side-band has others, too
    record_ids: list[list[int]] = field(default_factory=list)  # per event: ids in its perf records
    stack_bytes: int = 0  # copied of each user stack into the perf records of the spool
    samples_counted: int | None = None  # by the BPF programs themselves, against which the tables are checked
    notes: list[str] = field(default_factory=list)  # what the user should know about this recording
    spe: SpeInfo | None = None
    topdown: TopdownInfo | None = None
    duty: list[DutyInfo] = field(default_factory=list)  # of what was not on all the time
    exit_status: int | None = None  # the command's, as a shell gives it
    ran_to_end: bool = False  # the command ended before the recording did
    has_sample_times: bool = False  # of an import: not added up within intervals
    interval_ns: int = 900_000_000  # that samples are added up over, at most, where they have no times of their own
    # [begin, end], CLOCK_MONOTONIC, of those that took at least twice as long, since nobody came to end them.
    long_intervals: list[list[int]] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)  # that it has been given when it became complete
    state: State = State.RECORDING
    was_altered: bool = False  # it had not the checksum of its writer when it was read: any of this may be wrong
    tdprof_version: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def duration_ns(self) -> int:
        """From the first enabled event to the last drain; of what damage makes of it, as much as may be added up."""
        return min(max(self.end_monotonic_ns - self.start_monotonic_ns, 0), _LONGEST_NS)


def write_manifest(folder: OwnFolder, manifest: Manifest) -> None:
    """Replace capture.json as one step, so that a reader never sees half of it."""
    data = json.loads(json.dumps(dataclasses.asdict(manifest)))
    with folder.replacing(MANIFEST_FILE) as file:
        file.write(json.dumps(data | {_CHECKSUM: _checksum(data)}, indent=1).encode() + b"\n")


def _checksum(data: dict[str, Any]) -> str:
    """CRC-32 of a manifest's values without the checksum, however they are laid out."""
    rest = {key: value for key, value in data.items() if key != _CHECKSUM}
    return f"{zlib.crc32(json.dumps(rest, sort_keys=True, separators=(',', ':')).encode()):08x}"


def _is_altered(data: dict[str, Any]) -> bool:
    """Whether a manifest is not as it was written; one from before there were checksums is not known to be."""
    if _CHECKSUM in data:
        return bool(data[_CHECKSUM] != _checksum(data))
    # Its writer had no keys but these: what else is there was the checksum's name.
    return not data.keys() <= Manifest.__dataclass_fields__.keys()


def read_manifest(folder: Path) -> Manifest:
    """Read and check capture.json.

    Returns:
        What it says; ``was_altered`` where that is not what was written.

    Raises:
        TdprofError: not a capture, damaged, or of a newer schema.
    """
    path = folder / MANIFEST_FILE
    try:
        with open_own(path) as file:
            if os.fstat(file.fileno()).st_size > MOST_MANIFEST_BYTES:
                raise TdprofError(f"{path} is not read: it is larger than {MOST_MANIFEST_BYTES >> 20} MiB")
            data = json.loads(file.read(MOST_MANIFEST_BYTES))
        is_altered = isinstance(data, dict) and _is_altered(data)
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "tdprof record -o DIR -- CMD makes one"
        if not folder.exists():
            near = near_folder(folder, MANIFEST_FILE)
            raise TdprofError(f"no capture at {folder}", hint=f"{near}, which is one" if near else hint) from error
        why = f"it has no {MANIFEST_FILE}" if folder.is_dir() else "it is no folder"
        if (folder / STORE_MARKER).is_file():
            why, hint = "it is a store of many", f"tdprof fleet report {folder}"
        elif last := last_folder(folder, MANIFEST_FILE):
            why, hint = "it is a folder of captures", f"{last}, which is one; or tdprof fleet add STORE {folder}"
        raise TdprofError(f"{folder} is not a capture: {why}", hint=hint) from error
    except (OSError, ValueError, RecursionError) as error:
        hint = whose(path) if isinstance(error, PermissionError) else ""
        raise TdprofError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}", hint=hint) from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int):
        raise TdprofError(f"{path} is not a capture's manifest")
    if version > SCHEMA_VERSION:
        made_by = data.get("tdprof_version") or "a newer tdprof"
        raise TdprofError(
            f"{folder} has capture schema {version}, made by tdprof {made_by}; this one reads up to {SCHEMA_VERSION}",
            hint="pip install --upgrade tdprof",
        )
    try:
        manifest = _from_json(Manifest, data)
        _check_groups(manifest)
    except (TypeError, ValueError) as error:
        raise TdprofError(f"{path} is damaged: {error}") from error
    assert isinstance(manifest, Manifest)
    manifest = dataclasses.replace(manifest, was_altered=manifest.was_altered or is_altered)
    if len(manifest.events) > MOST_EVENTS:
        raise TdprofError(f"{path} is not read: it lists {len(manifest.events):,} events, no recording has that many")
    return manifest


def alterations(folder: Path, manifest: Manifest) -> list[str]:
    """A sentence where a folder's manifest is not as it was written; else none."""
    told = f"{folder / MANIFEST_FILE} has changed since it was written: any name, time or number of it may be wrong"
    return [told] * manifest.was_altered


def _check_groups(manifest: Manifest) -> None:
    """Raises ValueError for groups of events that the list of events does not have."""
    for group in manifest.topdown.groups if manifest.topdown else ():
        rows = range(len(manifest.events))
        if len(group.names) != len(group.events) or not all(row in rows for row in group.events):
            raise ValueError("topdown: a group has events that were not recorded")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _from_json(kind: Any, value: Any) -> Any:
    """Build a dataclass (or a container of such) from JSON; unknown keys are ignored, wrong types are refused.

    Raises:
        TypeError, ValueError: naming the key.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise TypeError(f"expected an object for {getattr(kind, '__name__', kind)}")
        hints = _hints(kind)
        known = {}
        for item in dataclasses.fields(kind):
            if item.name in value:
                try:
                    known[item.name] = _from_json(hints[item.name], value[item.name])
                except (TypeError, ValueError) as error:
                    raise type(error)(f"{item.name}: {error}") from None
        return kind(**known)
    if origin is list:
        if not isinstance(value, list):
            raise TypeError("expected a list")
        return [_from_json(arguments[0], item) for item in value]
    if origin is dict:
        if not isinstance(value, dict):
            raise TypeError("expected an object")
        return {_from_json(arguments[0], key): _from_json(arguments[1], item) for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        return None if value is None else _from_json(arguments[0], value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    if kind is int and not -(1 << 63) <= value < 1 << 64:
        raise ValueError("more than any counter holds")
    return value
