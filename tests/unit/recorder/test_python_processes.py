"""Which files hold CPython, and where in them its state and its evaluation loop are."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tdprof.linux.elf import Elf, open_elf
from tdprof.recorder.bpf.python_walk import PythonProgram, PythonRuntime
from tdprof.recorder.python_layouts import UnknownLayoutError
from tdprof.recorder.python_processes import (
    PythonMapping,
    PythonProcesses,
    check_loop,
    find_python,
    is_switcher,
    may_hold_python,
    program_of,
)

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


def test_a_loop_of_many_functions_is_not_walked() -> None:
    small, other = (0x1000, 0x1400), (0x9000, 0xF000)
    check_loop((3, 14), [small, other])
    check_loop((3, 13), [small])
    with pytest.raises(UnknownLayoutError, match="tail calls"):
        check_loop((3, 14), [small])


def test_other_programs_hold_none() -> None:
    assert find_python(open_elf("/bin/true")) is None


@pytest.mark.parametrize(
    ("path", "does"),
    [
        ("/venv/greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so", True),
        ("/venv/greenlet.cpython-37m-x86_64-linux-gnu.so", True),
        ("/venv/greenlets/core.so", False),
    ],
)
def test_libraries_that_switch_stacks(path: str, does: bool) -> None:
    assert is_switcher(path) == does


class Kernel:
    """A kernel's side that has room for so many processes."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.asked: list[int] = []
        self.told: list[bytes] = []
        self.known: list[tuple[PythonProgram, PythonRuntime, dict[str, int]]] = []

    def start(self) -> bool:
        return True

    def add(self, pid: int, runtime: object, line: bytes) -> bool:
        self.asked.append(pid)
        return len(self.asked) <= self.room

    def has(self, pid: int) -> bool:
        return pid in self.asked[: self.room]

    def tell(self, pid: int, line: bytes) -> None:
        self.told.append(line)

    def know(self, program: PythonProgram, runtime: PythonRuntime, line: bytes) -> None:
        self.known.append((program, runtime, json.loads(line)))


