"""Call stacks of programs without frame pointers: whole, with the true path, and a reason where they are not."""

import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from live.recording import EACH_RUNG, Capture, record, user_function

Build = Callable[[str], Path]
BOTTOM = ("__libc_start_call_main", "__libc_start_main", "_start")
PATHS = {
    ("leaf", "with_big_frame", "with_alloca", "variadic", "main"),
    ("leaf", "compare", "msort_with_tmp", "qsort_r", "by_callback", "main"),
    ("leaf", "deep", "main"),
}


@pytest.fixture(scope="session")
def frameless(build: Build) -> Path:
    """A program that is built as distributions build theirs."""
    return build("paths.c")


def ends(capture: Capture, since_ns: int = 0) -> Counter[str | None]:
    """Samples by the end of their user call stack; None: it has none."""
    stacks = pq.ParquetFile(capture.folder / "stacks.parquet").read().to_pylist()
    end_of = {stack["stack"]: stack["end"] for stack in stacks if not stack["is_kernel"]}
    counter: Counter[str | None] = Counter()
    for sample in pq.ParquetFile(capture.folder / "samples.parquet").read().to_pylist():
        if sample["time_ns"] >= since_ns:
            counter[end_of.get(sample["user_stack"])] += sample["count"]
    return counter


def path_of(frames: tuple[str, ...]) -> tuple[str, ...]:
    """A stack's functions without kernel and C library's start, recursion and splinters of a function once."""
    names = [frame.split(" [")[0] for frame in frames if not frame.startswith("_")]
    return tuple(name for at, name in enumerate(names) if not at or names[at - 1] != name)


def whole_share(capture: Capture) -> float:
    found = ends(capture)
    return found["complete"] / found.total()


@pytest.mark.needs_bpf
def test_every_path_is_the_true_one(frameless: Path, folder: Path) -> None:
    capture = record("-F", "1999", "--", frameless, "2", folder=folder)
    assert whole_share(capture) >= 0.99, ends(capture)
    in_leaf = capture.count(lambda sample: path_of(sample.frames) if user_function(sample) == "leaf" else None)
    true = sum(count for path, count in in_leaf.items() if path[path.index("leaf") :] in PATHS)
    assert true >= 0.99 * in_leaf.total(), in_leaf
    wrong = sum(
        count for path, count in in_leaf.items() if path[-1] == "main" and path[path.index("leaf") :] not in PATHS
    )
    assert wrong <= 0.003 * in_leaf.total(), in_leaf
    assert in_leaf.total() >= 0.9 * capture.profile.total_samples().sum()


@pytest.mark.needs_bpf
def test_a_stack_is_as_deep_as_it_is(frameless: Path, folder: Path) -> None:
    capture = record("-F", "1999", "--", frameless, "0.6", folder=folder)
    deepest = max(len(sample.frames) for sample in capture.samples)
    assert 181 + len(BOTTOM) < deepest <= 255


