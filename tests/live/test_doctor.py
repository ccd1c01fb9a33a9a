"""`tdprof doctor` on this machine: as root, as an ordinary user, behind a seccomp filter, without /sys."""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tdprof.recorder.events import parse_event
from tdprof.recorder.pmu import group_runs

TDPROF = [sys.executable, "-m", "tdprof"]
AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
NAMES = [
    "kernel",
    "perf-event-paranoid",
    "capabilities",
    "container",
    "sampling-rate",
    "locked-memory",
    "kernel-symbols",
    "btf",
    "bcc",
    "bpf",
    "call-stacks",
    "other-pmus",
    "spe",
    "debug-data",
    "compiled-parts",
    "runtimes",
    "recording",
]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or unmount /sys")
needs_perf = pytest.mark.skipif(
    not os.path.exists("/proc/sys/kernel/perf_event_paranoid"), reason="this kernel has no perf events"
)


def doctor(*prefix: str) -> tuple[int, dict[str, Any], dict[str, dict[str, str]]]:
    """Exit status, the whole object, and its checks by name."""
    result = subprocess.run(
        [*prefix, *TDPROF, "doctor", "--json"], capture_output=True, text=True, check=False, cwd="/", timeout=300
    )
    assert "Traceback" not in result.stderr, result.stderr
    found = json.loads(result.stdout)
    return result.returncode, found, {check["name"]: check for check in found["checks"]}


def check_shape(status: int, found: dict[str, Any]) -> None:
    """What the README promises."""
    assert list(found) == ["rung", "reason", "checks"]
    assert found["rung"] in ("bpf-pmu", "bpf-software", "ring-buffer", None)
    assert status == (found["rung"] is None)
    assert [check["name"] for check in found["checks"] if not check["name"].startswith("pmu")] == NAMES
    for check in found["checks"]:
        assert list(check) == ["name", "status", "detail", "cost", "fix"]
        assert check["status"] in ("ok", "warn", "fail", "unknown")
        assert check["detail"]
    # "fail" means that nothing can be recorded, and the exit status says the same.
    assert any(check["status"] == "fail" for check in found["checks"]) == (found["rung"] is None)


@pytest.mark.needs_perf
@needs_perf
def test_as_the_present_user() -> None:
    status, found, _ = doctor()
    check_shape(status, found)
    assert found["rung"], found["reason"]


@pytest.mark.needs_perf
@needs_perf
@needs_root
def test_root_gets_bpf_where_bcc_is_there() -> None:
    _, found, checks = doctor()
    if checks["bcc"]["status"] != "ok":
        pytest.skip(f"no bcc here: {checks['bcc']['detail']}")
    if checks["container"]["status"] != "ok":
        pytest.skip(f"hindered: {checks['container']['detail']}")
    assert checks["bpf"]["status"] == "ok", checks["bpf"]
    assert found["rung"].startswith("bpf-")
    assert not any("sudo " in check["fix"] for check in found["checks"])


@pytest.mark.needs_perf
@needs_perf
@needs_root
def test_an_ordinary_user_records_through_ring_buffers_and_is_told_what_would_give_more() -> None:
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("setpriv (util-linux) is not installed")
    status, found, checks = doctor(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups")
    check_shape(status, found)
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 2:
        assert found["rung"] is None
        return
    assert found["rung"] == "ring-buffer"
    assert checks["capabilities"]["status"] == "warn"
    assert checks["capabilities"]["fix"].startswith("sudo setpriv ")
    assert checks["bpf"]["status"] == "warn"


@pytest.mark.thorough
@pytest.mark.needs_perf
@needs_perf
@needs_root
def test_the_fix_for_missing_capabilities_gives_an_ordinary_user_bpf() -> None:
    setpriv = shutil.which("setpriv")
    if not setpriv:
        pytest.skip("setpriv (util-linux) is not installed")
    _, _, as_root = doctor()
    if as_root["bpf"]["status"] != "ok":
        pytest.skip(f"BPF does not work even for root: {as_root['bpf']['detail']}")
    _, _, as_user = doctor(setpriv, "--reuid=65534", "--regid=65534", "--clear-groups")
    fix = as_user["capabilities"]["fix"]
    words = fix.removeprefix("sudo ").replace("$(id -u)", "65534").replace("$(id -g)", "65534").split()
    prefix = words[: words.index("$(command")]
    _, found, checks = doctor(*[word.replace("--init-groups", "--clear-groups") for word in prefix])
    assert checks["capabilities"]["status"] == "ok"
    if found["rung"] is None:
        assert int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) > 2
        assert checks["perf-event-paranoid"]["status"] == "fail"
        assert checks["perf-event-paranoid"]["fix"] == "sudo sysctl kernel.perf_event_paranoid=2"
        return
    assert found["rung"].startswith("bpf-")
    assert checks["kernel-symbols"]["status"] == as_root["kernel-symbols"]["status"]


# Installs a seccomp filter that answers perf_event_open with an errno, then executes the rest of its arguments.
FILTER = """
import ctypes, os, struct, sys
audit, number, errno = (int(word) for word in sys.argv[1:4])
code = [(0x20, 0, 0, 4), (0x15, 0, 3, audit), (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno),
        (0x06, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
filter = Program(len(code), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(filter), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[4], sys.argv[4:])
"""


@pytest.mark.parametrize("errno", [1, 38], ids=["EPERM", "ENOSYS"])
@pytest.mark.needs_perf
@needs_perf
def test_a_seccomp_filter_that_hides_perf_events_is_named(errno: int) -> None:
    machine = platform.machine()
    if machine not in AUDIT_ARCH:
        pytest.skip(f"no system call numbers known for {machine}")
    numbers = [str(number) for number in (AUDIT_ARCH[machine], PERF_EVENT_OPEN[machine], errno)]
    status, found, checks = doctor(sys.executable, "-c", FILTER, *numbers)
    check_shape(status, found)
    assert status == 1
    assert checks["recording"]["status"] == "fail"
    assert checks["container"]["status"] == "warn"
    assert "seccomp filter" in checks["container"]["detail"]
    assert checks["recording"]["fix"] == checks["container"]["fix"]


@pytest.mark.needs_perf
@needs_perf
@needs_root
@pytest.mark.parametrize("hidden", ["/sys", "/proc/sys", "/proc"])
def test_hidden_system_folders_are_survived(hidden: str) -> None:
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here (unshare -m)")
    script = f'mount -t tmpfs none {hidden} && exec "$@"'
    status, found, checks = doctor(unshare, "-m", "sh", "-c", script, "sh")
    check_shape(status, found)
    if hidden == "/sys":
        assert checks["pmu"]["status"] == "unknown"


@pytest.mark.needs_perf
@needs_perf
def test_a_group_of_real_events_runs_together() -> None:
    # Software events need no counter, so a group of any size runs: this exercises the probe, not a PMU.
    assert group_runs([parse_event("task-clock"), parse_event("page-faults"), parse_event("context-switches")] * 4)
