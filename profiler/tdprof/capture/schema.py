"""The tables of a capture: file, columns, types and units. docs/capture.md explains them to users.

All times are CLOCK_MONOTONIC nanoseconds of the recorded machine, unsigned.
"""

import pyarrow as pa

_TEXT = pa.dictionary(pa.int32(), pa.string())

SAMPLES = pa.schema(
    [
        # End of the interval the samples fell into (at most a second long), or on the ring-buffer rung their very time.
        pa.field("time_ns", pa.uint64(), nullable=False),
        pa.field("event", pa.uint32(), nullable=False),  # index into capture.json's events
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("thread_name", _TEXT),  # when sampled; null where only side-band knows it
        pa.field("user_stack", pa.uint64()),  # `stack` of stacks.parquet; null: none was taken
        pa.field("kernel_stack", pa.uint64()),
        pa.field("count", pa.uint64(), nullable=False),  # samples
        pa.field("weight", pa.uint64(), nullable=False),  # events they stand for, in the event's unit
    ]
)
# A column that only recordings with control groups have: `cgroup` of cgroups.parquet; null: not told.
SAMPLE_CGROUP = pa.field("cgroup", pa.uint64())
# One that only recordings of time off a CPU have: in which `ThreadState` of tdprof.model.off_cpu the thread was.
SAMPLE_STATE = pa.field("state", pa.uint8())
# One that only recordings with CPUs have: on which the sample was taken; null: on none.
SAMPLE_CPU = pa.field("cpu", pa.uint32())
# One that only recordings with wakers have: `waker` of wakers.parquet, who ended the sleep; null: not known, or none.
SAMPLE_WAKER = pa.field("waker", pa.uint64())
# One that only recordings have in which files took each other's addresses: when was mapped what the user stack leads
# through; null where the interval says enough.
SAMPLE_MAPPED = pa.field("mapped_ns", pa.uint64())

STACKS = pa.schema(
    [
        pa.field("stack", pa.uint64(), nullable=False),  # an opaque identity
        pa.field("is_kernel", pa.bool_(), nullable=False),
        pa.field("addresses", pa.list_(pa.uint64()), nullable=False),  # run-time addresses, leaf first
    ]
)

# Columns that recordings of older versions, and imported ones without copies of stacks, do not have: how a user stack
# was found.
STACK_WALK = (
    pa.field(
        "end", _TEXT
    ),  # why it ended, `StackEnd.word` in tdprof.model.stack_ends; null: the kernel's stack, or not known
    pa.field("guessed_from", pa.uint16()),  # index of the first address that is a guess (0: the leaf); null: none is
    pa.field("by_table", pa.uint16()),  # callers found by the program's own unwind information
    pa.field("by_fp", pa.uint16()),  # along frame pointers
    pa.field("by_lr", pa.uint16()),  # in the link register
)

MAPPINGS = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # 0: it was there before the recording
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("address", pa.uint64(), nullable=False),
        pa.field("length", pa.uint64(), nullable=False),  # bytes
        pa.field("file_offset", pa.uint64(), nullable=False),  # bytes, of `address` within the file
        pa.field("path", _TEXT, nullable=False),  # as the kernel names it: [vdso], //anon, …
        pa.field("build_id", _TEXT),  # GNU build-id in hex; null where unknown
    ]
)

# What happened to processes and threads, in time order.
PROCESSES = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # 0: it was so before the recording
        pa.field("kind", _TEXT, nullable=False),  # name, exec, fork, exit
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("parent_pid", pa.uint32()),  # of a fork; equal to pid for a new thread
        pa.field("parent_tid", pa.uint32()),
        pa.field("name", _TEXT),  # of kinds name and exec
    ]
)

# The recorded machine's kernel symbols that samples fell into; an address belongs to the last symbol not above it.
KERNEL_SYMBOLS = pa.schema(
    [
        pa.field("address", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),  # bytes up to the next symbol
        pa.field("name", pa.string(), nullable=False),
        pa.field("module", _TEXT),  # null: the kernel itself
    ]
)

# Spans of SPE's AUX bytes, one for each time the driver handed some over.
SPE_SPANS = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # when the span ended
        pa.field("cpu", pa.uint32(), nullable=False),
        pa.field("buffer", pa.uint32(), nullable=False),  # N of spe/cpuCPU.N.aux
        pa.field("pid", pa.uint32(), nullable=False),  # who ran when it ended; decides only where SPE followed a task
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("offset", pa.uint64(), nullable=False),  # bytes, in that file
        pa.field("size", pa.uint64(), nullable=False),  # bytes
        pa.field("flags", pa.uint64(), nullable=False),  # PERF_AUX_FLAG_*: 1 truncated, 4 partial, 8 collision
    ]
)

# Only beside SPE of whole CPUs: which thread ran on a CPU from a time on.
SWITCHES = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # 0: from the start of the recording on
        pa.field("cpu", pa.uint32(), nullable=False),
        pa.field("tid", pa.uint32()),  # null: not known, for instance because records of switches were lost
    ]
)