def record_by(script: str, program: Path, folder: Path) -> Capture:
    """By a tdprof of which a script has changed something; there is room for all."""
    command = [sys.executable, "-c", script, "record", "-o", str(folder), "--", str(program), "0.6"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "had no room" not in done.stderr
    return Capture(folder)


# Arrays for tables that a C library alone overfills.
SMALL_ARRAYS = """
from tdprof.cli.main import main
from tdprof.recorder import ladder
from tdprof.recorder.bpf import array_sizes
array_sizes._GROWN_ROW_PAGES = array_sizes._GROWN_BUCKET_PAGES = 1
small = array_sizes.ArraySizes(row_pages=1, bucket_pages=1, rule_pages=1)
ladder.sizes_for_files = lambda paths, cache: small
main()
"""


@pytest.mark.needs_bpf
def test_tables_grow_while_recording(frameless: Path, folder: Path) -> None:
    assert whole_share(record_by(SMALL_ARRAYS, frameless, folder)) >= 0.99


# The program that walks stacks of any depth is there when the command has ended.
LATE_WALK = """
import threading
from tdprof.cli.main import main
from tdprof.recorder import run
from tdprof.recorder.bpf import step_programs
has_ended, load_one, loop = threading.Event(), step_programs.load_one, run.Run._loop

def load_late(found, maps, name, *rest):
    if name == "walk":
        has_ended.wait(5)  # who makes room for a table that is not cached waits for it
    return load_one(found, maps, name, *rest)

def end(self):
    try:
        loop(self)
    finally:
        has_ended.set()

step_programs.load_one, run.Run._loop = load_late, end
main()
"""


@pytest.mark.needs_bpf
def test_stacks_are_whole_while_the_walk_is_verified(frameless: Path, folder: Path) -> None:
    capture = record_by(LATE_WALK, frameless, folder)
    assert whole_share(capture) >= 0.99, ends(capture)
    in_leaf = capture.count(lambda sample: path_of(sample.frames) if user_function(sample) == "leaf" else None)
    true = sum(count for path, count in in_leaf.items() if path[path.index("leaf") :] in PATHS)
    assert true >= 0.99 * in_leaf.total(), in_leaf
    assert max(len(sample.frames) for sample in capture.samples) > 181 + len(BOTTOM)


@pytest.mark.needs_bpf
def test_exec_is_followed(frameless: Path, folder: Path) -> None:
    capture = record("--", frameless, "0.6", frameless, "0.6", folder=folder)
    assert whole_share(capture) >= 0.95, ends(capture)
    assert capture.profile.total_samples().sum() >= 1000


@pytest.mark.needs_bpf
def test_what_is_not_walked_still_has_where_it_ran(folder: Path) -> None:
    # Many processes too short for their mappings to be known.
    capture = record(
        "-F", "4999", "--", "/bin/sh", "-c", "for i in $(seq 40); do /bin/ls / >/dev/null; done", folder=folder
    )
    assert capture.profile.total_samples().sum() >= 100
    assert not [sample for sample in capture.samples if not sample.frames]
    stacks = pq.ParquetFile(capture.folder / "stacks.parquet").read().to_pylist()
    assert all(stack["addresses"] for stack in stacks)


@pytest.mark.needs_bpf
@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(60): work() if not (pid := os.fork()) else os.waitpid(pid, 0)",
        "for _ in range(60): os.waitpid(os.posix_spawn('/bin/ls', ['ls', '/usr/lib'], {}), 0)",
        "for _ in range(30): os.system('ls /usr/lib | cat')",
    ],
    ids=["forks", "spawned", "shells"],
)
def test_the_first_samples_of_processes_are_whole(folder: Path, code: str) -> None:
    prepare = "import os\ndef work():\n  sum(range(100_000)); os._exit(0)\nos.dup2(os.open('/dev/null', 1), 1)\n"
    capture = record("-e", "cpu-clock:u", "-F", "4999", "--", "/usr/bin/python3", "-c", prepare + code, folder=folder)
    found = ends(capture)
    assert found["complete"] >= 100, found
    # On a loaded machine the ring of copies may be full before it is drained: then that is said.
    notes = " ".join(capture.manifest["notes"])
    counts = re.findall(r"([\d,]+) stacks were taken before the tables", notes)
    said = sum(int(count.replace(",", "")) for count in counts)
    assert found["no-table"] + found["no-mapping"] <= 0.01 * found.total() + said, found


@pytest.mark.needs_bpf
def test_who_has_left_its_stack_has_none_that_is_not_whole(folder: Path) -> None:
    """Amid execve(), and at its end, a process has no memory that its registers point to."""
    loop = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i + 1)); done"
    capture = record("-F", "2999", "--interval", "0.1s", "--", "/bin/sh", "-c", loop, folder=folder)
    samples = pq.ParquetFile(capture.folder / "samples.parquet").read().to_pylist()
    # Some tenths of a second after the beginning the programs know how to tell.
    known_ns = min(sample["time_ns"] for sample in samples if sample["user_stack"] is None)
    found = ends(capture, since_ns=known_ns + 1)
    assert found[None] >= 20, found
    assert found["no-mapping"] + found["unreadable"] <= 0.2 * found[None], found


