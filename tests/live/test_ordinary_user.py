"""Recording without privileges, as a user for whom kernel.perf_event_paranoid is 2."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from live.recording import Capture, assert_share, other_user, run_record, user_function
from tdprof.recorder.host import perf_event_paranoid

pytestmark = pytest.mark.needs_perf
REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class User:
    """An ordinary user and a folder of theirs."""

    prefix: list[str]
    repository: Path
    home: Path

    def record(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `tdprof record` as this user."""
        return self.run("record", "-o", "capture", *arguments)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run `tdprof` as this user."""
        program = self.python("-c", "from tdprof.cli.main import main; main()", *arguments)
        return subprocess.run(**program, capture_output=True, text=True, check=False)

    def python(self, *arguments: object) -> dict[str, Any]:
        """What `subprocess` is to be told to run Python as this user."""
        python = Path(sys.executable)
        if python.is_relative_to(REPOSITORY):  # a virtual environment: where this user sees it
            python = self.repository / python.relative_to(REPOSITORY)
        paths = os.pathsep.join(str(self.repository / part) for part in ("profiler", "spe"))
        return {
            "args": [*self.prefix, *map(str, (python, *arguments))],
            "cwd": self.home,
            "env": {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": str(self.home)},
        }


@pytest.fixture
def user() -> Iterator[User]:
    with tempfile.TemporaryDirectory(prefix="tdprof-user-", dir="/tmp") as name:
        home = Path(name)
        for prefix, repository in other_user(REPOSITORY, home):
            work = home / "work"
            work.mkdir()
            if os.geteuid() == 0:
                os.chown(work, 65534, 65534)
            yield User(prefix, Path(repository), work)


def paranoid() -> int:
    value = perf_event_paranoid()
    return 4 if value is None else value


@pytest.mark.parametrize("namespace", [[], ["unshare", "-U", "-r", "-p", "-m", "-f", "--mount-proc"]])
@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (["--off-cpu", "--", "true"], "time off a CPU is sampled by BPF alone"),
        (["--wakers", "--", "true"], "time off a CPU is sampled by BPF alone"),
        # The setting that would let this user record all CPUs would not suffice.
        (["--switch-output=1s", "-a"], "a recording is cut into segments (--switch-output) by BPF alone"),
    ],
)
def test_what_takes_bpf_is_refused_in_one_line_and_with_a_cure(
    user: User, namespace: list[str], wanted: list[str], what: str
) -> None:
    inside = User([*user.prefix, *namespace], user.repository, user.home)
    if namespace and subprocess.run([*inside.prefix, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces for ordinary users here")
    result = inside.record(*wanted)
    assert result.returncode == 1
    where = ", outside this user namespace" if namespace else ""
    assert result.stderr.splitlines() == [
        f"tdprof: {what}; no BPF: loading BPF programs needs root, or CAP_BPF and CAP_PERFMON{where}",
        "  try: run tdprof with sudo",
    ]


# Locks what this user may lock in all, until its input ends.
HOLDER = """
import contextlib, sys
from tdprof.recorder import perf_event as pe
from tdprof.recorder.event_attrs import clock_attr
from tdprof.recorder.ring import PerfRing
held = []
with contextlib.suppress(OSError):
    while True:
        held.append(PerfRing(pe.perf_event_open(clock_attr(), 0, -1), 1 << 16))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(paranoid() not in (0, 1, 2), reason="kernel.perf_event_paranoid limits no memory, or forbids all")
