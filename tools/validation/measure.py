# SPDX-License-Identifier: Apache-2.0
"""Runs tdprof and `perf stat` on the micro-benchmarks and reads what they say of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]
# What both count of the one benchmark whose every instruction is known and cheap, in user space.
COUNTED = "retires"
EVENTS = ("instructions:u", "cycles:u")
LINE_BYTES = 64
SIMULATED = Path("/sys/module/neoverse_sim")  # tools/neoverse_sim of this project


class NotMeasuredError(Exception):
    """Why a part of the kit cannot say anything here."""


@dataclass(frozen=True)
class Ran:
    """What one benchmark executed in one run, by its source; addresses are run-time ones, 0 where it has no data."""

    laps: int
    instructions: int
    loads: int
    branches: int
    unforeseen: int
    nanoseconds: int
    bytes: int
    address: int


@dataclass
class Measured:
    """All that was measured; what could not be has its reason in ``missing``, by part.

    Attributes:
        counted: tool to event to count, of ``COUNTED`` alone.
        counted_instructions: the same by the source, by tool.
        topdown: benchmark to metric to its JSON in `tdprof report`.
        spe: benchmark to its row of `tdprof report --spe`; ``unmapped`` are records in no mapping.
        lines: address of a cache line to its row.
    """

    counted: dict[str, dict[str, float]] = field(default_factory=dict)
    counted_instructions: dict[str, int] = field(default_factory=dict)
    topdown: dict[str, Json] = field(default_factory=dict)
    topdown_ran: dict[str, Ran] = field(default_factory=dict)
    spe: dict[str, Json] = field(default_factory=dict)
    spe_ran: dict[str, Ran] = field(default_factory=dict)
    unmapped: int = 0
    lines: dict[int, Json] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """How to measure.

    Attributes:
        program: the compiled benchmarks.
        folder: where captures and answers go.
        topdown_ms, spe_ms: how long each benchmark runs in a recording.
        memory_mib: the most that a benchmark takes.
        topdown, spe: options of the recordings.
        tdprof: runs it with these words, returns its output; raises NotMeasuredError with what it said.
    """

    program: Path
    folder: Path
    topdown_ms: int = 4000
    spe_ms: int = 1000
    memory_mib: int = 512
    topdown: Sequence[str] = ("--topdown=all",)
    spe: str = "period=32768,u"
    tdprof: Callable[[Sequence[str]], str] = field(default=lambda words: run(["tdprof", *words]))

    def benchmarks(self, milliseconds: int, names: str | None = None) -> list[str]:
        """The command that runs them."""
        chosen = ["-w", names] if names else []
        return [str(self.program), "-s", str(milliseconds), "-m", str(self.memory_mib), *chosen]


def run(words: Sequence[str]) -> str:
    """A program's output; NotMeasuredError with its own words where it fails."""
    if not shutil.which(words[0]):
        raise NotMeasuredError(f"there is no {words[0]} here")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotMeasuredError(f"{words[0]}: {' '.join(said[:2]) or f'exit status {done.returncode}'}")
    return done.stdout


