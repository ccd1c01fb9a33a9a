"""Code heaps among what a process has mapped, and the numbers that the programs know them by."""

import ctypes
import os
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.waiting import PATIENCE_S, wait_until
from tdprof.model.stack_ends import StackEnd
from tdprof.recorder import code_heaps
from tdprof.recorder.bpf.unwind_arrays import Extent
from tdprof.recorder.code_heaps import CodeHeaps
from tdprof.recorder.executable_maps import ExecutableLine, FileKey
from tdprof.recorder.hotspot import CodeHeap, HeapLayout, HotSpotLibrary, NotThereYetError

PROGRAM = Path("/bin/true").resolve()  # any ELF file
LINE = ExecutableLine(0x7000_0000, 0x7001_0000, 0, FileKey("fe:00", "7"), "/usr/lib/jvm/lib/server/libjvm.so", True)
FILE = Extent(0x7000_0000, 0x10000, 3, 0)
MAP_FD = 77


class Jvm:
    """In place of `HotSpot`: has started after some questions; and of the programs' map."""

    def __init__(self, *heaps: tuple[int, int], questions: int = 0) -> None:
        self._heaps = [CodeHeap(start, end, end, HeapLayout(low=start)) for start, end in heaps]
        self.questions = questions
        self.told: dict[int, int] = {}

    def heaps(self) -> list[CodeHeap]:
        self.questions -= 1
        if self.questions >= 0:
            raise NotThereYetError
        return self._heaps

    def set_element(self, command: int, map_fd: int, key: ctypes.c_uint32, value: HeapLayout) -> None:
        assert map_fd == MAP_FD
        self.told[key.value] = value.low


def look(
    monkeypatch: pytest.MonkeyPatch,
    jvm: Jvm,
    again_s: float = 0.001,
    walk: Callable[[], object] = lambda: None,
    name: Callable[[], object] = lambda: None,
    make: Callable[..., Jvm] | None = None,
) -> CodeHeaps:
    monkeypatch.setattr(HotSpotLibrary, "of", lambda elf: HotSpotLibrary(elf.content, (), {}))
    monkeypatch.setattr(code_heaps, "HotSpot", make or (lambda library, shift, read: jvm))
    monkeypatch.setattr(code_heaps, "map_element", jvm.set_element)
    for pause in ("_AGAIN_S", "_LATER_S"):
        monkeypatch.setattr(code_heaps, pause, again_s)
    heaps = CodeHeaps(MAP_FD, walk, name)
    assert heaps.wanted(5, [LINE]) == LINE
    heaps.look(5, LINE, os.open(PROGRAM, os.O_PATH))
    return heaps


def test_heaps_take_the_place_of_memory_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm((0x1000, 0x5000), (0x5000, 0x6000))
    heaps = look(monkeypatch, jvm)
    wait_until(lambda: heaps.take_found() == {5})
    numbers = {low: number for number, low in jvm.told.items()}
    # One mapping where both have committed memory, with another compiler's behind it.
    found = heaps.put_in(5, [Extent(0x1000, 0x800, 0, StackEnd.JIT), Extent(0x4000, 0x3000, 0, StackEnd.JIT), FILE])
    assert found == [
        Extent(0x1000, 0x4000, 1 + numbers[0x1000], StackEnd.JIT),
        Extent(0x5000, 0x1000, 1 + numbers[0x5000], StackEnd.JIT),
        Extent(0x6000, 0x1000, 0, StackEnd.JIT),
        FILE,
    ]
    assert heaps.put_in(6, [FILE]) == [FILE]
    heaps.close()


def test_nothing_stays_of_a_jvm_that_was_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    said = weakref.WeakSet[Jvm]()

    def say(*_: object) -> Jvm:
        new = Jvm((0x1000, 0x5000))
        said.add(new)
        return new

    jvm = Jvm()
    heaps = look(monkeypatch, jvm, make=say)
    wait_until(lambda: heaps.take_found() == {5})
    wait_until(lambda: not said)
    heaps.close()


