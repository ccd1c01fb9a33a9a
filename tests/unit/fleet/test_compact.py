"""A store put together: the same answers, the same bytes, each recording once, whatever was done in which order."""

import itertools
import json
import random
import shutil
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.fleet import DAY_NS, START_NS, make_host_capture, tdprof
from builders.rollups import write_recording
from tdprof.fleet import sums
from tdprof.fleet.compact import compact_store
from tdprof.fleet.counts import RowStream, add_rows, add_streams
from tdprof.fleet.schema import FUNCTION_SUMS
from tdprof.fleet.spans import Span, cover_days, parse_span, plan_spans
from tdprof.fleet.store import Store

DAYS, HOSTS = (0, 1, 2, 3, 6, 7), ("a", "b", "c", "d", "e", "of another kind")
FIRST_NS = START_NS + 5 * DAY_NS  # 2026-11-27, since when days are counted in pairs, fours and eights
QUESTIONS = (
    (),
    ("--since", "2026-11-28", "--until", "2026-12-04"),
    ("--since", "2026-11-27T00:30", "--until", "2026-12-03T00:30", "--event", "cycles"),
    ("--where", "version=2", "--where", "host=b", "--where", "host=c", "--where", "build=" + "ab" * 20),
)
# Host, day and hour of a recording.
ALL = tuple((host, day, hour) for host in range(len(HOSTS)) for day in DAYS for hour in range(2 if day % 3 == 0 else 1))
JOINED = 2 * 3 * len(HOSTS)