@pytest.mark.needs_bpf
def test_forked_processes_have_their_parents_mappings(frameless: Path, folder: Path) -> None:
    code = (
        "import os, time; [os.fork() for _ in range(2)]; end = time.process_time() + 0.5\n"
        "while time.process_time() < end: sorted(range(999))"
    )
    capture = record("--", "/usr/bin/python3", "-c", code, folder=folder)
    assert whole_share(capture) >= 0.95, ends(capture)
    assert len({sample.pid for sample in capture.samples}) == 4


@pytest.mark.needs_bpf
def test_a_library_loaded_later_is_walked(build: Build, folder: Path) -> None:
    capture = record("--", build("host.c"), build("plugin.c"), "0.6", folder=folder)
    in_plugin = capture.count(
        lambda sample: path_of(sample.frames)[-1] == "main" if user_function(sample) == "plugin_work" else None
    )
    assert in_plugin[True] >= 0.95 * in_plugin.total() > 300


@pytest.mark.needs_bpf
def test_the_stack_of_a_context_that_was_made_is_whole(build: Build, folder: Path) -> None:
    capture = record("--", build("contexts.c"), "0.6", folder=folder)
    assert whole_share(capture) >= 0.95, ends(capture)
    in_leaf = capture.count(lambda sample: sample.frames if user_function(sample) == "leaf" else None)
    below = sum(count for frames, count in in_leaf.items() if "body" in frames and "main" not in frames)
    assert below >= 0.95 * in_leaf.total() > 300, in_leaf


@pytest.mark.needs_bpf
@pytest.mark.skipif(platform.machine() != "x86_64", reason="Go's changes of stacks are followed on x86-64")
def test_go_is_followed_from_the_stack_of_a_thread_to_that_of_a_goroutine(folder: Path) -> None:
    gofmt, sources = Path("/usr/lib/go/bin/gofmt"), Path("/usr/lib/go/src/net/http")
    if not gofmt.exists() or not sources.exists():
        pytest.skip("no Go program at hand")
    # The collector runs often.
    capture = record("--", "/usr/bin/env", "GOGC=10", gofmt, "-l", sources, folder=folder)
    on_thread = capture.count(lambda sample: sample.frames[-1] if "runtime.systemstack" in sample.frames else None)
    assert on_thread["runtime.goexit"] >= 0.9 * on_thread.total() > 20, on_thread
    assert "runtime.gcBgMarkWorker" in {name for sample in capture.samples for name in sample.frames}


@pytest.mark.needs_bpf
def test_a_running_process_is_walked_from_the_first_sample(frameless: Path, folder: Path) -> None:
    with subprocess.Popen([frameless, "60"]) as process:
        try:
            capture = record("-p", process.pid, "--duration", "1", folder=folder)
        finally:
            process.kill()
    assert whole_share(capture) >= 0.99, ends(capture)


@pytest.mark.needs_bpf
@pytest.mark.parametrize("way", ["fp", "no"])
def test_other_ways_of_taking_stacks(frameless: Path, folder: Path, way: str) -> None:
    capture = record("--call-graph", way, "--", frameless, "0.6", folder=folder)
    assert set(ends(capture)) <= {"frame-pointers-only", None}
    stacks = pq.ParquetFile(capture.folder / "stacks.parquet").read().to_pylist()
    deepest = max(len(stack["addresses"]) for stack in stacks)
    # Of the kernel and of user space one each; names may be more, where functions are inlined.
    assert deepest <= 2 if way == "no" else deepest > 2


