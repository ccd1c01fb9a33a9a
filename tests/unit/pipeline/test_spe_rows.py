"""Groups of SPE records into rows: the same rows however the groups arrive, and never more than allowed."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_spe.native import load_native
from arm_spe.tallied import NO_ROW
from arm_spe.tally import NOTHING, OTHERS
from builders.capture_tables import table
from builders.captures import table_writer
from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.attribute.threads import ThreadOwners
from tdprof.capture.schema import MAPPINGS, PROCESSES
from tdprof.capture.tables import read_table
from tdprof.model.addresses import Locations, MappedFile, Unknown
from tdprof.model.arrays import U64
from tdprof.model.spe import NO_TID, ONE_STAGE
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_memory import BlockRows, MemoryOwners
from tdprof.pipeline.spe_rows import CodeDetail, Placement, SourceRows, SymbolizedRows

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")
PROGRAM, LIBRARY = 0x400000, 0x7F0000000000
N1 = 0x410FD0C0


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Process 10 (threads 10, 11) maps a program and a library, process 20 the library alone."""
    folder = tmp_path_factory.mktemp("tables")
    mappings = [(0, 10, PROGRAM, 0x10000, 0, "/bin/program", None)]
    mappings += [(0, pid, LIBRARY, 0x10000, 0, "/lib/library", None) for pid in (10, 20)]
    processes = [(0, "name", pid, tid, None, None, "p") for pid, tid in ((10, 10), (10, 11), (20, 20))]
    with table_writer(folder) as writer:
        writer.write("mappings", table(MAPPINGS, mappings))
        writer.write("processes", table(PROCESSES, processes))
    return folder


