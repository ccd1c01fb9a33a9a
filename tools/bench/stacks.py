#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a user call stack costs in the kernel: by unwind tables, along frame pointers, and none, in turns in one run.

The kernel's own clock around the BPF programs (kernel.bpf_stats_enabled, set meanwhile; needs root) gives the time of a
sample; it counts the whole sample, also the kernel's stack and the look-ups. The same program, once with frame pointers
and once without, recurses to a depth and burns time there.
"""

import own_python  # noqa: F401  # isort: skip
import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

DEPTHS = (1, 10, 25, 100)
ROUNDS = 5
SECONDS = 1.0
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
SOURCE = r"""
#include <stdlib.h>
#include <time.h>
__attribute__((noinline)) static double burn(double end) {
    struct timespec now;
    double x = 0;
    do {
        for (int i = 0; i < 100000; i++)
            x = x * 1.0000001 + 0.5;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec + now.tv_nsec * 1e-9 < end);
    return x;
}
__attribute__((noinline)) static double deep(int left, double end) {
    volatile char frame[48];
    frame[0] = 1;
    return (left > 1 ? deep(left - 1, end) : burn(end)) + frame[0];
}
int main(int argc, char **argv) {
    return argc > 2 && deep(atoi(argv[1]), atof(argv[2])) == 42;
}
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    before = STATS.read_text()
    times: dict[tuple[int, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = build(folder)
        try:
            STATS.write_text("1")
            for number in range(ROUNDS):
                for depth in DEPTHS:
                    for way, program in programs.items():
                        output = folder / f"{number}.{depth}.{way}"
                        times[depth, way].append(sample_ns(way, program, depth, output))
        finally:
            STATS.write_text(before)
    print("depth  " + "".join(f"{way:>14}" for way in ("auto", "fp", "no")) + "  ns a sample, median; (least)")
    for depth in DEPTHS:
        cells = [times[depth, way] for way in ("auto", "fp", "no")]
        print(f"{depth:5}  " + "".join(f"{median(c):7.0f} ({min(c):4.0f})" for c in cells))
    print("\nThe user stack alone, which is what `no` leaves out:")
    for depth in DEPTHS:
        tables, kernel = (median(times[depth, way]) - median(times[depth, "no"]) for way in ("auto", "fp"))
        print(
            f"{depth:5}  by tables {tables:5.0f} ns, {tables / depth:4.0f} a frame; "
            f"bpf_get_stack {kernel:5.0f} ns; {kernel / max(tables, 1):4.1f} x"
        )


def build(folder: Path) -> dict[str, Path]:
    """The program that each way of taking stacks can walk."""
    (folder / "deep.c").write_text(SOURCE)
    programs = {}
    for way, flag in (("auto", "-fomit"), ("fp", "-fno-omit"), ("no", "-fomit")):
        programs[way] = folder / f"deep{flag}"
        command = ["gcc", "-O2", f"{flag}-frame-pointer", "-fno-optimize-sibling-calls", "-o", str(programs[way])]
        subprocess.run([*command, folder / "deep.c"], check=True)
    return programs


def sample_ns(way: str, program: Path, depth: int, output: Path) -> float:
    """Mean time of a sample's programs in one recording."""
    code = "from tdprof.cli.main import run_process; run_process()"
    options = ["record", "-q", "-e", "cpu-clock:u", "-F", "4999", "--call-graph", way, "-o", str(output), "--"]
    recorder = subprocess.Popen([sys.executable, "-c", code, *options, program, str(depth), str(SECONDS)])
    count = total = 0
    while recorder.poll() is None:
        count, total = max((count, total), run_time(recorder.pid))
        time.sleep(0.02)
    return total / count


def run_time(pid: int) -> tuple[int, int]:
    """How often the programs of an open event ran, and ns in all; those they call are included."""
    found = (0, 0)
    for entry in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            fields = dict(line.split(":", 1) for line in entry.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if "run_cnt" in fields:
            found = max(found, (int(fields["run_cnt"]), int(fields["run_time_ns"])))
    return found


if __name__ == "__main__":
    main()
