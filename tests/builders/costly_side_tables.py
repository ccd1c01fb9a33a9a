"""Side tables of captures of which each part once cost more than it weighs; see `costly_files`."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from builders import capture_tables
from builders.cost import tdprof
from builders.costly_captures import write_capture
from builders.costly_files import builder
from tdprof.capture.schema import (
    BRANCHES,
    CGROUPS,
    KERNEL_SYMBOLS,
    MAPPINGS,
    NAMESPACES,
    PROCESSES,
    SAMPLE_CGROUP,
    SAMPLES,
    STACKS,
    SYMBOLS,
)

PID = 42


def columns_of(schema: pa.Schema, rows: int, /, **given: object) -> pa.Table:
    """Rows of a schema: zeros, empty texts and False, but for some columns."""
    columns = []
    for item in schema:
        if item.name in given:
            columns.append(given[item.name])
        elif pa.types.is_integer(item.type):
            columns.append(np.zeros(rows, item.type.to_pandas_dtype()))
        elif pa.types.is_boolean(item.type):
            columns.append(np.zeros(rows, bool))
        else:
            columns.append(pa.repeat(pa.scalar(""), rows))
    return pa.table(columns, names=schema.names).cast(schema)


def numbers(count: int) -> np.ndarray:
    return np.arange(1, count + 1, dtype=np.uint64)


@builder
def namespaces_of_many_threads(folder: Path, size: int) -> list[str]:
    """A mount namespace for each of many processes, and a file that all of them map."""
    count = size // 8
    pid = numbers(count).astype(np.uint32)
    namespaces = columns_of(
        NAMESPACES, count, pid=pid, tid=pid, namespace=pa.repeat(pa.scalar("mnt"), count), inode=numbers(count)
    )
    mappings = columns_of(
        MAPPINGS,
        count,
        pid=pid,
        address=np.full(count, 0x1000, np.uint64),
        length=np.full(count, 0x1000, np.uint64),
        path=pa.repeat(pa.scalar("/nowhere"), count),
        build_id=pa.nulls(count, pa.string()),
    )
    samples = capture_tables.samples((9, 0, 1, 1, "app", 1, None, 1, 1))
    write_capture(folder, namespaces=namespaces, mappings=mappings, samples=samples)
    return tdprof("report", folder)


@builder
def namespaces_all_alike(folder: Path, size: int) -> list[str]:
    """One process that changes its namespace, again and again."""
    count = 2 * size
    namespaces = columns_of(
        NAMESPACES,
        count,
        pid=np.full(count, PID, np.uint32),
        tid=np.full(count, PID, np.uint32),
        namespace=pa.repeat(pa.scalar("mnt"), count),
    )
    write_capture(folder, namespaces=namespaces)
    return tdprof("report", folder)


@builder
def samples_of_control_groups(folder: Path, size: int) -> list[str]:
    """Control groups, and a sample of each."""
    count = size // 12
    group = numbers(count)
    paths = pa.array([f"/{number:x}" for number in range(count)])
    samples = columns_of(
        SAMPLES.append(SAMPLE_CGROUP),
        count,
        pid=np.full(count, PID, np.uint32),
        user_stack=np.ones(count, np.uint64),
        kernel_stack=pa.nulls(count, pa.uint64()),
        count=np.ones(count, np.uint64),
        weight=np.ones(count, np.uint64),
        cgroup=group,
    )
    write_capture(folder, samples=samples, cgroups=columns_of(CGROUPS, count, cgroup=group, path=paths))
    return tdprof("report", folder, "--by", "cgroup")


@builder
def branches_all_different(folder: Path, size: int) -> list[str]:
    """Branches from and to addresses of their own, without names."""
    count = size // 16
    address = np.random.default_rng(1).integers(0x1000, 1 << 40, (2, count), np.uint64)
    ones = np.ones(count, np.uint64)
    table = columns_of(
        BRANCHES,
        count,
        pid=np.full(count, PID, np.uint32),
        from_address=address[0],
        to_address=address[1],
        count=ones,
        stacks=ones,
    )
    mappings = capture_tables.mappings((0, PID, 0x1000, 1 << 40, 0, "/nowhere", None))
    write_capture(folder, branches=table, mappings=mappings)
    return tdprof("report", folder, "--branches")


@builder
def branches_of_many_processes(folder: Path, size: int) -> list[str]:
    """Branches, each of a process of its own that maps nothing."""
    count = 2 * size
    ones = np.ones(count, np.uint64)
    table = columns_of(
        BRANCHES,
        count,
        pid=numbers(count).astype(np.uint32),
        from_address=np.full(count, 0x1010, np.uint64),
        to_address=np.full(count, 0x1020, np.uint64),
        count=ones,
        stacks=ones,
    )
    write_capture(folder, branches=table)
    return tdprof("report", folder, "--branches")


@builder
def names_of_one_thread(folder: Path, size: int) -> list[str]:
    """A thread that changes its name, again and again."""
    count = size // 8
    texts = pa.array([f"{number:x}" for number in range(count)])
    tid = np.full(count, PID, np.uint32)
    none = pa.nulls(count, pa.uint32())
    columns = [numbers(count), pa.repeat(pa.scalar("name"), count), tid, tid, none, none, texts]
    write_capture(folder, processes=pa.table(columns, names=PROCESSES.names).cast(PROCESSES))
    return tdprof("report", folder)


def _deep_stacks(folder: Path, size: int, name: str, depth: int, *, distinct: bool = True) -> None:
    """Stacks of one kernel function with a long name, as deep as is asked for."""
    count = max(1, size // 2 // (8 if distinct else 1) // depth) if distinct else size
    low = np.random.default_rng(1).integers(0, 0x1000, count * depth, np.uint64)
    addresses = np.uint64(0xFFFF800000000000) + (low if distinct else np.zeros_like(low))
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1) * depth, pa.int32()), pa.array(addresses))
    stacks = pa.table([pa.array(numbers(count)), pa.repeat(True, count), lists], names=STACKS.names)
    samples = columns_of(
        SAMPLES,
        count,
        pid=np.full(count, PID, np.uint32),
        user_stack=pa.nulls(count, pa.uint64()),
        kernel_stack=numbers(count),
        count=np.ones(count, np.uint64),
        weight=np.ones(count, np.uint64),
    )
    symbols = columns_of(
        KERNEL_SYMBOLS,
        0x100,
        address=np.uint64(0xFFFF800000000000) + np.arange(0, 0x1000, 16, dtype=np.uint64),
        size=np.full(0x100, 16, np.uint64),
        name=pa.array([f"{number}_{name}" for number in range(0x100)]),
        module=pa.nulls(0x100, pa.string()),
    )
    write_capture(folder, stacks=stacks, samples=samples, kernel_symbols=symbols)


def _exported(folder: Path, to: str) -> list[str]:
    return tdprof("export", folder, "--to", to, "-o", folder.parent / f"{folder.name}.out")


@builder
def folded_lines_of_long_names(folder: Path, size: int) -> list[str]:
    """Stacks of functions with long names, each written on each line."""
    _deep_stacks(folder, size, "n" * (size // 1024), 64)
    return _exported(folder, "folded")


def _exported_deep_stacks(folder: Path, size: int, to: str) -> list[str]:
    _deep_stacks(folder, size, "n" * 100, 1024)
    return _exported(folder, to)


@builder
def folded_lines_of_deep_stacks(folder: Path, size: int) -> list[str]:
    """Stacks of a thousand functions."""
    return _exported_deep_stacks(folder, size, "folded")


@builder
def pprof_of_deep_stacks(folder: Path, size: int) -> list[str]:
    """The same as pprof."""
    return _exported_deep_stacks(folder, size, "pprof")


@builder
def speedscope_of_deep_stacks(folder: Path, size: int) -> list[str]:
    """The same for speedscope."""
    return _exported_deep_stacks(folder, size, "speedscope")


@builder
def page_of_deep_stacks(folder: Path, size: int) -> list[str]:
    """The same as a page."""
    return _exported_deep_stacks(folder, size, "html")


@builder
def page_of_one_very_deep_stack(folder: Path, size: int) -> list[str]:
    """A stack as deep as the file is long, as a page."""
    _deep_stacks(folder, size, "n", size // 16)
    return _exported(folder, "html")


@builder
def tree_of_one_very_deep_stack(folder: Path, size: int) -> list[str]:
    """The same as a tree in the terminal."""
    _deep_stacks(folder, size, "n", size // 16)
    return tdprof("report", folder, "--tree", "--limit", "0")


@builder
def threads_by_name(folder: Path, size: int) -> list[str]:
    """A thread of its own for each sample, as rows."""
    count = size // 12
    tid = numbers(count).astype(np.uint32)
    samples = columns_of(
        SAMPLES,
        count,
        pid=tid,
        tid=tid,
        thread_name=pa.array([f"{number:x}" for number in range(count)]),
        user_stack=np.ones(count, np.uint64),
        kernel_stack=pa.nulls(count, pa.uint64()),
        count=np.ones(count, np.uint64),
        weight=np.ones(count, np.uint64),
    )
    write_capture(folder, samples=samples)
    return tdprof("report", folder, "--by", "thread")


def _many_functions(folder: Path, size: int, prefix: str = "f") -> None:
    """Kernel functions, all with names alike, and a sample of each."""
    count = size // 40
    address = np.uint64(0xFFFF800000000000) + 16 * numbers(count)
    lists = pa.ListArray.from_arrays(pa.array(np.arange(count + 1), pa.int32()), pa.array(address))
    stacks = pa.table([pa.array(numbers(count)), pa.repeat(True, count), lists], names=STACKS.names)
    samples = columns_of(
        SAMPLES,
        count,
        pid=np.full(count, PID, np.uint32),
        user_stack=pa.nulls(count, pa.uint64()),
        kernel_stack=numbers(count),
        count=np.full(count, 5, np.uint64),
        weight=np.full(count, 5000, np.uint64),
    )
    symbols = columns_of(
        KERNEL_SYMBOLS,
        count,
        address=address,
        size=np.full(count, 16, np.uint64),
        name=pa.array([f"{prefix}{number}" for number in range(count)]),
        module=pa.nulls(count, pa.string()),
    )
    folder.mkdir(exist_ok=True)
    write_capture(folder, stacks=stacks, samples=samples, kernel_symbols=symbols)


@builder
def captures_without_a_common_function(folder: Path, size: int) -> list[str]:
    """Two captures of functions whose names are alike in all but a letter."""
    _many_functions(folder / "before", size // 2, "f")
    _many_functions(folder / "after", size // 2, "g")
    return tdprof("diff", folder / "before", folder / "after")


@builder
def page_of_many_functions(folder: Path, size: int) -> list[str]:
    """Functions with a sample each, as a page."""
    _many_functions(folder, size)
    return _exported(folder, "html")


@builder
def archive_of_many_functions(folder: Path, size: int) -> list[str]:
    """The same, archived."""
    _many_functions(folder, size)
    return tdprof("archive", folder)


def _carried_frames(folder: Path, size: int, frames: int, depth: int) -> None:
    """A carried symbol with many frames, and a stack that goes through it again and again."""
    kind = SYMBOLS.field("frames").type
    frame = pa.repeat(pa.scalar({"function": "f", "file": "f.c", "line": 1}, kind.value_type), frames)
    lists = pa.ListArray.from_arrays(pa.array([0, frames], pa.int32()), frame).cast(kind)
    columns = {"path": "/nowhere", "build_id": "", "kind": "elf"}
    # A return address is looked up one byte before.
    table = pa.table(
        [
            *(pa.repeat(pa.scalar(text), 1) for text in columns.values()),
            np.zeros(1, np.uint32),
            np.full(1, 0x0F, np.uint64),
            np.zeros(1, np.uint8),
            lists,
        ],
        names=SYMBOLS.names,
    ).cast(SYMBOLS)
    addresses = np.full(depth, 0x1010, np.uint64)
    stack = pa.ListArray.from_arrays(pa.array([0, depth], pa.int32()), pa.array(addresses))
    stacks = pa.table([pa.array([1], pa.uint64()), pa.array([False]), stack], names=STACKS.names)
    write_capture(folder, stacks=stacks, symbols=table)


@builder
def frames_in_each_other_many_times(folder: Path, size: int) -> list[str]:
    """Thousands of inlined calls at an address that a stack goes through thousands of times."""
    _carried_frames(folder, size, 20_000, size // 4)
    return tdprof("report", folder)


@builder
def frames_in_each_other_on_a_page(folder: Path, size: int) -> list[str]:
    """The same on a page."""
    _carried_frames(folder, size, 20_000, size // 4)
    return _exported(folder, "html")
