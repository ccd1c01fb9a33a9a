"""Methods of Java programs have names: tdprof asks the JVM for them, through its attach socket."""

import itertools
import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.recording import TDPROF, Capture, Sample, record, run_record
from tdprof.model.addresses import FileKind

pytestmark = [
    pytest.mark.needs_bpf,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("javac")), reason="no JDK (apt-get install default-jdk-headless)"
    ),
]

SOURCES = [
    Path(__file__).parent / "workloads" / name
    for name in ("Split.java", "Calls.java", "Compared.java", "Phases.java", "Unloaded.java")
]
# The JDKs that are here, each of which has structures of its own.
JDKS = sorted(
    {path.resolve() for path in (*Path("/usr/lib/jvm").glob("*/bin/java"), Path(shutil.which("java") or "/no/java"))}
)
each_jdk = pytest.mark.parametrize(
    "java",
    [pytest.param(path, id=path.parents[1].name, marks=[pytest.mark.thorough] * (path != JDKS[-1])) for path in JDKS],
)
HEAVY, LIGHT = "long Split.heavy(int)", "long Split.light(int)"
MISSING = "[incomplete: jit without frame pointers]"
PHASES = 24  # of Phases.java
# A method that is inlined in another has no code that a map could name.
OPTIONS = ("-XX:-Inline", "-Xshare:auto")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "--release", "11", "-d", folder, *SOURCES], check=True, capture_output=True)
    return folder


@pytest.fixture
def program(request: pytest.FixtureRequest, classes: Path) -> Iterator[tuple[subprocess.Popen[str], bool]]:
    """A program that runs, and whether it keeps frame pointers."""
    more: tuple[str, ...] = getattr(request, "param", ())
    command = ["java", *OPTIONS, *more, "-cp", str(classes), "Split"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield process, bool(more)
        finally:
            process.kill()


def by_method(capture: Capture) -> Counter[str]:
    return capture.count(lambda sample: sample.frames[0] if sample.frames else None)


def assert_three_to_one(heavy: int, light: int) -> None:
    # The JVM's own threads may compile all the while, and a busy machine leaves few samples.
    assert heavy + light >= 10
    # Five standard errors of the share, and a twentieth for rounds that are not all alike.
    assert abs(heavy / (heavy + light) - 0.75) <= 0.05 + 5 * (0.75 * 0.25 / (heavy + light)) ** 0.5


@pytest.mark.parametrize(
    "program", [(), ("-XX:+PreserveFramePointer",)], ids=["plain", "frame-pointers"], indirect=True
)
def test_three_to_one(program: tuple[subprocess.Popen[str], bool], folder: Path) -> None:
    process, has_frame_pointers = program
    capture = record("-p", process.pid, "--duration", "1.5", folder=folder)
    found = by_method(capture)
    assert_three_to_one(found[HEAVY], found[LIGHT])

    roots = capture.count(lambda sample: sample.frames[-1] if sample.frames[:1] == (HEAVY,) else None)
    if has_frame_pointers:
        assert roots[MISSING] <= 0.25 * roots.total()
    # Whole or not: that is said of each.
    assert all(root.startswith(("[incomplete: ", "clone", "start_thread", "__clone")) for root in roots)

    threads = subprocess.run(["jstack", str(process.pid)], capture_output=True, text=True, check=True).stdout
    top = re.search(r'^"main".*\n.*\n\tat ([\w.$]+)\(', threads, re.MULTILINE)
    assert top
    # In between it is in what calls these two.
    others = {"Split.work", "Split.main", "java.lang.System.nanoTime"}
    assert top[1] in {re.split(r"[ (]", name)[1] for name in (HEAVY, LIGHT)} | others
    assert not Path(f"/tmp/perf-{process.pid}.map").exists()


def test_a_command_is_asked_while_it_runs(classes: Path, folder: Path) -> None:
    result = run_record("--", "java", *OPTIONS, "-cp", classes, "Split", "until asked", folder=folder)
    assert "asked 1 Java process for the names of compiled code" in result.stderr
    found = by_method(Capture(folder))
    assert found[HEAVY] > 0


@pytest.mark.thorough
def test_what_was_compiled_last_has_names_though_the_command_ends(classes: Path, folder: Path) -> None:
    # One method after the other, each of which is hot for a while: a map that was asked for has none of the last.
    result = run_record("--", "java", *OPTIONS, "-cp", classes, "Phases", "2", folder=folder)
    assert result.returncode == 0, result.stderr
    capture = Capture(folder)
    compiled = capture.count(lambda each: each.frames[0] if each.frames and each.modules[0] == "[java]" else None)
    works = {name: count for name, count in compiled.items() if re.fullmatch(r"long Phases\.work\d+\(long\)", name)}
    unnamed = sum(count for name, count in compiled.items() if "[no symbol]" in name)
    assert f"long Phases.work{PHASES - 1}(long)" in works
    assert unnamed <= 0.02 * compiled.total() + 2
    names, files = capture.profile.functions.name, capture.profile.functions.file
    assert {files[names.index(name)] for name in works} == {"Phases.java"}


# So no other recording of the whole machine may leave its names meanwhile; whoever asks all the same is told.
@pytest.mark.thorough
@pytest.mark.parametrize("program", [("-XX:+DisableAttachMechanism",)], ids=["asked-in-vain"], indirect=True)
def test_nobody_is_asked_where_that_is_not_wanted(program: tuple[subprocess.Popen[str], bool], folder: Path) -> None:
    process, _ = program
    for number, (options, is_asked) in enumerate([((), True), (("--no-interpreters",), False)]):
        capture = folder.with_name(str(number))
        result = run_record(*options, "-p", process.pid, "--duration", "0.3", folder=capture)
        assert result.returncode == 0, result.stderr
        assert (f"Java code of process {process.pid} may have no names" in result.stderr) == is_asked
        # What samples themselves name is not asked for.
        assert is_asked or HEAVY not in by_method(Capture(capture))


def is_called_rightly(sample: Sample) -> bool:
    """Whether each function of Calls that is not guessed has its only caller above it, and the outermost none.

    As the interpreter begins or ends a method that has no name, so that it may be any of them.
    """
    frames = sample.frames
    for first, name in enumerate(frames):
        if name.endswith(" [guessed]"):
            frames = frames[:first]
            break
    known = [re.search(r"Calls\.(f_\w*)\(|^(Interpreter)$", name) for name in frames]
    chain = [match[1] or "" for match in known if match]
    pairs = [(callee, caller) for callee, caller in itertools.pairwise(chain) if callee and caller]
    return all(callee[:-1] == caller or callee == caller == "f_bba" for callee, caller in pairs)


@each_jdk
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="C2"),
        pytest.param(("-XX:TieredStopAtLevel=1",), id="C1", marks=pytest.mark.thorough),
        pytest.param(("-Xint",), id="interpreted", marks=pytest.mark.thorough),
    ],
)
def test_callers_without_frame_pointers(java: Path, options: tuple[str, ...], classes: Path, folder: Path) -> None:
    capture = record_ready([java, "-XX:-Inline", *options, "-cp", classes, "Calls"], folder)
    java_samples = [each for each in capture.samples if any("Calls.f_" in name for name in each.frames)]
    total = sum(each.count for each in java_samples)
    wrong = sum(each.count for each in java_samples if not is_called_rightly(each))
    whole = sum(each.count for each in java_samples if not each.frames[-1].startswith("[incomplete: "))
    assert total >= 50
    assert wrong <= max(2, 0.002 * total)
    # Of a busy machine's first moments there may be no heap known yet: a third of them were whole without.
    assert whole >= 0.9 * total
    assert sum(each.count for each in java_samples if "Interpreter" in each.frames[1:]) <= 0.1 * total