def own_mapping() -> PythonMapping:
    """This process's that holds CPython."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, offset, device, inode, *path = line.split()
        if "x" in rights and path and may_hold_python(path[0]) and find_python(open_elf(path[0])):
            return PythonMapping(int(place.split("-")[0], 16), int(offset, 16), path[0], (device, inode))
    pytest.skip("this CPython has no symbols")


def look_at_this(processes: PythonProcesses, times: int) -> None:
    mapping = own_mapping()
    for _ in range(times):
        processes.look(os.getpid(), [(mapping, os.open(mapping.path, os.O_PATH))])


def end(processes: PythonProcesses) -> None:
    processes.close()
    processes._thread.join(60)
    assert not processes._thread.is_alive()


def test_a_process_that_is_looked_at_again_is_one_process() -> None:
    kernel = Kernel(room=0)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    look_at_this(processes, times=3)
    processes.see_switchers(os.getpid() + 1, [(1, 2)])
    end(processes)
    for spans in ([(1, 2)], [(1, 2)], [], []):
        processes.see_switchers(os.getpid(), spans)
    assert [json.loads(line)["switchers"] for line in kernel.told] == [[[1, 2]], []]
    assert kernel.asked == [os.getpid()] * 3
    (note,) = processes.notes()
    assert note.startswith("the Python frames of a process are not walked: there are more of them")


def test_a_process_that_may_not_be_looked_into_is_told_of() -> None:
    processes = PythonProcesses(Kernel(room=1))  # type: ignore[arg-type]
    for name in ("libc.so.6", "libpython3.12.so.1.0", "python3"):
        processes.look(7, [(PythonMapping(0x1000, 0, f"/usr/lib/{name}", ("fd:01", "7")), None)])
    end(processes)
    (note,) = processes.notes()
    assert note.startswith("the Python frames of a process are not walked: who records may not trace it")


def test_a_file_that_others_have_mapped_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def read_file(elf: Elf) -> object:
        read.append(elf)
        return find_python(elf)

    mapping = own_mapping()
    monkeypatch.setattr("tdprof.recorder.python_processes.find_python", read_file)
    kernel = Kernel(room=4)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    for _ in range(3):
        processes.look(os.getpid(), [(mapping, os.open(mapping.path, os.O_PATH))])
    end(processes)
    assert kernel.asked == [os.getpid()] * 3
    assert len(read) == 1


def test_a_program_that_was_executed_twice_is_known_by_where_its_code_begins() -> None:
    kernel = Kernel(room=3)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    look_at_this(processes, times=3)
    end(processes)
    path = Path(sys.executable).resolve()
    found, status = find_python(open_elf(path)), path.stat()
    if own_mapping().path != str(path) or found is None:
        pytest.skip("this CPython is a library's")
    [(program, runtime, line)] = kernel.known
    assert (program.inode, program.bytes) == (status.st_ino, status.st_size)
    assert line["program"] == runtime.program == 1
    # Where it points to is within the program, as the addresses that it was linked for.
    assert 0 < runtime.first_interpreter + found.code - found.runtime < 1024
    assert (runtime.pidns_inode, runtime.told) == (os.stat("/proc/self/ns/pid").st_ino, 0)


def test_a_file_is_named_as_the_kernel_numbers_devices() -> None:
    assert program_of(("fd:01", "77"), 9) == (0xFD << 20 | 1, 77, 9)


def test_what_was_refused_and_is_walked_after_all_is_not_told_of() -> None:
    kernel = Kernel(room=1)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    processes._refuse(os.getpid(), "a reason")
    look_at_this(processes, times=1)
    end(processes)
    processes._refuse(os.getpid(), "a reason")
    assert list(processes.notes()) == []
    kernel.asked.clear()  # it has executed another program
    processes._refuse(os.getpid(), "another")
    assert list(processes.notes()) == ["the Python frames of a process are not walked: another"]


def test_processes_that_have_ended_are_forgotten() -> None:
    kernel = Kernel(room=1)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    look_at_this(processes, times=1)
    end(processes)
    ended, running = 2**22 + 1, 2**22 + 2
    for pid in (ended, running):
        processes._refuse(pid, "a reason")
    processes.see_switchers(os.getpid(), [(1, 2)])
    assert len(kernel.told) == 1
    processes.forget_all_but({os.getpid(), running})
    assert list(processes.notes()) == ["the Python frames of a process are not walked: a reason"]
    processes.see_switchers(os.getpid(), [(3, 4)])
    assert len(kernel.told) == 2
    processes.forget_all_but({running})
    processes.see_switchers(os.getpid(), [(5, 6)])  # of another process with this number, not looked at yet
    assert len(kernel.told) == 2
    processes.forget_all_but(set())
    assert list(processes.notes()) == []
    assert not processes._found
    assert not processes._switchers


@pytest.mark.parametrize("is_refused", [False, True])
def test_who_was_found_before_the_kernel_was_ready_is_told_of(is_refused: bool) -> None:
    """At the end of a short recording on a busy machine; a refusal is told by who loads."""
    kernel, begun, goes_on = Kernel(room=1), threading.Event(), threading.Event()

    def start() -> bool:
        begun.set()
        return goes_on.wait(60) and not is_refused

    kernel.start = start  # type: ignore[method-assign]
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    look_at_this(processes, times=1)
    assert begun.wait(60)
    (note,) = processes.notes()
    assert note.startswith("the Python frames of a process are not walked: the kernel was still checking")
    goes_on.set()
    end(processes)
    assert not [*processes.notes()]


def test_where_nothing_can_read_memory_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "posix_spawn", refuse)
    kernel = Kernel(room=1)
    processes = PythonProcesses(kernel)  # type: ignore[arg-type]
    processes.prepare()
    look_at_this(processes, times=1)
    end(processes)
    assert not kernel.asked
    (note,) = processes.notes()
    assert note.endswith("are not walked: what reads its memory could not be started")