def add(place: Path, recordings: Iterable[tuple[int, int, int]]) -> None:
    """Functions come and go; versions take turns by days; the last host is of another kind."""
    store = Store.create(str(place))
    for host, day, hour in recordings:
        write_recording(
            store,
            HOSTS[host],
            {"work": 60 + (7 * day + host + hour) % 9, f"of day {day}": 20 + host, f"of {HOSTS[host]}": 3},
            date=f"{date(2026, 11, 27) + timedelta(day)}",
            start_ns=FIRST_NS + day * DAY_NS + hour * 3600 * 10**9,
            core="neoverse-n1" if host == 5 else "neoverse-v1",
            events={"cpu-clock": 1, "cycles": 2},
            seconds=10 + hour,
            labels=[f"version={1 + day % 2}"],
        )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of them, each in files of its own."""
    place = tmp_path_factory.mktemp("whole") / "store"
    add(place, ALL)
    return place


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def answers(store: Path) -> list[str]:
    told = [tdprof("fleet", "report", store, "--json", *words) for words in QUESTIONS]
    told.append(tdprof("fleet", "diff", store, "--a", "version=1", "--b", "version=2", "--json"))
    assert [each.status for each in told] == [0] * len(told)
    return [each.stdout for each in told]


@pytest.fixture(scope="module")
def expected(whole: Path) -> list[str]:
    return answers(whole)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory, whole: Path) -> Path:
    """All of them put together, as ``compact`` leaves them."""
    place = tmp_path_factory.mktemp("together") / "store"
    shutil.copytree(whole, place)
    assert compact(place)["joined"] == JOINED
    return place


@pytest.fixture
def compacted(tmp_path: Path, together: Path) -> Path:
    shutil.copytree(together, tmp_path / "compacted")
    return tmp_path / "compacted"


@pytest.fixture
def store(tmp_path: Path, whole: Path) -> Path:
    shutil.copytree(whole, tmp_path / "store")
    return tmp_path / "store"


def compact(store: Path) -> dict[str, int]:
    ran = tdprof("fleet", "compact", store, "--json")
    assert ran.status == 0
    told: dict[str, int] = json.loads(ran.stdout)
    return told


@pytest.mark.thorough
def test_answers_stay_the_same_to_the_last_digit_from_fewer_files(
    whole: Path, together: Path, expected: list[str]
) -> None:
    assert len(list(together.glob("rollup/recordings/**/*.parquet"))) == len(HOSTS) * len(DAYS)
    words = ("--to", "folded", "--recordings", "core=neoverse-v1")
    assert tdprof("export", together, *words).stdout == tdprof("export", whole, *words).stdout
    # Six days, three pairs of days, four and eight days.
    assert len(list(together.glob("sums/v=1/*"))) == len(DAYS) + 3 + 1 + 1
    assert answers(together) == expected
    checked = tdprof("fleet", "check", together, "--json")
    assert (json.loads(checked.stdout)["recordings"], checked.status) == (len(ALL), 0)
    assert compact(together) == {"joined": 0, "spans": 0, "removed": 0}


def test_reports_come_from_sums_where_they_can(compacted: Path, expected: list[str]) -> None:
    for path in compacted.glob("rollup/functions/**/*.parquet"):
        path.write_bytes(b"nobody reads this")
    for words, told in zip(QUESTIONS[:2], expected, strict=False):
        assert tdprof("fleet", "report", compacted, "--json", *words).stdout == told
    assert tdprof("fleet", "report", compacted, *QUESTIONS[2]).status == 1


@pytest.mark.thorough
def test_the_same_bytes_in_whatever_order_and_pieces(tmp_path: Path, together: Path) -> None:
    mixed = list(ALL)
    random.Random(3).shuffle(mixed)
    for start, end in itertools.pairwise((0, 11, 40, len(mixed))):
        add(tmp_path / "other", mixed[start:end])
        compact(tmp_path / "other")
    assert contents(tmp_path / "other") == contents(together)
    add(tmp_path / "other", ALL)
    compact(tmp_path / "other")
    assert contents(tmp_path / "other") == contents(together)


def test_what_comes_later_counts_beside_the_sums(tmp_path: Path, expected: list[str]) -> None:
    late = [(3, 3, 1), (0, 6, 1), (5, 6, 0)]
    add(tmp_path / "store", [each for each in ALL if each not in late])
    compact(tmp_path / "store")
    add(tmp_path / "store", late)
    assert answers(tmp_path / "store") == expected
    assert compact(tmp_path / "store")["removed"] > 0
    assert len(list(tmp_path.glob("store/sums/v=1/*/*-hosts.parquet"))) == 11


def test_a_capture_in_a_day_that_was_put_together_is_known(tmp_path: Path) -> None:
    captures = [
        make_host_capture(tmp_path / f"{hour}.capture", "a", {"work": 60}, start_ns=START_NS + hour * 3600 * 10**9)
        for hour in range(3)
    ]
    assert tdprof("fleet", "add", tmp_path / "store", *captures[:2]).status == 0
    assert compact(tmp_path / "store")["joined"] == 2
    before = contents(tmp_path / "store")
    told = json.loads(tdprof("fleet", "add", tmp_path / "store", captures[1], "--json").stdout)
    assert (told["known"], told["added"]) == (1, 0)
    assert contents(tmp_path / "store") == before
    assert tdprof("fleet", "add", "--again", tmp_path / "store", *captures[:2]).status == 0
    compact(tmp_path / "store")
    assert contents(tmp_path / "store") == before


@pytest.mark.parametrize("survives", ["all", "rollups", "sums without hosts"])
def test_nothing_counts_twice_where_it_was_killed(
    whole: Path, compacted: Path, expected: list[str], survives: str
) -> None:
    before, after = contents(whole), contents(compacted)
    if survives != "sums without hosts":
        for name, content in before.items():
            if survives == "all" or "/recordings/" not in name:  # what is taken out first
                (compacted / name).write_bytes(content)
    else:
        for path in compacted.rglob("*-hosts.parquet"):
            path.unlink()
    report = expected[0]
    assert tdprof("fleet", "report", compacted, "--json").stdout == report
    compact(compacted)
    assert tdprof("fleet", "report", compacted, "--json").stdout == report
    assert tdprof("fleet", "check", compacted, "--prune").status == 0
    assert contents(compacted) == after


def test_a_better_copy_takes_the_place_of_a_part_of_a_day(compacted: Path) -> None:
    write_recording(
        Store(str(compacted)),
        "a",
        {"work": 5000},
        date="2026-11-27",
        start_ns=FIRST_NS,
        events={"cpu-clock": 1, "cycles": 2},
        labels=["version=1"],
    )
    told = tdprof("fleet", "report", compacted, "--json").stdout
    work = next(row for row in json.loads(told)["strata"][1]["functions"] if row["name"] == "work")
    assert work["self"]["samples"] > 5000
    compact(compacted)
    assert tdprof("fleet", "report", compacted, "--json").stdout == told
    assert json.loads(tdprof("fleet", "check", compacted, "--json").stdout)["recordings"] == len(ALL)


def test_what_adds_up_to_too_much_has_no_sums(
    store: Path, monkeypatch: pytest.MonkeyPatch, expected: list[str]
) -> None:
    monkeypatch.setattr(sums, "_LARGEST_SUM", 50 * 10**9)
    compact(store)
    assert 0 < len(list(store.glob("sums/v=1/*"))) < 11
    assert tdprof("fleet", "report", store, "--json").stdout == expected[0]


def test_damaged_sums_are_told(compacted: Path) -> None:
    for path in compacted.rglob("sums/**/*-functions.parquet"):
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        path.write_bytes(content)
    ran = tdprof("fleet", "report", compacted)
    assert ran.status == 1
    assert "fleet check" in ran.error.hint


def test_spans_are_days_and_pairs_of_what_is_over() -> None:
    files = {day: [f"file of {day}"] for day in (8, 9, 10, 13, 14)}
    planned = plan_spans(files)
    assert sorted((span.first, span.days) for span in planned if span.days > 1) == [(8, 2), (8, 4)]
    assert planned[Span(8, 4)].parts == [Span(8, 2), Span(10, 1)]
    later = plan_spans(files | {15: ["x"]})
    assert later[Span(8, 2)] == planned[Span(8, 2)]
    assert sorted((span.first, span.days) for span in later if span.days > 1) == [
        (8, 2), (8, 4), (8, 8), (12, 4), (14, 2),
    ]  # fmt: skip
    assert plan_spans(files | {9: ["other"]})[Span(8, 4)].digest != planned[Span(8, 4)].digest
    for span in later:
        assert parse_span(span.name) == span
    assert [parse_span(name) for name in ("", "2026-13-01+1", "x+2", "2026-11-22+", "../2026-11-22+1")] == [None] * 5


def test_a_time_is_as_few_spans_as_there_are() -> None:
    rng = random.Random(4)
    for _ in range(200):
        there = sorted(rng.sample(range(64), rng.randrange(1, 40)))
        spans = set(plan_spans({day: ["x"] for day in there}))
        first, last = sorted(rng.sample(range(-2, 70), 2))
        wanted = [day for day in there if first <= day < last]
        covered = [
            day
            for span in cover_days(wanted, there, spans)
            for day in there
            if day in range(span.first, span.first + span.days)
        ]
        assert covered == wanted
    assert len(cover_days(range(1, 31), range(32), set(plan_spans({day: ["x"] for day in range(32)})))) == 8


def test_streams_add_up_as_one_table_does() -> None:
    """Also where a function's rows end with a batch, or take several."""
    import pyarrow as pa

    rng = np.random.default_rng(5)
    for _ in range(50):
        streams, parts = [], []
        for _ in range(3):
            n = int(rng.integers(0, 40))
            rows = add_rows(rng.integers(0, 4, n), rng.integers(0, 9, n), rng.integers(0, 2**60, (4, n)))
            arrays = [rows.function.astype(np.int32), rows.group.astype(np.int32), *rows.values]
            table = pa.table([pa.array(each) for each in arrays], schema=FUNCTION_SUMS)
            streams.append(RowStream(iter(table.to_batches(max_chunksize=5)), np.arange(4) * 2, np.arange(9)))
            parts.append(rows)
        found: list[tuple[int, int, int]] = []
        add_streams(
            streams,
            lambda rows, found=found: found.extend(  # type: ignore[misc]
                zip(rows.function.tolist(), rows.group.tolist(), rows.values[3].tolist(), strict=True)
            ),
        )
        whole = add_rows(
            *(
                np.concatenate([getattr(part, name) for part in parts], axis=-1)
                for name in ("function", "group", "values")
            )
        )
        assert found == list(
            zip((2 * whole.function).tolist(), whole.group.tolist(), whole.values[3].tolist(), strict=True)
        )