def test_what_another_recording_has_locked_makes_all_rings_smaller_which_is_said(
    user: User, build: Callable[[str], Path]
) -> None:
    limited = User([*user.prefix, "prlimit", "--memlock=131072"], user.repository, user.home)
    with subprocess.Popen(
        **limited.python("-c", HOLDER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        result = limited.record("-e", "cpu-clock:u", "-F", "99", "--", build("split.c"), "0.2")
        holder.communicate()
    assert result.returncode == 0, result.stderr
    assert "locked memory is short" in result.stderr
    capture = Capture(user.home / "capture")
    assert capture.user_samples()
    assert not capture.losses()


@pytest.mark.skipif(paranoid() > 2, reason="kernel.perf_event_paranoid forbids perf events to users altogether")
def test_ones_own_program(user: User, build: Callable[[str], Path]) -> None:
    result = user.record("-F", "1999", "--", build("split.c"), "0.5")
    assert result.returncode == 0, result.stderr
    assert "perf ring buffers without BPF" in result.stderr
    capture = Capture(user.home / "capture")
    assert capture.manifest["rung"] == "ring-buffer"
    assert "CAP_BPF" in capture.manifest["rung_reason"]
    samples = capture.user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
    assert not capture.losses()
    stacks = pq.ParquetFile(capture.folder / "stacks.parquet").read().to_pylist()
    assert {stack["end"] for stack in stacks} <= {"complete", "unsupported-rule", "no-unwind-info"}
    path = capture.count(lambda sample: sample.frames[-1] if user_function(sample) == "heavy" else None)
    assert path["_start"] >= 0.98 * path.total(), path


@pytest.mark.skipif(paranoid() > 2, reason="kernel.perf_event_paranoid forbids perf events to users altogether")
def test_ones_own_program_that_deletes_itself(user: User, build: Callable[[str], Path]) -> None:
    program = Path(shutil.copy(build("split.c"), user.home / "program"))
    script = """(while kill -0 $$; do [ "$(readlink /proc/$$/exe)" = "$0" ] && exec rm "$0"; done) & exec "$0" 0.5"""
    result = user.record("-F", "1999", "--", "sh", "-c", script, program)
    assert result.returncode == 0, result.stderr
    assert not program.exists()
    samples = Capture(user.home / "capture").user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)


@pytest.mark.skipif(paranoid() > 2, reason="kernel.perf_event_paranoid forbids perf events to users altogether")
def test_ones_own_program_in_memory(user: User, build: Callable[[str], Path]) -> None:
    result = user.record("-F", "1999", "--", build("in_memory.c"), build("split.c"), "0.5")
    assert result.returncode == 0, result.stderr
    capture = Capture(user.home / "capture")
    samples = capture.user_samples()
    assert_share(samples["heavy"], samples["heavy"] + samples["light"], 0.75)
    path = capture.count(lambda sample: sample.frames[-1] if user_function(sample) == "heavy" else None)
    assert set(path) <= {"_start", "[incomplete: no-table]"}  # the first ones may come before its table
    assert path["_start"] >= path.total() / 2


@pytest.mark.skipif(paranoid() != 2, reason="kernel.perf_event_paranoid is not 2")
def test_the_kernel_is_left_out_and_said_so(user: User, build: Callable[[str], Path]) -> None:
    result = user.record("-e", "cpu-clock", "--", build("split.c"), "0.1")
    assert result.returncode == 0, result.stderr
    assert "user space only: kernel.perf_event_paranoid is 2" in result.stderr
    assert Capture(user.home / "capture").manifest["events"][0]["name"] == "cpu-clock:u"


@pytest.mark.skipif(paranoid() < 1, reason="kernel.perf_event_paranoid lets everybody record the system")
def test_the_whole_system_is_refused(user: User) -> None:
    result = user.record("-a", "--duration", "0.1")
    assert result.returncode == 1
    message, hint = result.stderr.splitlines()
    assert message.startswith("tdprof: not allowed to record the whole system: kernel.perf_event_paranoid is")
    assert "sysctl kernel.perf_event_paranoid=" in hint
    assert not (user.home / "capture").exists()


@pytest.mark.needs_root
def test_anothers_process_is_refused(user: User) -> None:
    result = user.record("-p", os.getpid(), "--duration", "0.1")
    assert result.returncode == 1
    message, hint = result.stderr.splitlines()
    assert message.startswith("tdprof: not allowed to record this process")
    assert "sudo" in hint


def test_a_folder_one_may_not_write_into(user: User) -> None:
    user.home.chmod(0o555)
    if os.geteuid() == 0:
        os.chown(user.home, 0, 0)
    result = user.record("--", "true")
    assert result.returncode == 1
    assert result.stderr.startswith("tdprof: cannot create capture: Permission denied")
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.needs_root
@pytest.mark.skipif(paranoid() > 2, reason="kernel.perf_event_paranoid forbids perf events to users altogether")
def test_programs_that_gain_rights_are_counted_and_named(user: User, build: Callable[[str], Path]) -> None:
    """The kernel takes the events off them, whoever starts them."""
    setuid = Path(shutil.copy(build("split.c"), build("split.c").with_name("becomes-root")))
    setuid.chmod(0o4755)
    result = user.record("--", "sh", "-c", f"{setuid} 0.05; {setuid} 0.05; :")
    assert result.returncode == 0, result.stderr
    told = [line for line in result.stderr.splitlines() if "becomes-root" in line and "other rights" in line]
    assert len(told) == 1
    assert "2 programs" in told[0]


@pytest.mark.needs_bpf
@pytest.mark.skipif(not shutil.which("setpriv"), reason="nothing here gives up root's rights for a command")
def test_of_whole_cpus_events_go_on(build: Callable[[str], Path], folder: Path) -> None:
    setuid = Path(shutil.copy(build("split.c"), build("split.c").with_name("becomes-root-again")))
    setuid.chmod(0o4755)
    result = run_record("--", "setpriv", "--reuid", 65534, "--clear-groups", setuid, "0.3", folder=folder)
    assert result.returncode == 0, result.stderr
    assert "rights" not in result.stderr
    assert Capture(folder).user_samples()["heavy"] > 0


@pytest.mark.skipif(paranoid() > 2, reason="kernel.perf_event_paranoid forbids perf events to users altogether")
def test_ordinary_programs_lose_no_rights(user: User) -> None:
    result = user.record("--", "sh", "-c", "for i in 1 2 3 4 5; do /bin/true; done")
    assert result.returncode == 0, result.stderr
    assert "rights" not in result.stderr


def test_what_the_kernel_does_not_let_a_user_count_is_not_called_little(user: User) -> None:
    """Of a program that may not be read, as of a setuid one, all counters are taken off."""
    shell = user.home / "shell"
    shutil.copy("/bin/sh", shell)
    os.chown(shell, user.home.stat().st_uid, -1)
    shell.chmod(0o111)
    loop = "i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done"
    counted = user.run("stat", "-e", "cpu-clock", "--", "./shell", "-c", loop)
    assert counted.returncode == 0, counted.stderr
    assert "s of processor time were not counted: the kernel takes the counters off" in counted.stderr
    assert "not counted" not in user.run("stat", "-e", "cpu-clock", "--", "sh", "-c", loop).stderr
