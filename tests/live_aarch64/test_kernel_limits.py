"""What the kernel keeps samples from: code that masks interrupts, and rates above its limit."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live_aarch64.machine import OUT_OF_STEP, report, run_tdprof

SYSCTL = Path("/proc/sys/kernel")
SILENT = ("--no-bpf", "--call-graph", "no")


@pytest.mark.needs_perf
def test_kernel_code_that_masks_interrupts_is_doubted(tmp_path: Path) -> None:
    """As every distribution boots: without pseudo-NMIs."""
    if "gicv3_pseudo_nmi" in Path("/proc/cmdline").read_text():
        pytest.skip("this kernel was asked for pseudo-NMIs")
    checks = json.loads(run_tdprof("doctor", "--json", check=False).stdout)["checks"]
    [check] = [check for check in checks if check["name"] == "pmu-interrupts"]
    assert check["status"] == "warn"
    assert check["fix"] == "boot with irqchip.gicv3_pseudo_nmi=1"
    # It copies zeros, all of it in the kernel.
    command = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=300", "status=none")
    for event, is_doubted in (("cycles", True), ("cycles:u", False)):
        capture = tmp_path / event
        run_tdprof("record", *SILENT, "-e", event, "-c", OUT_OF_STEP, "-o", capture, "--", *command)
        notes = report(capture)["notes"]
        assert any("while interrupts are masked" in note for note in notes) == is_doubted, notes


@pytest.fixture
def lower_limit() -> Iterator[Callable[[int], None]]:
    """Set the kernel's limit of samples a second, which it would go on to lower by itself but for the percentage."""
    percent, rate = SYSCTL / "perf_cpu_time_max_percent", SYSCTL / "perf_event_max_sample_rate"
    before = percent.read_text(), rate.read_text()

    def write(limit: str, allowed: str) -> None:
        percent.write_text("25")
        rate.write_text(limit)
        percent.write_text(allowed)

    yield lambda limit: write(str(limit), "0")
    write(before[1], before[0])


@pytest.mark.needs_perf
def test_a_rate_above_a_lowered_limit_is_the_limit(
    lower_limit: Callable[[int], None], workload: Path, tmp_path: Path
) -> None:
    lower_limit(500)
    done = run_tdprof("record", *SILENT, "-F", 999, "-o", tmp_path / "capture", "--", workload, "-n", 10)
    assert "sampled 500 times a second, not 999: that is all the kernel admits now" in done.stderr
    [event] = json.loads((tmp_path / "capture/capture.json").read_text())["events"]
    assert event["frequency_hz"] == 500
