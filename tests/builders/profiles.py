"""Writes `Profile` values from readable call stacks, and draws random ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st

from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.off_cpu import ThreadTimes
from tdprof.model.profile import FunctionTable, LocationTable, Profile, SampleTable, StackTable

CLOCK = EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999)


def thread_times(*rows: tuple[int, int, Sequence[int], int], more_ns: int = 0) -> ThreadTimes:
    """Where threads' time went: of each (pid, tid, nanoseconds in each state, of these without a sample).

    Args:
        more_ns: wall time of each that is in no state.
    """
    spent = np.array([row[2] for row in rows], np.uint64)
    pid, tid = (np.array([row[at] for row in rows], np.uint32) for at in (0, 1))
    wall = spent.sum(axis=1) + np.uint64(more_ns)
    return ThreadTimes(pid, tid, wall, spent, np.array([row[3] for row in rows], np.uint64))


@dataclass(frozen=True)
class Frame:
    """One function at one line; ``own_file``: what the function stands in, where it is not the line's file."""

    name: str
    line: int = 0
    file: str = ""
    linkage_name: str = ""
    module: str = "/bin/app"
    own_file: str = ""

    @property
    def whole(self) -> "Frame":
        return replace(self, file=self.own_file or self.file, own_file="")


@dataclass(frozen=True)
class Call:
    """One code address: the frames inlined there, innermost first, ending with the function that has the code."""

    frames: tuple[Frame, ...]
    address: int = 0
    reason: Unknown = Unknown.KNOWN
    is_guess: bool = False

    @property
    def module(self) -> str:
        return self.frames[-1].module