@pytest.mark.parametrize("command", ["report", "hosts", "check", "compact"])
def test_answers_are_the_same_while_days_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Somebody else does it, once what there is was listed."""
    place = tmp_path / "store"
    add(place, [each for each in ALL if each[1] < 3])
    expected = tdprof("fleet", command, place, "--json").stdout if command != "compact" else ""
    shutil.rmtree(place)
    add(place, [each for each in ALL if each[1] < 3])
    read, others = Store.read, iter([compact_store])

    def read_late(store: Store, *what: Any) -> Any:
        for other in others:
            other(Store(str(place)))
        return read(store, *what)

    monkeypatch.setattr(Store, "read", read_late)
    told = tdprof("fleet", command, place, "--json")
    assert (told.status, told.error) == (0, None)
    assert not expected or told.stdout == expected


def test_what_is_missing_again_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "store"
    add(place, ALL[:2])
    next(path for path in place.rglob("*.parquet") if "functions" in path.parts).unlink()
    told = tdprof("fleet", "report", place).error
    assert told is not None
    assert "No such file" in told.message
    assert "are missing" in tdprof("fleet", "check", place).stdout


def test_an_event_that_not_all_hosts_of_a_kind_measured(tmp_path: Path) -> None:
    place = tmp_path / "store"
    add(place, ALL[:20])
    write_recording(
        Store(str(place)), "without cycles", {"work": 50}, date="2026-11-27", start_ns=FIRST_NS, events={"cpu-clock": 1}
    )
    asked = [("--event", event, "--json") for event in ("cycles", "cpu-clock")]
    before = [tdprof("fleet", "report", place, *words).stdout for words in asked]
    compact(place)
    assert [tdprof("fleet", "report", place, *words).stdout for words in asked] == before
