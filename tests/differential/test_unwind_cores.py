"""The walk over core files of real programs finds gdb's stacks."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from builders.unwind_cores import compare_core, take_core
from tdprof.native import unwind_api

PROGRAMS = {
    "python3": [
        "/usr/bin/python3",
        "-c",
        "import json\nd = [{'a': [1, 'x' * 50]}] * 99\nwhile 1: json.loads(json.dumps(d))",
    ],
    "perl": ["perl", "-e", "while (1) { my %h = map { $_ => 1 } (1..999); my @s = sort { $a <=> $b } keys %h; }"],
    "bash": ["bash", "-c", "while :; do x=$((x+1)); y=${x//1/2}; done"],
    "openssl": ["openssl", "speed", "-seconds", "60", "rsa2048"],
    "xz": ["sh", "-c", "exec xz -T2 --lzma2=preset=9,dict=1MiB -c /dev/zero"],
    "awk": ["awk", 'BEGIN { while (1) { s = ""; for (i = 0; i < 999; i++) s = s i; gsub(/1/, "2", s) } }'],
}

pytestmark = [
    pytest.mark.skipif(not unwind_api.is_available(), reason="the compiled library was not built"),
    pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed"),
    pytest.mark.slow,
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_stacks_are_gdbs(name, tmp_path):
    if shutil.which(PROGRAMS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    running = subprocess.Popen(PROGRAMS[name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_busy(running.pid)
        compared = []
        for number in range(3):
            core = tmp_path / f"core{number}"
            if not (truth := take_core(running.pid, core)):
                pytest.skip("gdb may not read the process")
            compared += compare_core(core, truth)
            core.unlink()
    finally:
        running.kill()
        running.wait()
    assert len(compared) >= 3
    for stack in compared:
        assert [hex(address) for address in stack.ours] == [hex(address) for address in stack.gdb], stack.end
        assert stack.end == "complete"
        assert stack.methods[1] == 0  # nothing guessed


def wait_until_busy(pid: int) -> None:
    """Until it has run for a while on a CPU, so that it is past its start."""
    for _ in range(6000):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        if int(fields[11]) >= 30:  # utime, in ticks of 10 ms
            return
        time.sleep(0.05)
    pytest.fail("the program does not run")
