"""Which processes a recording is of: all that they start, however short it lives and whoever it becomes; no others."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from builders.waiting import wait_until
from live.recording import EACH_RUNG, TDPROF, Capture, assert_share, has_bytes, record, start_record, user_function

pytestmark = pytest.mark.needs_perf

Build = Callable[[str], Path]


def works(capture: Capture) -> dict[str, int]:
    counts = capture.count(lambda sample: sample.thread if sample.thread.startswith("works-") else None)
    return {name: counts[f"works-{name}-ms"] for name in ("12", "6", "3")}


@pytest.mark.needs_bpf
def test_processes_shorter_than_an_interval_have_their_share(build: Build, folder: Path) -> None:
    """At 99 Hz a sample stands for 10 ms; an interval that began anew with each process would see the longest alone."""
    capture = record("-F", "99", "--", build("short.c"), "60", folder=folder)
    found = works(capture)
    for name, share in (("12", 12 / 21), ("6", 6 / 21), ("3", 3 / 21)):
        assert_share(found[name], sum(found.values()), share, least=80)
    assert not capture.losses()
    assert not [note for note in capture.manifest["notes"] if "sampling interval" in note]


@pytest.mark.parametrize("options", EACH_RUNG)
def test_samples_stand_for_no_more_than_is_counted(build: Build, folder: Path, options: list[str]) -> None:
    """Linux takes a thread's events off it before it takes its memory apart, a sixth of what this program costs."""
    capture = record(*options, "-e", "cpu-clock", "-F", "3999", "--", build("ends.c"), folder=folder)
    samples = sum(sample.count for sample in capture.samples)
    assert samples > 500
    assert capture.weight() / capture.total() < 1.01 + 4 * samples**-0.5


def test_where_they_have_not_it_is_said(build: Build, folder: Path) -> None:
    capture = record("--no-bpf", "-F", "99", "--", build("short.c"), "10", folder=folder)
    assert [note for note in capture.manifest["notes"] if "each begins its sampling interval anew" in note]


@pytest.fixture
def parent(build: Build) -> Iterator[subprocess.Popen[str]]:
    """A shell whose child's threads busy-a and busy-b work until the test ends."""
    script = f"{build('server.c')}; :"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


@pytest.mark.parametrize("options", EACH_RUNG)
def test_children_that_were_there_before(parent: subprocess.Popen[str], folder: Path, options: list[str]) -> None:
    capture = record(*options, "-F", "1999", "-p", parent.pid, "--duration", "0.5", folder=folder)
    served = capture.count(lambda sample: sample.thread)
    assert set(served) == {"busy-a", "busy-b"}
    assert "-p: also 1 process started by those named, or by their children, before" in capture.manifest["notes"]


@pytest.mark.needs_bpf
def test_a_thread_that_executes_a_file_has_its_process_s_number(build: Build, folder: Path) -> None:
    """The first thread, which was named, ends by that; nobody was told of the program that the other goes on with."""
    with subprocess.Popen([build("successor.c")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        recorder = start_record("-F", "1999", "-p", process.pid, folder=folder)
        wait_until(lambda: has_bytes(folder / "spool" / "initial.jsonl"), recorder)
        process.communicate("\n")
        assert recorder.wait() == 0
    samples = Capture(folder).count(user_function)
    assert samples["before"] > 20
    assert samples["after"] > 200
    assert samples["beside"] > 200


# In a PID namespace: the program's second thread executes it again, and then its number becomes a stranger's.
REUSE = """
folder=$1; program=$2; stranger=$3; shift 3
mkfifo "$folder/line"
"$program" < "$folder/line" > "$folder/said" & first=$!
exec 3> "$folder/line"
until grep -q ready "$folder/said"; do sleep 0.01; done
number=$(ls /proc/$first/task | grep -vx $first)
sleep 600 & kept=$!
"$@" -p $first,$kept & recorder=$!
until [ -s "$folder/capture/spool/initial.jsonl" ]; do kill -0 $recorder; sleep 0.01; done
echo >&3
until grep -qx beside /proc/$first/task/*/comm; do sleep 0.01; done
for try in $(seq 100); do
    echo $((number - 1)) > /proc/sys/kernel/ns_last_pid
    "$stranger" 0.2 > "$folder/said" & last=$!
    [ $last != $number ] || break
    kill $last
done
wait $last
kill $kept
wait $recorder
[ $last = $number ]
"""


@pytest.mark.needs_root
@pytest.mark.needs_bpf
@pytest.mark.skipif(not shutil.which("unshare"), reason="making a pid namespace takes util-linux")
def test_the_number_that_it_had_in_a_pid_namespace_may_be_anothers(build: Build, tmp_path: Path) -> None:
    recorder = [*TDPROF, "record", "-F", "1999", "-o", tmp_path / "capture"]
    script = ["sh", "-ec", REUSE, "sh", tmp_path, build("successor.c"), build("split.c"), *recorder]
    subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", *map(str, script)], check=True, stderr=subprocess.PIPE
    )
    samples = Capture(tmp_path / "capture").count(user_function)
    assert samples["after"] > 200
    assert {"heavy", "light"}.isdisjoint(samples)


@pytest.mark.needs_root
@pytest.mark.needs_bpf
def test_a_setuid_command(build: Build, folder: Path, tmp_path: Path) -> None:
    """The kernel takes events off a task that becomes another user."""
    become = shutil.copy(build("split.c"), build("split.c").with_name("becomes-root"))
    os.chmod(become, 0o4755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    capture = record("-F", "1999", "--", *nobody, become, "0.4", folder=folder)
    samples = capture.count(user_function)
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)


@pytest.mark.needs_bpf
def test_others_are_not_in_the_capture(parent: subprocess.Popen[str], build: Build, folder: Path) -> None:
    """Events of whole CPUs see whatever runs there."""
    capture = record("-F", "1999", "--", "sh", "-c", f"{build('split.c')} 0.3; {build('split.c')} 0.1", folder=folder)
    started = {row["pid"] for row in pq.read_table(folder / "processes.parquet").to_pylist()}
    assert len(started) == 3
    assert {sample.pid for sample in capture.samples} <= started
    assert set(pq.read_table(folder / "mappings.parquet")["pid"].to_pylist()) <= started
    assert "serve_a" not in capture.user_samples()
