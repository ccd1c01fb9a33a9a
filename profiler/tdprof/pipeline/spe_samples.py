"""A capture's SPE records as samples of a profile, for exporters."""

import numpy as np
import pyarrow as pa

from tdprof.decode.spe.samples import LATENCIES
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import NO_ID, SampleTable, StackTable
from tdprof.model.spe import RECORDS, SampledOperations
from tdprof.pipeline.load import make_profile, name_addresses, name_threads
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_lines import within_memory


@within_memory()
def load_operations(capture: OpenCapture) -> SampledOperations | None:
    """A capture's SPE records, alike ones added up; None if it has none.

    Args:
        capture: opened with ``most_spe_samples``; details of the latencies are given up for it.

    Raises:
        TdprofError: its records cannot be read.
    """
    if not capture.has_spe:
        return None
    capture.progress("adding up SPE records")
    added = capture.spe_lines.samples
    assert added is not None
    table = added.table
    if not len(table):
        return None
    threads, time_ns = capture.stages.split(table["tid"].to_numpy())
    pids = capture.owners.pids(threads, time_ns)
    tids = np.minimum(threads, NO_ID).astype(np.uint32)
    code, location = name_addresses(capture, table["pc"].to_numpy(), pids, time_ns)
    nobody_said = pa.nulls(len(table), pa.dictionary(pa.int32(), pa.string()))
    thread_name, thread_names = name_threads(nobody_said, tids, time_ns, capture.spaces)
    records = table["records"].to_numpy().astype(np.uint64)
    locations = len(code.locations.address)
    return SampledOperations(
        make_profile(
            capture,
            [EventInfo(RECORDS, Unit.COUNT)],
            code,
            StackTable(np.arange(locations + 1, dtype=np.uint32), np.arange(locations, dtype=np.int32)),
            SampleTable(
                time_ns=time_ns,
                event=np.zeros(len(table), np.uint32),
                pid=pids,
                tid=tids,
                thread_name=thread_name,
                stack=location,
                count=records,
                weight=records,
                cgroup=np.full(len(table), -1, np.int32),
                state=np.zeros(len(table), np.uint8),
                cpu=np.full(len(table), -1, np.int32),
                waker=np.full(len(table), -1, np.int32),
            ),
            thread_names,
        ),
        latency_cycles=table["latency_cycles"].to_numpy(),
        latencies={name: table[name].to_numpy() for name in LATENCIES},
        words={name: table[name].to_pylist() for name in ("data_src", "snoop_status")},
        detail=added.detail.text,
    )
