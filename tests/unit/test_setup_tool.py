"""tools/setup and setup.py: a C library that does not compile is an error where there is a compiler."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
# What tools/setup calls; it then looks for no packages, since there is no package manager.
COMMANDS = ("bash", "cat", "cut", "dirname", "find", "mkdir", "sha256sum", "sort", "xargs")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose one C file does not compile."""
    for folder in ("profiler/native", "profiler/tdprof/native", "spe/native", "bpf", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "profiler/native/broken.c").write_text("int broken(void) { return not_there; }\n")
    for name in ("setup.py", "tools/setup", "profiler/tdprof/native/headers.py"):
        shutil.copy(PROJECT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("tool", ["check", "coverage", "demo", "sanitize", "setup", "test", "try-install", "verifier"])
def test_a_tool_asked_for_help_gives_it_and_does_nothing(tool: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [PROJECT / "tools" / tool, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(result.stdout) > 80
    assert "SPDX" not in result.stdout
    assert not list(tmp_path.iterdir())


def environment(**variables: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TDPROF_NATIVE"} | variables


@pytest.mark.parametrize(("native", "status"), [("optional", 0), ("required", 1)])
def test_what_does_not_compile_is_left_out_only_where_it_may_be(project: Path, native: str, status: int) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (project / "pyproject.toml").write_text("")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(
        command, cwd=project, env=environment(TDPROF_NATIVE=native), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == status, done.stderr
    assert "not_there" in done.stderr
    assert not list(project.rglob("_native*.so"))


@pytest.mark.parametrize(("has_compiler", "native"), [(True, "required"), (False, "optional")])
def test_a_failed_installation_is_the_end(project: Path, has_compiler: bool, native: str) -> None:
    (project / "pyproject.toml").write_text("")
    programs = project / "programs"
    programs.mkdir()
    for name in COMMANDS:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)

    python = project / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    scripts = {python: 'echo "native is $TDPROF_NATIVE" >&2; exit 1\n'}
    if has_compiler:
        scripts[programs / "gcc"] = "exit 0\n"
    for path, script in scripts.items():
        path.write_text(f"#!{programs}/bash\n{script}")
        path.chmod(0o755)
    done = subprocess.run(
        [programs / "bash", "tools/setup", "test"], cwd=project, capture_output=True, text=True, timeout=600,
        env={"PATH": str(programs), "PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 1
    assert f"native is {native}" in done.stderr
    assert "nothing was installed" in done.stderr
    assert not list((project / ".venv").glob(".setup-*"))