@each_jdk
def test_interpreted_methods_and_lines(java: Path, classes: Path, folder: Path) -> None:
    capture = record_ready([java, "-Xint", "-cp", classes, "Split", "until asked"], folder)
    found = capture.count(lambda each: each.frames[0] if each.frames and each.modules[0] == "[java]" else None)
    assert_three_to_one(found[HEAVY], found[LIGHT])
    lines = lines_of(capture)
    assert lines[HEAVY] <= {5, 6, 7}
    assert lines[LIGHT] <= {11, 12, 13}
    assert lines["void Split.work(long)"] <= {17, 18, 19, 20, 22, 23}
    names, files = capture.profile.functions.name, capture.profile.functions.file
    assert files[names.index(HEAVY)] == "Split.java"
    called = {each.frames[1:3] for each in capture.samples if each.frames[:1] == (HEAVY,)}
    assert called <= {("void Split.work(long)", "void Split.main(java.lang.String[])")}


def test_a_method_is_one_function_whether_it_was_compiled_yet(classes: Path, folder: Path) -> None:
    never = ("-XX:TieredStopAtLevel=1", "-XX:CompileCommand=quiet", "-XX:CompileCommand=exclude,Split.heavy")
    first, second = folder.with_name("interpreted"), folder.with_name("compiled")
    for options, each in ((never, first), (OPTIONS, second)):
        record_ready(["java", *options, "-cp", classes, "Split", "until asked"], each)
    functions = [Capture(each).profile.functions for each in (first, second)]
    modules = [
        {module for sample in Capture(each).samples for name, module in zip(sample.frames, sample.modules, strict=True)
         if name == HEAVY}
        for each in (first, second)
    ]  # fmt: skip
    assert modules == [{"[java]"}, {"[java]"}]
    assert all(each.file[each.name.index(HEAVY)] == "Split.java" for each in functions)


