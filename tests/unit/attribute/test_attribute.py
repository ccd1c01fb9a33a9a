"""Samples to address spaces, mappings and file offsets."""

import numpy as np
import pyarrow as pa
import pytest

from builders.capture_tables import mappings, processes, samples, stacks
from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.attribute.stacks import AttributedStacks, attribute_stacks
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.stack_ends import StackEnd

APP, LIB, OLD = "/bin/app", "/lib/lib.so", "/bin/sh"


def find(spaces: AddressSpaces, pid: int, time_ns: int, address: int, name: str | None = None) -> int:
    names = None if name is None else np.array([name], object)
    space = spaces.space_of_samples(np.array([pid], np.uint32), np.array([time_ns], np.uint64), names)
    return int(spaces.find(space, np.array([address], np.uint64), np.array([time_ns], np.uint64))[0])


def test_incomplete_stacks_have_a_root_that_says_why() -> None:
    maps = mappings((0, 7, 0x1000, 0x1000, 0, APP, None))
    ends = ["complete", "bad-sp", None, "frame-pointers-only", "of a later version"]
    chains = stacks(*((number, False, [0x1100, 0x1200]) for number in range(1, 6)))
    chains = chains.append_column("end", pa.array(ends).dictionary_encode())
    chains = chains.append_column("guessed_from", pa.array([None, 2, None, None, None], pa.uint16()))
    taken = samples(*((1, 0, 7, 7, "app", number, None, 1, 1) for number in range(1, 6)))
    found = attribute_stacks(taken, chains, CodeFiles(maps, spaces := AddressSpaces(maps, processes())), spaces)
    depths = np.diff(found.stack_start.astype(int))[found.sample_stack]
    assert depths.tolist() == [2, 3, 2, 2, 2]
    roots = found.stack_location[found.stack_start[1:].astype(int) - 1][found.sample_stack]
    assert (found.location_file[roots] == -2).tolist() == [False, True, False, False, False]
    assert found.markers == ["[incomplete: bad-sp]"]
    assert found.sample_end.tolist() == [StackEnd.COMPLETE, StackEnd.BAD_SP, 0, StackEnd.FRAME_POINTERS_ONLY, 0]
    assert found.is_guessed.tolist() == [False, True, False, False, False]
    assert not found.is_guess.any()  # from beyond the end on


def test_guesses_are_the_callers_from_some_on_but_no_marker_and_nothing_of_the_kernel() -> None:
    maps = mappings((0, 7, 0x1000, 0x1000, 0, APP, None))
    chains = stacks(
        (1, False, [0x1100, 0x1200, 0x1300]),
        (2, False, [0x1100, 0x1200]),
        (3, True, [0xFFFF000000000000]),
        (4, False, [0x1100]),
    )
    chains = chains.append_column("end", pa.array(["jit", "complete", None, "complete"]).dictionary_encode())
    chains = chains.append_column("guessed_from", pa.array([1, 0, None, None], pa.uint16()))
    rows = [(1, None), (1, 3), (2, None), (2, 3), (4, 3)]
    taken = samples(*((1, 0, 7, 7, "app", user, kernel, 1, 1) for user, kernel in rows))
    found = attribute_stacks(taken, chains, CodeFiles(maps, spaces := AddressSpaces(maps, processes())), spaces)
    starts = found.stack_start.astype(int)
    marks = [found.is_guess[starts[stack] : starts[stack + 1]].astype(int).tolist() for stack in found.sample_stack]
    assert marks == [[0, 1, 1, 0], [0, 0, 1, 1, 0], [1, 1], [0, 1, 1], [0, 0]]


