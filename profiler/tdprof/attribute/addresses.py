"""Where single run-time addresses lie: of what is recorded without call stacks."""

import numpy as np
import pyarrow as pa

from tdprof.attribute.address_space import ANY_TIME, AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import I32, I64, U32, U64, group_of_row, group_rows


def attribute_addresses(
    addresses: U64, pids: U32, time_ns: U64, files: CodeFiles, spaces: AddressSpaces
) -> tuple[I32, U64]:
    """The file that each address lies in, and where in it.

    Args:
        addresses: uint64[n], run-time; the upper half are the kernel's.
        pids: uint32[n], whose they are.
        time_ns: uint64[n], when; decides between mappings that were made one after the other.
        files, spaces: of the recording's mappings.

    Returns:
        file: int32[n], number of the file, -1: nothing was mapped there.
        offset: uint64[n], file offset; the run-time address for kernel, anonymous and unmapped code.
    """
    is_kernel = addresses >= KERNEL_ADDRESS
    space = spaces.space_of_samples(pids, time_ns, None)
    space[is_kernel] = -1
    when = np.where(spaces.are_time_dependent(space), time_ns, np.uint64(ANY_TIME))
    file, offset = files.place(spaces.find(space, addresses, when), addresses)
    file[is_kernel] = files.kernel
    return file, offset


BRANCH_ENDS = ("pid", "time_ns", "from_address", "to_address")
"""What `branch_ends` reads of the table."""


def branch_ends(branches: pa.Table) -> tuple[I64, U64, U32, U64]:
    """The addresses that a capture's branches came from and went to.

    Returns:
        int64[2n], the end of all sources, and then of all targets; -1 where it was not recorded.
        addresses, pids, time_ns: uint64[m], uint32[m], uint64[m], of each end that differs from the others.
    """
    addresses = np.concatenate([branches[name].fill_null(0).to_numpy() for name in ("from_address", "to_address")])
    known = np.flatnonzero(addresses)
    keys = [np.tile(branches[name].to_numpy(), 2)[known] for name in ("pid", "time_ns")]
    order, start = group_rows(*keys, addresses[known])
    end = np.full(len(addresses), -1, np.int64)
    end[known] = group_of_row(order, start)
    first = known[order[start]]
    pid, time_ns = (np.tile(branches[name].to_numpy(), 2)[first] for name in ("pid", "time_ns"))
    return end, addresses[first], pid, time_ns
