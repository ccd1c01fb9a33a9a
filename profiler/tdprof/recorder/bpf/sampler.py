"""The BPF rung's kernel side: its programs and maps, and the drain that empties them."""

import contextlib
import ctypes
import functools
import itertools
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tdprof.capture.spool import COPIES_FILE, STACKS_FILE, SpoolWriter
from tdprof.linux.limits import unlimited_locked_memory
from tdprof.native.library import load_native
from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.exec_places import ExecPlaces
from tdprof.recorder.bpf.java_walk import MAPS as JAVA_MAPS
from tdprof.recorder.bpf.java_walk import MAPS_OF_WALK as JAVA_WALK_MAPS
from tdprof.recorder.bpf.java_walk import JavaWalk
from tdprof.recorder.bpf.kernel import wait_for_running_programs
from tdprof.recorder.bpf.object_file import (
    BpfObject,
    Loaded,
    attach_tracepoint,
    close_all,
    create_maps,
)
from tdprof.recorder.bpf.python_walk import PythonWalk
from tdprof.recorder.bpf.step_programs import STEPS, StepPrograms
from tdprof.recorder.bpf.table_sizes import QUESTIONS_BYTES, TableSizes
from tdprof.recorder.bpf.task_filter import ACTIVE_FOLLOW, FILTER_CGROUPS, FOLLOWERS, TaskFilter
from tdprof.recorder.bpf.unwind_arrays import UnwindArrays
from tdprof.recorder.bpf.walk_load import TRACEPOINTS, WalkLoad
from tdprof.recorder.ring import BpfRing, write_all
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.bpf.off_cpu import OffCpu

KEY_BYTES, VALUE_BYTES = 48, 16  # struct sample_key, struct sample_value
# enum counter of bpf/sample.h, in order
COUNTERS = (
    "samples",
    "samples_map_full",
    "samples_outside_namespace",
    "user_stacks_unreadable",
    "kernel_stacks_unreadable",
    "stacks_truncated",
    "stacks_not_sent",
    "stacks_sent",
    "stacks_copied",
    "stacks_not_copied",
    "threads_not_followed",
    "waits_not_sampled",
    "threads_not_timed",
    "wakers_not_kept",
)
# enum active of bpf/sample.h
ACTIVE_ROWS, ACTIVE_WALK, ACTIVE_COPY, ACTIVE_PYTHON, ACTIVE_SEGMENT = 0, 1, 2, 4, 5
_CAN_BE_MISSED = ("begin_copy", "retake", *FOLLOWERS)
_DRAIN_WHILE_LOADING_S = 0.01
# Of the table of its library: OpenJDK 17 has 129,000 and 55,000, 25 has 157,000 and 68,000.
_ROWS_AND_BUCKETS_OF_A_JVM = 200_000, 80_000
# Copies of all of a recording, or of one segment of it; they are gone once it is finished.
_MOST_COPIED_BYTES = 256 << 20


@dataclass(slots=True)
class CopiesLimit:
    """How much may be copied of a recording, or of each of its segments.

    Attributes:
        most_bytes: of each.
    """

    most_bytes: int = _MOST_COPIED_BYTES
    _before_bytes: int = 0
    _is_reached: bool = False

    def is_reached_now(self, copied_bytes: int) -> bool:
        """Whether no more is to be copied, now that so much was since the beginning; told once."""
        was_reached, self._is_reached = self._is_reached, copied_bytes - self._before_bytes > self.most_bytes
        return self._is_reached and not was_reached

    def begin_segment(self, copied_bytes: int) -> bool:
        """Count anew from here; whether copies are to be made again."""
        was_reached, self._is_reached, self._before_bytes = self._is_reached, False, copied_bytes
        return was_reached


_WITHOUT_RETAKE = (
    "stacks: where a library takes another's addresses callers may be wrong for some milliseconds (the kernel does not "
    "tell of it: tracepoint vm_unmapped_area)"
)


def _without_tables(reason: str) -> str:
    return f"stacks: frame pointers only, so callers may be missing ({reason})"


