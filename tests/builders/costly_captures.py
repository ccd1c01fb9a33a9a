"""Captures whose tables once cost a product of two of their sizes; see `costly_files`."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from builders import capture_tables
from builders.captures import write_manifest
from builders.cost import MB, tdprof
from builders.costly_files import builder
from builders.hosts import HOST
from builders.java_code import Scopes, lines
from tdprof.capture.java_code import JavaCode, JavaHeader, JavaMethod, code_name
from tdprof.capture.manifest import Manifest, Rung, State
from tdprof.capture.schema import KERNEL_SYMBOLS, MAPPINGS, PROCESSES, SAMPLES, SPE_SPANS, STACKS, SYMBOLS
from tdprof.model.events import MOST_EVENTS, EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.losses import Losses


def write_capture(folder: Path, *, events: int = 1, **tables: pa.Table) -> None:
    """A capture of one sample, with some tables replaced."""
    listed = [EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999)] * events
    manifest = Manifest(HOST, ["app"], [], False, listed, Rung.RING_BUFFER, "", 0, 0, 10**9, Losses())
    write_manifest(folder, replace(manifest, state=State.COMPLETE))
    plain = {
        "samples": capture_tables.samples((1, 0, 42, 42, "app", 1, None, 1, 1)),
        "stacks": capture_tables.stacks((1, False, [0x1010])),
        "mappings": capture_tables.mappings((0, 42, 0x1000, 0x1000, 0, "/nowhere", None)),
        "processes": capture_tables.processes(),
        "kernel_symbols": KERNEL_SYMBOLS.empty_table(),
        "spe_spans": SPE_SPANS.empty_table(),
    }
    for name, table in (plain | tables).items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", row_group_size=1 << 26)


def _report(folder: Path) -> list[str]:
    return tdprof("report", folder)


@builder
def samples_all_alike(folder: Path, size: int) -> list[str]:
    """Samples that differ in nothing: a table shrinks a thousand times."""
    table = capture_tables.samples((1, 0, 42, 42, "app", 1, None, 1, 1))
    rows = min(30_000_000, size * 4)
    write_capture(folder, samples=table.take(pa.repeat(0, rows)))
    return _report(folder)


@builder
def samples_that_just_fit(folder: Path, size: int) -> list[str]:
    """As many rows as are still read of a file of this size, which the weights of some of them fill."""
    rows, weights = (30 * MB + 23 * size) // 70, np.ones(size // 7, np.uint64)
    weights[:] = np.random.default_rng(1).integers(1, 2**40, len(weights))
    table = capture_tables.samples((1, 0, 42, 42, "app", 1, None, 1, 1)).take(pa.repeat(0, rows))
    weight = np.concatenate([weights, np.ones(rows - len(weights), np.uint64)])
    write_capture(
        folder, samples=table.set_column(table.column_names.index("weight"), SAMPLES.field("weight"), [weight])
    )
    return _report(folder)


@builder
def stacks_all_alike(folder: Path, size: int) -> list[str]:
    """One stack with millions of equal addresses."""
    length = min(100_000_000, size * 20)
    addresses = pa.ListArray.from_arrays(
        pa.array([0, length], pa.int32()), pa.repeat(pa.scalar(0x1010, pa.uint64()), length)
    )
    stacks = pa.table(
        [pa.array([1], pa.uint64()), pa.array([False]), addresses], names=["stack", "is_kernel", "addresses"]
    )
    write_capture(folder, stacks=stacks)
    return _report(folder)


@builder
def symbols_of_many_files(folder: Path, size: int) -> list[str]:
    """A carried table of symbols in which every row is another file's."""
    count = size // 3
    none = pa.array([[]] * count, SYMBOLS.field("frames").type)
    text = {name: pa.repeat(pa.scalar(name), count) for name in ("path", "build_id")}
    numbers = pa.array(range(count), pa.uint64())
    columns = [*text.values(), pa.repeat(pa.scalar("anonymous"), count), numbers.cast(pa.uint32()), numbers]
    table = pa.table([*columns, pa.repeat(pa.scalar(0, pa.uint8()), count), none], names=SYMBOLS.names)
    write_capture(folder, symbols=table)
    return _report(folder)


