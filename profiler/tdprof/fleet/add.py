"""Captures into a store: found, rolled up by an engine, counted once; what cannot be read is named and set aside."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tdprof.errors import TdprofError
from tdprof.fleet.engine import Done, Engine, Work
from tdprof.fleet.identity import recorded_date, recording_id
from tdprof.fleet.recordings import identities, superseded
from tdprof.fleet.sources import UnreachableError, read_source_manifest
from tdprof.fleet.store import Rejection, Stem, Store
from tdprof.fleet.work import WorkOptions, read_outcomes, roll_up_captures
from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Added:
    """What became of captures.

    Attributes:
        added: how many are in the store now that were not.
        known: how many were there already, as the same recording.
        rejected: what was set aside.
        no_spe: captures that were added without their SPE data, which could not be read, and why.
        damaged: captures of which something else could not be read, and what; the rest was added.
        samples, known_samples: of what was added; the latter are in functions with names.
    """

    added: int = 0
    known: int = 0
    rejected: tuple[Rejection, ...] = ()
    no_spe: tuple[Rejection, ...] = ()
    damaged: tuple[Rejection, ...] = ()
    samples: int = 0
    known_samples: int = 0


def add_captures(
    store: Store,
    sources: Sequence[str],
    options: WorkOptions,
    engine_for: Callable[[int], Engine],
    *,
    again: bool = False,
    work: Work = roll_up_captures,
    progress: Callable[[int], None] = lambda done: None,
) -> Added:
    """Roll captures up into a store.

    Args:
        sources: folders and captures of an object store, each once.
        engine_for: makes what does the work, from the number of captures; it is closed again at the end.
        again: also what is there already; the newer roll-up takes the place of the older.
        work: what is done with captures.
        progress: told how many are done.

    Raises:
        TdprofError: the store, the engine or where captures lie cannot be used.
    """
    told = {each: _recording_of(each) for each in sources}
    dates = {date for _, date in told.values()}
    there = identities(store, _stems_of(store, dates))
    wanted = [each for each in sources if again or told[each][0] not in there]
    total = Added(known=len(sources) - len(wanted))
    done = 0
    engine = engine_for(len(wanted))
    with _opened(engine):
        for source in wanted:  # one at a time: with a worker that dies, no more than that one is to be read again
            engine.submit(work, [source], options.to_json())
        for each in engine.as_completed():
            total = _with(total, store, each)
            done += len(each.sources)
            progress(done)
    # Of a recording that was rolled up in two ways the better one stays.
    for stem in superseded(store, _stems_of(store, dates)):
        store.remove(stem)
    return replace(
        total,
        rejected=tuple(sorted(total.rejected)),
        no_spe=tuple(sorted(total.no_spe)),
        damaged=tuple(sorted(total.damaged)),
    )


def _with(total: Added, store: Store, done: Done) -> Added:
    if done.result is None:
        rows: list[dict[str, Any]] = [{"source": source, "reason": done.reason} for source in done.sources]
    else:
        rows = read_outcomes(done.result)
    for row in rows:
        if row["reason"] is None:
            store.accept(row["source"])
            if row["damage"]:
                store.reject(Rejection(row["source"], row["damage"], (row["host"], row["date"])))
            total = replace(
                total,
                added=total.added + 1,
                samples=total.samples + row["samples"],
                known_samples=total.known_samples + row["known_samples"],
                no_spe=(*total.no_spe, *_said(row, "no_spe")),
                damaged=(*total.damaged, *_said(row, "damage")),
            )
        else:
            rejection = Rejection(row["source"], row["reason"])
            store.reject(rejection)
            total = replace(total, rejected=(*total.rejected, rejection))
    return total


def _said(row: dict[str, Any], what: str) -> list[Rejection]:
    return [Rejection(row["source"], row[what])] if row[what] else []


@contextlib.contextmanager
def _opened(engine: Engine) -> Iterator[None]:
    engine.open()
    try:
        yield
    except BaseException:  # Ctrl-C as well: nobody waits for the rest
        engine.cancel()
        raise
    finally:
        engine.close()


def _recording_of(source: str) -> tuple[str, str]:
    """Which recording a capture is of, and of which day, as far as that is known without reading it whole; else ""."""
    try:
        manifest = read_source_manifest(source)
        return recording_id(manifest, bytes) if manifest.host.boot_id else "", recorded_date(manifest)
    except UnreachableError:
        raise
    except TdprofError:
        return "", ""


def _stems_of(store: Store, dates: Collection[str]) -> list[Stem]:
    """What is there of some days: which day a recording is of is a part of its identity."""
    return [stem for stem in store.stems() if stem.date in dates]
