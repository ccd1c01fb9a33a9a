"""The recordings of a store, each once, and what each has of its events."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tdprof.errors import GoneError, TdprofError
from tdprof.fleet.identity import digest
from tdprof.fleet.shared_texts import is_any_of, numbers_of, to_rows
from tdprof.fleet.store import MANY, Stem, Store
from tdprof.model.arrays import I64
from tdprof.values import dataclass

# In the metadata of a table of several recordings: the contents of each, as JSON.
_MEMBERS = b"tdprof.members"


@dataclass(frozen=True, slots=True)
class EventCounts:
    """What one or more recordings of a host have of an event.

    Attributes:
        recordings: how many; ``first``: of how many it is the first event.
        samples, weight: of all; ``counted``: by the counters where they tell, else as ``weight``.
        squares: weight squared / effective samples of each, added up.
        lost_samples: of those of which it is the first event.
    """

    core: str
    host: str
    event: str
    unit: str
    recordings: int
    first: int
    samples: int
    weight: int
    counted: int
    duration_ns: int
    squares: int
    lost_samples: int


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording in a store: where it lies, what it is, and a row for each of its events."""

    stem: Stem
    recording: str
    content: str
    events: Sequence[dict[str, object]]

    @property
    def lacks_spe(self) -> bool:
        """Whether it has SPE data that could not be read."""
        return bool(self.events[0]["lacks_spe"])

    @property
    def quality(self) -> tuple[int, int, bool, str, bool]:
        """Of two roll-ups of one recording the one where this is greater is used, whatever came first."""
        samples, known = (sum(_int(row[name]) for row in self.events) for name in ("samples", "known_samples"))
        return samples, known, not self.lacks_spe, self.content, self.stem.recording == MANY

    def counts(self) -> Iterator[EventCounts]:
        """What it has of each event."""
        for number, row in enumerate(self.events):
            weight, effective = _int(row["weight"]), _int(row["effective_samples"])
            yield EventCounts(
                core=self.stem.core_name,
                host=self.stem.host_name,
                event=str(row["event"]),
                unit=str(row["unit"]),
                recordings=1,
                first=int(number == 0),
                samples=_int(row["samples"]),
                weight=weight,
                counted=weight if row["counted"] is None else _int(row["counted"]),
                duration_ns=_int(row["duration_ns"]),
                squares=(weight * weight + effective // 2) // effective if effective else 0,
                lost_samples=0 if number else _int(row["lost_samples"]),
            )


def _int(value: object) -> int:
    return int(value)  # type: ignore[call-overload, no-any-return]  # the table's schema has a number there


def best_of(recordings: Iterable[Recording]) -> list[Recording]:
    """Of each recording the best roll-up."""
    best: dict[str, Recording] = {}
    for each in recordings:
        other = best.get(each.recording)
        if other is None or each.quality > other.quality:
            best[each.recording] = each
    return list(best.values())


def superseded(store: Store, stems: Collection[Stem]) -> list[Stem]:
    """Of some files those of which every recording has a better roll-up in another of them."""
    names = {stem: identities(store, [stem]) for stem in stems}
    times = Counter(itertools.chain.from_iterable(names.values()))
    # Of most recordings there is one file, which need not be read.
    doubtful = [stem for stem in stems if any(times[name] > 1 for name in names[stem])]
    used = {each.stem for each in best_of(each for stem in doubtful for each in _recordings_left(store, stem))}
    return [stem for stem in doubtful if stem not in used]


def _recordings_left(store: Store, stem: Stem) -> list[Recording]:
    """The recordings in a file; none where somebody else took it out, who saw that others are better."""
    with contextlib.suppress(GoneError):
        return recordings_in(store, stem)
    return []


def identities(store: Store, stems: Iterable[Stem]) -> set[str]:
    """All recordings in some files."""
    found = set()
    for stem in stems:
        found |= (
            {each.recording for each in _recordings_left(store, stem)} if stem.recording == MANY else {stem.recording}
        )
    return found


def recordings_in(store: Store, stem: Stem) -> list[Recording]:
    """The recordings in a file.

    Raises:
        TdprofError: it is missing or damaged.
    """
    table = store.read("recordings", stem)
    rows: dict[str, list[dict[str, object]]] = {}
    for row in to_rows(table):
        rows.setdefault(row["recording"], []).append(row)
    contents = {stem.recording: stem.content} if stem.recording != MANY else members_of(table)
    if not rows or rows.keys() != contents.keys():
        raise TdprofError(
            f"the roll-up of {stem.host_name} of {stem.date} is not what its name says", hint="tdprof fleet check"
        )
    return [Recording(stem, name, contents[name], events) for name, events in rows.items()]


def members_of(table: pa.Table) -> dict[str, str]:
    """The recordings that a table says it is of, and their contents."""
    try:
        told = json.loads((table.schema.metadata or {})[_MEMBERS])
    except (KeyError, ValueError, RecursionError):
        return {}
    return {str(name): str(content) for name, content in told.items()} if isinstance(told, dict) else {}


def with_members(table: pa.Table, members: Mapping[str, str]) -> pa.Table:
    """A table that says of which recordings it is."""
    return table.replace_schema_metadata({_MEMBERS: json.dumps(dict(sorted(members.items()))).encode()})


def content_of_members(members: Mapping[str, str]) -> str:
    """What tells files with several recordings apart."""
    return digest(*(f"{name}-{content}".encode() for name, content in sorted(members.items())))


def only(table: pa.Table, recordings: Collection[str]) -> pa.Table:
    """The rows of some recordings, of a table that may have more."""
    return table.filter(is_any_of(table["recording"], recordings))


def recording_rows(table: pa.Table, recordings: Iterable[str]) -> I64:
    """int64[rows]: which of some recordings each row is of; -1: of none."""
    return numbers_of(table["recording"], {name: row for row, name in enumerate(recordings)})


def of_each(table: pa.Table, recordings: Collection[str]) -> Iterator[pa.Table]:
    """The rows of each of some recordings, in the order that they have in the table: copies, which share no bytes."""
    rows = recording_rows(table, recordings)
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], np.arange(len(recordings) + 1))
    return (table.take(pa.array(order[start:end])) for start, end in itertools.pairwise(ends.tolist()))
