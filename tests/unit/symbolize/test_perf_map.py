"""Maps of run-time code, with the times of their lines and without."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.llvm_symbolizer import our_stacks
from tdprof.capture.perf_maps import MapTimes
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.symbolize.perf_map import parse_perf_map
from tdprof.symbolize.symbolizer import Symbolizer


def names_at(folder: Path, address: int, *intervals: tuple[int, int]) -> list[str]:
    """What an address is called where it was sampled within each interval."""
    with Symbolizer(perf_map_dir=folder) as symbolizer:
        places = np.full(len(intervals), address, np.uint64)
        since, until = np.array(intervals, np.uint64).T
        if versions := symbolizer.code_versions(1000).get(42):
            places = versions.places_of(places, since, until)
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        return [stack[0][0] for place in places for stack in our_stacks(symbolizer.locate(file, np.array([place])))]


def write(folder: Path, steps: list[tuple[bytes, int]], until_ns: int = 900, more: bytes = b"") -> None:
    text = b"".join(piece for piece, _ in steps)
    ends = np.cumsum([len(piece) for piece, _ in steps]).tolist()
    times = MapTimes.of(text, list(zip(ends, (time for _, time in steps), strict=True)), until_ns)
    (folder / "perf-42.map").write_bytes(text + more)
    (folder / "perf-42.times").write_bytes(times.to_bytes())


FGH = [(b"1000 20 f\n2000 20 alone\n", 100), (b"1000 20 g\n", 200), (b"1010 10 h\n", 300)]


def test_each_sample_is_of_what_stood_there(tmp_path: Path) -> None:
    write(tmp_path, FGH)
    assert names_at(tmp_path, 0x1004, (50, 50), (199, 199), (200, 200), (400, 400)) == ["f", "f", "g", "g"]
    assert names_at(tmp_path, 0x1010, (150, 150), (250, 250), (300, 300)) == ["f", "g", "h"]
    assert names_at(tmp_path, 0x1010, (250, 350), (101, 201)) == ["h [or what it replaced: g]", "f"]
    assert names_at(tmp_path, 0x2000, (50, 50), (500, 500)) == ["alone", "alone"]


def test_of_lines_that_came_at_once_nobody_knows_since_when(tmp_path: Path) -> None:
    write(tmp_path, [(b"1000 20 f\n1000 20 g\n", 100)])
    doubt = "g [or what it replaced: f]"
    assert names_at(tmp_path, 0x1000, (50, 50), (99, 99), (100, 100), (90, 110)) == [doubt, doubt, "g", doubt]


def test_a_compilers_own_memory_is_nothing_that_a_sample_may_be_of(tmp_path: Path) -> None:
    """HotSpot's C1 returns it, and what is compiled later stands there; maps are asked for seconds apart."""
    write(
        tmp_path, [(b"1000 400 C1 temporary CodeBuffer\n", 100), (b"1000 20 f\n1020 20 Compile::scratch_buffer\n", 300)]
    )
    assert names_at(tmp_path, 0x1004, (350, 350), (150, 350)) == ["f", "f"]
    for address in (0x1004, 0x1024):
        (name,) = names_at(tmp_path, address, (150, 150))
        assert "uffer" not in name


def test_in_doubt_what_stood_there_before_is_as_likely(tmp_path: Path) -> None:
    write(tmp_path, [(b"1000 20 e\n", 100), (b"3000 9 other\n", 150), (b"1000 20 f\n1000 20 g\n", 200)])
    doubt = "g [or what it replaced: f or others]"
    assert names_at(tmp_path, 0x1000, (120, 120), (160, 160), (200, 200)) == ["e", doubt, "g"]


def test_what_was_written_after_the_last_look_was_not_sampled(tmp_path: Path) -> None:
    write(tmp_path, FGH[:1], more=b"1000 20 late\n1000 20 later\n")
    assert names_at(tmp_path, 0x1000, (50, 50), (899, 899)) == ["f", "f"]


def test_without_its_times_a_map_names_both(tmp_path: Path) -> None:
    write(tmp_path, FGH)
    (tmp_path / "perf-42.map").write_bytes(b"1000 20 f\n1000 20 g\n2000 1 of another time\n")
    assert names_at(tmp_path, 0x1000, (50, 50), (500, 500)) == ["g [or what it replaced: f]"] * 2


def test_a_doubt_names_two(tmp_path: Path) -> None:
    write(tmp_path, [(b"0 2 f\n", 200), (b"0 1 g\n", 300), (b"0 1 f\n0 2 g\n", 400)])
    assert names_at(tmp_path, 1, (300, 300)) == ["g [or what it replaced: f]"]


LINES = st.builds(
    lambda start, size, name: b"%x %x %s\n" % (start, size, name),
    st.integers(0, 40),
    st.integers(0, 20),
    st.sampled_from([b"f", b"g", b"h"]),
)


def names_said(found: str) -> set[str]:
    name, _, replaced = found.removesuffix("]").partition(" [or what it replaced: ")
    return {name, *filter(None, replaced.split(" or "))}


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(LINES, min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 60), st.data())
def test_against_a_simulation(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[bytes]], address: int, data: st.DataObject
) -> None:
    """A sample taken between two looks is of what stood there at the first, or came before the second: all of that is
    said, or that it is not all."""
    first, last = sorted(data.draw(st.tuples(st.integers(1, len(steps)), st.integers(1, len(steps)))))
    stood: list[str] = []
    for number, lines in enumerate(steps[: max(first, last - 1)], 1):
        for start, size, name in (line.split() for line in lines):
            if int(start, 16) <= address < int(start, 16) + int(size, 16):
                stood = [*(stood if number > first else ()), name.decode()]
    folder = tmp_path_factory.mktemp("map")
    write(folder, [(b"".join(lines), 100 * number) for number, lines in enumerate(steps, 1)])
    (found,) = names_at(folder, address, (100 * first, 100 * last))
    said = names_said(found)
    assert not stood or "others" in said or said >= set(stood)
    names = {line.split()[2].decode() for lines in steps for line in lines}
    assert "others" not in said or len(names) > 2 or first != last


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_are_read(noise: bytes) -> None:
    parse_perf_map(b"1000 20 f\n" + noise)
    MapTimes.from_bytes(MapTimes.of(noise, [(len(noise), 1)], 2).to_bytes() + noise, noise)
