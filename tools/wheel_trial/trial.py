# SPDX-License-Identifier: Apache-2.0
"""Called by tools/wheels on a bare system with tdprof installed: is it bare, and does tdprof record there?

Prints one line, a JSON object: ``samples``, ``rung``, ``first_start_s`` and ``later_start_s``. These are medians of the
time from the call of tdprof until its command runs, with nothing and with something in its caches.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 5
TDPROF = "/venv/bin/tdprof"
COMPILERS = ("gcc", "cc", "g++", "clang", "tcc", "llc", "as", "ld", "make")
LIBRARIES = ("libLLVM*", "libclang*", "libbcc*", "libbpf*")


def run(*command: str, **environment: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    if done.returncode:
        sys.exit(f"trial: {' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def what_is_too_much() -> list[str]:
    """Whatever could compile a program here."""
    found = [path for name in COMPILERS if (path := shutil.which(name))]
    found += [str(path) for pattern in LIBRARIES for path in Path("/usr/lib").rglob(pattern)]
    found += [name for name in ("/usr/include/linux", "/usr/src", "/lib/modules") if list(Path(name).glob("*"))]
    if subprocess.run(["/usr/bin/python3", "-c", "import bcc"], capture_output=True).returncode == 0:
        found.append("bcc")
    return found


def start_s(folder: Path, cache: Path) -> float:
    """Seconds from the call of tdprof until its command runs."""
    begin = time.time_ns()
    command = ["record", "--quiet", "-F", "999", "-e", "cpu-clock", "-o", str(folder), "--", "date", "+%s%N"]
    return (int(run(TDPROF, *command, XDG_CACHE_HOME=str(cache)).split()[-1]) - begin) / 1e9


def main() -> None:
    if found := what_is_too_much():
        sys.exit(f"trial: this system is not bare: {', '.join(found)}")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        first, later = [], []
        for number in range(ROUNDS):
            cache = work / f"cache-{number}"
            first.append(start_s(work / f"first-{number}", cache))
            later.append(start_s(work / f"later-{number}", cache))
        busy = [sys.executable, "-c", "for i in range(3_000_000): pass"]
        run(TDPROF, "record", "--quiet", "-o", str(work / "capture"), "--", *busy)
        report = json.loads(run(TDPROF, "report", "--json", str(work / "capture")))
        # Its status says how good the machine is, not whether it ran.
        doctor = json.loads(subprocess.run([TDPROF, "doctor", "--json"], capture_output=True, text=True).stdout)
    checks = {check["name"]: check for check in doctor["checks"]}
    samples = sum(function["samples"] for function in report["functions"])
    if samples <= 10 or not report["rung"].startswith("bpf-"):
        sys.exit(f"trial: {samples} samples on rung {report['rung']}: {report.get('rung_reason')}")
    for name in ("compiled-parts", "bcc", "bpf"):
        if checks[name]["status"] != "ok":
            sys.exit(f"trial: doctor says of {name}: {checks[name]}")
    times = {"first_start_s": statistics.median(first), "later_start_s": statistics.median(later)}
    print(json.dumps({"samples": samples, "rung": report["rung"], **times}))


if __name__ == "__main__":
    main()
