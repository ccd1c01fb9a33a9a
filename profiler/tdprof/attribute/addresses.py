"""Single addresses as samples, for what is recorded without call stacks."""

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import SAMPLES, STACKS
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import U32, U64


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
