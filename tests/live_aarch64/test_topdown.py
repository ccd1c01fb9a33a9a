"""`tdprof record --topdown` on the simulated Neoverse: three functions whose every metric is known.

A right tdprof fails here less than once in ten thousand runs. A run makes about a hundred intervals of 95 %. A value
three half widths off its truth is 5.9 standard errors off, which happens to one value in 10^8. That more than three
tenths of the intervals miss, where one in twenty should, takes eight of even as few as 25 independent ones: one run in
30,000.
"""

import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from builders.opened import profile_of
from builders.topdown import FRONTEND_BOUND, MEMORY_BOUND, ORDINARY, SPECULATION_BOUND, Code
from live_aarch64.machine import HANGS_S, run_tdprof, wait_until
from live_aarch64.neoverse_sim import Region, Simulation, write_regions
from tdprof.catalog.choose import load_packaged
from tdprof.catalog.entries import Catalog
from tdprof.cli.loading import load_with_findings
from tdprof.metrics.formula import evaluate
from tdprof.model.arrays import distinct
from tdprof.model.choices import Selection
from tdprof.model.findings import Findings, MetricValue
from tdprof.model.profile import Profile
from tdprof.model.time_range import parse_time_ranges
from tdprof.pipeline.load import find_findings
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.frames import function_names

Simulate = Callable[..., Simulation]
LEVEL_1 = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
# Samples of each event in a second of the time that it is counted: 1999 is to a second here what 199 is to ten.
HZ = 1999


@dataclass(frozen=True)
class Core:
    """A core to simulate, and what the workload's functions do on it: events for 1,000 cycles, and the bottleneck."""

    name: str
    functions: Mapping[str, Code]
    bottlenecks: Mapping[str, str]

    @property
    def catalog(self) -> Catalog:
        return load_packaged(self.name)

    def rates(self, function: str) -> dict[str, float]:
        """Events in a cycle."""
        events = {**ORDINARY, **self.functions[function].events}
        slots = events["STALL_SLOT_FRONTEND"] + events["STALL_SLOT_BACKEND"]
        needed = {event for metric in self.catalog.metrics.values() for event in metric.events}
        return {event: {"STALL_SLOT": slots, **events}[event] / 1000 for event in needed}

    def truth(self, function: str) -> dict[str, float]:
        """Every metric."""
        counts = self.rates(function)
        return {name: float(evaluate(each.expression, counts)) for name, each in self.catalog.metrics.items()}

    def regions(self) -> list[Region]:
        """In the order of the workload's functions."""
        events = self.catalog.events
        known = {
            name: Region(rates={events[event].code: rate for event, rate in self.rates(name).items()})
            for name in self.functions
        }
        return [known.get(name, Region()) for name in ("hot", "cold", "loads", "stores", "branches", "warm")]


def on_v1(code: Code, **events: float) -> Code:
    """The same kind of code on a core that is eight slots wide and has some other events."""
    own = {"BR_MIS_PRED": 1, "BR_IMMED_SPEC": 250, "BR_INDIRECT_SPEC": 60}
    return replace(code, events={**own, **code.events, **events})


N3 = Core(
    "neoverse-n3",
    {"hot": FRONTEND_BOUND, "cold": MEMORY_BOUND, "warm": SPECULATION_BOUND},
    {"hot": "frontend_bound", "cold": "backend_bound", "warm": "bad_speculation"},
)
V1 = Core(
    "neoverse-v1",
    {
        "hot": on_v1(FRONTEND_BOUND, STALL_SLOT_FRONTEND=4800, STALL_SLOT_BACKEND=600),
        "cold": on_v1(MEMORY_BOUND, STALL_SLOT_FRONTEND=300, STALL_SLOT_BACKEND=6800),
        "warm": on_v1(
            SPECULATION_BOUND,
            STALL_SLOT_FRONTEND=2400,
            STALL_SLOT_BACKEND=800,
            OP_SPEC=4000,
            OP_RETIRED=1800,
            BR_MIS_PRED=45,
        ),
    },
    {"hot": "frontend_bound", "cold": "backend_bound", "warm": "bad_speculation"},
)