def test_code_in_memory_that_forked_processes_share_is_of_who_mapped_it_first() -> None:
    """As PHP's: each worker maps it again with other rights, and names what it compiles in one map."""
    shared, anon = "/dev/zero (deleted)", "//anon"
    maps = mappings(
        (10, 7, 0x1000, 0x1000, 0, shared, None),
        (10, 7, 0x8000, 0x1000, 0, anon, None),
        (30, 8, 0x1000, 0x1000, 0, shared, None),  # forked
        (30, 8, 0x8000, 0x1000, 0, anon, None),
        (50, 9, 0x1000, 0x1000, 0, shared, None),  # forked by that, which has it from the first
        (50, 9, 0x4000, 0x1000, 0, shared, None),  # its own
        (35, 7, 0x4000, 0x1000, 0, shared, None),  # after the fork
        (60, 5, 0x1000, 0x1000, 0, shared, None),  # no relation
        (90, 8, 0x1000, 0x1000, 0, shared, None),  # after an exec
    )
    events = (
        (20, "fork", 8, 8, 7, 7, None),
        (40, "fork", 9, 9, 8, 8, None),
        (80, "exec", 8, 8, None, None, "other"),
    )
    files = CodeFiles(maps, AddressSpaces(maps, processes(*events)))
    numbers = files.of_mappings(np.arange(len(maps)))
    assert files.owners(numbers).tolist() == [7, 7, 7, 8, 7, 9, 7, 5, 8]
    assert files[int(numbers[4])] == MappedFile(shared, kind=FileKind.ANONYMOUS, pid=7)


def test_exec_replaces_every_mapping() -> None:
    maps = mappings((10, 7, 0x1000, 0x1000, 0, OLD, None), (20, 7, 0x2000, 0x1000, 0, APP, None))
    spaces = AddressSpaces(maps, processes((5, "exec", 7, 7, None, None, "sh"), (20, "exec", 7, 7, None, None, "app")))
    assert find(spaces, 7, 15, 0x1800) == 0
    assert find(spaces, 7, 25, 0x1800) == -1
    assert find(spaces, 7, 25, 0x2000) == 1
    assert find(spaces, 7, 25, 0x3000) == -1


def test_the_mapping_made_at_the_very_time_of_the_exec_is_the_new_programs() -> None:
    spaces = AddressSpaces(
        mappings((20, 7, 0x1000, 0x1000, 0, APP, None)), processes((20, "exec", 7, 7, None, None, "app"))
    )
    assert find(spaces, 7, 20, 0x1000) == 0


def test_forked_child_sees_what_its_parent_had_mapped_until_then() -> None:
    maps = mappings(
        (1, 7, 0x1000, 0x1000, 0, APP, None),
        (30, 7, 0x5000, 0x1000, 0, LIB, None),
        (40, 8, 0x5000, 0x1000, 0, OLD, None),
    )
    spaces = AddressSpaces(maps, processes((20, "fork", 8, 8, 7, 7, None), (21, "fork", 9, 9, 8, 8, None)))
    assert find(spaces, 8, 50, 0x1000) == 0
    assert find(spaces, 9, 50, 0x1000) == 0  # through two forks
    assert find(spaces, 8, 50, 0x5000) == 2
    assert find(spaces, 9, 50, 0x5000) == -1  # mapped by either ancestor only after the fork
    assert find(spaces, 7, 50, 0x5000) == 1


def test_listed_mappings_are_those_that_are_found() -> None:
    maps = mappings(
        (1, 7, 0x1000, 0x3000, 0, APP, None),
        (5, 7, 0x8000, 0x1000, 0, LIB, None),
        (30, 7, 0x2000, 0x1000, 0, LIB, None),
        (40, 8, 0x3000, 0x2000, 0, OLD, None),
    )
    spaces = AddressSpaces(maps, processes((20, "fork", 8, 8, 7, 7, None)))
    addresses = np.arange(0, 0xA000, 0x800, dtype=np.uint64)
    for pid, time_ns in ((7, 2), (7, 10), (7, 35), (8, 25), (8, 50), (9, 50)):
        space = int(spaces.space_of_samples(np.array([pid], np.uint32), np.array([time_ns], np.uint64), None)[0])
        if space < 0:
            continue
        spaces_of, times = np.full(len(addresses), space, np.int32), np.full(len(addresses), time_ns, np.uint64)
        start, end, row = spaces.mapped_at(space, time_ns)
        assert (start[1:] >= end[:-1]).all()
        at = np.searchsorted(start, addresses, side="right").astype(int) - 1
        inside = (at >= 0) & (addresses < end[np.maximum(at, 0)])
        listed = np.where(inside, row[np.maximum(at, 0)], -1)
        assert listed.tolist() == spaces.find(spaces_of, addresses, times).tolist()
    assert spaces.changes(0).tolist() == [1, 5, 30]


