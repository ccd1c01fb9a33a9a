"""A large profile from a fixed seed: what a busy server's hour looks like, to measure speed and size with."""

from dataclasses import fields

import numpy as np

from tdprof.catalog.choose import find_by_name
from tdprof.metrics.schedule import schedule_metrics
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.events import EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.profile import FunctionTable, LocationTable, Profile, SampleTable, StackTable

CORE = "neoverse-n3"
COUNTERS = 6
_TEXT = """
    allocate append batch block buffer cache client compare connection cursor decode detail dispatch encode entry event
    filter flush handler hash index insert internal iterate key lookup map merge node object parse pool queue read
    request resize response scan schedule session shard sort store stream string table task thread tree update value
"""
WORDS = _TEXT.split()
MODULES = ("/usr/bin/server", "/usr/lib/libc.so.6", "/usr/lib/libcrypto.so.3", "/usr/lib/libjson.so.1", "[kernel]")


def large_profile(
    stacks: int = 50_000, functions: int = 3_000, *, is_topdown: bool = True, seed: int = 8, intervals: int = 1
) -> Profile:
    """Distinct stacks of 5 to 60 frames that grow out of each other, as callers share callees.

    Args:
        is_topdown: every event of the core's metrics, in groups that took turns; else one event.
        intervals: of a second, over which each stack's samples are scattered.
    """
    random = np.random.default_rng(seed)
    parent, function = _call_tree(random, stacks, functions)
    start, location = _stacks(parent, function, random.permutation(len(parent))[:stacks])
    events, topdown = _events() if is_topdown else ([EventInfo("cycles", Unit.COUNT, frequency_hz=999)], None)
    samples = _samples(random, stacks, events)
    if intervals > 1:
        samples = _scattered(random, samples, intervals)
    line = random.integers(1, 2000, functions * 4).astype(np.uint32)
    return Profile(
        events=events,
        mapped_files=[
            MappedFile(path, kind=FileKind.KERNEL if path == "[kernel]" else FileKind.ELF) for path in MODULES
        ],
        mapped_file_ranges=[(0x400000 + 0x1000000 * i, 0x1000000, 0) for i in range(len(MODULES))],
        functions=FunctionTable(
            name=(names := _names(random, functions)),
            linkage_name=names,
            file=[f"src/{WORDS[i % len(WORDS)]}/{WORDS[i // 7 % len(WORDS)]}.cpp" for i in range(functions)],
            mapped_file=random.choice(len(MODULES), functions, p=[0.7, 0.05, 0.05, 0.1, 0.1]).astype(np.int32),
            is_inlined=np.zeros(functions, np.uint8),
        ),
        # Four addresses of each function, on lines of their own.
        locations=LocationTable(
            mapped_file=np.zeros(functions * 4, np.int32),
            address=np.arange(functions * 4, dtype=np.uint64) * np.uint64(16),
            reason=np.zeros(functions * 4, np.uint8),
            frame_start=np.arange(functions * 4 + 1, dtype=np.uint32),
            frame_function=(np.arange(functions * 4) // 4).astype(np.int32),
            frame_line=line,
            is_guess=np.zeros(functions * 4, bool),
        ),
        stacks=StackTable(start, location * 4 + random.integers(0, 4, len(location)).astype(np.int32)),
        samples=samples,
        thread_names=["worker"],
        process_names={1: "server"},
        command=("./server", "--threads", "64"),
        rung="bpf-pmu",
        rung_reason="",
        losses=Losses(),
        start_realtime_ns=1_767_225_600_000_000_000,
        duration_ns=3_600_000_000_000,
        topdown=topdown,
    )


def _names(random: np.random.Generator, functions: int) -> list[str]:
    def word() -> str:
        return WORDS[random.integers(len(WORDS))]

    names = []
    for number in range(functions):
        name = f"server::{word()}::{word().title()}{word().title()}::{word()}_{word()}_{number}"
        if random.random() < 0.3:
            name += f"<std::{word()}<{word()}::{word().title()}, {word()}::{word().title()}>>"
        names.append(f"{name}({word()}::{word().title()} const&, unsigned long)")
    return names


def _call_tree(random: np.random.Generator, leaves: int, functions: int) -> tuple[np.ndarray, np.ndarray]:
    """Parent of each node, which stands before it, and function; deep calls call most."""
    nodes = leaves + leaves // 2
    parent, depth = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    parent[0] = -1
    for node in range(1, nodes):
        # The deeper of three has the call, unless it is as deep as stacks get.
        choices = random.integers(0, node, 3)
        chosen = choices[np.argmax(depth[choices])]
        if depth[chosen] >= 59:
            chosen = choices[np.argmin(depth[choices])]
        parent[node], depth[node] = chosen, depth[chosen] + 1
    function = (functions * random.beta(0.6, 3, nodes)).astype(np.int64)
    return parent, function


def _stacks(parent: np.ndarray, function: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Frames of the chosen nodes, leaf first."""
    columns, rows = [], []
    at, row = chosen, np.arange(len(chosen))
    while len(at):
        columns.append(function[at])
        rows.append(row)
        keep = parent[at] >= 0
        at, row = parent[at[keep]], row[keep]
    owner = np.concatenate(rows)
    order = np.argsort(owner, kind="stable")
    start = np.searchsorted(owner[order], np.arange(len(chosen) + 1))
    return start.astype(np.uint32), np.concatenate(columns)[order].astype(np.int32)


def _events() -> tuple[list[EventInfo], TopdownInfo]:
    catalog = find_by_name(CORE)
    schedule = schedule_metrics(catalog, list(catalog.metrics.values()), COUNTERS, has_cycle_counter=True)
    events: list[EventInfo] = []
    groups = []
    enabled = 3_600_000_000_000
    for group in schedule.groups:
        rows = [len(events) + i for i in range(len(group.events))]
        running = enabled // len(schedule.groups)
        events += [EventInfo(name, Unit.COUNT, 1_000_003, 0, 10**12, enabled, running) for name in group.events]
        groups.append(SampledGroup(rows, list(group.events), list(group.metrics)))
    return events, TopdownInfo(CORE, groups, split_metrics=list(schedule.split_metrics))


def _samples(random: np.random.Generator, stacks: int, events: list[EventInfo]) -> SampleTable:
    """Every stack in some sample of the first event; of the others a few hot stacks have most."""
    columns = []
    for event in range(len(events)):
        taken = np.unique((stacks * random.beta(0.3, 2, stacks // 2 if event else 4 * stacks)).astype(np.int64))
        if not event:
            taken = np.arange(stacks)
        columns.append((np.full(len(taken), event), taken, random.zipf(1.7, len(taken)).clip(1, 5000)))
    event_column, stack, count = (np.concatenate(column) for column in zip(*columns, strict=True))
    period = np.array([event.period or 3_000_000 for event in events])
    n = len(stack)
    return SampleTable(
        time_ns=np.full(n, 1_000_000_000, np.uint64),
        event=event_column.astype(np.uint32),
        pid=np.ones(n, np.uint32),
        tid=np.ones(n, np.uint32),
        thread_name=np.zeros(n, np.int32),
        stack=stack.astype(np.int32),
        count=count.astype(np.uint64),
        weight=(count * period[event_column]).astype(np.uint64),
        cgroup=np.full(n, -1, np.int32),
        state=np.zeros(n, np.uint8),
        cpu=np.full(n, -1, np.int32),
        waker=np.full(n, -1, np.int32),
    )


def _scattered(random: np.random.Generator, samples: SampleTable, intervals: int) -> SampleTable:
    """Each sample by itself in an interval of a phase of its stack, those of one stack and interval together."""
    row = np.repeat(np.arange(len(samples.stack)), samples.count.astype(np.int64))
    phase = samples.stack[row] % 4 * (intervals // 4)
    time = (phase + random.integers(0, intervals // 2, len(row))) % intervals
    key, count = np.unique(row * intervals + time, return_counts=True)
    row, time = key // intervals, key % intervals
    columns = {each.name: getattr(samples, each.name)[row] for each in fields(samples)}
    columns["time_ns"] = (time + 1).astype(np.uint64) * np.uint64(1_000_000_000)
    columns["weight"] = columns["weight"] // columns["count"] * count.astype(np.uint64)
    columns["count"] = count.astype(np.uint64)
    return SampleTable(**columns)