@builder
def symbols_of_long_paths(folder: Path, size: int) -> list[str]:
    """A carried table of symbols whose one path is as long as half of the file, on each of its rows."""
    count = 2 * size
    path = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), pa.array([zlib_proof(size // 2)]))
    none = pa.ListArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), count + 1), pa.array([], SYMBOLS.field("frames").type.value_type)
    )
    one = {name: pa.repeat(pa.scalar(""), count).dictionary_encode() for name in ("build_id", "kind")}
    zeros = pa.repeat(pa.scalar(0, pa.uint64()), count)
    columns = [path, *one.values(), zeros.cast(pa.uint32()), zeros, pa.repeat(pa.scalar(0, pa.uint8()), count), none]
    write_capture(folder, symbols=pa.table(columns, names=SYMBOLS.names))
    return _report(folder)


def zlib_proof(length: int) -> str:
    """Text that does not shrink by much."""
    return random.Random(1).randbytes(length // 2 + 1).hex()[:length]


@builder
def mappings_inside_each_other(folder: Path, size: int) -> list[str]:
    """Mappings of which each lies within the one before."""
    count = size // 8
    rows = np.arange(count, dtype=np.uint64)
    columns = {
        "time_ns": np.zeros(count, np.uint64),
        "pid": np.full(count, 42, np.uint32),
        "address": 0x1000 + rows,
        "length": 2 * count - 2 * rows,
        "file_offset": rows,
        "path": pa.repeat(pa.scalar("/nowhere"), count),
        "build_id": pa.nulls(count, pa.string()),
    }
    write_capture(folder, mappings=pa.table(columns).cast(MAPPINGS))
    return _report(folder)


@builder
def forks_of_forks(folder: Path, size: int) -> list[str]:
    """Processes of which each is forked from the one before, all sampled."""
    count = size // 20
    child = np.arange(count, dtype=np.uint32) + 43
    nothing = pa.nulls(count, pa.string())
    columns = [
        child.astype(np.uint64),
        pa.repeat(pa.scalar("fork"), count),
        child,
        child,
        child - 1,
        child - 1,
        nothing,
    ]
    processes = pa.table(columns, names=PROCESSES.names).cast(PROCESSES)
    write_capture(folder, processes=processes, samples=_samples_of(child, np.ones(count, np.uint64)))
    return _report(folder)


def _samples_of(pid: np.ndarray, user_stack: np.ndarray, kernel_stack: np.ndarray | None = None) -> pa.Table:
    count = len(pid)
    ones = np.ones(count, np.uint64)
    columns = {
        "time_ns": np.full(count, 2**40, np.uint64),
        "event": np.zeros(count, np.uint32),
        "pid": pid,
        "tid": pid,
        "thread_name": pa.repeat(pa.scalar("app"), count),
        "user_stack": user_stack,
        "kernel_stack": pa.nulls(count, pa.uint64()) if kernel_stack is None else kernel_stack,
        "count": ones,
        "weight": ones,
    }
    return pa.table(columns).cast(SAMPLES)


@builder
def one_stack_in_many_processes(folder: Path, size: int) -> list[str]:
    """A stack as long as half of the file, sampled in as many processes as the other half names."""
    length, count = size // 4, size // 16
    addresses = np.random.default_rng(1).integers(0x1000, 0x2000, length).astype(np.uint64)
    lists = pa.ListArray.from_arrays(pa.array([0, length], pa.int32()), pa.array(addresses))
    columns = [pa.array([1], pa.uint64()), pa.array([False]), lists]
    pid = np.arange(count, dtype=np.uint32) + 1
    stacks = pa.table(columns, names=STACKS.names)
    samples = _samples_of(pid, np.ones(count, np.uint64))
    write_capture(folder, stacks=stacks, samples=samples, mappings=_mappings_of(pid, "/nowhere"))
    return _report(folder)


@builder
def user_stacks_below_one_of_the_kernel(folder: Path, size: int) -> list[str]:
    """Small user stacks, each in a sample of one long kernel stack."""
    length, count = size // 4, size // 16
    kernel = np.random.default_rng(1).integers(0x1000, 0x2000, length).astype(np.uint64)
    offsets = np.concatenate([[0], length + np.arange(count + 1)]).astype(np.int32)
    user = np.full(count, 0x1010, np.uint64)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate([kernel, user])))
    identity = np.arange(count + 1, dtype=np.uint64) + 1
    stacks = pa.table([identity, pa.array([True] + [False] * count), lists], names=STACKS.names)
    samples = _samples_of(np.full(count, 42, np.uint32), identity[1:], np.ones(count, np.uint64))
    write_capture(folder, stacks=stacks, samples=samples)
    return _report(folder)