# Only of recordings with branch stacks: their entries that differ in nothing else, added up.
BRANCHES = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # up to which the process's mappings stayed as they were
        pa.field("event", pa.uint32(), nullable=False),  # whose samples had the stacks
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("from_address", pa.uint64()),  # run-time, of the branch itself; null: not recorded
        pa.field("to_address", pa.uint64()),
        pa.field("type", _TEXT),  # conditional, call, return, …; null: not told
        pa.field("in_transaction", pa.bool_(), nullable=False),
        pa.field("aborted", pa.bool_(), nullable=False),  # the branch is a transaction's abort
        pa.field("speculation", _TEXT),  # wrong path, correct path, not speculative; null: not told
        pa.field("privilege", _TEXT),  # user, kernel, hypervisor: of the target; null: not told
        pa.field("count", pa.uint64(), nullable=False),  # entries
        pa.field("stacks", pa.uint64(), nullable=False),  # samples whose stack has such an entry
        pa.field("mispredicted", pa.uint64(), nullable=False),  # entries told to be so
        pa.field("predicted", pa.uint64(), nullable=False),  # likewise; of the rest the hardware does not tell
        pa.field("cycles", pa.uint64(), nullable=False),  # since the entry before, summed over `with_cycles` entries
        pa.field("with_cycles", pa.uint64(), nullable=False),
        pa.field("cycles_at_limit", pa.uint64(), nullable=False),  # of these, with 65,535: it was that many or more
    ]
)

# Only of recordings with control groups.
CGROUPS = pa.schema(
    [
        pa.field("cgroup", pa.uint64(), nullable=False),  # the kernel's id
        pa.field("path", pa.string(), nullable=False),  # below the cgroup file system's root
    ]
)

# Only of recordings of time off a CPU: where that of each thread went. The four times add up to what lies between its
# begin and its end, or that of the recording.
THREAD_TIMES = pa.schema(
    [
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("thread_name", _TEXT, nullable=False),
        pa.field("begin_ns", pa.uint64(), nullable=False),
        pa.field("end_ns", pa.uint64(), nullable=False),
        pa.field("running_ns", pa.uint64(), nullable=False),  # on a CPU
        pa.field("runnable_ns", pa.uint64(), nullable=False),  # waiting for one
        pa.field("interruptible_ns", pa.uint64(), nullable=False),
        pa.field("uninterruptible_ns", pa.uint64(), nullable=False),
        pa.field("unsampled_ns", pa.uint64(), nullable=False),  # of these the last wait, if the end did not see its own
        pa.field("waits", pa.uint64(), nullable=False),  # times that it left its CPU
    ]
)

# Only of recordings with wakers: who woke threads whose sleep has a sample.
WAKERS = pa.schema(
    [
        pa.field("waker", pa.uint64(), nullable=False),  # an opaque identity
        pa.field("pid", pa.uint32(), nullable=False),  # 0: no thread that the recorder's pid namespace sees
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("thread_name", _TEXT, nullable=False),  # in an interrupt that of whom it interrupted
        pa.field("user_stack", pa.uint64()),  # `stack` of stacks.parquet; null: none was taken, as of other processes
        pa.field("kernel_stack", pa.uint64()),  # from what called the scheduler on
    ]
)

# Only of recordings with namespaces: those of each thread from a time on.
NAMESPACES = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),  # 0: it was so before the recording
        pa.field("pid", pa.uint32(), nullable=False),
        pa.field("tid", pa.uint32(), nullable=False),
        pa.field("namespace", _TEXT, nullable=False),  # as below /proc/PID/ns: mnt, pid, net, …
        pa.field("device", pa.uint64(), nullable=False),
        pa.field("inode", pa.uint64(), nullable=False),
        pa.field("is_recorders", pa.bool_()),  # the recording program's own; null: that one is not known
    ]
)

# Only in captures that carry symbols: what was found for each place in a mapped file that a stack goes through.
SYMBOLS = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),  # of the file, as in mappings
        pa.field("build_id", pa.string(), nullable=False),  # empty where unknown
        pa.field("kind", pa.string(), nullable=False),  # elf, vdso, …
        pa.field("pid", pa.uint32(), nullable=False),  # of a file that belongs to one process; else 0
        pa.field("file_offset", pa.uint64(), nullable=False),  # bytes; a return address is one less than sampled
        pa.field("reason", pa.uint8(), nullable=False),  # 0, or why there are no frames: `Unknown` in tdprof.model
        pa.field(  # innermost first
            "frames",
            pa.list_(
                pa.struct(
                    [
                        pa.field("function", pa.string(), nullable=False),  # linkage name
                        pa.field("file", pa.string()),  # source file
                        pa.field("line", pa.uint32(), nullable=False),  # 0 where unknown
                    ]
                )
            ),
            nullable=False,
        ),
    ]
)

# In what the file_offset is; null: not known, or there is a name. Older captures have none of them, or only the first.
SYMBOL_EXTENT = (
    pa.field("begin", pa.uint64()),  # where the function begins that has no name
    pa.field("end", pa.uint64()),  # where what begins there ends, if it is all between the functions that are known
)

# Of each frame the file that its function stands in ("": unknown), of which its line may be none; null: the lines'.
SYMBOL_OWN_FILES = pa.field("own_files", pa.list_(pa.string()))

TABLES = {
    "samples": SAMPLES,
    "stacks": STACKS,
    "mappings": MAPPINGS,
    "processes": PROCESSES,
    "kernel_symbols": KERNEL_SYMBOLS,
    "spe_spans": SPE_SPANS,
}
OPTIONAL_TABLES = {
    "switches": SWITCHES,
    "symbols": SYMBOLS,
    "interpreted": SYMBOLS,
    "branches": BRANCHES,
    "cgroups": CGROUPS,
    "thread_times": THREAD_TIMES,
    "wakers": WAKERS,
    "namespaces": NAMESPACES,
}
# Columns that not every capture has, of tables that it has.
OPTIONAL_COLUMNS = {
    "samples": (SAMPLE_CGROUP, SAMPLE_CPU, SAMPLE_STATE, SAMPLE_WAKER, SAMPLE_MAPPED),
    "stacks": STACK_WALK,
    "symbols": (*SYMBOL_EXTENT, SYMBOL_OWN_FILES),
}


def table_file(name: str) -> str:
    """File name of a table within the capture's folder."""
    return f"{name}.parquet"
