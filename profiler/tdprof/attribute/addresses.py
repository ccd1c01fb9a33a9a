"""Single addresses as samples, for what is recorded without call stacks."""

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.capture.schema import SAMPLES, STACKS
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import I64, U32, U64
from tdprof.profile.frames import group_of_row, group_rows


def address_tables(addresses: U64, pids: U32, time_ns: U64) -> tuple[pa.Table, pa.Table]:
    """A capture's tables of samples and stacks in which each address is a sample of its own, whose stack it is.

    Args:
        addresses: uint64[n], run-time; the upper half are the kernel's.
        pids: uint32[n], whose they are.
        time_ns: uint64[n], when; decides between mappings that were made one after the other.
    """
    is_kernel = addresses >= KERNEL_ADDRESS
    numbers = np.arange(1, len(addresses) + 1, dtype=np.uint64)
    zeros = pa.array(np.zeros(len(numbers), np.uint32))
    columns = {
        "time_ns": pa.array(time_ns),
        "pid": pa.array(pids),
        "user_stack": pa.array(numbers, mask=is_kernel),
        "kernel_stack": pa.array(numbers, mask=~is_kernel),
        "thread_name": pa.nulls(len(numbers), SAMPLES.field("thread_name").type),
    }
    samples = pa.table({name: columns.get(name, zeros) for name in SAMPLES.names}).cast(SAMPLES)
    starts = pa.array(np.arange(len(numbers) + 1, dtype=np.int32))
    chains = pa.ListArray.from_arrays(starts, pa.array(addresses))
    return samples, pa.table([pa.array(numbers), pa.array(is_kernel), chains], names=STACKS.names)


def branch_ends(branches: pa.Table) -> tuple[I64, pa.Table, pa.Table]:
    """The ends of a capture's branches as samples and stacks.

    Returns:
        int64[2n], the sample of all sources, and then of all targets; -1 where it was not recorded.
        samples, stacks: tables, a sample for each end that differs from the others.
    """
    addresses = np.concatenate([branches[name].fill_null(0).to_numpy() for name in ("from_address", "to_address")])
    known = np.flatnonzero(addresses)
    keys = [np.tile(branches[name].to_numpy(), 2)[known] for name in ("pid", "time_ns")]
    order, start = group_rows(*keys, addresses[known])
    end = np.full(len(addresses), -1, np.int64)
    end[known] = group_of_row(order, start)
    first = known[order[start]]
    pid, time_ns = (np.tile(branches[name].to_numpy(), 2)[first] for name in ("pid", "time_ns"))
    return end, *address_tables(addresses[first], pid, time_ns)