def read_ran(text: str) -> dict[str, Ran]:
    """The lines that the benchmarks print, among whatever else there is."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 9 and words[1].isdigit():
            numbers = [*map(int, words[1:8]), 0 if words[8] == "(nil)" else int(words[8], 16)]
            found[words[0]] = Ran(*numbers)
    return found


def measure(setup: Setup) -> Measured:
    """All parts."""
    found = Measured()
    count(setup, found)
    record(setup, found)
    return found


def count(setup: Setup, found: Measured) -> None:
    """What counters without samples say."""
    if SIMULATED.exists():
        reason = "the simulated Neoverse counts what was declared of a program, whatever that executes"
        found.missing.update(dict.fromkeys(("perf stat", "tdprof stat"), reason))
        return
    _try({"perf stat": _perf_stat, "tdprof stat": _tdprof_stat}, setup, found)


def record(setup: Setup, found: Measured) -> None:
    """What recordings say of each benchmark."""
    _try({"topdown": _topdown, "spe": _spe}, setup, found)


def _try(parts: Mapping[str, Callable[[Setup, Measured], None]], setup: Setup, found: Measured) -> None:
    """Each part, or why it is missing."""
    for name, part in parts.items():
        try:
            part(setup, found)
        except (NotMeasuredError, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            found.missing[name] = str(error) or type(error).__name__


def _note_instructions(found: Measured, tool: str, output: str) -> None:
    found.counted_instructions[tool] = read_ran(output)[COUNTED].instructions


def _perf_stat(setup: Setup, found: Measured) -> None:
    kept = setup.folder / "perf-stat.csv"
    command = setup.benchmarks(setup.spe_ms, COUNTED)
    output = run(["perf", "stat", "-x,", "-o", str(kept), "-e", ",".join(EVENTS), "--", *command])
    counts = {}
    for line in kept.read_text().splitlines():
        words = line.split(",")
        if len(words) > 2 and words[2] in EVENTS and words[0].isdigit():
            counts[words[2]] = float(words[0])
    if len(counts) < len(EVENTS):
        raise NotMeasuredError("perf counted nothing: no PMU here, or it may not be used")
    found.counted["perf stat"] = counts
    _note_instructions(found, "perf stat", output)


def _tdprof_stat(setup: Setup, found: Measured) -> None:
    kept = setup.folder / "tdprof-stat.json"
    command = setup.benchmarks(setup.spe_ms, COUNTED)
    output = setup.tdprof(["stat", "--json", "-o", str(kept), "-e", ",".join(EVENTS), "--", *command])
    events = json.loads(kept.read_text())["events"]
    counts = {event: events[event]["value"] for event in EVENTS}
    if None in counts.values():
        raise NotMeasuredError("tdprof counted nothing: tdprof doctor says why")
    found.counted["tdprof stat"] = counts
    _note_instructions(found, "tdprof stat", output)


def _topdown(setup: Setup, found: Measured) -> None:
    capture = str(setup.folder / "topdown.capture")
    command = setup.benchmarks(setup.topdown_ms)
    found.topdown_ran = read_ran(setup.tdprof(["record", *setup.topdown, "-o", capture, "--", *command]))
    report = json.loads(setup.tdprof(["report", capture, "--json", "--limit", "1000"]))
    (setup.folder / "topdown.json").write_text(json.dumps(report))
    found.topdown = {row["name"]: row["metrics"] for row in report["functions"] if row["name"] in found.topdown_ran}


def _spe(setup: Setup, found: Measured) -> None:
    capture = str(setup.folder / "spe.capture")
    command = setup.benchmarks(setup.spe_ms)
    words = ["record", "-e", "page-faults:u", f"--spe={setup.spe}", "-o", capture, "--", *command]
    found.spe_ran = read_ran(setup.tdprof(words))
    rows = _spe_rows(setup, capture, "function")
    found.spe = {row["name"]: row for row in rows if row["name"] in found.spe_ran}
    found.unmapped = sum(row["counts"]["operations"] for row in rows if row["name"] == "[no mapping]")
    for row in _spe_rows(setup, capture, "address"):
        if row["name"].startswith("0x"):
            found.lines[int(row["name"], 16)] = row


def _spe_rows(setup: Setup, capture: str, by: str) -> list[Json]:
    text = setup.tdprof(["report", capture, "--spe", "--by", by, "--json", "--limit", "1000"])
    (setup.folder / f"spe-by-{by}.json").write_text(text)
    rows: list[Json] = json.loads(text)["rows"]
    return rows


def machine() -> Json:
    """What the numbers are of, without names of people or of the machine."""
    found: Json = {"kernel": os.uname().release, "architecture": os.uname().machine, "cpus": os.cpu_count()}
    for name, path in {
        "midr": "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1",
        "paranoid": "/proc/sys/kernel/perf_event_paranoid",
        "board": "/sys/class/dmi/id/product_name",
        "system": "/etc/os-release",
    }.items():
        try:
            found[name] = Path(path).read_text().strip()
        except OSError:
            found[name] = None
    return found
