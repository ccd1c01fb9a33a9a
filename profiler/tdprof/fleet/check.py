"""What is in a store, and what is wrong with it; what can go, goes."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tdprof.errors import TdprofError
from tdprof.fleet.recordings import content_of_members, members_of, of_each, recording_rows, recordings_in, superseded
from tdprof.fleet.rollup import content_of
from tdprof.fleet.schema import KINDS, OPTIONAL
from tdprof.fleet.shared_texts import row_text_bytes
from tdprof.fleet.store import MANY, Rejection, Stem, Store
from tdprof.values import dataclass

_MOST_TEXT_BYTES = 128 << 20  # of a recording, each row's; that of a program of very long names has half of that


@dataclass(frozen=True, slots=True)
class StoreState:
    """What `check_store` found.

    Attributes:
        recordings: that are whole and count.
        hosts: their names, and the last day of each.
        rejected: captures that were set aside.
        damaged: what of the recordings cannot be read, or is not what was written, a sentence each.
        incomplete: captures of which something else could not be read, and what.
        no_spe: recordings that lack their SPE data, which could not be read.
        left_over: files that nothing reads: of killed writers, and of recordings that were rolled up anew.
        removed: how many files and recordings were taken out.
    """

    recordings: int
    hosts: dict[str, str]
    rejected: Sequence[Rejection]
    damaged: Sequence[str]
    incomplete: Sequence[Rejection]
    no_spe: Sequence[str]
    left_over: Sequence[str]
    removed: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every answer holds all that was added."""
        return not (self.rejected or self.damaged or self.incomplete or self.no_spe)

    @property
    def silent(self) -> dict[str, str]:
        """Hosts of which there is nothing on the last day that there is of any."""
        last = max(self.hosts.values(), default="")
        return {host: day for host, day in self.hosts.items() if day < last}


def check_store(store: Store, *, prune: bool = False, before: str = "") -> StoreState:
    """Read all of a store.

    Args:
        prune: take out what nothing reads.
        before: take out recordings that began before that day.

    Raises:
        TdprofError: it cannot be read, or with ``prune`` or ``before`` not be written to.
    """
    removed = 0
    if before:
        old = [stem for stem in store.stems() if stem.date < before]
        for stem in old:
            store.remove(stem)
        removed += len(old)
    missing = store.missing()
    more = {kind: store.stems_with(kind) for kind in OPTIONAL}
    problems = {stem: _problem(store, stem, [kind for kind in more if stem in more[kind]]) for stem in store.stems()}
    there = set(store.stems())  # what went meanwhile, as its day was put together, is not damaged
    damaged = [f"{kind} of {_words(stem)} are missing" for kind, stem in missing if stem in there]
    damaged += [problem for stem, problem in problems.items() if problem and stem in there]
    unfinished, orphans = store.unfinished(), store.orphans()
    doubles = [] if damaged else superseded(store, list(store.stems()))
    if prune:
        for path in unfinished:
            store.remove_file(path)
        for kind, stem in orphans:
            store.remove_kind(kind, stem)
        for stem in doubles:
            store.remove(stem)
        removed += len(unfinished) + len(orphans) + len(doubles)
    left_over = [
        *(f"{path}: a writer was killed" for path in unfinished),
        *(f"{kind} of {_words(stem)}: a writer was killed" for kind, stem in orphans),
        *(f"{_words(stem)}: rolled up again since" for stem in doubles),
    ]
    stems = list(store.stems())
    hosts: dict[str, str] = {}
    for stem in stems:
        hosts[stem.host_name] = max(stem.date, hosts.get(stem.host_name, ""))
    sound = [each for stem in stems if not problems.get(stem) for each in recordings_in(store, stem)]
    return StoreState(
        recordings=len({each.recording for each in sound}),
        hosts=dict(sorted(hosts.items())),
        rejected=store.rejections(),
        damaged=damaged,
        incomplete=store.incomplete(stems),
        no_spe=[f"{each.stem.host_name} of {each.stem.date} ({each.recording})" for each in sound if each.lacks_spe],
        left_over=[] if prune else left_over,
        removed=removed,
    )


def _problem(store: Store, stem: Stem, more: Sequence[str]) -> str:
    """Why a recording's roll-ups are not what was written; "" if they are. ``more``: the kinds that not all have."""
    try:
        tables = {kind: store.read(kind, stem) for kind in (*KINDS, *more)}
        is_as_written = _is_as_written(tables, stem)
    except TdprofError as error:
        return error.message
    return "" if is_as_written else f"the roll-ups of {_words(stem)} are not those that were written"


def _is_as_written(tables: Mapping[str, pa.Table], stem: Stem) -> bool:
    members = members_of(tables["recordings"]) if stem.recording == MANY else {stem.recording: stem.content}
    sizes = sum(
        np.bincount(1 + recording_rows(each, members), row_text_bytes(each), len(members) + 1)
        for each in tables.values()
    )
    if np.max(sizes, initial=0) > _MOST_TEXT_BYTES:
        most = f"more than {_MOST_TEXT_BYTES >> 20} MiB of texts"
        raise TdprofError(f"the roll-ups of {_words(stem)} are not compared with what was written: {most}")
    if stem.recording != MANY:
        return content_of(tables) == stem.content
    parts = zip(*(of_each(table, members) for table in tables.values()), strict=True)
    return content_of_members(members) == stem.content and all(
        content_of(dict(zip(tables, part, strict=True))) == content
        for part, content in zip(parts, members.values(), strict=True)
    )


def _words(stem: Stem) -> str:
    return f"{stem.host_name} of {stem.date} ({stem.recording})"