class BpfSampler:
    """Loaded programs and maps. Use as a context manager: leaving it closes every descriptor.

    Attributes:
        programs: one for each event.
        arrays: what unwinding needs; None where user stacks are walked along frame pointers, or not at all.
        python: what Python's frames need; None where there are no ``arrays``.
        notes: what the user should know of how stacks are taken.
        off_cpu: what times threads, and samples their time off a CPU; None where nothing does.
        drained: samples that went into spools so far.
    """

    def __init__(
        self,
        found: BpfObject,
        loaded: Loaded,
        events: int,
        sizes: TableSizes,
        *,
        wants_walk: bool,
        off_cpu: "OffCpu | None" = None,
    ) -> None:
        """Take over what was loaded.

        ``wants_walk``: walk user stacks by tables, where the kernel takes that program; meanwhile they are copied.
        """
        maps, programs, refused = loaded
        self._object = found
        self.programs = [programs[f"sample_{event}"] for event in range(events)]
        self.arrays: UnwindArrays | None = None
        self.python: PythonWalk | None = None
        self._java: JavaWalk | None = None
        self.notes: list[str] = []
        self._maps = maps
        self._sizes = sizes
        self._counters = bpf_maps.PerCpuCounters(maps["counters"], len(COUNTERS))
        self._ending = bpf_maps.PerCpuCounters(maps["ending"], events if sizes.named_threads else 0)
        self._reader = bpf_maps.BatchReader(KEY_BYTES, VALUE_BYTES)
        self._use_b = 0
        self._samples_drained = 0
        self._copied_bytes = 0
        self._settled_ns: int | None = None  # when events were stopped that were waited for
        self._limit = CopiesLimit()
        self._taken_copies: list[bytes] = []  # out of the ring and not written yet
        self._segment = 0
        self.drained = 0
        self._walk_load: WalkLoad | None = None
        self._is_walking = threading.Event()
        self._walk_name = "walk"  # of the program that is used
        self._next_walk = "walk"  # and of the one that is used when one has to be loaded
        self.off_cpu = off_cpu
        self._closing = contextlib.ExitStack()
        self._programs = programs
        self._closing.callback(self._close_loaded)
        # The map must stay open: the kernel empties an array of programs when nobody holds it any more.
        overflows = StepPrograms(found, {"steps": maps["steps"]}, programs=programs)
        for name in STEPS:
            if name in programs:
                overflows.use(name, programs[name])
        self._steps = [overflows]
        if off_cpu:
            self._closing.callback(off_cpu.close)
            self._steps += off_cpu.steps
        self._stacks = self._closing.enter_context(BpfRing(maps["stacks"], sizes.ring_bytes))
        self._copies = self._closing.enter_context(BpfRing(maps["copies"], sizes.copies_bytes))
        self._leaves = self._closing.enter_context(BpfRing(maps["leaves"], sizes.leaves_bytes))
        # Tells of each time that the programs wake us, not for as long as there is something.
        self._copies_ready = self._closing.enter_context(select.epoll())
        self._copies_ready.register(maps["copies"], select.EPOLLIN | select.EPOLLET)
        if wants_walk:
            self._walk(programs, refused)

    def _walk(self, programs: dict[str, int], refused: dict[str, str]) -> None:
        """Let the programs walk by tables, unless something of it is missing."""
        reason = next((why for name, why in refused.items() if name not in _CAN_BE_MISSED), "")
        if not reason and not load_native():
            reason = "tdprof was built without its C library"
        with contextlib.ExitStack() as on_failure:
            for program, name in TRACEPOINTS.items() if not reason else ():
                try:
                    on_failure.callback(os.close, attach_tracepoint(name, programs[program]))
                except (KeyError, OSError) as error:
                    if program == "retake":
                        self.notes.append(_WITHOUT_RETAKE)
                    elif program not in _CAN_BE_MISSED:
                        reason = f"the kernel's tracepoint {name}: {error}"
            if reason:
                self.notes.append(_without_tables(reason))
                return
            self._closing.push(on_failure.pop_all())
        questions = self._closing.enter_context(BpfRing(self._maps["missing"], QUESTIONS_BYTES))
        exec_places = ExecPlaces(self._maps["exec_places"])
        self._closing.callback(exec_places.close)
        self.arrays = UnwindArrays(self._maps, self._sizes.arrays, self._enlarge, questions, exec_places)
        self._closing.callback(self.await_walk)
        # What runs meanwhile has its deepest stacks copied, and a JVM's walk comes after this one.
        self._walk_load = WalkLoad(functools.partial(self._load_walks, self.arrays))
        self._switch(1, ACTIVE_WALK, ACTIVE_COPY)
        self.python = PythonWalk(self._maps, self._load_python, exec_places)
        self._closing.callback(self.python.close)

    def _load_walks(self, arrays: UnwindArrays) -> None:
        """First a program for stacks of some fifty frames, which the kernel verifies in a fifth of the time."""
        arrays.is_walk_whole = False
        try:
            for name, steps in itertools.product(("walk_first", "walk"), self._steps):
                if name == "walk":
                    self._is_walking.set()
                first = steps.programs.pop("walk_first", None)  # that of overflows came with the other programs
                replaced = steps.use("walk", steps.load(self._maps, name) if first is None else first)
                if replaced is not None:
                    os.close(replaced)
            arrays.is_walk_whole = True
        finally:
            self._is_walking.set()

    def _switch(self, value: int, *switches: int) -> None:
        for switch in switches:
            bpf_maps.update_u32(self._maps["active"], switch, value)

    def await_first_walk(self) -> None:
        """Wait until stacks are walked by tables, though the deepest are copied, or the kernel has refused."""
        if self._walk_load:
            self._is_walking.wait()

    def await_walk(self) -> None:
        """Wait until stacks are walked by tables, if they will be; else `notes` says why not."""
        if not self._walk_load:
            return
        load, self._walk_load = self._walk_load, None
        self._take_copies_until(load)
        if not load.refusal:
            return
        self._switch(0, ACTIVE_WALK, ACTIVE_COPY)
        self.arrays = None
        self.notes.append(_without_tables(load.refusal))

    def filter_tasks(self) -> TaskFilter | None:
        """Have the programs take only what is to be followed; None where this kernel does not let them."""
        try:
            found = TaskFilter(self._maps, self._programs)
        except (KeyError, OSError):
            return None
        self._closing.callback(found.close)
        return found

    def filter_cgroups(self, folders: Sequence[int], *, is_v2: bool) -> None:
        """Have the programs take only what runs in some control groups, or below one, by their open folders."""
        for number, folder in enumerate(folders):
            if is_v2:
                bpf_maps.update_u32(self._maps["chosen_v2"], number, folder)
            identity = ctypes.c_uint64(os.fstat(folder).st_ino)
            bpf_maps.map_element(bpf_maps.BPF_MAP_UPDATE_ELEM, self._maps["chosen_ids"], identity, ctypes.c_uint32(1))
        bpf_maps.update_u32(self._maps["active"], ACTIVE_FOLLOW, FILTER_CGROUPS)

    def _enlarge(self, entries: Mapping[str, int], fill: Callable[[Mapping[str, int]], None]) -> bool:
        """`unwind_arrays.Enlarge`: only the walk reads these maps, so another one that reads others takes its place.

        A stack may be walked by both, the second going on where the first has stopped: what was there stays the same.
        """
        self.await_walk()
        with contextlib.ExitStack() as on_failure, unlimited_locked_memory():  # until Linux 5.11, as for the first ones
            try:
                made = create_maps(self._object, entries)
                on_failure.callback(close_all, made.values())
                fill(made)
            except (OSError, ValueError):
                return False
            walks: list[int] = []
            on_failure.callback(lambda: close_all(walks))
            if self._load_other_walks(self._next_walk, self._maps | made, walks):
                return False
            on_failure.pop_all()
        self._walk_name = self._next_walk
        replaced = [steps.use("walk", walk) for steps, walk in zip(self._steps, walks, strict=True)]
        close_all(filter(None, replaced))
        self._use_maps(made)
        return True

    def _load_other_walks(self, name: str, maps: Mapping[str, int], walks: list[int]) -> str:
        """Load a program that walks, for each kind of sample, while stacks are copied; returns the kernel's refusal."""
        load = WalkLoad(lambda: walks.extend(steps.load(maps, name) for steps in self._steps))
        self._take_copies_until(load)
        return load.refusal

    def _take_copies_until(self, load: WalkLoad) -> None:
        while not load.wait(_DRAIN_WHILE_LOADING_S):
            self._take_copies()

    def walk_java(self) -> None:
        """Have the programs walk what JVMs run, if the kernel lets them."""
        self.await_walk()
        if self._walk_name == "walk_java" or self.arrays is None:
            return
        self._next_walk = "walk_java"
        with unlimited_locked_memory():
            self._use_maps(create_maps(self._object, JAVA_WALK_MAPS))
        # Where the JVM's table will need larger arrays: in one go, since each load takes tenths of a second.
        self.arrays.make_room(*_ROWS_AND_BUCKETS_OF_A_JVM)
        if self._walk_name != self._next_walk:
            self._replace_walk()

    def name_java(self) -> None:
        """Have the programs name what JVMs interpret, where they walk it, if the kernel lets them."""
        if self._walk_name != "walk_java":
            return
        made = self._load_more(JAVA_MAPS, ("java",), "interpreted Java methods have no names", self._take_copies_until)
        if made is not None:
            self._java = JavaWalk(made)
            self._closing.callback(self._java.close)

    def _replace_walk(self) -> None:
        """Have another program walk, which reads the same maps, if the kernel lets it."""
        walks: list[int] = []
        if refusal := self._load_other_walks(self._next_walk, self._maps, walks):
            close_all(walks)
            self._next_walk = self._walk_name
            self.notes.append(f"Java frames are walked along frame pointers only: {refusal}")
            return
        self._walk_name = self._next_walk
        close_all(filter(None, [steps.use("walk", walk) for steps, walk in zip(self._steps, walks, strict=True)]))

    def _take_copies(self) -> None:
        """Make room in their ring, if that is due; unlike a drain this waits for no program to end."""
        if self._copies.pending > self._copies.data_bytes // 8:
            self._taken_copies.append(self._copies.take())

    def save_copies(self, spool: SpoolWriter) -> None:
        """Write copies of stacks to the spool that would soon have no room any more."""
        self._copies_ready.poll(0)
        self._take_copies()
        self._write_taken_copies(spool)
        self._limit_copies()

    def limit_copies(self, most_bytes: int) -> None:
        """Of stacks that no table leads through yet no more is copied for a segment, if that is less than usual."""
        self._limit.most_bytes = min(self._limit.most_bytes, most_bytes)

    def _limit_copies(self) -> None:
        if self._limit.is_reached_now(self._copies.produced):
            self._switch(0, ACTIVE_COPY)

    def _write_taken_copies(self, spool: SpoolWriter) -> None:
        while self._taken_copies:
            write_all(spool.descriptor(COPIES_FILE), memoryview(self._taken_copies.pop(0)))

    def _load_python(self, maps: Mapping[str, int]) -> dict[str, int] | None:
        """What `PythonWalk` loads: maps of these sizes, and the programs that use them."""
        made = self._load_more(maps, ("python", "store"), "Python frames are not walked", WalkLoad.wait)
        if made is not None:
            self._switch(1, ACTIVE_PYTHON)
        return made

    def _load_more(
        self, sizes: Mapping[str, int], names: Sequence[str], otherwise: str, wait: Callable[[WalkLoad], object]
    ) -> dict[str, int] | None:
        """Make some maps as large as they have to be, and load programs that use them, in the place of others.

        Args:
            sizes: of the maps, by name.
            names: the programs.
            otherwise: what a note says where the kernel refuses them: then None is returned.
            wait: for the load.
        """
        made: dict[str, int] = {}
        programs: list[tuple[StepPrograms, str, int]] = []

        def load_all() -> None:
            made.update(create_maps(self._object, sizes))
            for steps, name in itertools.product(self._steps, names):
                programs.append((steps, name, steps.load(self._maps | made, name)))

        with unlimited_locked_memory():
            load = WalkLoad(load_all)
            wait(load)
        if load.refusal:
            close_all([*made.values(), *(program for _, _, program in programs)])
            self.notes.append(f"{otherwise}: {load.refusal}")
            return None
        replaced = [steps.use(name, program) for steps, name, program in programs]
        close_all(filter(None, replaced))
        self._use_maps(made)
        return made

    def _use_maps(self, made: Mapping[str, int]) -> None:
        """Other maps of these names, which programs that are loaded from now on have."""
        close_all(self._maps[name] for name in made)
        self._maps.update(made)

    def _close_loaded(self) -> None:
        close_all([*self._maps.values(), *self._programs.values()])

    @property
    def questions_fd(self) -> int:
        """Becomes readable when the programs ask for mappings."""
        return self._maps["missing"]

    @property
    def code_heaps_fd(self) -> int:
        """The map of what `struct code_heap` says of each."""
        return self._maps["code_heaps"]

    @property
    def copies_fd(self) -> int:
        """Becomes readable when it is time to `save_copies`."""
        return self._copies_ready.fileno()

    @property
    def is_copying(self) -> bool:
        """Whether stacks are being copied: their ring may soon be full."""
        return self._copies.pending > 0

    def counters(self) -> dict[str, int]:
        """What the programs counted so far, by the names in ``COUNTERS``."""
        counted = dict(zip(COUNTERS, self._counters.read(), strict=True))
        if self.off_cpu:
            counted["threads_not_timed"] += self.off_cpu.not_timed
        return counted

    def ending_weights(self) -> list[int]:
        """For each event what samples of ending threads stand for, of which the kernel counts none; [] unfiltered."""
        return self._ending.read()

    def is_filling(self) -> bool:
        """Whether a drain is due before its time: half of the rows or of a ring may be taken."""
        new = self._counters.read()[0] - self._samples_drained
        rings = (self._stacks, self._copies)
        is_filling = any(each.is_filling() for each in (self.python, self._java) if each)
        is_filling |= any(ring.pending > ring.data_bytes // 2 for ring in rings)
        is_filling |= self.off_cpu is not None and self.off_cpu.is_filling()
        return new > self._sizes.rows // 2 or is_filling

    @property
    def pending_bytes(self) -> int:
        """What a drain would write now, at most: rows are compressed."""
        rows = min(self._counters.read()[0] - self._samples_drained, self._sizes.rows)
        taken = sum(map(len, self._taken_copies))
        taken += sum(each.pending_bytes for each in (self.python, self._java) if each)
        rings = sum(ring.pending for ring in (self._stacks, self._copies, self._leaves))
        return rows * (KEY_BYTES + VALUE_BYTES) + rings + taken

    def drain(self, spool: SpoolWriter, stopped_ns: int | None = None) -> int:
        """Swap the tables and append what the one at rest holds; returns the interval's end, CLOCK_MONOTONIC ns.

        That is now, or when the events were stopped: reading what threads did takes long where there are many.

        A row that a late program adds to the table at rest is found there at the next swap but one.
        """
        self._samples_drained = self._counters.read()[0]
        resting = self._maps["rows_b" if self._use_b else "rows_a"]
        self._use_b ^= 1
        bpf_maps.update_u32(self._maps["active"], ACTIVE_ROWS, self._use_b)
        time_ns = stopped_ns or time.monotonic_ns()
        produced, copied, leaves = self._stacks.produced, self._copies.produced, self._leaves.produced
        of_python = self.python.produced() if self.python else {}
        of_java = self._java.produced if self._java else 0
        of_threads = self.off_cpu.produced if self.off_cpu else {}
        # Once events are stopped and those that ran are done, none runs; but those that time threads go on.
        if stopped_ns is None or stopped_ns != self._settled_ns or self.off_cpu:
            wait_for_running_programs()
        self._settled_ns = stopped_ns
        self._stacks.drain(spool.descriptor(STACKS_FILE), produced)
        if self.python:
            self.python.drain(spool, of_python)
        if self._java:
            self._java.drain(spool, of_java)
        if self.off_cpu:
            self.off_cpu.drain(spool, of_threads)
        if copied + leaves > self._copied_bytes:
            self._write_taken_copies(spool)  # no more are taken: the ring may be drained up to `copied` only
            self._copies.drain(spool.descriptor(COPIES_FILE), copied)
            self._leaves.drain(spool.descriptor(COPIES_FILE), leaves)
            self._copied_bytes = copied + leaves
            self._limit_copies()
        for keys, values in self._reader.take(resting):
            self.drained += sum(memoryview(values).cast("Q")[::2])  # sample_value.count
            spool.append_rows(time_ns, keys, values, len(keys) // KEY_BYTES)
        return time_ns

    def begin_segment(self, spool: SpoolWriter) -> None:
        """Have all that later samples refer to sent again, whatever was sent; the new spool is told of Python."""
        self._segment += 1
        self._switch(self._segment, ACTIVE_SEGMENT)
        if self._limit.begin_segment(self._copies.produced) and self.arrays is not None:
            self._switch(1, ACTIVE_COPY)
        wait_for_running_programs()
        if self.python:
            self.python.tell_again(spool)

    def late_notes(self, said: Sequence[str]) -> Iterator[str]:
        """What the user should know in the end of how stacks were taken, beside what was said."""
        self.await_walk()
        yield from (note for note in self.notes if note not in said)
        if not_copied := self.counters()["stacks_not_copied"]:
            yield (
                f"{not_copied} stacks were taken before the tables of their programs were there, and had no room to be "
                "copied: most end as no-table"
            )

    def __enter__(self) -> "BpfSampler":
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.close()
