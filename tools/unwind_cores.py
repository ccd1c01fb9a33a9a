#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walker over core files of real programs, against gdb and eu-stack.

    .venv/bin/python tools/unwind_cores.py                    the programs of tools/bench/programs that are here
    .venv/bin/python tools/unwind_cores.py perl xz --cores 20
    .venv/bin/python tools/unwind_cores.py --aarch64 ROOT     aarch64's in QEMU, against gdb-multiarch

ROOT has Debian's arm64 packages, unpacked: debootstrap --arch=arm64 --foreign, and dpkg -x of each package.

Every thread of every core counts, not only those that run. Printed are, by program, how many stacks are the same, and
each place from which on two disagree: the frame up to which they are the same, what comes next, and how often.
"""

import own_python  # noqa: F401  # isort: skip
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from builders.emulated_cores import compare_emulated  # noqa: E402
from builders.unwind_cores import Compared, compare_core, eu_stacks, take_core  # noqa: E402

PROGRAMS = ROOT / "tools" / "bench" / "programs" / "programs.sh"
NAMES = [
    "python3",
    "perl",
    "node",
    "ruby",
    "php",
    "postgres",
    "redis",
    "nginx",
    "ffmpeg",
    "xz",
    "zstd",
    "bzip2",
    "cc1plus",
    "clang",
    "ld",
    "git",
    "sqlite3",
    "openssl",
    "qemu",
    "static-musl",
    "go",
    "rust",
]
AARCH64 = {
    "python3": ["/usr/bin/python3.11", str(PROGRAMS.parent / "work.py")],
    "perl": ["/usr/bin/perl", str(PROGRAMS.parent / "work.pl")],
    "ruby": ["/usr/bin/ruby3.1", "--disable-gems", str(PROGRAMS.parent / "work.rb")],
    "bash": ["/bin/bash", "-c", "while :; do x=$((x+1)); y=${x//1/2}; done"],
    "gawk": ["/usr/bin/gawk", 'BEGIN { while (1) { s = ""; for (i = 0; i < 999; i++) s = s i; gsub(/1/, "2", s) } }'],
    "xz": ["/usr/bin/xz", "-T2", "--lzma2=preset=9,dict=1MiB", "-c", "/dev/zero"],
    "bzip2": ["/bin/bzip2", "-c", "/dev/zero"],
    "openssl-rsa": ["/usr/bin/openssl", "speed", "-seconds", "99", "rsa2048"],
    "openssl-sha": ["/usr/bin/openssl", "speed", "-seconds", "99", "sha256"],
    "openssl-gcm": ["/usr/bin/openssl", "speed", "-seconds", "99", "-evp", "aes-128-gcm"],
    "sqlite3": [
        "/usr/bin/sqlite3",
        ":memory:",
        "with recursive t(x) as (select 1 union all select x + 1 from t) "
        "select count(*), group_concat(x % 7 || printf('%x', x)) from t group by x % 5 order by x % 3",
    ],
    "node": ["/usr/bin/node", str(PROGRAMS.parent / "work.js")],
    "git": ["/usr/bin/git", "-C", str(ROOT), "log", "-p", "--stat"],
}
BUSY_TICKS = 20  # of 10 ms, until a program is past its start


@dataclass
class Totals:
    """Of one program against one debugger."""

    same: int = 0
    complete: int = 0
    stacks: int = 0
    frames: int = 0
    partings: Counter[str] = field(default_factory=Counter)

    def add(self, stack: Compared, truth: list[int], maps: str) -> None:
        self.stacks += 1
        self.frames += len(stack.ours)
        self.same += stack.ours == truth
        self.complete += stack.end == "complete"
        if stack.ours != truth:
            self.partings[parting(stack, truth, maps)] += 1


def parting(stack: Compared, truth: list[int], maps: str) -> str:
    """Where two stacks begin to differ, in words."""
    files = Files(maps)
    same = next((i for i, pair in enumerate(zip(stack.ours, truth, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(stack.ours), len(truth)) if same is None else same
    ours = files.place(stack.ours[at]) if at < len(stack.ours) else f"[{stack.end}]"
    theirs = files.place(truth[at]) if at < len(truth) else "[ends]"
    guess = ", with guesses" if stack.methods[1] else ""
    same_frames = " < ".join(map(files.place, stack.ours[max(at - 3, 0) : at]))
    return f"caller of {same_frames}: {ours}{guess}; debugger {theirs}"


class Files:
    """Names addresses by /proc/PID/maps."""

    def __init__(self, maps: str) -> None:
        self._rows = []
        for line in maps.splitlines():
            place, _, offset, _, _, *name = line.split(maxsplit=5)
            start, end = (int(part, 16) for part in place.split("-"))
            self._rows.append((start, end, int(offset, 16), os.path.basename(name[0]) if name else "memory"))

    def place(self, address: int) -> str:
        """File and offset."""
        i = bisect_right(self._rows, (address, 2**64)) - 1
        if i < 0 or address >= self._rows[i][1]:
            return "nowhere"
        start, _, offset, name = self._rows[i]
        return f"{name}+{address - start + offset:#x}"


def real_cores(name: str, cores: int, folder: Path) -> Iterator[tuple[str, Compared, list[int], str]]:
    """What each debugger says of each thread of a program: the debugger, the stack, its own, and the mappings."""
    subprocess.run([PROGRAMS, "prepare", name], cwd=folder, check=True, capture_output=True)
    taken = 0
    for _ in range(cores):  # a program may end before enough were taken
        with running(name, folder) as program:
            while taken < cores and (pid := busiest(program.pid)) and program.poll() is None:
                core = folder / "core"
                try:
                    executable = Path(os.readlink(f"/proc/{pid}/exe"))
                    truth = take_core(pid, core)
                except (FileNotFoundError, ProcessLookupError):  # it has just ended
                    break
                if not truth:
                    break
                taken += 1
                maps = core.with_suffix(".maps").read_text()
                by_elfutils = eu_stacks(core, executable)
                for stack in compare_core(core, truth):
                    yield "gdb", stack, stack.gdb, maps
                    yield "eu-stack", stack, by_elfutils.get(stack.tid, []), maps
                core.unlink()
        if taken == cores:
            break


class running:  # noqa: N801 (read as a verb)
    """A program of tools/bench/programs with all that it starts."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder

    def __enter__(self) -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        self._program = subprocess.Popen(
            [PROGRAMS, "run", self._name],
            cwd=self._folder,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        return self._program

    def __exit__(self, *_: object) -> None:
        for pid in members(self._program.pid):
            os.kill(pid, signal.SIGKILL)
        self._program.wait()


def members(session: int) -> list[int]:
    """Processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def busiest(session: int) -> int:
    """The process of a session that runs most, once it is past its start and has run since; 0 if none comes to that."""
    before = {pid: ticks(pid) for pid in members(session)}
    for _ in range(600):
        time.sleep(0.05)
        ran = {pid: ticks(pid) for pid in members(session)}
        busy = {pid: now - before.get(pid, 0) for pid, now in ran.items() if now >= BUSY_TICKS}
        if busy and max(busy.values()) > 0:
            return max(busy, key=lambda pid: busy[pid])
        if not ran:
            break
    return 0


def ticks(pid: int) -> int:
    """That a process has run in user mode; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def emulated_cores(name: str, cores: int, root: Path, folder: Path) -> Iterator[tuple[str, Compared, list[int], str]]:
    """The same of a program in QEMU."""
    for stack, maps in compare_emulated(AARCH64[name], root, folder, cores, 0.3):
        yield "gdb", stack, stack.gdb, maps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs [all]")
    parser.add_argument("--cores", type=int, default=10, help="of each program [10]")
    parser.add_argument("--aarch64", type=Path, metavar="ROOT", help="the files of an aarch64 system")
    options = parser.parse_args()
    programs = AARCH64 if options.aarch64 else NAMES
    if unknown := [name for name in options.names if name not in programs]:
        parser.error(f"no program {unknown[0]}: there are {', '.join(programs)}")
    print("| program | debugger | stacks | frames | the same | said to be complete |")
    print("|---|---|---:|---:|---:|---:|")
    partings: list[str] = []
    for name in options.names or programs:
        by_debugger: dict[str, Totals] = {}
        with tempfile.TemporaryDirectory(prefix="tdprof-cores-") as folder:
            found = (
                emulated_cores(name, options.cores, options.aarch64, Path(folder))
                if options.aarch64
                else real_cores(name, options.cores, Path(folder))
            )
            for debugger, stack, truth, maps in found:
                by_debugger.setdefault(debugger, Totals()).add(stack, truth, maps)
        for debugger, totals in by_debugger.items():
            share, complete = totals.same / totals.stacks, totals.complete / totals.stacks
            print(
                f"| {name} | {debugger} | {totals.stacks} | {totals.frames} | {share:.2%} | {complete:.2%} |",
                flush=True,
            )
            partings += [
                f"{name}, {debugger}, {count} of them: {text}" for text, count in totals.partings.most_common()
            ]
    print(*partings, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
