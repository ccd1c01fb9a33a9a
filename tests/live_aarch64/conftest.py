"""Live tests for an aarch64 machine; `tools/guest/run -- pytest tests/live_aarch64` boots one with all they need."""

import contextlib
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live_aarch64.neoverse_sim import MODULE_FILE, Simulation

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = None
    if platform.machine() != "aarch64":
        reason = f"this machine is {platform.machine()}: tools/guest/run -- pytest tests/live_aarch64"
    elif os.geteuid() != 0:
        reason = "they load modules and change sysctls: run as root, best in the guest"
    for item in items:
        if HERE in item.path.parents and reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def unthrottled() -> Iterator[None]:
    """Keep the kernel from lowering its limit of samples for good, after interrupts that took the emulator long.

    kernel.perf_event_max_sample_rate cannot be written while the percentage says not to lower it.
    """
    percent, rate = (
        Path("/proc/sys/kernel") / name for name in ("perf_cpu_time_max_percent", "perf_event_max_sample_rate")
    )
    before = percent.read_text()
    percent.write_text("25")
    rate.write_text("100000")
    percent.write_text("0")
    yield
    percent.write_text(before)


def build_workload(folder: Path, *options: str) -> Path:
    """The compiled workload, at fixed addresses so that a region's start is its symbol; an ordinary user may run it."""
    for path in (folder, folder.parent, folder.parent.parent):
        path.chmod(0o755)
    program = folder / "workload"
    command: list[str | Path] = [
        "gcc",
        "-O1",
        "-g",
        "-Wall",
        "-no-pie",
        *options,
        "-o",
        program,
        HERE / "workload.c",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return program


def symbols_of(program: Path) -> dict[str, int]:
    """Address of each function of a compiled workload."""
    lines = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: int(address, 16) for address, kind, name in (line.split() for line in lines if line[0] != " ")}


@pytest.fixture(scope="session")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled workload."""
    return build_workload(tmp_path_factory.mktemp("workload"))


@pytest.fixture(scope="session")
def symbols(workload: Path) -> dict[str, int]:
    """Address of each function of the workload."""
    return symbols_of(workload)


@pytest.fixture
def simulate() -> Iterator[Callable[..., Simulation]]:
    """Load the simulated Neoverse with these module parameters, for this test."""
    if not MODULE_FILE.exists():
        pytest.skip(f"no simulated Neoverse here ({MODULE_FILE}): see tools/neoverse_sim/README.md")
    with contextlib.ExitStack() as stack:
        yield lambda **parameters: stack.enter_context(Simulation(**parameters))


@pytest.fixture
def paranoid() -> Iterator[Callable[[int], None]]:
    """Set kernel.perf_event_paranoid for this test."""
    setting = Path("/proc/sys/kernel/perf_event_paranoid")
    before = setting.read_text()

    def set_level(level: int) -> None:
        setting.write_text(str(level))

    yield set_level
    setting.write_text(before)
