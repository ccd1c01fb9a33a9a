"""A capture's SPE records as samples of a profile, for exporters."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from tdprof.attribute.threads import ThreadOwners
from tdprof.capture.manifest import read_manifest
from tdprof.capture.schema import SAMPLES, STACKS
from tdprof.capture.tables import read_side_table
from tdprof.decode.spe.capture import open_capture
from tdprof.decode.spe.samples import LATENCIES, add_up_samples
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import NO_ID
from tdprof.model.spe import RECORDS, SampledOperations
from tdprof.pipeline.load import load_other_samples
from tdprof.pipeline.symbols import DEFAULT_SYMBOLS, SymbolOptions

# `go tool pprof` needs about a kilobyte for each label of each sample.
MOST_ROWS = 50_000
_ANY_TIME = 2**63 - 1  # records are added up over time; what was ever mapped counts


def load_operations(
    folder: Path,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    progress: Callable[[str], None] = lambda _: None,
    *,
    most_rows: int = MOST_ROWS,
) -> SampledOperations | None:
    """A capture's SPE records, alike ones added up; None if it has none.

    Args:
        folder: the capture.
        symbols: where symbols come from.
        progress: told in a few words what is being waited for.
        most_rows: rows of the result; details of the latencies are given up for it.

    Raises:
        TdprofError: its records cannot be read.
    """
    manifest = read_manifest(folder)
    if manifest.spe is None:
        return None
    progress("adding up SPE records")
    with open_capture(folder, manifest) as source:
        added = add_up_samples(source, most_rows=most_rows, progress=progress)
    table = added.table
    if not len(table):
        return None
    owners = ThreadOwners(*(read_side_table(folder, name)[0] for name in ("mappings", "processes")))
    tids, addresses = table["tid"].to_numpy(), table["pc"].to_numpy()
    distinct, stack = np.unique(addresses, return_inverse=True)
    stack = stack.reshape(-1).astype(np.uint64)
    is_kernel = addresses >= KERNEL_ADDRESS
    records = table["records"]
    columns = {
        "time_ns": pa.array(np.full(len(table), _ANY_TIME, np.uint64)),
        "event": pa.array(np.zeros(len(table), np.uint32)),
        "pid": pa.array(owners.pids(tids)),
        "tid": pa.array(np.minimum(tids, NO_ID).astype(np.uint32)),
        "thread_name": pa.nulls(len(table), SAMPLES.field("thread_name").type),
        "user_stack": pa.array(stack, mask=is_kernel),
        "kernel_stack": pa.array(stack, mask=~is_kernel),
        "count": records,
        "weight": records,
    }
    chains = pa.ListArray.from_arrays(pa.array(np.arange(len(distinct) + 1, dtype=np.int32)), pa.array(distinct))
    stacks = [pa.array(np.arange(len(distinct), dtype=np.uint64)), pa.array(distinct >= KERNEL_ADDRESS), chains]
    profile = load_other_samples(
        folder,
        [EventInfo(RECORDS, Unit.COUNT)],
        pa.table({name: columns[name] for name in SAMPLES.names}).cast(SAMPLES),
        pa.table(stacks, names=STACKS.names),
        symbols,
        progress,
    )
    return SampledOperations(
        profile,
        latency_cycles=table["latency_cycles"].to_numpy(),
        latencies={name: table[name].to_numpy() for name in LATENCIES},
        words={name: table[name].to_pylist() for name in ("data_src", "snoop_status")},
        detail=added.detail.text,
    )