def test_a_heap_that_would_lie_over_a_file_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps = look(monkeypatch, Jvm((0x6FFF_F000, 0x7000_1000), (0x6FFF_0000, 0x6FFF_F000), (0x6FFF_0000, 0x6FFF_1000)))
    wait_until(lambda: heaps.take_found() == {5})
    found = heaps.put_in(5, [FILE])
    assert [(each.start, each.size) for each in found] == [(0x6FFF_0000, 0xF000), (FILE.start, FILE.size)]
    heaps.close()


def test_a_jvm_that_is_about_to_start_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heaps = look(monkeypatch, Jvm((0x1000, 0x2000), questions=3))
    heaps.await_tried(60)
    wait_until(lambda: heaps.take_found() == {5})
    heaps.close()


def test_the_kernel_is_made_ready_beside_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm((0x1000, 0x2000))
    heaps = look(monkeypatch, jvm, walk=lambda: wait_until(lambda: bool(jvm.told)))
    wait_until(lambda: heaps.take_found() == {5})
    heaps.close()


def test_what_is_interpreted_is_named_once_heaps_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks are whole from then on, and to load what names takes as long again."""
    done: list[str] = []
    monkeypatch.setattr(code_heaps, "_MOST_TRIES", 1 << 30)
    jvm = Jvm((0x1000, 0x2000), questions=1 << 30)
    heaps = look(monkeypatch, jvm, walk=lambda: done.append("walk"), name=lambda: done.append("name"))
    heaps.name_interpreted()
    assert done == ["walk"]
    jvm.questions = 0
    wait_until(lambda: heaps.take_found() == {5})
    for _ in range(2):
        heaps.name_interpreted()
    assert done == ["walk", "name"]
    heaps.close()


def test_one_that_never_starts_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, ready = Jvm(questions=1 << 30), Jvm((0x1000, 0x2000))
    heaps = look(monkeypatch, stuck, again_s=4 * PATIENCE_S)
    wait_until(lambda: stuck.questions < 1 << 30)
    monkeypatch.setattr(code_heaps, "HotSpot", lambda library, shift, read: ready)
    monkeypatch.setattr(code_heaps, "_AGAIN_S", 0.001)
    assert heaps.wanted(6, [LINE]) == LINE
    heaps.look(6, LINE, os.open(PROGRAM, os.O_PATH))
    wait_until(lambda: heaps.take_found() == {6})
    heaps.close()


def test_who_executes_something_else_or_ends_gives_numbers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm((0x1000, 0x2000))
    heaps = look(monkeypatch, jvm)
    wait_until(lambda: heaps.take_found() == {5})
    assert heaps.wanted(5, [LINE]) is None
    assert len(heaps._free) == 255
    assert heaps.wanted(5, []) is None
    assert len(heaps._free) == 256
    assert heaps.put_in(5, [FILE]) == [FILE]
    assert heaps.wanted(5, [LINE]) == LINE
    heaps.close()


def test_a_number_rests_before_another_process_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that reads where the first one's heaps are is not sent to the other's."""
    jvm = Jvm(*((0x1000 * n, 0x1000 * n + 0x1000) for n in range(1, 257)))
    heaps = look(monkeypatch, jvm)
    wait_until(lambda: heaps.take_found() == {5})
    heaps.forget([5])
    jvm.told.clear()
    monkeypatch.setattr(code_heaps, "_GRACE_S", 1e9)
    assert heaps.wanted(6, [LINE]) == LINE
    heaps.look(6, LINE, os.open(PROGRAM, os.O_PATH))
    wait_until(lambda: heaps.take_found() == {6})
    assert not jvm.told
    assert heaps.notes() == ["1 JVM had no room in the kernel: Java's callers are missing in them"]
    heaps.close()


def test_no_more_heaps_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = Jvm(*((0x1000 * n, 0x1000 * n + 0x1000) for n in range(1, 300)))
    heaps = look(monkeypatch, jvm)
    wait_until(lambda: heaps.take_found() == {5})
    assert sorted(jvm.told) == list(range(256))
    heaps.close()
