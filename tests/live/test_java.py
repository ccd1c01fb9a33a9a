"""Methods of Java programs have names: tdprof asks the JVM for them, through its attach socket."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.recording import Capture, record, run_record

pytestmark = [
    pytest.mark.needs_bpf,
    pytest.mark.skipif(
        not (shutil.which("java") and shutil.which("javac")), reason="no JDK (apt-get install default-jdk-headless)"
    ),
]

SOURCE = Path(__file__).parent / "workloads/Split.java"
HEAVY, LIGHT = "long Split.heavy(int)", "long Split.light(int)"
MISSING = "[incomplete: jit without frame pointers]"
# A method that is inlined in another has no code that a map could name.
OPTIONS = ("-XX:-Inline", "-Xshare:auto")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-d", folder, SOURCE], check=True, capture_output=True)
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


@pytest.mark.parametrize(
    "program", [(), ("-XX:+PreserveFramePointer",)], ids=["plain", "frame-pointers"], indirect=True
)
def test_three_to_one(program: tuple[subprocess.Popen[str], bool], folder: Path) -> None:
    process, has_frame_pointers = program
    capture = record("-p", process.pid, "--duration", "1.5", folder=folder)
    found = by_method(capture)
    heavy, light = found[HEAVY], found[LIGHT]
    # The JVM's own threads may compile all the while, and a busy machine leaves few samples.
    assert heavy + light >= 10
    # Five standard errors of the share, and a twentieth for rounds that are not all alike.
    assert abs(heavy / (heavy + light) - 0.75) <= 0.05 + 5 * (0.75 * 0.25 / (heavy + light)) ** 0.5

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


def test_nobody_is_asked_where_that_is_not_wanted(program: tuple[subprocess.Popen[str], bool], folder: Path) -> None:
    process, _ = program
    capture = record("--no-interpreters", "-p", process.pid, "--duration", "0.3", folder=folder)
    assert not Path(f"/tmp/.java_pid{process.pid}").exists()
    assert HEAVY not in by_method(capture)
