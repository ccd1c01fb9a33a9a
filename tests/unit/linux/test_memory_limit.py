"""The bound on the memory that a library may take."""

import subprocess
import sys

# In a process of its own: what the test's has mapped and freed would count.
_LIMITED = """
import threading
from tdprof.linux.memory_limit import memory_limit

def allocate():
    barrier.wait()
    kept.extend(bytearray(100_000) for _ in range(10))
    barrier.wait()

kept, barrier = [], threading.Barrier(9, timeout=100)
with memory_limit(160 << 20):
    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    barrier.wait()
    barrier.wait()
    try:
        bytearray(160 << 20)
        print("no limit")
    except MemoryError:
        print("limited")
for thread in threads:
    thread.join()
print(len(kept), len(bytearray(160 << 20)) >> 20)
"""


def test_what_threads_reserve_is_no_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.split(), done.stderr) == (["limited", "80", "160"], "")