@dataclass
class ProfileBuilder:
    """Collects samples; ``build`` makes the columns. Stacks are given root first, as people read them."""

    events: Sequence[EventInfo] = (CLOCK,)
    files: list[MappedFile] = field(default_factory=list)
    rows: list[tuple[int, int, int, int, str, tuple[Call, ...], int, int, int, int]] = field(default_factory=list)

    def add(
        self,
        *stack: Call | Frame | str,
        weight: int = 1_000_000,
        count: int = 1,
        event: int = 0,
        time_ns: int = 1_000_000_000,
        pid: int = 100,
        tid: int = 100,
        thread: str = "app",
        cgroup: int = -1,
        state: int = 0,
    ) -> "ProfileBuilder":
        calls = tuple(_call(item) for item in reversed(stack))
        self.rows.append((time_ns, event, pid, tid, thread, calls, count, weight, cgroup, state))
        return self

    def build(self, **changes: object) -> Profile:
        file_row = {file.path: i for i, file in enumerate(self.files)}
        files = list(self.files)
        stacks: dict[tuple[Call, ...], int] = {}
        calls: dict[Call, int] = {}
        functions: dict[tuple[str, str, str, str, str], int] = {}
        threads: dict[str, int] = {}
        for row in self.rows:
            stacks.setdefault(row[5], len(stacks))
            threads.setdefault(row[4], len(threads))
        for stack in stacks:
            for call in stack:
                calls.setdefault(call, len(calls))
        for call in calls:
            for frame in call.frames:
                functions.setdefault(_function_key(frame), len(functions))
                functions.setdefault(_function_key(frame.whole), len(functions))
                if frame.module and frame.module not in file_row:
                    file_row[frame.module] = len(files)
                    files.append(MappedFile(frame.module, build_id="", kind=FileKind.ELF))

        def columns(*positions: int) -> list[list[int]]:
            return [[row[i] for row in self.rows] for i in positions]  # type: ignore[misc]

        time_ns, event, pid, tid, count, weight = columns(0, 1, 2, 3, 6, 7)
        outermost = [call.frames[-1] for call in calls]
        own_code = {_function_key(each) for frame in outermost for each in (frame, frame.whole)}
        whole = [functions[*key[:2], key[4] or key[2], key[3], ""] for key in functions]
        file_row[""] = -1
        profile = Profile(
            events=tuple(self.events),
            mapped_files=files,
            mapped_file_ranges=[(0x400000 + 0x1000000 * i, 0x10000, 0) for i in range(len(files))],
            functions=FunctionTable(
                name=[key[0] for key in functions],
                linkage_name=[key[1] or key[0] for key in functions],
                file=[key[2] for key in functions],
                mapped_file=np.array([file_row[key[3]] for key in functions], np.int32),
                is_inlined=np.array([key not in own_code for key in functions], np.uint8),
                whole=None if whole == [*range(len(functions))] else np.array(whole, np.int32),
            ),
            locations=LocationTable(
                mapped_file=np.array([file_row[call.module] for call in calls], np.int32),
                address=np.array([call.address or 0x1000 + 16 * i for i, call in enumerate(calls)], np.uint64),
                reason=np.array([call.reason for call in calls], np.uint8),
                frame_start=np.cumsum([0, *(len(call.frames) for call in calls)]).astype(np.uint32),
                frame_function=np.array(
                    [functions[_function_key(frame)] for call in calls for frame in call.frames], np.int32
                ),
                frame_line=np.array([frame.line for call in calls for frame in call.frames], np.uint32),
                is_guess=np.array([call.is_guess for call in calls], bool),
            ),
            stacks=StackTable(
                start=np.cumsum([0, *map(len, stacks)]).astype(np.uint32),
                location=np.array([calls[call] for stack in stacks for call in stack], np.int32),
            ),
            samples=SampleTable(
                time_ns=np.array(time_ns, np.uint64),
                event=np.array(event, np.uint32),
                pid=np.array(pid, np.uint32),
                tid=np.array(tid, np.uint32),
                thread_name=np.array([threads[row[4]] for row in self.rows], np.int32),
                stack=np.array([stacks[row[5]] for row in self.rows], np.int32),
                count=np.array(count, np.uint64),
                weight=np.array(weight, np.uint64),
                cgroup=np.array([row[8] for row in self.rows], np.int32),
                state=np.array([row[9] for row in self.rows], np.uint8),
                cpu=np.full(len(self.rows), -1, np.int32),
                waker=np.full(len(self.rows), -1, np.int32),
            ),
            thread_names=list(threads),
            process_names={row[2]: "app" for row in self.rows},
            command=("./app", "--fast"),
            rung="software-clock-bpf",
            rung_reason="no hardware PMU",
            losses=Losses(),
            start_realtime_ns=1_767_225_600_000_000_000,
            duration_ns=2_000_000_000,
        )
        return replace(profile, **changes)  # type: ignore[arg-type]


def _call(item: Call | Frame | str) -> Call:
    if isinstance(item, Call):
        return item
    return Call((Frame(item) if isinstance(item, str) else item,))


def _function_key(frame: Frame) -> tuple[str, str, str, str, str]:
    return frame.name, frame.linkage_name, frame.file, frame.module, frame.own_file


def example() -> Profile:
    """Two events, two processes, recursion, an inlined call, the kernel, an unknown address, a lost stack."""
    events = (
        EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999, total=1_010_000_000, enabled_ns=10, running_ns=10),
        EventInfo("page-faults", Unit.COUNT, period=1),
    )
    main = Frame("main", 10, "app.c")
    work = Call((Frame("square(int)", 3, "math.h", "_Z6squarei"), Frame("work(int)", 21, "app.c", "_Z4worki")))
    other_line = Frame("work(int)", 25, "app.c", "_Z4worki")
    fault = Frame("handle_mm_fault", module="[kernel]")
    stripped = Call((Frame("[libz.so.1+0x1f00]", module="/usr/lib/libz.so.1"),), 0x1F00, Unknown.STRIPPED)
    builder = ProfileBuilder(
        events,
        [MappedFile("/bin/app", "abcdef0123456789"), MappedFile("[kernel]", "feed", FileKind.KERNEL)],
    )
    builder.add(main, work, weight=600_000_000, count=600)
    builder.add(main, work, weight=100_000_000, count=100, time_ns=2_000_000_000, tid=101, thread="worker")
    builder.add(main, other_line, other_line, weight=100_000_000, count=100)
    builder.add(main, stripped, weight=150_000_000, count=150, pid=200, tid=200)
    builder.add(weight=50_000_000, count=50)
    builder.add(main, other_line, fault, weight=7, count=7, event=1)
    return builder.build()


