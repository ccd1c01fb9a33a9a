"""Simulates what overflow sampling sees of a program whose every event is known.

A program is a random sequence of visits to pieces of code, long against a sample's skid and short against a sampling
period. Counters run through the visits, in windows of time if groups share them, and every period-th event is a sample.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from builders.profiles import Call, Frame, ProfileBuilder
from builders.topdown import Code, topdown_groups
from tdprof.catalog.choose import find_by_name
from tdprof.catalog.entries import Catalog
from tdprof.metrics.formula import evaluate
from tdprof.model.events import EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.profile import Profile, SampleTable
from tdprof.recorder.options import TURNS_INTERVAL_NS, USUAL_INTERVAL_NS

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

CORE = "neoverse-n3"
CYCLES_PER_SECOND = 3e9


@dataclass(frozen=True)
class Program:
    """What runs.

    Attributes:
        codes: pieces of code with their rates of events.
        second: the same pieces as they are in every other phase; none if the program is always the same.
        phase_ms: mean length of a phase.
        has_even_phases: all phases are equally long, as in a program that follows a clock.
        visit_us: mean length of a visit to a piece of code.
    """

    codes: Sequence[Code]
    second: Sequence[Code] = ()
    phase_ms: float = 0.0
    has_even_phases: bool = False
    visit_us: float = 100.0


@dataclass(frozen=True)
class Recording:
    """How it is sampled.

    Attributes:
        metrics: that groups are made for.
        rate_hz: samples of each event for each second that its group runs.
        window_ms: how long a group has the counters before the next one's turn.
        skid_cycles: from an overflow to the sampled instruction.
        first_seconds: after how long the periods are corrected.
        first_factor: how many times as long they are until then.
    """

    metrics: Sequence[str]
    seconds: float = 4.0
    rate_hz: float = 500.0
    counters: int = 6
    window_ms: float = 4.0
    skid_cycles: float = 0.0
    first_seconds: float = 0.0
    first_factor: float = 1.0


@dataclass(frozen=True)
class Run:
    """One simulated recording and its truth.

    Attributes:
        truth, inclusive: metrics by function, for its own instructions and with what it calls.
        program: metrics of everything.
        by_interval: metrics by function as crediting all counters to the function found at each cycle overflow gives
            them; only of metrics of the first group.
    """

    profile: Profile
    truth: Mapping[str, Mapping[str, float]]
    inclusive: Mapping[str, Mapping[str, float]]
    program: Mapping[str, float]
    by_interval: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class _Path:
    """The program's way: segments in which one piece of code runs in one phase within one window.

    Attributes:
        end, cycles: in cycles, since the start and of the segment itself.
        code: index of its piece of code.
        kind: the same, behind all pieces of code where it runs in every other phase.
        window: number of the window of each segment.
    """

    end: F64
    cycles: F64
    code: I64
    kind: I64
    window: I64


def simulate(program: Program, recording: Recording, seed: int) -> Run:
    """Run and sample the program once."""
    random = np.random.default_rng(seed)
    catalog = find_by_name(CORE)
    groups, split = _groups(tuple(recording.metrics), recording.counters)
    events = sorted({name for group in groups for name in group.names})
    rates = {
        name: np.array([code.count(name) / code.cycles for code in (*program.codes, *program.second)])
        for name in events
    }
    path = _walk(program, recording, len(groups), random)
    interval_ns = TURNS_INTERVAL_NS if len(groups) > 1 else USUAL_INTERVAL_NS
    counts: dict[str, F64] = {name: path.cycles * rates[name][path.kind] for name in events}

    infos: list[EventInfo] = []
    rows: list[tuple[I64, I64, F64]] = []  # of each event: interval, code and weight of its samples
    for number, group in enumerate(groups):
        running = np.flatnonzero(path.window % len(groups) == number)
        running_ns = int(path.cycles[running].sum() / 3)
        for name in group.names:
            info, row = _sample(name, counts[name], running, path, recording, interval_ns, random)
            infos.append(replace(info, running_ns=running_ns, enabled_ns=int(path.end[-1] / 3)))
            rows.append(row)

    own = {name: np.bincount(path.code, counts[name], len(program.codes)).astype(np.float64) for name in events}
    inclusive = _inclusive(program.codes, own)
    names = [code.name for code in program.codes]
    return Run(
        profile=_profile(program, infos, rows, interval_ns, TopdownInfo(CORE, groups, split_metrics=split)),
        truth=_metrics(catalog, recording.metrics, own, names),
        inclusive=_metrics(catalog, recording.metrics, inclusive, list(_callers(program.codes))),
        program=_metrics(catalog, recording.metrics, {n: c.sum(keepdims=True) for n, c in own.items()}, [""])[""],
        by_interval=_credit_intervals(catalog, path, counts, program.codes, groups[0], recording, random),
    )


@cache
def _groups(metrics: tuple[str, ...], counters: int) -> tuple[list[SampledGroup], list[str]]:
    return topdown_groups(find_by_name(CORE), metrics, counters, has_cycle_counter=True)


def _walk(program: Program, recording: Recording, groups: int, random: np.random.Generator) -> _Path:
    length = recording.seconds * CYCLES_PER_SECOND
    phase = program.phase_ms / 1e3 * CYCLES_PER_SECOND
    if not program.second:
        phases = np.array([length])
    elif program.has_even_phases:
        phases = np.append(np.arange(random.random() * phase, length, phase), length)
    else:
        phases = _edges(phase, length, random)
    window = recording.window_ms / 1e3 * CYCLES_PER_SECOND
    windows = np.arange(random.random() * window, length, window) if groups > 1 else np.empty(0)

    mean = program.visit_us / 1e6 * CYCLES_PER_SECOND
    visits = _edges(mean, length, random)
    phase_of_visit = np.searchsorted(phases, visits - 1e-6) % (2 if program.second else 1)
    shares = [np.array([code.cycles for code in codes]) for codes in (program.codes, program.second) if codes]
    chosen = np.array([random.choice(len(share), len(visits), p=share / share.sum()) for share in shares])
    visit_code = chosen[phase_of_visit, np.arange(len(visits))]  # as the phase in which the visit ends has it

    end = np.unique(np.concatenate((visits, windows, phases)))
    visit = np.minimum(np.searchsorted(visits, end), len(visits) - 1)
    code = visit_code[visit]
    in_second = np.searchsorted(phases, end - 1e-6) % (2 if program.second else 1)
    return _Path(
        end,
        np.diff(end, prepend=0.0),
        code,
        code + in_second * len(program.codes),
        np.searchsorted(windows, end - 1e-6),
    )


def _edges(mean: float, length: float, random: np.random.Generator) -> F64:
    """Ends of stretches of exponential length, the last at ``length``."""
    ends = np.cumsum(random.exponential(mean, int(length / mean * 1.2) + 50))
    return np.append(ends[ends < length], length)


def _sample(
    name: str,
    counts: F64,
    running: I64,
    path: _Path,
    recording: Recording,
    interval_ns: int,
    random: np.random.Generator,
) -> tuple[EventInfo, tuple[I64, I64, F64]]:
    """Overflows of one counter: the event as recorded, and interval, code and weight of each sample."""
    counted, cycles = counts[running], path.cycles[running]
    total = counted.sum()
    period = max(1, round(total / max(1.0, cycles.sum() / CYCLES_PER_SECOND * recording.rate_hz)))
    weights = np.full(int(total / period * 1.1) + 10, float(period))
    until = np.cumsum(counted)
    if recording.first_seconds:
        counted_then = np.interp(recording.first_seconds * CYCLES_PER_SECOND, path.end[running], until)
        weights[: int(counted_then / period / recording.first_factor)] *= recording.first_factor
    at = np.cumsum(weights) - weights[0] * random.random()
    at, weights = at[at < until[-1]], weights[: np.count_nonzero(at < until[-1])]
    segment = np.searchsorted(until, at)
    # Within a segment events come evenly.
    time = path.end[running][segment] - (until[segment] - at) / counted[segment] * cycles[segment]
    landed = np.minimum(np.searchsorted(path.end, time + recording.skid_cycles), len(path.end) - 1)
    interval = (time / CYCLES_PER_SECOND / interval_ns * 1e9).astype(np.int64)
    info = EventInfo(name, Unit.COUNT, 0, round(recording.rate_hz), round(total))
    return info, (interval, path.code[landed], np.rint(weights))


def _callers(codes: Sequence[Code]) -> dict[str, list[int]]:
    """Functions, and the pieces of code that run in them or in what they call."""
    found: dict[str, list[int]] = {}
    for index, code in enumerate(codes):
        for name in dict.fromkeys((*code.callers, code.name)):
            found.setdefault(name, []).append(index)
    return found


def _inclusive(codes: Sequence[Code], own: Mapping[str, F64]) -> dict[str, F64]:
    members = _callers(codes).values()
    return {name: np.array([counts[rows].sum() for rows in members]) for name, counts in own.items()}


def _metrics(
    catalog: Catalog, metrics: Sequence[str], counts: Mapping[str, F64], names: Sequence[str]
) -> dict[str, dict[str, float]]:
    values = {name: np.atleast_1d(evaluate(catalog.metrics[name].expression, counts)) for name in metrics}
    return {code: {name: float(value[i]) for name, value in values.items()} for i, code in enumerate(names)}


def _credit_intervals(
    catalog: Catalog,
    path: _Path,
    counts: Mapping[str, F64],
    codes: Sequence[Code],
    group: SampledGroup,
    recording: Recording,
    random: np.random.Generator,
) -> dict[str, dict[str, float]]:
    """Another method than ours: at each cycle overflow read all counters and credit the function found there."""
    period = CYCLES_PER_SECOND / recording.rate_hz
    at = np.arange(random.random() * period, path.end[-1], period)
    segment = np.searchsorted(path.end, at)
    into = np.interp(at, path.end, np.arange(len(path.end)))
    credited: dict[str, F64] = {}
    for name in group.names:
        read = np.interp(into, np.arange(len(path.end)), np.cumsum(counts[name]))
        credited[name] = np.bincount(path.code[segment[1:]], np.diff(read), len(codes)).astype(np.float64)
    known = [name for name in recording.metrics if set(catalog.metrics[name].events) <= set(group.names)]
    return _metrics(catalog, known, credited, [code.name for code in codes])


def _profile(
    program: Program,
    infos: Sequence[EventInfo],
    rows: Sequence[tuple[I64, I64, F64]],
    interval_ns: int,
    topdown: TopdownInfo,
) -> Profile:
    builder = ProfileBuilder(infos)
    for code in program.codes:
        callers = [Frame(caller, 10, f"{caller}.c") for caller in code.callers]
        builder.add(*callers, Call((Frame(code.name, code.line, f"{code.name}.c"),)))
    template = builder.build(topdown=topdown, rung="pmu-bpf", rung_reason="")
    event = np.repeat(np.arange(len(rows)), [len(code) for _, code, _ in rows])
    interval, code_number, weight = (np.concatenate([row[i] for row in rows]) for i in range(3))
    key = (event * 1000 + interval) * len(program.codes) + code_number
    distinct, place = np.unique(key, return_inverse=True)
    n = len(distinct)
    ones = np.ones(n, np.uint32)
    samples = SampleTable(
        time_ns=((distinct // len(program.codes) % 1000 + 1) * interval_ns).astype(np.uint64),
        event=(distinct // len(program.codes) // 1000).astype(np.uint32),
        pid=ones,
        tid=ones,
        thread_name=np.zeros(n, np.int32),
        stack=(distinct % len(program.codes)).astype(np.int32),
        count=np.bincount(place, minlength=n).astype(np.uint64),
        weight=np.rint(np.bincount(place, weight, n)).astype(np.uint64),
        cgroup=np.full(n, -1, np.int32),
        state=np.zeros(n, np.uint8),
        cpu=np.full(n, -1, np.int32),
        waker=np.full(n, -1, np.int32),
    )
    return replace(template, samples=samples)
