"""Address spaces followed in columns say what a plain replay of the same rows says."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.capture_tables import mappings, processes
from tdprof.attribute.address_space import AddressSpaces

PIDS, TIMES = st.integers(1, 4), st.integers(0, 9)
NAMES = st.sampled_from(["a", "b"])
forks = st.tuples(TIMES, st.just("fork"), PIDS, PIDS, PIDS, PIDS, st.none())
changes = st.tuples(TIMES, st.sampled_from(["exec", "name"]), PIDS, PIDS, st.none(), st.none(), NAMES | st.none())
maps = st.tuples(
    TIMES, PIDS, st.integers(0, 6), st.integers(0, 4), st.just(0), st.sampled_from(["/a", "/b"]), st.none()
)
wanted = st.tuples(PIDS, TIMES, st.integers(0, 10))


class Space:
    def __init__(self, start: int, base: "Space | None" = None) -> None:
        self.start, self.base = start, base
        self.rows: list[int] = []


def replay(map_rows: list[tuple], events: list[tuple]):
    """(spaces of each process, changes of each thread's name), row by row."""
    spaces: dict[int, list[Space]] = {}
    names: dict[int, list[tuple[int, str]]] = {}
    for time, pid, *_ in map_rows:
        begins = [row for row in events if row[2] == pid and (row[1] == "exec" or (row[1] == "fork" and row[4] != pid))]
        if not any(row[0] <= time for row in begins):
            spaces[pid] = [Space(0)]  # from before the recording
    steps = [(row[0], 0, at, row) for at, row in enumerate(events)]
    steps += [(row[0], 1, at, row) for at, row in enumerate(map_rows)]
    for time, is_mapping, at, row in sorted(steps, key=lambda step: step[:3]):
        if is_mapping:
            spaces[row[1]][-1].rows.append(at)
            continue
        _, kind, pid, tid, parent_pid, parent_tid, name = row
        if kind == "fork":
            if parent_pid != pid:
                base = spaces[parent_pid][-1] if parent_pid in spaces else None
                spaces.setdefault(pid, []).append(Space(time, base))
            name = names[parent_tid][-1][1] if parent_tid in names else None
        elif kind == "exec":
            spaces.setdefault(pid, []).append(Space(time))
        if name is not None:
            spaces.setdefault(pid, [Space(0)])
            names.setdefault(tid, []).append((time, name))
    return spaces, names


def look_up(space: Space, map_rows: list[tuple], time: int, address: int) -> int:
    later = True
    while True:
        rows = [row for row in space.rows if map_rows[row][2] <= address < map_rows[row][2] + map_rows[row][3]]
        before = [row for row in rows if map_rows[row][0] <= time]
        if before:
            return before[-1]
        if rows and later:
            return rows[0]
        if space.base is None:
            return -1
        time, space, later = min(time, space.start), space.base, False


@settings(max_examples=200, deadline=None)
@given(st.lists(maps, max_size=12), st.lists(forks | changes, max_size=12), st.lists(wanted, min_size=1, max_size=12))
def test_columns_say_what_a_replay_says(map_rows: list[tuple], events: list[tuple], asked: list[tuple]) -> None:
    spaces = AddressSpaces(mappings(*map_rows), processes(*events))
    pid, time, address = (np.array(column) for column in zip(*asked, strict=True))
    pid, time, address = pid.astype(np.uint32), time.astype(np.uint64), address.astype(np.uint64)
    found = spaces.find(spaces.space_of_samples(pid, time, None), address, time)
    number, texts = spaces.thread_names(pid, time)

    expected_spaces, expected_names = replay(map_rows, events)
    for at, (one_pid, one_time, one_address) in enumerate(asked):
        known = expected_spaces.get(one_pid)
        if known is None:
            assert found[at] == -1
        else:
            begun = [space for space in known if space.start <= one_time]
            space = begun[-1] if begun else known[0]
            assert found[at] == look_up(space, map_rows, one_time, one_address)
        changes_of = expected_names.get(one_pid, [])
        before = [name for when, name in changes_of if when <= one_time]
        name = before[-1] if before else changes_of[0][1] if changes_of else None
        assert (texts[number[at]] if number[at] >= 0 else None) == name
