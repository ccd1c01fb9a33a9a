#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often `tdprof diff` calls chance a change, and how often it finds one: the table in docs/diff.md.

    .venv/bin/python tools/diff_power.py [COMPARISONS]

Simulated runs of one program, sampled at 999 Hz. Each comparison is of two runs of their own, so that the counts are of
independent ones.
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from builders.runs import simulate_run
from tdprof.profile.compare import Comparison, compare

SHARES = (0.40, 0.20, 0.12, 0.08, 0.06, 0.05, 0.04, 0.02, 0.015, 0.01, 0.003, 0.002)
PROGRAM = {f"f{share:g}": share for share in SHARES}
MACHINES: dict[str, dict[str, float | bool]] = {
    "samples are the only chance": {},
    "functions' speed ±5 % from second to second": {"jitter": 0.05},
    "the same, ±10 %": {"jitter": 0.10},
    "the same, ±20 %": {"jitter": 0.20},
    "whole runs ±1 %": {"machine": 0.01},
    "whole runs ±2 %": {"machine": 0.02},
    "one function after the other": {"has_phases": True},
    "the same, whole runs ±1 %": {"has_phases": True, "machine": 0.01},
}
# (seconds, function that takes a tenth more)
PLANTED = ((10, "f0.4"), (30, "f0.4"), (60, "f0.4"), (60, "f0.12"), (300, "f0.12"))


def is_alarm(comparison: Comparison) -> bool:
    tables = (comparison.program, comparison.self_changes, comparison.inclusive_changes)
    return any(bool(table.is_significant.any()) for table in tables)


def main() -> None:
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    headings = [f"+10 % of {float(name[1:]):.0%}, {seconds} s" for seconds, name in PLANTED]
    print("| Two runs differ by | false alarms, 10 s |", " | ".join(headings), "|")
    print("|" + "---|" * (2 + len(PLANTED)))
    for label, machine in MACHINES.items():
        random = np.random.default_rng(1)
        alarms = sum(
            is_alarm(compare(*(simulate_run(random, PROGRAM, **machine) for _ in range(2))))  # type: ignore[arg-type]
            for _ in range(comparisons)
        )
        cells = [f"{alarms / comparisons:.1%}"]
        for seconds, name in PLANTED:
            found = 0
            for _ in range(comparisons):
                a = simulate_run(random, PROGRAM, seconds=seconds, **machine)  # type: ignore[arg-type]
                b = simulate_run(random, PROGRAM, seconds=seconds, slow={name: 1.1}, **machine)  # type: ignore[arg-type]
                comparison = compare(a, b)
                row = list(comparison.functions.names).index(name)
                found += bool(comparison.self_changes.is_significant[row, 0])
            cells.append(f"{found / comparisons:.0%}")
        print(f"| {label} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