def test_new_threads_are_no_new_address_space() -> None:
    maps = mappings((1, 7, 0x1000, 0x1000, 0, APP, None))
    spaces = AddressSpaces(maps, processes((20, "fork", 7, 71, 7, 7, None)))
    assert find(spaces, 7, 30, 0x1000) == 0


def test_unmapped_and_reused_addresses_follow_time() -> None:
    maps = mappings((10, 7, 0x1000, 0x3000, 0, APP, None), (20, 7, 0x2000, 0x1000, 0, LIB, None))
    spaces = AddressSpaces(maps, processes())
    assert [find(spaces, 7, 15, address) for address in (0x1000, 0x2000, 0x3FFF)] == [0, 0, 0]
    assert [find(spaces, 7, 25, address) for address in (0x1FFF, 0x2000, 0x3000)] == [0, 1, 0]
    assert find(spaces, 7, 5, 0x2000) == 0  # earlier than anything known: the first that came


def test_in_an_interval_with_an_exec_the_thread_name_decides() -> None:
    maps = mappings((101, 7, 0x1000, 0x1000, 0, OLD, None), (151, 7, 0x1000, 0x1000, 0, APP, None))
    events = processes((100, "exec", 7, 7, None, None, "sh"), (150, "exec", 7, 7, None, None, "app"))
    spaces = AddressSpaces(maps, events)
    pid = np.full(4, 7, np.uint32)
    times = np.array([200, 200, 140, 300], np.uint64)
    names = np.array(["sh", "app", "sh", "renamed"], object)
    space = spaces.space_of_samples(pid, times, names)
    found = [int(spaces.find(np.array([s]), np.array([0x1000], np.uint64), times[:1])[0]) for s in space]
    assert found == [0, 1, 0, 1]


def test_in_an_interval_with_an_exec_to_a_program_of_the_same_name_the_leaf_decides() -> None:
    """A script that executes the program that it is called like."""
    maps = [(101, 7, 0x1000, 0x1000, 0, OLD, None), (151, 7, 0x5000, 0x1000, 0, APP, None)]
    maps += [(101, 7, 0x8000, 0x1000, 0, LIB, None), (151, 7, 0x8000, 0x1000, 0, LIB, None)]
    events = [(100, "exec", 7, 7, None, None, "app"), (150, "exec", 7, 7, None, None, "app")]
    chains = [(1, False, [0x1100]), (2, False, [0x5200]), (3, False, [0x8300, 0x5100]), (4, False, [0x9000])]
    rows = [(time_ns, 0, 7, 7, "app", stack, None, 1, 1) for time_ns, stack in ((200, 1), (200, 2), (200, 3), (200, 4))]
    found = attribute(
        [(90, 0, 5, 5, "x", 1, None, 1, 1), *rows, (300, 0, 7, 7, "app", 1, None, 1, 1)], chains, maps, events
    )
    assert [places(found, row) for row in range(1, 6)] == [
        [(OLD, 0x100)],
        [(APP, 0x200)],
        [(LIB, 0x300), (APP, 0xFF)],
        [("?", 0x9000)],
        [("?", 0x1100)],
    ]


def test_programs_of_one_name_in_an_interval_may_have_others_between_them() -> None:
    """A shell's child that executes a script: env, which its first line names, then a shell again."""
    maps = [(10, 5, 0x1000, 0x1000, 0, OLD, None)]
    maps += [(111, 7, 0x3000, 0x1000, 0, LIB, None), (121, 7, 0x5000, 0x1000, 0, OLD, None)]
    events = [(10, "exec", 5, 5, None, None, "sh"), (100, "fork", 7, 7, 5, 5, None)]
    events += [(110, "exec", 7, 7, None, None, "script"), (120, "exec", 7, 7, None, None, "sh")]
    chains = [(1, False, [0x1100]), (2, False, [0x3200]), (3, False, [0x5300])]
    chains += [(4, False, [0x7400])]
    rows = [(200, 0, 7, 7, "sh", stack, None, 1, 1) for stack in (1, 3, 2, 4)]
    rows.append((200, 0, 7, 7, "script", 2, None, 1, 1))
    found = attribute([(90, 0, 5, 5, "sh", 1, None, 1, 1), *rows], chains, maps, events)
    assert [places(found, row) for row in range(6)] == [
        [(OLD, 0x100)],
        [(OLD, 0x100)],
        [(OLD, 0x300)],
        [(LIB, 0x200)],  # within the second exec
        [("?", 0x7400)],
        [(LIB, 0x200)],
    ]