def locate(file: MappedFile, offsets: U64) -> Locations:
    """A function for every 256 bytes, a line for every 16; what is inlined stands in its first half; no names from
    0x8000 on."""
    strings = ["caller", *(f"f{number}" for number in range(0x80)), "a.c"]
    start, function, line = [0], [], []
    for offset in offsets.tolist():
        if offset < 0x8000:
            function.append(1 + offset // 256)
            line.append(1 + offset // 16)
            if offset % 256 < 128:
                function.append(0)
                line.append(7)
        start.append(len(function))
    known = np.diff(start) > 0
    return Locations(
        frame_start=np.array(start, np.uint32),
        function=np.array(function, np.int32),
        file=np.where(np.array(function) == 5, -1, len(strings) - 1).astype(np.int32),
        line=np.array(line, np.uint32),
        reason=np.where(known, Unknown.KNOWN, Unknown.NO_SYMBOL).astype(np.uint8),
        strings=strings,
    )


def code(tables: Path, detail: CodeDetail) -> SymbolizedRows:
    mappings, processes = (read_table(tables, name) for name in ("mappings", "processes"))
    capture = SimpleNamespace(
        owners=ThreadOwners(mappings, processes),
        mapped_files=CodeFiles(mappings, spaces := AddressSpaces(mappings, processes)),
        spaces=spaces,
        stages=ONE_STAGE,
        symbolizer=SimpleNamespace(locate=locate),
    )
    return SymbolizedRows(cast(OpenCapture, capture), detail)


def names_of(rows: SymbolizedRows, detail: CodeDetail) -> list[str]:
    """Of functions and lines; of instructions."""
    if detail is CodeDetail.INSTRUCTION:
        return rows.names(np.arange(len(rows.lines())))
    functions = rows.functions
    return [f"{functions[number].name} {functions[number].source_file or '??'}:{line}" for number, line in rows.lines()]


def named(
    rows: SymbolizedRows, detail: CodeDetail, groups: list[tuple[int, int]], cuts: Sequence[int] = ()
) -> list[str]:
    """The row's name of each group, placed in pieces."""
    first, second = (np.array(column, np.uint64) for column in zip(*groups, strict=True))
    edges = [0, *sorted(min(cut, len(groups)) for cut in cuts), len(groups)]
    pairs = itertools.pairwise(edges)
    placed = np.concatenate([rows.place(first[start:end], second[start:end]) for start, end in pairs])
    names = names_of(rows, detail)
    return [names[row] for row in placed.tolist()]


def test_code_by_function_line_and_instruction(tables: Path) -> None:
    groups = [
        (PROGRAM + 0x210, 10), (PROGRAM + 0x2F0, 11), (LIBRARY + 0x210, 10), (LIBRARY + 0x214, 20),
        (PROGRAM + 0x410, 10), (LIBRARY + 0x9000, 20), (PROGRAM, 20), (1 << 20, 77),
    ]  # fmt: skip
    unknown = ["[no symbol] library+0x9000", "[no mapping]", "[no mapping]"]
    lines = code(tables, CodeDetail.LINE)
    assert named(lines, CodeDetail.LINE, groups) == [
        "f2 a.c:34", "f2 a.c:48", "f2 a.c:34", "f2 a.c:34", "f4 ??:66", *(f"{name} ??:0" for name in unknown),
    ]  # fmt: skip
    # f2 of the program is not the library's.
    assert [(function.name, function.path) for function in lines.functions][:3] == [
        ("[no mapping]", ""), ("f2", "/bin/program"), ("f4", "/bin/program"),
    ]  # fmt: skip
    assert len(lines.functions) == 5
    assert named(code(tables, CodeDetail.INSTRUCTION), CodeDetail.INSTRUCTION, groups) == [
        "f2 0x210", "f2 0x2f0", "f2 0x210", "f2 0x214", "f4 0x410", "[no symbol] library+0x9000 0x9000",
        "[no mapping] 0x400000", "[no mapping] 0x100000",
    ]  # fmt: skip


GROUPS = st.tuples(
    st.one_of(
        st.integers(0, 0x9FFF).map(PROGRAM.__add__), st.integers(0, 0x9FFF).map(LIBRARY.__add__), st.integers(0, 99)
    ),
    st.sampled_from([10, 11, 20, 77, NO_TID]),
)


@given(
    groups=st.lists(GROUPS, min_size=1, max_size=60, unique=True),
    cuts=st.lists(st.integers(0, 60), max_size=3),
    detail=st.sampled_from(CodeDetail),
)
@settings(max_examples=40, deadline=None)
def test_rows_do_not_depend_on_when_groups_come(
    tables: Path, groups: list[tuple[int, int]], cuts: list[int], detail: CodeDetail
) -> None:
    whole, pieces = code(tables, detail), code(tables, detail)
    assert named(whole, detail, groups) == named(pieces, detail, groups, cuts)
    assert len(whole.functions) == len(pieces.functions)
    assert whole.unknown_processes == pieces.unknown_processes == sum(tid == NO_TID for _, tid in groups)


def test_sources_of_two_cores_meet_in_their_name() -> None:
    rows = SourceRows()
    by_packet = np.array([11 + 0, 11 + 8, NOTHING, 9], np.uint64)  # codes: ten events, "not told", then values
    assert rows.place(by_packet, np.full(4, N1, np.uint64)).tolist() == [0, 1, NO_ROW, 2]
    assert rows.place(np.array([9], np.uint64), np.zeros(1, np.uint64)).tolist() == [2]
    assert rows.names(np.arange(3)) == ["L1D", "L2", "L1D (by events)"]


def test_rows_beyond_the_most_share_the_first() -> None:
    blocks = BlockRows(64, MemoryOwners(None))
    placement = Placement(blocks, max_rows=3)
    first = np.array([5, NOTHING, 9, 5, 7, 1, 2, OTHERS], np.uint64)
    second = np.array([1, 1, 1, 2, 1, 1, 1, OTHERS], np.uint64)
    assert placement.place(first, second).tolist() == [1, NO_ROW, 2, 1, 3, 0, 0, 0]
    assert placement.place(first[::-1], second[::-1]).tolist() == [0, 0, 0, 3, 1, 2, NO_ROW, 1]
    assert blocks.threads().tolist() == [2, 1, 1, 1, 1]
    blocks = BlockRows(64, MemoryOwners(None))
    alone = Placement(blocks, max_rows=3, is_shared=False)
    assert alone.place(first[:5], second[:5]).tolist() == [1, NO_ROW, 2, 1, 3]
    assert alone.place(first[5:], second[5:]).tolist() == [0, 0, 0]
    assert blocks.threads().tolist() == [2, 1, 1, 1, 1]


def test_a_threads_id_that_comes_again_is_of_each_process_in_its_time(tables: Path) -> None:
    mappings = read_table(tables, "mappings")
    events = [
        (0, "name", 10, 10, None, None, "p"),
        (0, "name", 20, 20, None, None, "q"),
        (100, "fork", 10, 55, 10, 10, None),
        (200, "exit", 10, 55, None, None, None),
        (300, "fork", 20, 55, 20, 20, None),
        (400, "exec", 20, 20, None, None, "r"),
    ]
    processes = table(PROCESSES, events)
    owners, spaces = ThreadOwners(mappings, processes), AddressSpaces(mappings, processes)
    tids, time_ns = np.array([55, 55, 55, 10, 20, 66, 55], np.uint64), np.array([90, 150, 350, 150, 350, 150, 450])
    stages = owners.stages(*spaces.turns())
    known, within = stages.split(stages.stamp(tids, time_ns.astype(np.uint64)))
    assert known.tolist() == tids.tolist()
    assert owners.pids(known, within).tolist() == [10, 10, 20, 10, 20, 66, 20]
    assert owners.last_pids(tids[:1]).tolist() == [20]
    # What was stamped before and behind the exec is told apart, too.
    assert within[2] < 400 <= within[6]
