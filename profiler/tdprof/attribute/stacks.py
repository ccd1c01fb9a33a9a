"""Raw call chains into stacks of locations: each address becomes a mapped file and an offset in it."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.attribute.address_space import AddressSpaces
from tdprof.model import I32, I64, U32, U64, FileKind, MappedFile

KERNEL = MappedFile("[kernel]", kind=FileKind.KERNEL)
# Paths that the kernel gives to memory that has no file behind it.
_ANY_TIME = 2**63 - 1
_NOT_FILES = ("//", "/memfd:", "/dev/zero", "/SYSV", "/anon_hugepage", "/[aio]")


@dataclass(frozen=True, slots=True)
class AttributedStacks:
    """Distinct stacks, and where each address lies.

    Attributes:
        mapped_files: distinct files.
        ranges: for each of them one mapping: (address, length, file offset).
        location_file: int32[m], index into ``mapped_files``, -1: nothing was mapped there.
        location_address: uint64[m], file offset; the run-time address for kernel, anonymous and unmapped code.
            Return addresses are one less than sampled, so that they fall into the call.
        stack_start: uint32[k + 1], locations of stack i are ``stack_location[stack_start[i]:stack_start[i + 1]]``.
        stack_location: int32, leaf first, kernel part before user part.
        sample_stack: int32[n], the stack of each sample.
        is_cut: bool[n], samples whose user call chain left every mapping, as a walk along frame pointers does in code
            built without them; what follows is no caller, and left out.
    """

    mapped_files: list[MappedFile]
    ranges: list[tuple[int, int, int]]
    location_file: I32
    location_address: U64
    stack_start: U32
    stack_location: I32
    sample_stack: I32
    is_cut: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Chains:
    """Ragged addresses of the capture's stack table, sorted by identity."""

    identity: U64
    start: I64
    address: U64

    def rows_of(self, identities: U64) -> I64:
        """Row of each identity; -1 for one that is not in the table (the writer lost it)."""
        if not len(self.identity):
            return np.full(len(identities), -1, np.int64)
        at = np.minimum(np.searchsorted(self.identity, identities), len(self.identity) - 1)
        return np.where(self.identity[at] == identities, at, -1)


def _chains(stacks: pa.Table) -> _Chains:
    lists = stacks["addresses"].combine_chunks()
    identity = stacks["stack"].to_numpy()
    order = np.argsort(identity, kind="stable")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    start, address = gather(offsets, lists.values.to_numpy(), order)
    return _Chains(identity[order], start, address)


def gather(start: I64, values: NDArray[np.generic], rows: I64) -> tuple[I64, NDArray]:  # type: ignore[type-arg]
    """Rows of a ragged array (row i is ``values[start[i]:start[i + 1]]``) as a new one; row -1 is empty."""
    if len(start) < 2:
        return np.zeros(len(rows) + 1, np.int64), values[:0]
    safe = np.maximum(rows, 0)
    begin, length = start[safe], start[safe + 1] - start[safe]
    length = np.where(rows < 0, 0, length)
    out = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    return out, values[np.repeat(begin - out[:-1], length) + np.arange(out[-1])]


def attribute_stacks(
    samples: pa.Table, stacks: pa.Table, mappings: pa.Table, spaces: AddressSpaces
) -> AttributedStacks:
    """Attribute every sample's call chain.

    Args:
        samples, stacks, mappings: the capture's tables.
        spaces: made of its mappings and processes.
    """
    files = _Files(mappings)
    user_of, user_start, user_file, user_address, is_cut = _user_chains(samples, stacks, spaces, files)
    kernel_of, kernel_start, kernel_address = _kernel_chains(samples, stacks)

    both = np.concatenate([kernel_of[:, None], user_of[:, None]], axis=1)
    pairs, sample_stack = np.unique(both, axis=0, return_inverse=True)
    file = np.concatenate([np.full(len(kernel_address), files.kernel, np.int32), user_file])
    address = np.concatenate([kernel_address, user_address])
    location, first = _distinct(file, address)
    # Kernel part first: the leaf of a sample taken in the kernel is there.
    shift = len(kernel_address)
    start = np.concatenate([kernel_start, user_start[1:] + shift]).astype(np.int64)
    user_rows = np.where(pairs[:, 1] < 0, -1, pairs[:, 1] + len(kernel_start) - 1)
    interleaved = np.stack([pairs[:, 0], user_rows], axis=1).reshape(-1)
    stack_start, stack_location = gather(start, location, interleaved)
    used = np.unique(file[first][file[first] >= 0])
    renumber = np.full(len(files.distinct) + 1, -1, np.int32)
    renumber[used] = np.arange(len(used))
    return AttributedStacks(
        [files.distinct[index] for index in used.tolist()],
        [files.ranges[index] for index in used.tolist()],
        renumber[file[first]],
        address[first],
        stack_start[::2].astype(np.uint32),
        stack_location.astype(np.int32),
        sample_stack.reshape(-1).astype(np.int32),
        is_cut,
    )


def _distinct(file: I32, address: U64) -> tuple[I64, I64]:
    """Location number of each (file, address), and for each number one place where it stands."""
    if not len(file):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = np.lexsort((address, file))
    changed = np.ones(len(order), bool)
    changed[1:] = (file[order][1:] != file[order][:-1]) | (address[order][1:] != address[order][:-1])
    location = np.empty(len(order), np.int64)
    location[order] = np.cumsum(changed) - 1
    return location, order[changed]