def test_no_deep_stack_is_left_out_that_was_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However little is spared for stacks that come again, as in a long recording of a large service."""
    monkeypatch.setattr("tdprof.attribute.stacks._SPARE_PLACES", 0)
    chains = [(number, False, [0x1000 + 16 * number, *range(0x2000, 0x2640, 16)]) for number in range(1, 41)]
    kernel = [(41, True, [0xFFFF_8000_0000_1000]), (42, True, [0xFFFF_8000_0000_2000])]
    rows = [(200, 0, 7, 7, "app", number, 41 + number % 2, 1, 1) for number in range(1, 41)]
    found = attribute(rows, chains + kernel, [(101, 7, 0x1000, 0x2000, 0, APP, None)])
    assert found.left_out == 0
    assert (np.diff(found.stack_start.astype(int))[found.sample_stack] == 102).all()


def test_thread_names_come_from_side_band_and_are_inherited() -> None:
    events = processes(
        (0, "name", 7, 7, None, None, "main"),
        (10, "fork", 7, 71, 7, 7, None),
        (20, "name", 7, 71, None, None, "worker"),
    )
    spaces = AddressSpaces(mappings(), events)
    tids, times = np.array([71, 71, 7, 99], np.uint32), np.array([15, 25, 25, 25], np.uint64)
    number, names = spaces.thread_names(tids, times)
    assert [names[at] if at >= 0 else None for at in number] == ["main", "worker", "main", None]
    assert spaces.process_names(tids) == {7: "main"}


def attribute(sample_rows: list[tuple], stack_rows: list[tuple], maps: list[tuple], events: list[tuple] | None = None):
    spaces = AddressSpaces(mappings(*maps), processes(*(events or [])))
    return attribute_stacks(samples(*sample_rows), stacks(*stack_rows), CodeFiles(mappings(*maps), spaces), spaces)


class Shifted:
    """Run-time code that stands elsewhere for each second of its interval's end, and for each that this lasted."""

    def places_of(self, addresses: np.ndarray, since_ns: np.ndarray, until_ns: np.ndarray) -> np.ndarray:
        return addresses + until_ns // 10**9 * 1000 + (until_ns - since_ns) // 10**9 * 10**6


def test_run_time_code_is_looked_up_where_it_stood_in_the_interval() -> None:
    maps = mappings((1, 7, 0x1000, 0x1000, 0, "//anon", None), (1, 8, 0x1000, 0x1000, 0, "//anon", None))
    spaces = AddressSpaces(maps, processes((5 * 10**9, "fork", 9, 9, 7, 7, None)))
    rows = [(at * 10**9, 0, pid, pid, thread, 1, None, 1, 1)
            for thread in ("app", None) for pid in (7, 8, 9) for at in (6, 7)]  # fmt: skip
    for part in (rows[:6], rows[6:]):
        taken = samples(*part)
        chains = stacks((1, False, [0x1100, 0x1200]))
        result = attribute_stacks(taken, chains, CodeFiles(maps, spaces), spaces, {7: Shifted()})
        lasts = 10**6 if part[0][4] else 0  # without names of threads times are exact
        assert [[address for _, address in places(result, row)] for row in range(6)] == [
            [0x1100 + 6000 + lasts, 0x11FF + 6000 + lasts],
            [0x1100 + 7000 + lasts, 0x11FF + 7000 + lasts],
            *[[0x1100, 0x11FF]] * 4,  # another process; and a child, in which stays what its parent replaced
        ]


def places(result: AttributedStacks, sample: int) -> list[tuple[str, int]]:
    stack = int(result.sample_stack[sample])
    locations = result.stack_location[result.stack_start[stack] : result.stack_start[stack + 1]]
    return [
        (result.mapped_files[result.location_file[at]].path if result.location_file[at] >= 0 else "?", int(address))
        for at, address in zip(locations, result.location_address[locations], strict=True)
    ]