@pytest.mark.parametrize(("period", "is_walked"), [(1_000_000, True), (100_000, False)])
def test_a_fixed_period_without_bpf_has_whole_stacks_or_says_so(
    frameless: Path, folder: Path, period: int, is_walked: bool
) -> None:
    capture = record("--no-bpf", "-e", "cpu-clock", "-c", period, "--", frameless, "0.6", folder=folder)
    assert any("frame pointers only" in note for note in capture.manifest["notes"]) is not is_walked
    if is_walked:
        assert whole_share(capture) >= 0.97, ends(capture)
    else:
        assert set(ends(capture)) <= {"frame-pointers-only", None}


@pytest.mark.parametrize("options", EACH_RUNG)
def test_frame_pointers_that_lead_in_a_circle_are_not_followed(build: Build, folder: Path, options: list[str]) -> None:
    """Following them would end after the most addresses that a stack has, with "main" for most of them."""
    capture = record(*options, "-F", "1999", "--", build("circle.c"), "2", folder=folder)
    circling = [sample for sample in capture.samples if user_function(sample) == "circle"]
    assert sum(sample.count for sample in circling) > 300
    assert max(sum(name.startswith("main") for name in sample.frames) for sample in circling) <= 1
    if platform.machine() == "x86_64":  # its instructions tell the way; elsewhere nothing does, which is the reason
        assert whole_share(capture) >= 0.97, ends(capture)
    else:
        assert set(ends(capture)) <= {"complete", "no-unwind-info", "bad-sp", None}, ends(capture)
    assert not capture.losses()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is x86-64's")
@pytest.mark.parametrize("options", EACH_RUNG)
def test_what_is_mapped_late_is_found_where_a_guess_leads_to_it(build: Build, folder: Path, options: list[str]) -> None:
    capture = record(*options, "-F", "999", "--", build("late.c"), folder=folder)
    late = [sample for sample in capture.samples if user_function(sample) == "untold"]
    total = sum(sample.count for sample in late)
    frames = ("from_there [guessed]", "main [guessed]")
    whole = sum(sample.count for sample in late if sample.frames[-5:-3] == frames)
    assert whole >= 0.97 * total > 100, Counter(sample.frames for sample in late)


@pytest.mark.needs_bpf
@pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is x86-64's")
def test_callers_whose_code_is_not_in_memory_are_found_in_copies_or_said_to_be_unreadable(
    build: Build, folder: Path
) -> None:
    capture = record("-F", "99", "--", build("absent.c"), folder=folder)
    absent = [sample for sample in capture.samples if user_function(sample) == "untold"]
    assert {sample.frames[-1] for sample in absent} <= {"_start [guessed]", "[incomplete: unreadable]"}
    whole = [sample for sample in absent if sample.frames[-1] == "_start [guessed]"]
    assert sum(sample.count for sample in whole) > 8
    paths = {sample.frames[-6:-3] for sample in whole}
    assert paths == {("inner [guessed]", "outer [guessed]", "main [guessed]")}


@pytest.mark.needs_bpf
@pytest.mark.skipif(platform.machine() != "x86_64", reason="its machine code is x86-64's")
def test_what_is_incomplete_hangs_below_its_reason(folder: Path) -> None:
    # A loop that is made at run time, with a frame pointer that leads nowhere.
    code = (
        "import ctypes, mmap, time\n"
        "area = mmap.mmap(-1, 4096, prot=7)\n"
        "area.write(bytes.fromhex('55' '31ed' '48c7c10084d717' '48ffc9' '75fb' '5dc3'))\n"  # 400 million times
        "call = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(area)))\n"
        "call()\n"
    )
    capture = record("--", "/usr/bin/python3", "-c", code, folder=folder)
    assert ends(capture)["jit"] >= 50
    roots = capture.count(lambda sample: sample.frames[-1])
    assert roots["[incomplete: jit without frame pointers]"] == ends(capture)["jit"]