class _Files:
    """Distinct mapped files, numbered; the last number is the kernel."""

    def __init__(self, mappings: pa.Table) -> None:
        self._start = mappings["address"].to_numpy()
        self._offset = mappings["file_offset"].to_numpy()
        self._length = mappings["length"].to_numpy()
        self.distinct: list[MappedFile] = []
        self.ranges: list[tuple[int, int, int]] = []
        numbers: dict[MappedFile, int] = {}
        of_row = []
        columns = (
            mappings[name].to_pylist() for name in ("path", "build_id", "pid", "address", "length", "file_offset")
        )
        for path, build_id, pid, address, length, offset in zip(*columns, strict=True):
            file = _mapped_file(path, build_id or "", pid)
            if file not in numbers:
                numbers[file] = len(self.distinct)
                self.distinct.append(file)
                self.ranges.append((address, length, offset))
            of_row.append(numbers[file])
        self.kernel = len(self.distinct)
        self.distinct.append(KERNEL)
        self.ranges.append((0, 0, 0))
        self._of_row = np.array(of_row, np.int32)
        self._is_anonymous = np.array([file.kind is FileKind.ANONYMOUS for file in self.distinct])

    def place(self, rows: I64, addresses: U64) -> tuple[I32, U64]:
        """File number and address within it, of addresses in mappings (-1: in none)."""
        file = np.full(len(rows), -1, np.int32)
        place = addresses.copy()
        known = np.flatnonzero(rows >= 0)
        at = rows[known]
        file[known] = self._of_row[at]
        in_file = known[~self._is_anonymous[file[known]]]
        at = rows[in_file]
        place[in_file] = addresses[in_file] - self._start[at] + self._offset[at]
        return file, place


def _mapped_file(path: str, build_id: str, pid: int) -> MappedFile:
    if path.startswith("/") and not path.startswith(_NOT_FILES):
        return MappedFile(path, build_id)
    if path == "[vdso]":
        return MappedFile(path, build_id, FileKind.VDSO)
    return MappedFile("[anon]" if path.startswith("//") or not path else path, "", FileKind.ANONYMOUS, pid)


def _user_chains(
    samples: pa.Table, stacks: pa.Table, spaces: AddressSpaces, files: _Files
) -> tuple[I64, I64, I32, U64, NDArray[np.bool_]]:
    """Distinct user chains by address space: (of each sample, ragged start, file, address in it, whether cut)."""
    chains = _chains(stacks.filter(pa.compute.invert(stacks["is_kernel"])))
    identity = samples["user_stack"].fill_null(0).to_numpy()
    time_ns = samples["time_ns"].to_numpy()
    names = samples["thread_name"]
    aggregated = None if names.null_count else np.array(names.to_pylist(), object)
    space = spaces.space_of_samples(samples["pid"].to_numpy(), time_ns, aggregated)
    distinct, which = np.unique(space, return_inverse=True)
    depends = np.array([spaces.is_time_dependent(number) for number in distinct.tolist()], bool)[which]
    # Where time does not matter every mapping counts, so that one look-up serves all samples of a stack.
    when = np.where(depends, time_ns, np.uint64(_ANY_TIME))
    rows = chains.rows_of(identity)
    order = np.lexsort((when, rows, space))
    keys = np.stack([space.astype(np.int64), rows, when.astype(np.int64)])[:, order]
    changed = np.ones(len(order), bool)
    changed[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    of_sample = np.empty(len(order), np.int64)
    of_sample[order] = np.cumsum(changed) - 1
    first = order[changed]
    start, address = gather(chains.start, chains.address, rows[first])
    of_chain = np.repeat(np.arange(len(first)), np.diff(start))
    address = _into_calls(start, address)
    mapping = np.full(len(address), -1, np.int64)
    space_of_address = space[first][of_chain]
    for number in np.unique(space_of_address):
        if number >= 0:
            mine = np.flatnonzero(space_of_address == number)
            mapping[mine] = spaces.find(int(number), address[mine], when[first][of_chain[mine]])
    file, place = files.place(mapping, address)
    kept, chain_is_cut = _inside(start, mapping)
    lengths = np.add.reduceat(np.append(kept, False), start[:-1]) if len(start) > 1 else np.zeros(0, np.int64)
    lengths[np.diff(start) == 0] = 0
    of_sample[rows < 0] = -1
    is_cut = (of_sample >= 0) & np.append(chain_is_cut, False)[of_sample]
    return of_sample, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), file[kept], place[kept], is_cut


def _inside(start: I64, mapping: I64) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which addresses of ragged chains stand before the first caller outside any mapping, and which chains have one."""
    chain = np.repeat(np.arange(len(start) - 1), np.diff(start))
    position = np.arange(len(mapping)) - start[chain]
    outside = (mapping < 0) & (position > 0)
    first = np.full(len(start) - 1, len(mapping), np.int64)
    np.minimum.at(first, chain[outside], position[outside])
    return position < first[chain], first < len(mapping)


def _kernel_chains(samples: pa.Table, stacks: pa.Table) -> tuple[I64, I64, U64]:
    chains = _chains(stacks.filter(stacks["is_kernel"]))
    rows = chains.rows_of(samples["kernel_stack"].fill_null(0).to_numpy())
    return rows, chains.start, _into_calls(chains.start, chains.address)


def _into_calls(start: I64, address: U64) -> U64:
    """Return addresses moved into the call before them; the leaf of each chain is where the sample was taken.

    The leaf of a user chain below a kernel part is exact, too: it is where the processor left user space.
    """
    is_leaf = np.zeros(len(address) + 1, bool)
    is_leaf[start[:-1]] = True
    return address - (~is_leaf[:-1]).astype(np.uint64)