def test_kernel_part_stands_before_user_part_and_return_addresses_point_into_the_call() -> None:
    result = attribute(
        [(50, 0, 7, 7, "app", 1, 2, 3, 30), (50, 0, 7, 7, "app", 1, None, 1, 10), (50, 0, 7, 7, "app", None, 2, 1, 10)],
        [(1, False, [0x1100, 0x1200]), (2, True, [2**63, 2**63 + 16])],
        [(1, 7, 0x1000, 0x1000, 0x400, APP, "abcd")],
    )
    assert places(result, 0) == [("[kernel]", 2**63), ("[kernel]", 2**63 + 15), (APP, 0x500), (APP, 0x5FF)]
    assert places(result, 1) == [(APP, 0x500), (APP, 0x5FF)]
    assert places(result, 2) == [("[kernel]", 2**63), ("[kernel]", 2**63 + 15)]
    assert {file.build_id for file in result.mapped_files} == {"abcd", ""}


def test_one_stack_in_two_processes_is_two_stacks() -> None:
    result = attribute(
        [(50, 0, 7, 7, "a", 1, None, 1, 1), (50, 0, 8, 8, "b", 1, None, 1, 1)],
        [(1, False, [0x1100])],
        [(1, 7, 0x1000, 0x1000, 0, APP, None), (1, 8, 0x1000, 0x1000, 0, LIB, None)],
    )
    assert [places(result, sample) for sample in (0, 1)] == [[(APP, 0x100)], [(LIB, 0x100)]]


def test_same_address_meaning_two_files_at_two_times() -> None:
    result = attribute(
        [(15, 0, 7, 7, "a", 1, None, 1, 1), (25, 0, 7, 7, "a", 1, None, 1, 1)],
        [(1, False, [0x1100])],
        [(10, 7, 0x1000, 0x1000, 0, APP, None), (20, 7, 0x1000, 0x1000, 0, LIB, None)],
    )
    assert [places(result, sample) for sample in (0, 1)] == [[(APP, 0x100)], [(LIB, 0x100)]]


@pytest.mark.parametrize(("replaced_ns", "expected"), [(3_300_000_000, LIB), (3_700_000_000, APP)])
def test_an_interval_is_of_the_file_that_was_mapped_for_most_of_it(replaced_ns: int, expected: str) -> None:
    """Samples that were added up over an interval cannot be told apart; recorders end intervals soon after a change."""
    ends = [2_000_000_000, 3_000_000_000, 4_000_000_000, 5_000_000_000]
    result = attribute(
        [(end, 0, 7, 7, "a", 1, None, 1, 1) for end in ends],
        [(1, False, [0x1100])],
        [(1_500_000_000, 7, 0x1000, 0x1000, 0, APP, None), (replaced_ns, 7, 0x1000, 0x1000, 0, LIB, None)],
    )
    found = [places(result, sample) for sample in range(4)]
    assert found == [[(file, 0x100)] for file in (APP, APP, expected, LIB)]


def test_samples_that_say_when_their_files_were_mapped_are_of_those() -> None:
    taken = samples(*[(4_000_000_000, 0, 7, 7, "a", 1, None, 1, 1)] * 4)
    told = pa.array([2_000_000_000, 3_600_000_000, 0, None], pa.uint64())
    maps = mappings((1_500_000_000, 7, 0x1000, 0x1000, 0, APP, None), (3_500_000_000, 7, 0x1000, 0x1000, 0, LIB, None))
    taken, chains = taken.append_column("mapped_ns", told), stacks((1, False, [0x1100]))
    result = attribute_stacks(taken, chains, CodeFiles(maps, spaces := AddressSpaces(maps, processes())), spaces)
    assert [places(result, sample)[0][0] for sample in range(4)] == [APP, LIB, APP, LIB]


@pytest.mark.parametrize(
    ("path", "kind", "shown"),
    [
        ("//anon", FileKind.ANONYMOUS, "[anon]"),
        ("/memfd:jit (deleted)", FileKind.ANONYMOUS, "/memfd:jit (deleted)"),
        ("[vdso]", FileKind.VDSO, "[vdso]"),
        ("/bin/app (deleted)", FileKind.ELF, "/bin/app (deleted)"),
    ],
)
def test_what_is_no_file_is_told_apart(path: str, kind: FileKind, shown: str) -> None:
    rows = [(50, 0, 7, 7, "a", 1, None, 1, 1)]
    result = attribute(rows, [(1, False, [0x1100])], [(1, 7, 0x1000, 0x1000, 0, path, None)])
    (file,) = result.mapped_files
    assert (file.kind, file.path) == (kind, shown)
    # Code without a file is known by its run-time address and its process.
    assert places(result, 0) == [(shown, 0x1100 if kind is FileKind.ANONYMOUS else 0x100)]
    assert file.pid == (7 if kind is FileKind.ANONYMOUS else 0)


