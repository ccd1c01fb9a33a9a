"""Processes whose files and memory lie in a file system that never answers, as any user may mount one (FUSE)."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attack.conftest import User
from builders.elf import ElfFile, Symbol
from builders.waiting import PATIENCE_S

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]

TESTS = Path(__file__).parents[1]
FUSE = os.makedev(10, 229)  # Documentation/admin-guide/devices.txt
LOOP, VERSION, RUNTIME = 0x401100, 0x401000, 0x402000
# In namespaces of its own: what an ordinary user can do wherever users may make them.
IN_NAMESPACE = """
import os, sys
os.execvp("unshare", ["unshare", "-r", "-m", sys.executable, "-I", "-c", *sys.argv[1:]])
"""
# One server, and processes that it holds up in as many ways. Arguments: tests, node of FUSE, where to mount, a
# libpython, a libjvm, and text that fills pages.
ATTACK = """
import ctypes, os, signal, sys, threading, time
tests, device, folder, library, java_library = sys.argv[1:6]
sys.path.insert(0, tests)
from builders.silent_files import SilentFiles

PAGE, READ, EXECUTE, PRIVATE, FIXED = 4096, 1, 4, 2, 16
LOCKS = range(4)  # after how many failed reads a fault keeps the lock depends on the kernel
# A file each: of those who wait for one page only the first cannot be killed.
silent = {"arguments": PAGE, "java": PAGE, "state": PAGE, "program": 1, "map": 1} | {f"lock{n}": PAGE for n in LOCKS}
files = {name: bytes(4 * PAGE) for name in silent}
server = SilentFiles(device, folder, files, silent, {f"lock{n}": n for n in LOCKS})

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

def mapped(path, address=None, offset=0, length=PAGE, kind=READ | EXECUTE):
    fd = os.open(path, os.O_RDONLY)
    at = libc.mmap(address, length, kind, PRIVATE | (FIXED if address else 0), fd, offset)
    assert at not in (None, 2**64 - 1), os.strerror(ctypes.get_errno())
    return at

def after(seconds, function, *arguments):
    threading.Timer(seconds, function, arguments).start()

def lock(number):
    at = mapped(f"{folder}/lock{number}", length=4 * PAGE)
    # The threads are there by then: none can be made once a fault holds the lock, or somebody waits to write.
    after(0.2, libc.memchr, ctypes.c_void_p(at + PAGE), 1, 1)
    after(0.4, libc.mmap, None, PAGE, READ, PRIVATE | 32, -1, 0)

def arguments(name="arguments"):
    start, end = (int(word) for word in open("/proc/self/stat").read().rpartition(")")[2].split()[45:47])
    for page in range(-(-start // PAGE) * PAGE, end // PAGE * PAGE, PAGE):
        mapped(f"{folder}/{name}", page, PAGE)

def program():
    mapped(f"{folder}/program")

def perf_map():
    path = f"/tmp/perf-{os.getpid()}.map"
    open(path, "w").close()
    assert libc.mount(f"{folder}/map".encode(), path.encode(), None, 4096, None) == 0  # MS_BIND

def java():
    mapped(java_library)
    signal.signal(signal.SIGQUIT, lambda *_: None)
    def dispatch():
        libc.prctl(15, b"Signal Dispatcher")  # PR_SET_NAME
        time.sleep(600)
    threading.Thread(target=dispatch).start()
    arguments("java")

def python():
    at = mapped(library, length=2 * PAGE, offset=PAGE)
    mapped(f"{folder}/state", at + PAGE, PAGE)

def begin(what, *given):
    ready, tell = os.pipe()
    pid = os.fork()
    if not pid:
        server.leave()
        os.close(1)
        libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        what(*given)
        os.write(tell, b"x")
        while True:  # to be sampled, and to leave the others time
            sum(range(20_000))
            time.sleep(0.01)
    os.close(tell)
    assert os.read(ready, 1), what
    return pid

children = [begin(lock, n) for n in LOCKS]
children += [begin(what) for what in (arguments, program, perf_map, python, java)]
time.sleep(0.8)
print(*children, flush=True)
time.sleep(600)
"""


@pytest.fixture
def libraries(meadow: Path) -> list[Path]:
    """What looks like CPython's library, whose state is in the page behind its code, and like a JVM's."""
    symbols = [
        Symbol("_PyEval_EvalFrameDefault", LOOP, 256),
        Symbol("Py_Version", VERSION, 4),
        Symbol("_PyRuntime", RUNTIME, 4096),
    ]
    text = (0x030B02F0).to_bytes(4, "little").ljust(0x2000, b"\0")
    paths = [meadow / "libpython3.11.so.1.0", meadow / "libjvm.so"]
    for path in paths:
        path.write_bytes(ElfFile(text=text, symbols=symbols).to_bytes())
        path.chmod(0o755)
    return paths


@pytest.fixture
def silent(meadow: Path, mallory: User, libraries: list[Path]) -> Iterator[None]:
    """The attack, by an ordinary user in namespaces of his own."""
    device = meadow / "fuse"
    try:
        os.mknod(device, 0o600 | 0o020000, FUSE)
        device.chmod(0o666)  # as where udev made it
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        pytest.skip(f"no FUSE here ({error.strerror})")
    folder = mallory.folder(meadow / "his")
    words = (ATTACK, TESTS, device, folder, *libraries, "x" * 0x4000)
    with mallory.start(IN_NAMESPACE, *words) as server:
        assert server.stdout
        children = [int(word) for word in server.stdout.readline().split()]
        try:
            assert children, "the attack did not begin"
            yield
        finally:
            for pid in (server.pid, *children):  # the server first: without it all ends
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
                Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)


def tdprof(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tdprof", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)


@pytest.mark.thorough
@pytest.mark.usefixtures("silent")
def test_a_recording_of_everything_ends_and_names_the_rest(meadow: Path, alice: User) -> None:
    work = "def the_work_of_alice():\n    while True: pass\nprint(1, flush=True)\nthe_work_of_alice()"
    with alice.busy(work):
        said = tdprof("record", "-a", "--duration", 2, "-o", meadow / "out")
    assert said.returncode == 0, said.stderr
    report = tdprof("report", meadow / "out", "--limit", 0)
    assert "the_work_of_alice" in report.stdout
    assert "could not be read in time" in said.stderr + report.stdout


@pytest.mark.usefixtures("silent")
def test_doctor_ends(meadow: Path) -> None:
    said = tdprof("doctor")
    assert "runtimes" in said.stdout