@pytest.fixture
def declared(simulate: Simulate, workload: Path, tmp_path: Path) -> Callable[..., list[object]]:
    """Simulates a core, declares the workload's functions to it, and gives the command that runs them."""

    def prepare(core: Core, rounds: int, *options: object, **parameters: object) -> list[object]:
        simulate(core=core.name.removeprefix("neoverse-"), spe=0, **parameters)
        regions = write_regions(tmp_path / "regions", core.regions())
        # Regions belong to the executable: every later run of it behaves that way.
        subprocess.run([workload, "-r", regions, "-n", "0"], check=True)
        return [workload, "-w", "hcw", "-j", "-n", rounds, *options]

    return prepare


def values_of(profile: Profile, findings: Findings, function: str) -> dict[str, MetricValue]:
    row = [function_names(profile)[number] for number in findings.function].index(function)
    return dict(findings.functions.row(row))


def check_capture(profile: Profile, groups: int) -> None:
    """What was recorded adds up: each row's samples stand for what it counted, and nothing was lost."""
    assert profile.topdown is not None
    assert len(profile.topdown.groups) == groups
    assert [row for group in profile.topdown.groups for row in group.events] == list(range(len(profile.events)))
    losses = profile.losses
    assert losses.samples_map_full + losses.samples_ring_full + losses.throttled == 0, losses
    assert losses.by_reason == {}
    samples, weights = profile.total_samples(), profile.total_weight()
    for row, event in enumerate(profile.events):
        assert event.total is not None, event
        assert event.running_ns, event
        # Each of two threads leaves the last period of its event over, and one for each correction.
        if samples[row] >= 100:
            assert 0.85 * event.total < weights[row] <= 1.001 * event.total, event


def check_findings(profile: Profile, core: Core, metrics: Sequence[str]) -> Findings:
    """All metrics of all functions within their intervals, as the top of this file says, and the right bottlenecks."""
    findings = find_findings(profile)
    assert findings is not None
    offs = check_functions(profile, findings, core, metrics)
    assert len(offs) >= 0.5 * len(metrics) * len(core.functions)  # the others' events are too rare for a run this short
    assert np.mean([off > 1 for off in offs.values()]) <= 0.3, offs
    return findings


