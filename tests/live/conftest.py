"""What live tests need of the machine, with the reason where it is missing; and the programs they record."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from live.recording import run_record
from tdprof.recorder.events import parse_event
from tdprof.recorder.permitted import can_open, restrict_to_permitted

WORKLOADS = Path(__file__).with_name("workloads")


@pytest.fixture(scope="session")
def _perf_refusal() -> str:
    event = restrict_to_permitted(parse_event("cpu-clock"))
    return "" if can_open(event, sampling=True) else "perf events are not available here (kernel, container, paranoid)"


@pytest.fixture(scope="session")
def bpf_refusal(tmp_path_factory: pytest.TempPathFactory, _perf_refusal: str) -> str:
    if _perf_refusal:
        return _perf_refusal
    folder = tmp_path_factory.mktemp("probe") / "capture"
    said = run_record("--", "true", folder=folder).stderr
    return "" if "with BPF" in said else said.strip().replace("\n", "; ")


@pytest.fixture(autouse=True)
def _skip_where_impossible(request: pytest.FixtureRequest) -> None:
    for marker, refusal in (("needs_perf", "_perf_refusal"), ("needs_bpf", "bpf_refusal")):
        if request.node.get_closest_marker(marker) and (reason := request.getfixturevalue(refusal)):
            pytest.skip(reason)
    if request.node.get_closest_marker("needs_root") and os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def build() -> Iterator[Callable[[str], Path]]:
    """Compiles a program of tests/live/workloads by its file name, once, where every user may run it."""

    def compiled(name: str) -> Path:
        source = WORKLOADS / name
        target = programs / source.stem
        compiler = "g++" if source.suffix == ".cpp" else "gcc"
        if not target.exists():
            if not shutil.which(compiler):
                pytest.skip(f"{compiler} is not installed")
            flags = ["-D_GNU_SOURCE", "-O1", "-g", "-fno-omit-frame-pointer", "-Wall", "-Wextra", "-Werror", "-pthread"]
            if source.stem == "paths":
                flags += ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
            if source.stem in ("plugin", "other_plugin"):
                flags += ["-shared", "-fPIC"]
            subprocess.run([compiler, *flags, "-o", str(target), str(source), "-ldl"], check=True)
        return target

    with tempfile.TemporaryDirectory(prefix="tdprof-programs-") as name:
        programs = Path(name)
        programs.chmod(0o755)
        yield compiled


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the capture of this test goes."""
    return tmp_path / "capture"