@builder
def threads_with_names_of_their_own(folder: Path, size: int) -> list[str]:
    """Threads, each named and sampled."""
    count = size // 12
    tid = np.arange(count, dtype=np.uint32) + 1
    names = pa.repeat(pa.scalar("thread"), count)
    none = pa.nulls(count, pa.uint32())
    columns = [np.zeros(count, np.uint64), pa.repeat(pa.scalar("name"), count), tid, tid, none, none, names]
    samples = _samples_of(tid, np.ones(count, np.uint64))
    samples = samples.set_column(4, SAMPLES.field("thread_name"), pa.nulls(count, pa.string()).dictionary_encode())
    write_capture(folder, processes=pa.table(columns, names=PROCESSES.names).cast(PROCESSES), samples=samples)
    return _report(folder)


@builder
def processes_that_map_one_file(folder: Path, size: int) -> list[str]:
    """Processes, each with a mapping and a sample in it."""
    pid = np.arange(size // 4, dtype=np.uint32) + 1
    write_capture(folder, mappings=_mappings_of(pid, "/nowhere"), samples=_samples_of(pid, np.ones_like(pid)))
    return _report(folder)


@builder
def processes_with_code_of_their_own(folder: Path, size: int) -> list[str]:
    """The same with memory that has no file, so that each is a file of its own."""
    pid = np.arange(size // 4, dtype=np.uint32) + 1
    write_capture(folder, mappings=_mappings_of(pid, "//anon"), samples=_samples_of(pid, np.ones_like(pid)))
    return _report(folder)


@builder
def files_with_a_sample_each(folder: Path, size: int) -> list[str]:
    """A mapping and a sample of each of many files."""
    pid = np.arange(size // 8, dtype=np.uint32) + 1
    paths = pa.array([f"/{number:x}" for number in range(len(pid))])
    write_capture(folder, mappings=_mappings_of(pid, paths), samples=_samples_of(pid, np.ones_like(pid)))
    return _report(folder)


@builder
def files_with_a_sample_each_archived(folder: Path, size: int) -> list[str]:
    files_with_a_sample_each(folder, size)
    return tdprof("archive", folder)


@builder
def many_events(folder: Path, size: int) -> list[str]:
    """As many events as fit, each of which has a row and a column of its own."""
    write_capture(folder, events=size // 150)
    return _report(folder)


@builder
def as_many_events_as_are_read(folder: Path, size: int) -> list[str]:
    """As many events as a capture may have, and functions of all of them."""
    count = size // 16
    addresses = np.random.default_rng(1).integers(0x1000, 1 << 40, count, np.uint64)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), pa.array(addresses))
    number = np.arange(count, dtype=np.uint64) + 1
    stacks = pa.table([pa.array(number), pa.repeat(False, count), lists], names=STACKS.names)
    samples = _samples_of(np.full(count, 42, np.uint32), number)
    events = pa.array((number % 1024).astype(np.uint32))
    samples = samples.set_column(SAMPLES.get_field_index("event"), SAMPLES.field("event"), events)
    mappings = capture_tables.mappings((0, 42, 0x1000, 1 << 40, 0, "/nowhere", None))
    write_capture(folder, events=1024, samples=samples, stacks=stacks, mappings=mappings)
    return _report(folder)


def _mappings_of(pid: np.ndarray, path: str | pa.Array) -> pa.Table:
    count = len(pid)
    columns = {
        "time_ns": np.zeros(count, np.uint64),
        "pid": pid,
        "address": np.full(count, 0x1000, np.uint64),
        "length": np.full(count, 0x1000, np.uint64),
        "file_offset": np.zeros(count, np.uint64),
        "path": pa.repeat(pa.scalar(path), count) if isinstance(path, str) else path,
        "build_id": pa.nulls(count, pa.string()),
    }
    return pa.table(columns).cast(MAPPINGS)


@builder
def addresses_without_names(folder: Path, size: int) -> list[str]:
    """As many addresses of one file as fit, of which nothing is known."""
    addresses = np.random.default_rng(1).integers(0x1000, 1 << 40, size // 8, np.uint64)
    lists = pa.ListArray.from_arrays(pa.array([0, len(addresses)], pa.int32()), pa.array(addresses))
    stacks = pa.table([pa.array([1], pa.uint64()), pa.array([False]), lists], names=STACKS.names)
    mappings = capture_tables.mappings((0, 42, 0x1000, 1 << 40, 0, "/nowhere", None))
    write_capture(folder, stacks=stacks, mappings=mappings)
    return _report(folder)


def _compiled_java(folder: Path, size: int, scopes: int) -> None:
    """Calls inlined sixty deep, at each of many addresses; so many scopes in all."""
    addresses = np.arange(0x1000, 0x1000 + size // 4, dtype=np.uint64)
    lists = pa.ListArray.from_arrays(pa.array([0, len(addresses)], pa.int32()), pa.array(addresses))
    stacks = pa.table([pa.array([1], pa.uint64()), pa.array([False]), lists], names=STACKS.names)
    write_capture(folder, stacks=stacks, mappings=capture_tables.mappings((0, 42, 0x1000, size, 0, "//anon", None)))
    maps = folder / "perf-maps"
    maps.mkdir()
    told, outer = Scopes(), 0
    for _ in range(59):
        outer = told.add(outer, 1, 0)
    for number in range(scopes):
        told.place((number + 1) * size // scopes, told.add(outer, 1, 0))
    method = JavaMethod(b"A", b"f", b"()V", b"A.java", lines((0, 1)))
    code = JavaCode(0x1000, 0x1000 + size, 1, 0, told.table(), told.data, bytes(4))
    data = JavaHeader(0, is_everywhere=True).to_bytes() + method.to_bytes() + code.to_bytes()
    (maps / code_name(42)).write_bytes(data)
    (maps / "perf-42.map").write_text(f"1000 {size:x} void A.f()\n")


@builder
def java_calls_inlined_deep(folder: Path, size: int) -> list[str]:
    _compiled_java(folder, size, 1)
    return _report(folder)


@builder
def java_calls_inlined_deep_apart(folder: Path, size: int) -> list[str]:
    _compiled_java(folder, size, size // 64)
    return _report(folder)


@builder
def java_calls_inlined_deep_as_pprof(folder: Path, size: int) -> list[str]:
    _compiled_java(folder, size, size // 64)
    return tdprof("export", "--to", "pprof", "-o", folder.parent / "out.pb.gz", folder)


def _write_functions(folder: Path, count: int, event: np.ndarray, events: int = 1) -> None:
    """A capture of functions of which nothing is known, each in forty samples of each of these events in turn."""
    identity = np.arange(count, dtype=np.uint64) + 1
    addresses = pa.array(0x1000 + 16 * identity)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), addresses)
    stacks = pa.table([pa.array(identity), pa.array([False] * count), lists], names=STACKS.names)
    mappings = capture_tables.mappings((0, 42, 0x1000, 16 * count + 0x1000, 0, "/nowhere", None))
    stack = np.resize(np.repeat(identity, len(event) // count), len(event))
    samples = _samples_of(np.full(len(stack), 42, np.uint32), stack)
    for name, column in (("event", event), ("count", np.full(len(stack), 40)), ("weight", np.full(len(stack), 40_000))):
        field = SAMPLES.field(name)
        samples = samples.set_column(samples.column_names.index(name), field, [pa.array(column).cast(field.type)])
    write_capture(folder, events=events, stacks=stacks, mappings=mappings, samples=samples)


def _of_many_events(folder: Path, size: int) -> None:
    count = size // 12
    _write_functions(folder, count, np.arange(count) % MOST_EVENTS, MOST_EVENTS)


@builder
def many_events_of_many_functions_as_pprof(folder: Path, size: int) -> list[str]:
    """A pprof file has a value of each event for each stack."""
    _of_many_events(folder, size)
    return tdprof("export", "--to", "pprof", "-o", folder.parent / "out.pb.gz", folder)


@builder
def many_events_of_many_functions_compared(folder: Path, size: int) -> list[str]:
    _of_many_events(folder, size)
    return tdprof("diff", folder, folder)


def _of_many_metrics(folder: Path, size: int, metrics: int) -> None:
    """Functions with enough samples for each metric of a catalog that the capture brings with it."""
    count = size // 12
    _write_functions(folder, count, np.tile([0, 1], count), 2)
    names, events = [f"m{number}" for number in range(metrics)], ["CPU_CYCLES", "STALL_SLOT_BACKEND"]
    stage = {"title": "", "description": ""}
    ratio = {"title": "", "formula": "STALL_SLOT_BACKEND / CPU_CYCLES", "description": "", "units": "percent of slots"}
    tree = {"root_nodes": names[:1], "metrics": [{"name": name, "next_items": []} for name in names]}
    catalog = {
        "product_configuration": {"product_name": "core", "tdprof": {"counters": 6}},
        "events": {name: {"code": code} for code, name in enumerate(events)},
        "metrics": dict.fromkeys(names, ratio),
        "groups": {"function": {}, "metrics": {"first": stage | {"metrics": names}}},
        "methodologies": {"m": stage | {"metric_grouping": {"stage_1": ["first"]}, "decision_tree": tree}},
    }
    counted = [EventInfo(name, Unit.COUNT, period=1000, total=10**9, enabled_ns=9, running_ns=9) for name in events]
    topdown = TopdownInfo("core", [SampledGroup([0, 1], events, names)], catalog=json.dumps(catalog))
    manifest = Manifest(HOST, ["app"], [], False, counted, Rung.RING_BUFFER, "", 0, 0, 10**9, Losses(), topdown=topdown)
    write_manifest(folder, replace(manifest, state=State.COMPLETE))


@builder
def metrics_of_many_functions(folder: Path, size: int) -> list[str]:
    _of_many_metrics(folder, size, 70)
    return _report(folder)


@builder
def metrics_of_many_functions_as_pprof(folder: Path, size: int) -> list[str]:
    _of_many_metrics(folder, size, 70)
    return tdprof("export", "--to", "pprof", "-o", folder.parent / "out.pb.gz", folder)


@builder
def metrics_of_many_functions_on_a_page(folder: Path, size: int) -> list[str]:
    _of_many_metrics(folder, size, 500)
    return tdprof("export", "--to", "html", "-o", folder.parent / "out.html", folder)


@builder
def metrics_of_many_functions_compared(folder: Path, size: int) -> list[str]:
    _of_many_metrics(folder, size, 70)
    return tdprof("diff", folder, folder)
