"""`tdprof stat` on the simulated Neoverse, whose rates are declared: known answers, and too few counters."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from live_aarch64.machine import ALONE, run_tdprof
from live_aarch64.neoverse_sim import Region, Simulation, write_regions

Simulate = Callable[..., Simulation]
CPU_CYCLES, INST_RETIRED, OP_RETIRED, OP_SPEC = 0x11, 0x08, 0x3A, 0x3B
STALL_SLOT_BACKEND, STALL_SLOT_FRONTEND, STALL_SLOT, STALL_FRONTEND_FLUSH = 0x3D, 0x3E, 0x3F, 0x8162
# Events per cycle of one made-up program on an N3, five slots wide.
RATES = {
    INST_RETIRED: 2.5, OP_RETIRED: 3.0, OP_SPEC: 3.2,
    STALL_SLOT_BACKEND: 1.2, STALL_SLOT_FRONTEND: 0.6, STALL_SLOT: 1.8, STALL_FRONTEND_FLUSH: 0.02,
}  # fmt: skip
# Arm's formulas for the N3, written out for these rates.
TRUTH = {
    "frontend_bound": (0.6 / 5 - 0.02) * 100,
    "backend_bound": 1.2 / 5 * 100,
    "bad_speculation": (1 - 1.8 / 5) * (1 - 3.0 / 3.2) * 100 + 2,
    "retiring": (1 - 1.8 / 5) * (3.0 / 3.2) * 100,
}
# Start-up and the loader run undeclared code: cycles without any other event. They are 1 % of the run.
UNDECLARED = 0.04


def stat(tmp_path: Path, workload: Path, *options: object, rounds: int = 600) -> dict[str, Any]:
    """What `tdprof stat --json` finds for the workload."""
    regions = write_regions(tmp_path / "regions", [Region(rates=RATES)])
    out = tmp_path / "stat.json"
    words = ("stat", "--json", "-o", out, *options, "--", workload, "-w", "h", "-n", rounds, "-r", regions)
    run_tdprof(*words, before=ALONE)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.needs_perf
def test_a_group_that_opens_and_never_runs(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    """Seven events when the watchdog has the cycle counter: perf counts nothing, tdprof plans for what is there."""
    simulation = simulate(core="n3")
    events = [
        CPU_CYCLES,
        OP_RETIRED,
        OP_SPEC,
        STALL_SLOT,
        STALL_SLOT_BACKEND,
        STALL_SLOT_FRONTEND,
        STALL_FRONTEND_FLUSH,
    ]
    group = "{" + ",".join(f"armv8_neoverse_n3/event={event:#x}/" for event in events) + "}"
    simulation.set_parameter("counters", 5)
    theirs = subprocess.run(
        ["perf", "stat", "-x,", "-e", group, workload, "-w", "h", "-n", "10"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "not counted" in theirs.stderr or "not supported" in theirs.stderr, theirs.stderr
    simulation.set_parameter("counters", 6)
    simulation.set_parameter("cycle_counter", "N")
    found = stat(tmp_path, workload, "--metrics", "Topdown_L1", rounds=600)
    assert found["metrics"]["backend_bound"]["value"] == pytest.approx(TRUTH["backend_bound"], rel=0.1)


@pytest.mark.needs_perf
def test_counts_agree_with_perf_stat(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    simulation = simulate(core="n3")
    found = stat(tmp_path, workload, "--metrics", "backend_bound", "-e", "r3d:u,cycles:u")
    simulation.clear()
    done = subprocess.run(
        [*ALONE, "perf", "stat", "-x,", "-e", "r3d:u,cycles:u",
         workload, "-w", "h", "-n", "600", "-r", tmp_path / "regions"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    theirs = {
        row[2].rstrip("u").rstrip(":"): float(row[0]) for row in (line.split(",") for line in done.stderr.splitlines())
    }
    ours = {name.removesuffix(":u"): event["value"] for name, event in found["events"].items()}
    their_stalls = next(value for name, value in theirs.items() if "3d" in name)
    their_cycles = next(value for name, value in theirs.items() if "cycles" in name)
    assert ours["r3d"] == pytest.approx(their_stalls, rel=0.02)
    assert ours["cycles"] == pytest.approx(their_cycles, rel=0.02)
    assert their_stalls / their_cycles == pytest.approx(RATES[STALL_SLOT_BACKEND], rel=UNDECLARED)
