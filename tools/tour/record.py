# SPDX-License-Identifier: Apache-2.0
"""Records the README's example; runs in the aarch64 guest, as tools/tour/run has it.

record.py FOLDER

The program is the live tests' workload under names that say what its functions are made to be. How they behave is
declared to the simulated Neoverse N3, as the tests do it: one waits for instructions, one
for memory, one guesses wrong.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from live_aarch64.neoverse_sim import Simulation, write_regions  # noqa: E402  # the simulator's driver is the tests'
from live_aarch64.test_topdown import N3  # noqa: E402

NAMES = {"hot": "parse_request", "cold": "find_customer", "warm": "match_rules"}
HZ = 1999  # two seconds of the guest take a minute, so they are sampled ten times as often as by default

out = Path(sys.argv[1])
program = out / "shop"
names = [f"-D{name}={shown}" for name, shown in NAMES.items()]
source = ROOT / "tests/live_aarch64/workload.c"
subprocess.run(["gcc", "-O1", "-g", "-no-pie", *names, "-o", program, source, "-lpthread"], check=True)
with Simulation(core="n3", spe=0):
    regions = write_regions(out / "regions", N3.regions())
    subprocess.run([program, "-r", regions, "-n", "0"], check=True)
    capture = out / "tdprof.capture"
    run = [str(program), "-w", "hcw", "-j", "-n", "7000"]
    record = ["tdprof", "record", "--topdown=2", "-F", str(HZ), "--cpu", N3.name, "-o", str(capture), "--", *run]
    subprocess.run(record, check=True)
subprocess.run(["tdprof", "archive", capture], check=True)
regions.unlink()
program.unlink()