def test_what_a_jvm_compiles_is_where_what_it_interprets_is() -> None:
    heap, library = (1, 7, 0x1000, 0x1000, 0, "//anon", None), "/usr/lib/jvm/lib/server/libjvm.so"
    maps = [heap, (1, 7, 0x4000, 0x1000, 0, library, None), (1, 8, 0x1000, 0x1000, 0, "//anon", None)]
    maps.append((1, 8, 0x4000, 0x1000, 0, LIB, None))
    result = attribute([(50, 0, pid, pid, "a", 1, None, 1, 1) for pid in (7, 8)], [(1, False, [0x1100])], maps)
    found = {file.pid: (file.kind, file.path) for file in result.mapped_files}
    assert found == {7: (FileKind.ANONYMOUS, "[java]"), 8: (FileKind.ANONYMOUS, "[anon]")}


def test_a_program_in_memory_is_a_file() -> None:
    path = "/memfd:program (deleted)"
    maps = [(1, 7, 0x1000, 0x1000, 0, path, "ab" * 20), (1, 8, 0x1000, 0x1000, 0, path, "ab" * 20)]
    result = attribute([(50, 0, pid, pid, "a", 1, None, 1, 1) for pid in (7, 8)], [(1, False, [0x1100])], maps)
    (file,) = result.mapped_files
    assert (file.kind, file.build_id, file.pid) == (FileKind.ELF, "ab" * 20, 0)
    assert places(result, 0) == places(result, 1) == [(path, 0x100)]


def test_nothing_known_of_the_process_or_the_stack() -> None:
    result = attribute(
        [(50, 0, 9, 9, "a", 1, None, 1, 1), (50, 0, 9, 9, "a", 5, None, 1, 1), (50, 0, 9, 9, "a", None, None, 1, 1)],
        [(1, False, [0x1100])],
        [],
    )
    assert places(result, 0) == [("?", 0x1100)]
    assert places(result, 1) == places(result, 2) == []


def test_callers_outside_every_mapping_are_no_callers() -> None:
    result = attribute(
        [(50, 0, 7, 7, "a", number, None, 1, 1) for number in (1, 2, 3, 4)],
        [(1, False, [0x1100, 0x9000, 0x1200]), (2, False, [0x1100, 0x1200]), (3, False, [0x9000]), (4, False, [])],
        [(1, 7, 0x1000, 0x1000, 0, APP, None)],
    )
    assert [places(result, sample) for sample in range(4)] == [
        [(APP, 0x100)],
        [(APP, 0x100), (APP, 0x1FF)],
        [("?", 0x9000)],
        [],
    ]
    assert result.is_cut.tolist() == [True, False, False, False]


def test_no_stacks_at_all() -> None:
    result = attribute([(50, 0, 7, 7, "a", 1, 2, 1, 1)], [], [(1, 7, 0x1000, 0x1000, 0, APP, None)])
    assert places(result, 0) == []
    assert attribute([], [], []).sample_stack.tolist() == []


def test_files_beyond_what_is_looked_into_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.attribute.code_files._SPARE_FILES", 2)
    maps = mappings(*((1, 7, 0x1000 * at, 0x1000, 0, f"/{at}", "") for at in range(1, 5)))
    files = CodeFiles(maps, spaces := AddressSpaces(maps, processes()))
    taken, chains = samples((50, 0, 7, 7, "app", 1, None, 1, 10)), stacks((1, False, [0x1000, 0x2001, 0x3001, 0x4001]))
    assert [file.path for file in attribute_stacks(taken, chains, files, spaces).mapped_files] == ["/1", "/2"]
    assert files.left_out == 2
    # What was taken stays, what was not is counted once.
    assert [file.path for file in attribute_stacks(taken, chains, files, spaces).mapped_files] == ["/1", "/2"]
    assert files.left_out == 2