@pytest.mark.thorough
@each_jdk
def test_a_method_that_is_compiled_as_it_is_sampled_is_one_function(java: Path, classes: Path, folder: Path) -> None:
    """Each of Phases is interpreted 1,500 times before; C1 has no code of its own where it compiles it."""
    thresholds = [f"-XX:Tier3{name}Threshold=1500" for name in ("Invocation", "MinInvocation")]
    options = ("-XX:TieredStopAtLevel=1", *thresholds, "-XX:Tier3BackEdgeThreshold=1000000000")
    result = run_record("--", java, *OPTIONS, *options, "-cp", classes, "Phases", "2.5", folder=folder)
    assert result.returncode == 0, result.stderr
    capture = Capture(folder)
    functions, files = capture.profile.functions, capture.profile.mapped_files
    ways: defaultdict[str, set[FileKind]] = defaultdict(set)
    for name, mapped_file in zip(functions.name, functions.mapped_file.tolist(), strict=True):
        if re.fullmatch(r"long Phases\.work\d+\(long\)", name):
            ways[name].add(files[mapped_file].kind)
    assert sum(kinds == {FileKind.INTERPRETED, FileKind.ANONYMOUS} for kinds in ways.values()) >= PHASES // 2
    samples = by_method(capture)
    doubtful = sum(count for name, count in samples.items() if "Phases.work" in name and name not in ways)
    assert doubtful <= 0.05 * sum(samples[name] for name in ways)
    command = [*TDPROF, "report", "--limit", "0", "--json", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [(row["name"], row["samples"]) for row in json.loads(shown)["functions"] if row["name"] in ways]
    assert sorted(rows) == sorted((name, samples[name]) for name in ways)


@pytest.mark.thorough
@each_jdk
def test_a_class_that_takes_anothers_place_has_its_own_names(java: Path, classes: Path, folder: Path) -> None:
    options = ("-Xint", "-XX:+UseSerialGC", "-Xmx32m")
    capture = record_ready([java, *options, "-cp", classes, "Unloaded"], folder)
    seen = set()
    for sample in capture.samples:
        works = re.findall(r"Work(\d{4})\.", " ".join(sample.frames))
        through = re.findall(r"through(\d)\(", " ".join(sample.frames))
        if works and through:
            assert len(set(works)) == 1
            assert int(works[0]) % 4 == int(through[0])
            seen.add(works[0])
    assert len(seen) >= 2


@each_jdk
@pytest.mark.parametrize(
    "is_everywhere",
    [pytest.param(False, id="callers"), pytest.param(True, id="everywhere", marks=pytest.mark.thorough)],
)
def test_inlined_methods_and_lines(java: Path, is_everywhere: bool, classes: Path, folder: Path) -> None:
    options = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints"] if is_everywhere else []
    capture = record_ready([java, *options, "-cp", classes, "Calls"], folder)
    java_samples = [each for each in capture.samples if any("Calls.f_" in name for name in each.frames)]
    total = sum(each.count for each in java_samples)
    wrong = sum(each.count for each in java_samples if not is_called_rightly(each))
    assert total >= 50
    assert wrong <= max(2, 0.002 * total)

    # Compiled with what it calls: the lines are those of calls, and of what is done.
    found = lines_of(capture)
    assert found["void Calls.f_(long)"] & {83, 84, 85, 86}
    if is_everywhere:
        assert any(each.frames[0] == "long Calls.spin(int)" for each in java_samples)
        assert 31 in found["long Calls.spin(int)"]


@pytest.mark.thorough
@each_jdk
def test_the_interpreter_calls_what_compares(java: Path, classes: Path, folder: Path) -> None:
    interpreted = ("-XX:CompileCommand=quiet", "-XX:CompileCommand=exclude,Compared.main")
    profile = record_ready([java, *interpreted, "-cp", classes, "Compared"], folder).profile
    names, rows, stacks = profile.functions.name, profile.samples, profile.stacks
    total: Counter[int] = Counter()
    called: set[int] = set()
    for stack, count in zip(rows.stack.tolist(), rows.count.tolist(), strict=True):
        locations = stacks.location[stacks.start[stack] : stacks.start[stack + 1]].tolist()
        frames = [names[profile.locations.frame_function[profile.locations.frame_start[each]]] for each in locations]
        if frames[:1] == ["int Compared.compare(java.lang.String[])"]:
            total[locations[0]] += count
            called |= {locations[0]} if frames[1:2] == ["void Compared.main(java.lang.String[])"] else set()
    assert total.total() >= 50
    # A busy machine's first samples may have no caller; the same instruction has one later.
    assert sum(total[each] for each in called) >= 0.9 * total.total()


def lines_of(capture: Capture) -> dict[str, set[int]]:
    """The lines that each function was seen at."""
    locations, names = capture.profile.locations, capture.profile.functions.name
    found: dict[str, set[int]] = defaultdict(set)
    for function, line in zip(locations.frame_function.tolist(), locations.frame_line.tolist(), strict=True):
        found[names[function]].add(line)
    return found


def record_ready(command: list[str | Path], folder: Path) -> Capture:
    """Of a command, after it has said that it is ready."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert "ready\n" in process.stdout
            return record("-p", process.pid, "--duration", "3", folder=folder)
        finally:
            process.kill()
