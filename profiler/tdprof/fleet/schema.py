"""The roll-ups of a store: kinds, columns and units. docs/fleet.md explains them, with queries, to users.

Every number is an integer, so that sums do not depend on their order. Date, core kind and host are not columns but
stand in a file's path, as Hive's partitions do.
"""

import pyarrow as pa

# Raised whenever an older reader would misread a newer roll-up; added columns do not raise it.
ROLLUP_VERSION = 1

# A row for each event of a recording.
RECORDINGS = pa.schema(
    [
        pa.field("recording", pa.string(), nullable=False),  # identity, the same in all kinds
        pa.field("event", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),  # of the event's weights
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),  # events that the samples stand for
        pa.field("counted", pa.int64()),  # exactly, by the counters, scaled to the whole time; null: not known
        pa.field("effective_samples", pa.int64(), nullable=False),  # as many equal ones would tell as much (Kish)
        pa.field("known_samples", pa.int64(), nullable=False),  # taken in a function with a name
        pa.field("lost_samples", pa.int64(), nullable=False),  # over all events of the recording
        pa.field("start_ns", pa.int64(), nullable=False),  # since the epoch
        pa.field("duration_ns", pa.int64(), nullable=False),
        pa.field("cpus", pa.int64(), nullable=False),
        pa.field("machine", pa.string(), nullable=False),
        pa.field("cpu_model", pa.string(), nullable=False),
        pa.field("kernel", pa.string(), nullable=False),
        pa.field("boot_id", pa.string(), nullable=False),
        pa.field("catalog", pa.string(), nullable=False),  # of a recording for metrics; else empty
        pa.field("builds", pa.list_(pa.string()), nullable=False),  # build-ids of all code with samples
        pa.field("labels", pa.list_(pa.string()), nullable=False),  # NAME=VALUE, as given when it was added
        pa.field("lacks_spe", pa.bool_(), nullable=False),  # it has SPE data which could not be read
    ]
)

# A row for each function and event of a recording.
FUNCTIONS = pa.schema(
    [
        pa.field("recording", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("id", pa.int32(), nullable=False),  # of the function, within the recording
        pa.field("module", pa.string(), nullable=False),  # path of its file; empty where unknown
        pa.field("build_id", pa.string(), nullable=False),
        pa.field("function", pa.string(), nullable=False),  # shown name; in brackets why it has none
        pa.field("linkage_name", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),  # source file; empty where unknown
        pa.field("is_kernel", pa.bool_(), nullable=False),
        pa.field("is_ambiguous", pa.bool_(), nullable=False),  # the module has more of that name, in other files
        pa.field("self_samples", pa.int64(), nullable=False),
        pa.field("self_weight", pa.int64(), nullable=False),
        # Anywhere in the stack, once: of several of one name, whose modules and source files are called alike, the
        # innermost has it.
        pa.field("total_samples", pa.int64(), nullable=False),
        pa.field("total_weight", pa.int64(), nullable=False),
    ]
)

# A row for each call path and event of a recording.
PATHS = pa.schema(
    [
        pa.field("recording", pa.string(), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("frames", pa.list_(pa.int32()), nullable=False),  # ids of functions, leaf first
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),
    ]
)

KINDS = {"recordings": RECORDINGS, "functions": FUNCTIONS, "paths": PATHS}

# A row for each function and latency of a recording that has SPE records; recordings without have no such file.
SPE_LATENCY = pa.schema(
    [
        pa.field("recording", pa.string(), nullable=False),
        pa.field("module", pa.string(), nullable=False),  # this and what follows up to the latency as in FUNCTIONS
        pa.field("build_id", pa.string(), nullable=False),
        pa.field("function", pa.string(), nullable=False),
        pa.field("linkage_name", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("is_kernel", pa.bool_(), nullable=False),
        pa.field("is_ambiguous", pa.bool_(), nullable=False),
        pa.field("latency", pa.string(), nullable=False),  # total_latency, issue_latency or translation_latency
        pa.field("cycles", pa.int32(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),  # that had it
        pa.field("period", pa.int64(), nullable=False),  # operations between two samples, as asked for
        pa.field("duration_ns", pa.int64(), nullable=False),  # for which SPE was on
    ]
)

# Kinds that a recording may have besides.
OPTIONAL = {"spe_latency": SPE_LATENCY}
ALL_KINDS = {**KINDS, **OPTIONAL}

# Sums over all recordings of some days, from which reports are made where they are to be had; made by `fleet compact`.
# A row for each event of a group: the recordings of one host that conditions cannot tell apart.
HOST_SUMS = pa.schema(
    [
        pa.field("group", pa.int32(), nullable=False),
        pa.field("core", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("kernel", pa.string(), nullable=False),
        pa.field("catalog", pa.string(), nullable=False),
        pa.field("labels", pa.list_(pa.string()), nullable=False),
        pa.field("event", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("recordings", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),  # recordings of which it is the first event
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("weight", pa.int64(), nullable=False),
        pa.field("counted", pa.int64(), nullable=False),  # by the counters where they tell, else the weight
        pa.field("duration_ns", pa.int64(), nullable=False),
        pa.field("squares", pa.decimal128(38), nullable=False),  # weight squared / effective samples of each recording
        pa.field("lost_samples", pa.int64(), nullable=False),  # of recordings of which it is the first event
    ]
)

# The functions that sums name by their row, in the order of their columns.
FUNCTION_NAMES = pa.schema(
    [
        pa.field("module", pa.string(), nullable=False),  # base name
        pa.field("function", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("is_kernel", pa.bool_(), nullable=False),
        pa.field("is_ambiguous", pa.bool_(), nullable=False),
    ]
)

# A row for each event, function and group, in that order; events are known by their rows in the file's metadata.
FUNCTION_SUMS = pa.schema(
    [
        pa.field("function", pa.int32(), nullable=False),
        pa.field("group", pa.int32(), nullable=False),
        pa.field("self_weight", pa.int64(), nullable=False),
        pa.field("total_weight", pa.int64(), nullable=False),
        pa.field("self_samples", pa.int64(), nullable=False),
        pa.field("total_samples", pa.int64(), nullable=False),
    ]
)

SUMS = {"names": FUNCTION_NAMES, "functions": FUNCTION_SUMS, "hosts": HOST_SUMS}

# Function names in brackets are no functions; this one stands for all that a recording has too many of.
OTHERS = "[others]"