def check_functions(
    profile: Profile, findings: Findings, core: Core, metrics: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The right bottleneck of each function, and none of its metrics far off; how many half widths each is off."""
    offs: dict[tuple[str, str], float] = {}
    for function in core.functions:
        truth, values = core.truth(function), values_of(profile, findings, function)
        assert set(metrics) <= set(values)
        offs |= {
            (function, name): abs(values[name].value - truth[name]) / values[name].half_width
            for name in metrics
            if values[name].samples >= 30 and values[name].half_width > 0
        }
        row = [function_names(profile)[number] for number in findings.function].index(function)
        named = findings.diagnoses[row].bottleneck
        # None is named where there are too few samples to tell, as there may be of the lesser function in a phase.
        is_too_few = any(values[name].samples < 30 for name in metrics)
        assert named == core.bottlenecks[function] or (named is None and is_too_few), function
    far = {key: round(off, 2) for key, off in offs.items() if off > 3}
    assert not far
    return offs


@pytest.mark.needs_bpf
def test_every_metric_of_an_n3_in_one_run(declared: Callable[..., list[object]], tmp_path: Path) -> None:
    command = declared(N3, 7000)
    done = run_tdprof("record", "--topdown=2", "-F", HZ, "--cpu", N3.name, "-o", tmp_path / "capture", "--", *command)
    assert "counter groups" in done.stderr
    profile = profile_of(tmp_path / "capture")
    assert profile.rung == "bpf-pmu"
    check_capture(profile, 13)
    check_findings(profile, N3, list(N3.catalog.metrics))
    for event in profile.events:
        # Fair turns, and the time that all of them had: no group's share is left out or counted twice.
        assert event.enabled_ns
        assert event.running_ns
        assert 0.5 / 13 < event.running_ns / event.enabled_ns < 2 / 13


@pytest.mark.needs_bpf
def test_threads_on_a_v1(declared: Callable[..., list[object]], tmp_path: Path) -> None:
    command = declared(V1, 2500, "-t", 1)
    run_tdprof("record", "--topdown=all", "-F", HZ, "--cpu", V1.name, "-o", tmp_path / "capture", "--", *command)
    profile = profile_of(tmp_path / "capture")
    check_capture(profile, 7)
    assert len(set(profile.samples.tid.tolist())) == 2
    check_findings(profile, V1, list(V1.catalog.metrics))


@pytest.mark.needs_perf
def test_a_run_for_each_group_without_bpf(declared: Callable[..., list[object]], tmp_path: Path) -> None:
    """The cycle counter is taken, so that level 1 is one group too many for the counters; the ring-buffer rung."""
    command = declared(V1, 1200, cycle_counter=0)
    done = run_tdprof("record", "--topdown", "--passes", "--no-bpf", "-F", HZ, "--cpu", V1.name,
                      "-o", tmp_path / "capture", "--", *command)  # fmt: skip
    assert "Topdown_L1 does not fit the counters" in done.stderr
    profile = profile_of(tmp_path / "capture")
    assert profile.rung == "ring-buffer"
    assert profile.topdown is not None
    assert profile.topdown.is_pass_per_group
    check_capture(profile, 2)
    assert len(set(profile.samples.pid.tolist())) == 2
    assert all(event.running_ns == event.enabled_ns for event in profile.events)
    check_findings(profile, V1, LEVEL_1)


@pytest.mark.needs_bpf
def test_each_phase_has_its_own_bottleneck(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    """The same two functions exchange what they do, once in the middle: `--time` tells of each phase what it was."""
    capture = tmp_path / "capture"
    hot, cold = V1.functions["hot"], V1.functions["cold"]
    phases = [
        replace(V1, functions={"hot": hot, "cold": cold}),
        replace(
            V1, functions={"hot": cold, "cold": hot}, bottlenecks={"hot": "backend_bound", "cold": "frontend_bound"}
        ),
    ]
    simulate(core="v1", spe=0)
    works = [
        f"{workload} -r {write_regions(tmp_path / f'regions{number}', core.regions()[:2])} -w hc -j -n 4000"
        for number, core in enumerate(phases)
    ]
    run_tdprof("record", "--topdown=all", "-F", HZ, "--interval", "0.1s", "--cpu", V1.name, "-o", capture, "--",
               "sh", "-c", "; ".join(works))  # fmt: skip
    profile = profile_of(capture)
    check_capture(profile, 7)
    ends = profile.samples.time_ns - np.uint64(profile.start_monotonic_ns)
    names = [profile.thread_names[number] for number in profile.samples.thread_name]
    pids = distinct(profile.samples.pid[np.array(names) == "workload"])
    first, second = sorted((ends[profile.samples.pid == pid] for pid in pids), key=min)
    # The interval in which one phase ends and the other begins is of neither.
    times = [f"0s-{first[first < second.min()].max()}ns", f"{second.min()}ns-"]
    for core, time in zip(phases, times, strict=True):
        selection = Selection(times=tuple(parse_time_ranges(time)))
        with OpenCapture(capture) as opened:
            part, findings = load_with_findings(opened, capture, selection=selection)
        assert findings is not None
        check_functions(part, findings, core, LEVEL_1)


@pytest.mark.needs_bpf
def test_attached_to_a_process(declared: Callable[..., list[object]], tmp_path: Path) -> None:
    """The process stands still until it is recorded: beside a busy CPU all else takes minutes in the emulator."""
    capture = tmp_path / "capture"
    process = subprocess.Popen([str(word) for word in declared(V1, 1500)])
    process.send_signal(signal.SIGSTOP)
    words = ["--topdown", "-F", HZ, "--cpu", V1.name, "-o", capture, "-p", process.pid]
    recorder = subprocess.Popen(["tdprof", "record", *map(str, words)])
    try:
        wait_until((capture / "capture.json").exists, recorder)
        process.send_signal(signal.SIGCONT)
        process.wait(HANGS_S)
        assert recorder.wait(HANGS_S) == 0
    finally:
        process.kill()
        recorder.kill()
    profile = profile_of(capture)
    check_capture(profile, 1)
    check_findings(profile, V1, LEVEL_1)


@pytest.mark.needs_perf
def test_why_intervals_are_not_credited_to_the_interrupted_function(
    declared: Callable[..., list[object]], tmp_path: Path
) -> None:
    """The method that tdprof does not use: all counters are read when the cycles overflow (`perf record -e {…}:S`).

    Five milliseconds hold several calls of all three functions. Whichever the interrupt hits is credited with what all
    of them did, so that each shows the program's average: the differences that a user looks for are gone.
    """
    command = declared(V1, 2500)
    names = [
        "CPU_CYCLES",
        *sorted({event for name in LEVEL_1 for event in V1.catalog.metrics[name].events} - {"CPU_CYCLES"}),
    ]
    group = ",".join(f"armv8_neoverse_v1/event={V1.catalog.events[name].code:#x}/" for name in names)
    data = tmp_path / "perf.data"
    subprocess.run(
        ["perf", "record", "-q", "-o", data, "-c", "5000011", "-e", f"{{{group}}}:S", "--", *map(str, command)],
        check=True,
    )
    run_tdprof("import", data, "-o", tmp_path / "imported")
    profile = profile_of(tmp_path / "imported")
    functions = function_names(profile)
    leaf = profile.stacks.location[profile.stacks.start[profile.samples.stack]]
    leaf_function = profile.locations.frame_function[profile.locations.frame_start[leaf]]
    found = {}
    for function in V1.functions:
        own = leaf_function == functions.index(function)
        counts = {
            name: float(profile.samples.weight[own & (profile.samples.event == event)].sum())
            for event, name in enumerate(names)
        }
        found[function] = {name: float(evaluate(V1.catalog.metrics[name].expression, counts)) for name in LEVEL_1}
    truth = {function: V1.truth(function) for function in V1.functions}
    for name in LEVEL_1:
        said = np.ptp([values[name] for values in found.values()])
        true = np.ptp([values[name] for values in truth.values()])
        assert said < 0.5 * true, (name, found)
    assert any(max(values, key=values.__getitem__) != V1.bottlenecks[name] for name, values in found.items())


@pytest.mark.needs_spe
def test_spe_stands_beside_the_pmu(simulate: Simulate, workload: Path, tmp_path: Path) -> None:
    """One recording with both: what SPE measures of a function is in its row, and says the same as the PMU."""
    simulate(core="v1")
    regions = [replace(region, mispredict_share=0.02) for region in V1.regions()]
    command = [workload, "-r", write_regions(tmp_path / "regions", regions), "-w", "hcw", "-j", "-n", 1200]
    run_tdprof("record", "--topdown", "--metrics", "branch_misprediction_ratio", "-F", HZ, "--cpu", V1.name,
               "--spe=period=4096,u", "-o", tmp_path / "capture", "--", *command)  # fmt: skip
    with OpenCapture(tmp_path / "capture") as opened:
        profile, findings = load_with_findings(opened, tmp_path / "capture")
    assert findings is not None
    names = [function_names(profile)[number] for number in findings.function]
    for function in V1.functions:
        table, row = findings.functions, names.index(function)
        columns = {source: table.column("branch_misprediction_ratio", source) for source in ("pmu", "spe")}
        assert None not in columns.values()
        truth = {"pmu": V1.truth(function)["branch_misprediction_ratio"], "spe": 0.02}
        for source, column in columns.items():
            off = abs(table.value[row, column] - truth[source]) / table.half_width[row, column]
            assert off < 3, (function, source)
