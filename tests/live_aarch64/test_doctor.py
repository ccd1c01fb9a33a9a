"""`tdprof doctor` tells the truth about this machine: with and without SPE, privileges and bcc."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from live_aarch64.machine import OUT_OF_STEP, report, run_tdprof, self_counts
from live_aarch64.neoverse_sim import Simulation

Found = tuple[str | None, dict[str, dict[str, str]]]


def doctor(user: str | None = None) -> Found:
    """The rung and the checks by name."""
    return read_found(run_tdprof("doctor", "--json", user=user, check=False).stdout)


def read_found(text: str) -> Found:
    found: dict[str, Any] = json.loads(text)
    return found["rung"], {check["name"]: check for check in found["checks"]}


@pytest.fixture
def without_bcc(tmp_path: Path) -> Iterator[None]:
    """An empty folder in the place of the distribution's bcc."""
    package = Path("/usr/lib/python3/dist-packages/bcc")
    if not package.exists():
        pytest.skip("bcc is not installed, so it cannot be taken away")
    subprocess.run(["mount", "--bind", tmp_path, package], check=True)
    yield
    subprocess.run(["umount", package], check=True)


@pytest.mark.needs_perf
def test_spe_absent_and_present(simulate: Callable[..., Simulation]) -> None:
    if Path("/sys/bus/event_source/devices/arm_spe_0").exists():
        pytest.skip("this machine has a real SPE")
    rung, checks = doctor()
    assert rung == "bpf-pmu"
    assert checks["spe"]["status"] == "warn"
    assert checks["spe"]["fix"]
    simulate()
    rung, checks = doctor()
    assert rung == "bpf-pmu"
    assert checks["spe"]["status"] == "ok"
    assert "pmu:armv8_neoverse_n3" in checks


@pytest.mark.needs_perf
def test_ordinary_user(paranoid: Callable[[int], None], workload: Path) -> None:
    paranoid(3)
    rung, checks = doctor("user")
    assert rung is None
    assert checks["perf-event-paranoid"]["status"] == "fail"
    assert "perf_event_paranoid" in checks["perf-event-paranoid"]["fix"]
    folder = Path("/tmp/doctor-of-the-user")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    refused = run_tdprof("record", "-o", folder / "a", "--", workload, "-n", 1, user="user", check=False)
    assert refused.returncode != 0
    assert "perf_event_paranoid" in refused.stderr
    closed = run_tdprof("record", "-o", folder / "c", "--", "/root/closed/program", user="user", check=False)
    assert closed.returncode == 126
    assert "not allowed to reach /root/closed/program" in closed.stderr
    paranoid(2)
    rung, _ = doctor("user")
    assert rung == "ring-buffer"
    # Half a round of the workload, or nearly, would let all samples fall on one side of its borders. 1,700 of them:
    # seven standard deviations, even if they fell at random.
    run_tdprof("record", "--call-graph", "fp", "-c", OUT_OF_STEP, "-o", folder / "b", "--", workload, "-w", "hc",
               "-n", 200, user="user")  # fmt: skip
    found = report(folder / "b")
    counts = self_counts(found, found["events"][0]["name"])
    assert found["rung"] == "ring-buffer"
    assert counts["hot"] / (counts["hot"] + counts["cold"]) == pytest.approx(0.75, abs=0.08)


@pytest.mark.needs_perf
def test_capabilities_of_an_ordinary_user(paranoid: Callable[[int], None]) -> None:
    held = "+bpf,+perfmon"
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [*user, f"--inh-caps={held}", f"--ambient-caps={held}", "tdprof", "doctor", "--json"]
    paranoid(3)
    rung, checks = read_found(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    setting = checks["perf-event-paranoid"]
    # Debian's kernels ask for CAP_SYS_ADMIN at that level, others for CAP_PERFMON.
    assert (setting["status"], rung is None) in {("fail", True), ("ok", False)}
    paranoid(2)
    rung, checks = read_found(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    assert rung is not None
    assert rung.startswith("bpf-")
    assert checks["perf-event-paranoid"]["status"] == "ok"


@pytest.mark.needs_perf
def test_no_bcc(without_bcc: None) -> None:
    rung, checks = doctor()
    assert rung == "ring-buffer"
    assert checks["bcc"]["status"] in ("warn", "fail")
    assert "bpfcc" in checks["bcc"]["fix"]
