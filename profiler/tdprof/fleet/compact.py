"""A store put together: a file for each host's day, and sums over days, so that long times are read in a moment.

Nothing is lost by it but the number of files, and whatever stops it: what is new has a name of its own and is whole
before what it takes the place of goes. Done by several, or again, it leaves the same bytes.
"""

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from tdprof.fleet.counts import FUNCTION_KEYS, VALUES, FunctionRows, KeyedRows, add_keyed, read_keyed, renumber
from tdprof.fleet.recordings import (
    Recording,
    best_of,
    content_of_members,
    only,
    recordings_in,
    with_members,
)
from tdprof.fleet.schema import KINDS, OPTIONAL
from tdprof.fleet.shared_texts import distinct_texts, is_any_of, numbers_of
from tdprof.fleet.spans import Span, day_of, plan_spans
from tdprof.fleet.store import MANY, Stem, Store
from tdprof.fleet.sums import Group, SumsWriter, add_event_counts, is_too_much, join_sums
from tdprof.values import dataclass

_FILES_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done.

    Attributes:
        joined: files of single recordings that are now in files of a day.
        spans: spans of days whose sums were written; ``removed``: files of sums that no longer held.
    """

    joined: int
    spans: int
    removed: int


def compact_store(store: Store, progress: Callable[[str], None] = lambda words: None) -> Compacted:
    """Put the recordings of each host and day into one file, and add days up.

    Raises:
        TdprofError: a roll-up is missing or damaged, or the store cannot be written to.
    """
    joined, written, there = 0, 0, store.sums()
    by_day = _by_day(store)
    more = {kind: store.stems_with(kind) for kind in OPTIONAL}
    for day, stems in sorted(by_day.items()):
        span = Span(day, 1)
        if (span, _digest_of(span, stems)) in there:
            continue
        progress(f"{span.name.partition('+')[0]}: putting its recordings together")
        # A day at a time, so that what was stopped goes on where it was.
        by_day[day], recordings = _join_day(store, stems, more)
        joined += len(set(stems) - set(by_day[day]))
        name = _digest_of(span, by_day[day])
        if (span, name) not in there and _add_day(store, span, name, by_day[day], recordings):
            there.add((span, name))
            written += 1
    planned = plan_spans({day: [stem.path for stem in stems] for day, stems in by_day.items()})
    for span, sources in planned.items():
        parts = [(part, planned[part].digest) for part in sources.parts]
        # What adds up to more than can be kept has no sums, nor has what it is a part of.
        if (span, sources.digest) not in there and parts and there.issuperset(parts):
            progress(f"{span.name}: adding up")
            if join_sums(store, span, sources.digest, parts):
                there.add((span, sources.digest))
                written += 1
    removed = store.remove_sums({(span, sources.digest) for span, sources in planned.items()})
    return Compacted(joined, written, len(removed))


def _digest_of(day: Span, stems: Sequence[Stem]) -> str:
    return plan_spans({day.first: [stem.path for stem in stems]})[day].digest


def _by_day(store: Store) -> dict[int, list[Stem]]:
    found: dict[int, list[Stem]] = {}
    for stem in store.stems():
        try:
            found.setdefault(day_of(stem.date), []).append(stem)
        except ValueError:
            continue  # a folder that is called otherwise is read as it is
    return found


def _join_day(store: Store, stems: Sequence[Stem], more: Mapping[str, set[Stem]]) -> tuple[list[Stem], list[Recording]]:
    """Make one file of each host's recordings of a day, and return the files and what is in them.

    Of a recording that is there twice the better one stays; both are of one day, as its identity holds when it began.
    """
    recordings = best_of(each for stem in stems for each in recordings_in(store, stem))
    by_folder: dict[str, list[Recording]] = {}
    for each in recordings:
        by_folder.setdefault(each.stem.folder, []).append(each)
    kept = sorted(_join(store, mine, more) for mine in by_folder.values())
    for stem in set(stems) - set(kept):
        store.remove(stem)
    if not set(kept) - set(stems):
        return kept, recordings
    return kept, [each for stem in kept for each in recordings_in(store, stem)]


def _join(store: Store, recordings: Sequence[Recording], more: Mapping[str, set[Stem]]) -> Stem:
    """The file of some recordings of one host and day, written if it is not there.

    Args:
        more: of each kind that not all have, the files that have it.
    """
    stems = {each.stem for each in recordings}
    whole = {each.recording: each.content for each in recordings}
    content = content_of_members(whole)
    own = (MANY, content) if len(whole) > 1 else (recordings[0].recording, recordings[0].content)
    first = recordings[0].stem
    name = Stem(first.date, first.core, first.host, *own)
    if name in stems:
        return name
    tables = {}
    ordered = sorted(recordings, key=lambda each: each.recording)
    for kind in KINDS:
        of_stem = {stem: store.read(kind, stem) for stem in stems}
        tables[kind] = pa.concat_tables([only(of_stem[each.stem], [each.recording]) for each in ordered])
    for kind in OPTIONAL:
        of_stem = {stem: store.read(kind, stem) for stem in stems & more[kind]}
        if of_stem:
            has_any = [each for each in ordered if each.stem in of_stem]
            tables[kind] = pa.concat_tables([only(of_stem[each.stem], [each.recording]) for each in has_any])
    if name.recording == MANY:
        tables["recordings"] = with_members(tables["recordings"], whole)
    store.write(name, tables)
    return name


def _add_day(store: Store, span: Span, name: str, stems: Sequence[Stem], recordings: Sequence[Recording]) -> bool:
    """Write a day's sums, of files that have these recordings, each once; returns whether they can be kept."""
    group_of = {each.recording: _group(each) for each in recordings}
    counts = add_event_counts((group_of[each.recording], counts) for each in recordings for counts in each.counts())
    if is_too_much(counts.values()):
        return False
    groups = sorted(set(group_of.values()))
    number = {group: row for row, group in enumerate(groups)}
    number_of = {recording: number[group] for recording, group in group_of.items()}
    found: dict[str, list[KeyedRows]] = {}
    for start in range(0, len(stems), _FILES_AT_ONCE):
        tables = []
        for stem in stems[start : start + _FILES_AT_ONCE]:
            table = store.read("functions", stem, ["recording", "event", *FUNCTION_KEYS, *VALUES])
            tables.append(_with_group(only(table, number_of), number_of))
        _add_events(pa.concat_tables(tables).unify_dictionaries(), found)
    keys = sorted({key for parts in found.values() for part in parts for key in part.keys})
    writer = SumsWriter(store, span, name, groups, keys)
    for event, parts in sorted(found.items()):
        writer.write_event(event, [_renumbered(part, keys) for part in parts])
    writer.finish(counts)
    return True


def _group(recording: Recording) -> Group:
    row, stem = recording.events[0], recording.stem
    labels = row["labels"]
    assert isinstance(labels, list)
    return Group(stem.core_name, stem.host_name, str(row["kernel"]), str(row["catalog"]), tuple(labels))


def _with_group(table: pa.Table, number_of: Mapping[str, int]) -> pa.Table:
    group = numbers_of(table["recording"], number_of)
    return table.drop_columns("recording").append_column("group", pa.array(group))


def _add_events(table: pa.Table, found: dict[str, list[KeyedRows]]) -> None:
    for event in sorted(set(distinct_texts(table["event"])[0])):
        mine = table.filter(is_any_of(table["event"], {event}))
        if not len(mine):
            continue
        part = read_keyed(mine, mine["group"].to_numpy())
        found[event] = [add_keyed([*found.get(event, []), part])]


def _renumbered(part: KeyedRows, keys: Sequence[tuple[str, str, str, bool, bool]]) -> FunctionRows:
    (number,) = renumber([part.keys], keys)
    return FunctionRows(number[part.rows.function], part.rows.group, part.rows.values)
