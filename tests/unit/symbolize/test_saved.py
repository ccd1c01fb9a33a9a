from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tdprof.model.addresses import NO_BEGIN, FileKind, Locations, MappedFile, Unknown
from tdprof.symbolize.locations import combine_locations, concatenate_locations
from tdprof.symbolize.saved import SavedSymbols, make_symbol_table
from tdprof.symbolize.symbolizer import Symbolizer

FRAMES = st.lists(
    st.tuples(st.sampled_from("fgh"), st.sampled_from(["", "a.c", "b.h"]), st.integers(0, 99)), max_size=3
)
CHAINS = st.lists(FRAMES, max_size=8)


def make(chains, own_files=None) -> Locations:
    strings = ["f", "g", "h", "a.c", "b.h"]
    flat = [frame for chain in chains for frame in chain]
    return Locations(
        frame_start=np.cumsum([0, *map(len, chains)]).astype(np.uint32),
        function=np.array([strings.index(f) for f, _, _ in flat], np.int32),
        file=np.array([strings.index(s) if s else -1 for _, s, _ in flat], np.int32),
        line=np.array([line for _, _, line in flat], np.uint32),
        reason=np.array([Unknown.KNOWN if chain else Unknown.NO_SYMBOL for chain in chains], np.uint8),
        strings=strings,
        own_file=None if own_files is None else np.array([strings.index(s) if s else -1 for s in own_files], np.int32),
    )


def chains_of(found: Locations) -> list:
    frames = [
        (found.strings[f], found.strings[s] if s >= 0 else "", line)
        for f, s, line in zip(found.function, found.file, found.line.tolist(), strict=True)
    ]
    starts = found.frame_start.tolist()
    return [frames[starts[i] : starts[i + 1]] for i in range(len(starts) - 1)]


@settings(deadline=None)
@given(CHAINS, st.randoms())
def test_what_was_saved_comes_back(chains, random):
    offsets = np.arange(len(chains), dtype=np.uint64) * 16
    order = list(range(len(chains)))
    random.shuffle(order)
    one, two = MappedFile("/bin/a", "aa"), MappedFile("/bin/a", "bb")
    table = make_symbol_table([(one, offsets, make(chains)), (two, offsets[:0], make([]))])
    assert len(table) == len(chains)
    saved = SavedSymbols(table.take(pa.array(order, pa.int64())))
    assert chains_of(saved.locate(one, offsets)) == chains
    other = saved.locate(two, offsets)
    assert other.reason.tolist() == [Unknown.NO_FILE] * len(chains)
    assert saved.locate(one, offsets + np.uint64(1)).reason.tolist() == [Unknown.NO_FILE] * len(chains)


@settings(deadline=None)
@given(CHAINS, CHAINS, st.data())
def test_the_files_that_functions_stand_in_come_back(chains, others, data):
    count = sum(map(len, chains))
    own_files = data.draw(st.lists(st.sampled_from(["", "a.c", "b.h"]), min_size=count, max_size=count))
    one, two = MappedFile("/bin/a", "aa"), MappedFile("/bin/b", "bb")
    offsets, more = (np.arange(len(each), dtype=np.uint64) * 16 for each in (chains, others))
    table = make_symbol_table([(one, offsets, make(chains, own_files)), (two, more, make(others))])
    saved = SavedSymbols(table)
    assert texts_of(saved.locate(one, offsets)) == own_files
    assert texts_of(saved.locate(two, more)) == [file for chain in others for _, file, _ in chain]
    older = SavedSymbols(table.drop_columns("own_files")).locate(one, offsets)
    assert texts_of(older) == [file for chain in chains for _, file, _ in chain]
    assert chains_of(older) == chains


def texts_of(found: Locations) -> list:
    return [found.strings[file] if file >= 0 else "" for file in found.own_files.tolist()]


@settings(deadline=None)
@given(CHAINS, CHAINS, st.data())
def test_combining_replaces_just_those_rows(first, second, data):
    count = min(len(first), len(second))
    rows = data.draw(st.lists(st.integers(0, len(first) - 1), unique=True, max_size=count)) if count else []
    taken = data.draw(st.permutations(range(len(second))))[: len(rows)]
    combined = combine_locations(make(first), np.array(rows, np.int64), make(second), np.array(taken, np.int64))
    expected = list(first)
    for row, other in zip(rows, taken, strict=True):
        expected[row] = second[other]
    assert chains_of(combined) == expected


@settings(deadline=None)
@given(st.lists(CHAINS, min_size=1, max_size=4))
def test_one_after_the_other_has_all_rows_in_order(parts):
    joined = concatenate_locations([*map(make, parts)])
    assert chains_of(joined) == [chain for part in parts for chain in part]
    assert joined.reason.tolist() == [reason for part in parts for reason in make(part).reason.tolist()]


def test_symbolizer_takes_saved_symbols_and_says_why_others_are_missing():
    file = MappedFile("/no/such/file", "aa", FileKind.ELF)
    offsets = np.array([16, 32, 48], np.uint64)
    saved = SavedSymbols(make_symbol_table([(file, offsets[:2], make([[("f", "a.c", 3)], []]))]))
    with Symbolizer(saved=saved) as symbolizer:
        found = symbolizer.locate(file, offsets)
    assert chains_of(found) == [[("f", "a.c", 3)], [], []]
    assert found.reason.tolist() == [Unknown.KNOWN, Unknown.NO_SYMBOL, Unknown.NO_FILE]


def test_where_unknown_code_begins_and_ends_comes_back():
    file, offsets = MappedFile("/bin/a", "aa"), np.array([16, 32, 48], np.uint64)
    begin, end = np.array([NO_BEGIN, 24, 40], np.uint64), np.array([NO_BEGIN, NO_BEGIN, 64], np.uint64)
    table = make_symbol_table([(file, offsets, replace(make([[("f", "", 0)], [], []]), begin=begin, end=end))])
    again = SavedSymbols(table).locate(file, offsets)
    assert again.begin is not None
    assert again.begin.tolist() == begin.tolist()
    assert again.end is not None
    assert again.end.tolist() == end.tolist()
    assert SavedSymbols(table.drop_columns("begin")).locate(file, offsets).begin is None
    assert SavedSymbols(table.drop_columns("end")).locate(file, offsets).end is None
