"""Which files hold CPython, and where in them its state and its evaluation loop are."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tdprof.linux.elf import open_elf
from tdprof.recorder.python_processes import PythonMapping, PythonProcesses, find_python, may_hold_python

SOURCE = """
const unsigned Py_Version = 0x030b02f0;
int _PyRuntime[100];
__attribute__((noinline)) int _PyEval_EvalFrameDefault(int x) { return x * 3; }
int main(int argc, char **argv) { return _PyEval_EvalFrameDefault(argc); }
"""


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("/usr/bin/python3.11", True),
        ("/usr/bin/python3", True),
        ("/opt/lib/libpython3.13.so.1.0", True),
        ("/opt/lib/libpython3.13d.so.1.0", True),
        ("/opt/lib/libpython3.so", True),
        ("/usr/bin/python2.7", False),
        ("/usr/lib/python3/x.so", False),
        ("/usr/bin/pythonize", False),
    ],
)
def test_names(path: str, may: bool) -> None:
    assert may_hold_python(path) == may


def symbols(path: Path) -> dict[str, tuple[int, int]]:
    """(address, size) by name, as nm has them."""
    lines = subprocess.run(["nm", "-DS", path], check=True, capture_output=True, text=True).stdout.splitlines()
    return {fields[3]: (int(fields[0], 16), int(fields[1], 16)) for line in lines if len(fields := line.split()) == 4}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    if not (shutil.which("gcc") and shutil.which("strip")):
        pytest.skip("no gcc and strip to make a program with")
    (tmp_path / "program.c").write_text(SOURCE)
    subprocess.run(["gcc", "-rdynamic", "-o", tmp_path / "program", tmp_path / "program.c"], check=True)
    return tmp_path / "program"


def test_dynamic_symbols_serve_where_others_were_stripped(program: Path) -> None:
    subprocess.run(["strip", program], check=True)
    want = symbols(program)
    found = find_python(open_elf(program))
    assert found is not None
    assert (found.runtime, found.version) == (want["_PyRuntime"][0], want["Py_Version"][0])
    start, size = want["_PyEval_EvalFrameDefault"]
    assert found.loops == ((start, start + size),)


def test_parts_that_the_compiler_set_aside_belong_to_the_loop(program: Path) -> None:
    cold = ["--add-symbol", "_PyEval_EvalFrameDefault.cold=.text:0x8,function,local"]
    subprocess.run(["objcopy", *cold, program], check=True)
    found = find_python(open_elf(program))
    assert found is not None
    assert len(found.loops) == 2


def test_other_programs_hold_none() -> None:
    assert find_python(open_elf("/bin/true")) is None


class NoRoom:
    """A kernel's side that takes no process."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def start(self) -> bool:
        return True

    def add(self, pid: int, runtime: object, line: bytes) -> bool:
        self.asked.append(pid)
        return False


def test_a_process_that_is_looked_at_again_is_one_process() -> None:
    frames = NoRoom()
    processes = PythonProcesses(frames)  # type: ignore[arg-type]
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, offset, _, _, *path = line.split()
        if "x" in rights and path and may_hold_python(path[0]) and find_python(open_elf(path[0])):
            mapping = PythonMapping(int(place.split("-")[0], 16), int(offset, 16), path[0], ("", path[0]))
            for _ in range(3):
                processes.look(os.getpid(), [(mapping, os.open(path[0], os.O_PATH))])
    processes.close()
    processes._thread.join(60)
    assert frames.asked == [os.getpid()] * 3
    (note,) = processes.notes()
    assert note.startswith("the Python frames of a process are not walked: there are more of them")
