"""The built wheel, installed in a fresh environment and used away from the source tree."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tdprof.recorder.bpf.sources import MACHINES

PROJECT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.beside_others, pytest.mark.thorough]


def run(*words: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        list(words), cwd=cwd, capture_output=True, text=True, check=False, timeout=300, env=os.environ | (env or {})
    )
    assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clean check-out holds, so that nothing left over from earlier builds can help or harm."""
    if not (PROJECT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git check-out, so what belongs to the project is not known")
    folder = tmp_path_factory.mktemp("clean") / "tdprof"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=PROJECT).stdout
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(PROJECT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.fixture(scope="module")
def built(sources: Path) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", ".", cwd=sources)
    return sources / "dist"


def wheel_of(folder: Path) -> Path:
    [wheel] = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a fresh environment; returns its ``bin`` folder.

    The dependencies come from the environment that runs the tests, so that nothing is downloaded. A path in a .pth
    file does not have its own .pth files read, so the editable tdprof of that environment stays invisible.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index",
        "--disable-pip-version-check", wheel, cwd=folder)  # fmt: skip
    return folder / "bin"


def files_below(folder: str, prefix: str) -> set[str]:
    """Names of a folder's files in the project, as they stand in the wheel."""
    return {
        prefix + str(path.relative_to(PROJECT / folder))
        for path in (PROJECT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_what_is_needed_and_nothing_else(built: Path, bpf_refusal: str) -> None:
    wheel = wheel_of(built)
    assert "-cp311-abi3-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        # A link followed wrongly would stand in the archive as a link, or as a file with the link's target in it.
        assert not [info.filename for info in archive.infolist() if info.external_attr >> 28 == 0xA]
        assert archive.read("tdprof/bpf/sample.bpf.c") == (PROJECT / "bpf/sample.bpf.c").read_bytes()
    assert {name.split("/")[0] for name in names} <= {"tdprof", "arm_spe", f"{wheel.name.split('-cp311')[0]}.dist-info"}
    wanted = files_below("bpf", "tdprof/bpf/") | files_below("catalogs", "tdprof/catalogs/")
    wanted |= {
        f"tdprof/{path.relative_to(PROJECT / 'profiler/tdprof')}"
        for path in (PROJECT / "profiler/tdprof").rglob("*.py")
    }
    wanted |= {
        f"arm_spe/{path.relative_to(PROJECT / 'spe/arm_spe')}" for path in (PROJECT / "spe/arm_spe").rglob("*.py")
    }
    wanted |= files_below("profiler/tdprof/report/page", "tdprof/report/page/")
    wanted |= files_below("profiler/tdprof/systemd", "tdprof/systemd/")
    wanted |= {"tdprof/py.typed", "arm_spe/py.typed", "tdprof/_native.abi3.so"}
    if any((PROJECT / "spe/native").glob("*.c")):
        wanted.add("arm_spe/_native.abi3.so")
    if not bpf_refusal:  # who may load BPF programs here has compiled them with bcc
        wanted |= {f"tdprof/bpf/objects/{machine}.json" for machine in MACHINES}
    assert wanted - names == set()
    extra = {name for name in names - wanted if ".dist-info/" not in name and not name.endswith((".pyi", ".proto"))}
    assert extra == set()
    assert any(name.endswith("LICENSES/GPL-2.0.txt") for name in names)


def test_the_source_distribution_has_every_source(built: Path) -> None:
    [archive] = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    for folder in ("bpf", "catalogs", "profiler/native", "spe/native"):
        assert files_below(folder, f"{folder}/") - names == set()
    assert {str(path.relative_to(PROJECT)) for path in PROJECT.glob("profiler/tdprof/**/*.proto")} - names == set()
    assert files_below("profiler/tdprof/report/page", "profiler/tdprof/report/page/") - names == set()
    assert {"setup.py", "pyproject.toml", "README.md", "LICENSE", "LICENSES/GPL-2.0.txt"} - names == set()


def busy_command() -> list[str]:
    return [sys.executable, "-c", "for i in range(3_000_000): pass"]


@pytest.mark.needs_perf
def test_the_installed_wheel_records_and_reports(built: Path, tmp_path: Path) -> None:
    if not Path("/proc/sys/kernel/perf_event_paranoid").exists():
        pytest.skip("this kernel has no perf events")
    tdprof = install(wheel_of(built), tmp_path / "env") / "tdprof"
    where = run(tdprof.parent / "python", "-c", "import tdprof; print(tdprof.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(tmp_path))
    run(tdprof, "record", "-o", "capture", "--", *busy_command(), cwd=tmp_path)
    report = json.loads(run(tdprof, "report", "capture", "--json", cwd=tmp_path).stdout)
    assert sum(function["samples"] for function in report["functions"]) > 10
    doctor = json.loads(run(tdprof, "doctor", "--json", cwd=tmp_path).stdout)
    [check] = [check for check in doctor["checks"] if check["name"] == "compiled-parts"]
    assert (check["status"] == "ok") == any((PROJECT / "spe/native").glob("*.c")), check
    assert "for tdprof" not in check["detail"]
    # The BPF programs came out of the wheel, too, wherever this machine lets them load, and compiled.
    in_tree = json.loads(run(sys.executable, "-m", "tdprof", "doctor", "--json", cwd=tmp_path).stdout)
    assert doctor["rung"] == in_tree["rung"]
    [bcc] = [check for check in doctor["checks"] if check["name"] == "bcc"]
    assert bcc["detail"].startswith("not needed") == (doctor["rung"] != "ring-buffer"), bcc


@pytest.mark.needs_perf
def test_without_a_compiler_it_installs_works_and_says_so(sources: Path, tmp_path: Path) -> None:
    if not Path("/proc/sys/kernel/perf_event_paranoid").exists():
        pytest.skip("this kernel has no perf events")
    shutil.copytree(
        sources, tmp_path / "tdprof", symlinks=True, ignore=shutil.ignore_patterns("dist", "build", "*.egg-info")
    )
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", ".", cwd=tmp_path / "tdprof", env={"CC": "false"})
    tdprof = install(wheel_of(tmp_path / "tdprof/dist"), tmp_path / "env") / "tdprof"
    doctor = json.loads(run(tdprof, "doctor", "--json", cwd=tmp_path).stdout)
    [check] = [check for check in doctor["checks"] if check["name"] == "compiled-parts"]
    assert check["status"] == "warn"
    assert "compiler" in check["detail"]
    run(tdprof, "record", "-o", "capture", "--", *busy_command(), cwd=tmp_path)
    report = json.loads(run(tdprof, "report", "capture", "--json", cwd=tmp_path).stdout)
    assert sum(function["samples"] for function in report["functions"]) > 10