NAMES = st.text(st.characters(codec="utf-8") | st.sampled_from(";\n\x1b\udc80"), max_size=8)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Random profiles: recursion, inlining, empty stacks, odd names, several events, threads and intervals."""
    frames = draw(
        st.lists(
            st.builds(Frame, NAMES, st.integers(0, 3), NAMES, NAMES, st.sampled_from(["/bin/app", "/lib/x.so", ""])),
            min_size=1,
            max_size=6,
        )
    )
    call = st.builds(
        Call,
        st.lists(st.sampled_from(frames), min_size=1, max_size=3).map(tuple),
        st.integers(0, 2**40),
        st.sampled_from(Unknown),
    )
    calls = draw(st.lists(call, min_size=1, max_size=6))
    events = [EventInfo(f"event{i}", unit) for i, unit in enumerate(draw(st.permutations(list(Unit)))[:2])]
    builder = ProfileBuilder(events)
    for _ in range(draw(st.integers(0, 12))):
        builder.add(
            *draw(st.lists(st.sampled_from(calls), max_size=5)),
            weight=draw(st.integers(0, 2**50)),
            count=draw(st.integers(1, 100)),
            event=draw(st.integers(0, 1)),
            time_ns=draw(st.integers(0, 5)) * 1_000_000_000,
            pid=draw(st.integers(1, 3)),
            tid=draw(st.integers(1, 3)),
            thread=draw(NAMES),
        )
    return builder.build()


HOSTILE_NAMES = (
    "<img src=x onerror=\"window.attacked='img'\">",
    "</script><script>window.attacked='script'</script>",
    "\"><svg onload=window.attacked='svg'>",
    "<!--<script>",
    "{{data}}{{script}}&amp;&#60;b&#62;",
    "javascript:window.attacked='url'",
    "\u202etxt.exe\u2066<b>bold",
    "\x00\x1b[31mred\x9b\r\n\u2028",
    "__proto__",
    "constructor",
    "#f=main&z=1&q=%00",
    " ",
    "\u6f22\u5b57 \U0001f469\u200d\U0001f469\u200d\U0001f467 \u200f\u05e2\u05d1\u05e8",
    "\udcff\ud800",
)


def hostile(depth: int = 10_000, name_characters: int = 1_000_000) -> Profile:
    """Names that are markup, a megabyte long or nothing; a cyclic stack; one of ten thousand calls."""
    events = (
        EventInfo("<b>cycles</b>", Unit.COUNT, period=1000, total=1_000_000, enabled_ns=10, running_ns=10),
        EventInfo("</script>", Unit.BYTES, period=1),
    )
    builder = ProfileBuilder(events)
    for name in HOSTILE_NAMES:
        builder.add("main", Frame(name, 7, name, module=name), weight=40_000, count=40, thread=name)
        builder.add("main", Frame(name, 9, name, module=name), weight=3, count=3, event=1)
    builder.add("main", "x" * name_characters, weight=50_000, count=50)
    builder.add("main", *["even", "odd"] * (depth // 2), weight=60_000, count=60)
    builder.add("main", *["even", "odd"] * 20, weight=30_000, count=30)
    builder.add("main", *[Frame(f"level {i}") for i in range(depth // 10)], weight=70_000, count=70)
    builder.add("main", "none", weight=0, count=1)
    return builder.build(
        command=("</title><script>window.attacked='title'</script>", "\u202e"),
        rung="<script>",
        rung_reason="<img src=x onerror=window.attacked='rung'>",
        notes=["<img src=x onerror=window.attacked='note'>", "</ul></details><script>window.attacked='end'</script>"],
        losses=Losses(samples_ring_full=1, by_reason={"<script>window.attacked='loss'</script>": 2}),
    )
