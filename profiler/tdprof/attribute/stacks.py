"""Raw call chains into stacks of locations: each address becomes a mapped file and an offset in it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.attribute.address_space import ANY_TIME, AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.attribute.places import Places, cut_chains, gather_numbered, number_places, with_single_places
from tdprof.model.addresses import MappedFile
from tdprof.model.arrays import I32, I64, U8, U32, U64
from tdprof.model.stack_ends import StackEnd
from tdprof.profile.frames import number_pairs, number_values
from tdprof.values import dataclass

# The outermost frame was reached; or how the kernel walks, which does not tell.
_WHOLE = (StackEnd.COMPLETE, StackEnd.FRAME_POINTERS_ONLY)
_LONGEST_NS = np.uint64(1_000_000_000)  # intervals that a recording has no samples of are not known
_NOT_TOLD = 2**64 - 1
_KERNEL_CONTEXT = 2**32 - 1  # of kernel addresses, which mean the same everywhere
_PLACES_EACH, _SPARE_PLACES = 8, 2 << 20
_NO_GUESS = 1 << 32


@dataclass(frozen=True, slots=True)
class AttributedStacks:
    """Distinct stacks, and where each address lies.

    Attributes:
        mapped_files: distinct files.
        ranges: for each of them one mapping: (address, length, file offset).
        location_file: int32[m], index into ``mapped_files``, -1: nothing was mapped there, -2 - k: no address, but
            ``markers[k]``.
        location_address: uint64[m], file offset; the run-time address for kernel, anonymous and unmapped code.
            Return addresses are one less than sampled, so that they fall into the call.
        stack_start: uint32[k + 1], locations of stack i are ``stack_location[stack_start[i]:stack_start[i + 1]]``.
        stack_location: int32, leaf first, kernel part before user part.
        is_guess: bool, those of ``stack_location`` that are callers found by a guess.
        sample_stack: int32[n], the stack of each sample.
        is_cut: bool[n], samples whose user call chain left every mapping, as a walk along frame pointers does in code
            built without them; what follows is no caller, and left out.
        sample_end: uint8[n], why each user call chain ended: a ``StackEnd``; 0: there is none, or it is not known.
        is_guessed: bool[n], samples some of whose callers were guessed.
        markers: texts that stand for what is missing, as the outermost frame of incomplete stacks.
        left_out: samples that have no stack here, or only its kernel part, since all together are too many.
    """

    mapped_files: list[MappedFile]
    ranges: list[tuple[int, int, int]]
    location_file: I32
    location_address: U64
    stack_start: U32
    stack_location: I32
    is_guess: NDArray[np.bool_]
    sample_stack: I32
    is_cut: NDArray[np.bool_]
    sample_end: U8
    is_guessed: NDArray[np.bool_]
    markers: list[str]
    left_out: int = 0


class CodeInTime(Protocol):
    """Run-time code of a process, of which some took other code's place."""

    def places_of(self, addresses: U64, since_ns: U64, until_ns: U64) -> U64:
        """Where its symbols are looked up of what was sampled within each interval."""


_NEVER_REPLACED: Mapping[int, CodeInTime] = MappingProxyType({})


def attribute_stacks(
    samples: pa.Table,
    stacks: pa.Table,
    files: CodeFiles,
    spaces: AddressSpaces,
    replaced: Mapping[int, CodeInTime] = _NEVER_REPLACED,
) -> AttributedStacks:
    """Attribute every sample's call chain.

    Args:
        samples, stacks: the capture's tables.
        files, spaces: made of its mappings and processes.
        replaced: of processes that replaced run-time code, what stood where.
    """
    lists = _in_one(stacks["addresses"])
    kernel_of, kernel_rows = _chains_of(samples["kernel_stack"], stacks, is_kernel=True)
    chains = _chains_of(samples["user_stack"], stacks, is_kernel=False)
    contexts = _contexts(samples, _leaves(*chains, lists), spaces, replaced)
    user_of, user_rows, context = _by_context(chains, contexts)
    fitting = _fitting(np.diff(lists.offsets.to_numpy().astype(np.int64))[user_rows], len(lists.values))
    is_left_out = user_of >= fitting
    user_of, user_rows, context = np.where(is_left_out, -1, user_of), user_rows[:fitting], context[:fitting]
    places = number_places(
        lists.offsets.to_numpy(),
        lists.values.to_numpy(),
        np.concatenate([kernel_rows, user_rows]),
        np.concatenate([np.full(len(kernel_rows), _KERNEL_CONTEXT, np.uint32), context]),
    )
    file, address = _attribute(places, contexts, spaces, files)
    _tell_versions(places, contexts, spaces, files.owners(file), address, replaced)
    lengths, used = cut_chains(places, file < 0)
    location, first = _distinct(file, address, used)

    chain_rows, sample_stack = _pairs(kernel_of, user_of, len(kernel_rows))
    fitting = _fitting(np.append(lengths, 0)[chain_rows].sum(axis=1), len(samples) + len(lists.values))
    chain_rows[fitting:] = -1
    is_left_out |= sample_stack >= fitting
    ends = np.append(_ends(stacks)[user_rows], np.uint8(0))
    user_chain = np.where(chain_rows[:, 1] < 0, -1, chain_rows[:, 1] - len(kernel_rows))
    markers = [end for end in StackEnd if end not in _WHOLE and (ends == end).any()]
    stack_start, stack_location = _with_markers(places, lengths, location, chain_rows, ends[user_chain], markers)
    guessed_from = np.append(_guessed_from(stacks)[user_rows], _NO_GUESS)
    is_guess = _guesses(stack_start, np.append(lengths, 0)[chain_rows], guessed_from[user_chain])
    is_cut = np.append((lengths < np.diff(places.start))[len(kernel_rows) :], False)
    mapped_files, ranges, location_file = files.only(file[first])
    return AttributedStacks(
        mapped_files,
        ranges,
        np.concatenate([location_file, -2 - np.arange(len(markers), dtype=np.int32)]),
        np.concatenate([address[first], np.zeros(len(markers), np.uint64)]),
        stack_start,
        stack_location,
        is_guess,
        sample_stack,
        is_cut[user_of],
        ends[user_of],
        guessed_from[user_of] < _NO_GUESS,
        [end.marker for end in markers],
        int(samples["count"].to_numpy()[is_left_out].sum()),
    )


def _pairs(kernel_of: I64, user_of: I64, kernel_chains: int) -> tuple[I64, I32]:
    """The distinct stacks of some samples, each of a kernel's and a user's chain, and the stack of each sample.

    Args:
        kernel_of, user_of: int64[n], the chain of each sample among those of its kind, -1: none.
        kernel_chains: how many chains of the kernel there are; those of users are numbered behind them.

    Returns:
        int64[stacks, 2], the chains of each stack, -1: none, and int32[n]. The kernel's part comes first: the leaf of a
        sample taken in the kernel is there.
    """
    kernel, user, of_sample = number_pairs(kernel_of + 1, user_of + 1)
    chains = np.stack([kernel, user], axis=1) - 1
    chains[:, 1] += np.where(chains[:, 1] < 0, 0, kernel_chains)
    return chains, of_sample


def _with_markers(
    places: Places, lengths: I64, location: I32, chain_rows: I64, chain_ends: U8, markers: Sequence[StackEnd]
) -> tuple[U32, I32]:
    """Where each stack's locations begin, and the locations, the last of them the marker of why the stack ended there.

    Args:
        places, lengths, location: entries of chains, how many of each chain are taken, and the location of each.
        chain_rows: int64[stacks, 2]: the kernel's and the user's chain of each stack, -1 for none.
        chain_ends: uint8[stacks].
        markers: the ends that have one; as locations they come behind all others.
    """
    marker_rows = np.full(len(chain_rows), -1, np.int64)
    for number, end in enumerate(markers):
        marker_rows[chain_ends == end] = len(lengths) + number
    first_marker = int(location.max(initial=-1)) + 1
    return gather_numbered(
        with_single_places(places, len(markers)),
        np.concatenate([lengths, np.ones(len(markers), np.int64)]),
        np.concatenate([location, first_marker + np.arange(len(markers), dtype=np.int32)]),
        np.column_stack([chain_rows, marker_rows]),
    )


def _fitting(lengths: I64, size: int) -> int:
    """How many of some chains of these lengths are taken: a few times as many places as there are rows and frames.

    A chain stands again for each process and time that it was sampled in, and for each chain of the kernel before it.
    """
    return int(np.searchsorted(np.cumsum(lengths), _SPARE_PLACES + _PLACES_EACH * (len(lengths) + size), "right"))


def _ends(stacks: pa.Table) -> U8:
    """uint8[stacks]: a ``StackEnd``; 0 where the table does not tell, or tells what this version does not know."""
    if "end" not in stacks.column_names:
        return np.zeros(len(stacks), np.uint8)
    encoded = _in_one(stacks["end"].cast(pa.string())).dictionary_encode()
    known = {end.word: int(end) for end in StackEnd}
    numbers = np.array([*(known.get(word, 0) for word in encoded.dictionary.to_pylist()), 0], np.uint8)
    found: U8 = numbers[encoded.indices.fill_null(len(numbers) - 1).to_numpy()]
    return found


def _guessed_from(stacks: pa.Table) -> I64:
    """int64[stacks]: the first address that is a guess; ``_NO_GUESS`` where none is."""
    if "guessed_from" not in stacks.column_names:
        return np.full(len(stacks), _NO_GUESS)
    found: I64 = _in_one(stacks["guessed_from"].cast(pa.int64()).fill_null(_NO_GUESS)).to_numpy()
    return found


def _guesses(stack_start: U32, lengths: I64, guessed_from: I64) -> NDArray[np.bool_]:
    """Which locations of stacks are guesses.

    Args:
        stack_start: uint32[k + 1].
        lengths: int64[k, 2], of each stack's kernel part and user part.
        guessed_from: int64[k], in its user part.
    """
    user, end = stack_start[:-1] + lengths[:, 0], stack_start[:-1] + lengths.sum(axis=1)
    has_guess = guessed_from < lengths[:, 1]
    change = np.zeros(int(stack_start[-1]) + 1, np.int8)
    change[(user + guessed_from)[has_guess]] = 1
    change[end[has_guess]] -= 1
    return np.cumsum(change[:-1], dtype=np.int8) > 0


def _in_one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _chains_of(identity: pa.ChunkedArray, stacks: pa.Table, *, is_kernel: bool) -> tuple[I64, I64]:
    """The distinct chains of a column of the sample table: (number of each sample's, -1: none; row in ``stacks``)."""
    rows = np.flatnonzero(stacks["is_kernel"].to_numpy() == is_kernel)
    known = stacks["stack"].to_numpy()[rows]
    order = np.argsort(known, kind="stable")
    known = known[order]
    distinct, which = number_values(_in_one(identity.fill_null(0)).to_numpy())
    at = np.searchsorted(known, distinct)
    # The writer may have lost a stack.
    is_there = np.append(known, 0)[at] == distinct
    is_there &= at < len(known)
    number = np.where(is_there, np.cumsum(is_there) - 1, -1)
    return number.take(which), rows[order[at[is_there]]]


def _texts(names: pa.DictionaryArray) -> NDArray[np.object_]:
    """object[n]: the text of each row; rows of one text share it."""
    texts: NDArray[np.object_] = np.array(names.dictionary.to_pylist(), object)
    of_rows: NDArray[np.object_] = texts.take(names.indices.to_numpy())
    return of_rows


class _Contexts(NamedTuple):
    """Address spaces at a time, numbered.

    Attributes:
        of_sample: uint32[n].
        space: int32[contexts], -1 for a process nothing is known of.
        when: uint64[contexts], which mappings count; where time does not matter ``ANY_TIME``: every one.
        since, until: uint64[contexts], when the samples were taken, where run-time code was replaced.
    """

    of_sample: U32
    space: I32
    when: U64
    since: U64
    until: U64


def _leaves(chain: I64, rows: I64, lists: pa.ListArray) -> U64:
    """uint64[n]: the first address of each sample's chain, 0 of none."""
    offsets = lists.offsets.to_numpy()
    first, is_there = offsets[rows], offsets[rows + 1] > offsets[rows]
    leaf = np.zeros(len(rows) + 1, np.uint64)
    leaf[:-1][is_there] = lists.values.to_numpy()[first[is_there]]
    found: U64 = leaf[chain]
    return found


def _contexts(samples: pa.Table, leaves: U64, spaces: AddressSpaces, replaced: Mapping[int, CodeInTime]) -> _Contexts:
    time_ns = samples["time_ns"].to_numpy()
    names = samples["thread_name"]
    aggregated = None if names.null_count else _texts(_in_one(names))
    space, in_space = number_values(
        spaces.space_of_samples(samples["pid"].to_numpy(), time_ns, aggregated, leaves).astype(np.int64).view(np.uint64)
    )
    known = space.view(np.int64).astype(np.int32)
    depends, in_replaced = spaces.are_time_dependent(known), np.isin(spaces.processes(known), list(replaced))
    # Where time does not matter one look-up serves all samples of a stack.
    when, at = np.full(1, ANY_TIME, np.uint64), np.zeros(len(in_space), np.int32)
    if depends.any():
        mapped_at = time_ns
        if aggregated is not None:
            mapped_at = _times_in_intervals(spaces, space.view(np.int64), in_space, depends, time_ns)
            if "mapped_ns" in samples.column_names:
                mapped_ns = samples["mapped_ns"].fill_null(_NOT_TOLD).to_numpy()
                # What was there before an exec, or in the parent before a fork, is not meant.
                mapped_ns = np.maximum(mapped_ns, spaces.beginnings(space.view(np.int64)[in_space]))
                mapped_at = np.where(mapped_ns == _NOT_TOLD, mapped_at, mapped_ns)
        when, at = number_values(np.where(depends[in_space], mapped_at, np.uint64(ANY_TIME)))
    of_space, of_time, of_sample = np.arange(len(space)), np.zeros(len(space), np.int64), in_space
    if len(when) > 1:
        of_space, of_time, of_sample = number_pairs(in_space.astype(np.int64), at.astype(np.int64))
    until = np.full(len(of_space), ANY_TIME, np.uint64)
    if in_replaced.any():
        ends, ended = number_values(np.where(in_replaced[in_space], time_ns, np.uint64(ANY_TIME)))
        of_pair, of_end, of_sample = number_pairs(of_sample.astype(np.int64), ended.astype(np.int64))
        of_space, of_time, until = of_space[of_pair], of_time[of_pair], ends[of_end]
    since = until if aggregated is None else _interval_starts(number_values(time_ns)[0], until)
    return _Contexts(of_sample.astype(np.uint32), known[of_space], when[of_time], since, until)


def _times_in_intervals(
    spaces: AddressSpaces, space: I64, in_space: I32, depends: NDArray[np.bool_], time_ns: U64
) -> U64:
    """When to look at the mappings for samples that were added up over intervals, given by their ends."""
    ends, which = np.unique(time_ns, return_inverse=True)
    starts = _interval_starts(ends, ends)
    found = time_ns.copy()
    for number in np.flatnonzero(depends).tolist():
        rows = np.flatnonzero(in_space == number)
        mine, at = np.unique(which[rows], return_inverse=True)
        found[rows] = spaces.time_of_most(int(space[number]), starts[mine], ends[mine])[at]
    return found


def _interval_starts(ends: U64, until: U64) -> U64:
    """When the intervals began that ended at some of the times, sorted, at which any ended."""
    before = np.searchsorted(ends, until) - 1
    earlier = np.append(ends, np.uint64(0))[before]
    return np.maximum(earlier, until - np.minimum(until, _LONGEST_NS))


def _by_context(chains: tuple[I64, I64], contexts: _Contexts) -> tuple[I64, I64, U32]:
    """The distinct chains by context: (number of each sample's, -1: none; row in the stack table; context)."""
    of_sample, rows = chains
    context, chain, which = number_pairs(contexts.of_sample.astype(np.int64), of_sample + 1)
    is_there = chain > 0
    number = np.where(is_there, np.cumsum(is_there) - 1, -1)
    return number.take(which), rows[chain[is_there] - 1], context.astype(np.uint32)[is_there]


def _attribute(places: Places, contexts: _Contexts, spaces: AddressSpaces, files: CodeFiles) -> tuple[I32, U64]:
    """File number (-1: nothing is mapped there) of each place, and the address in that file."""
    mapping = np.full(len(places.address), -1, np.int64)
    is_user = np.flatnonzero(places.context != _KERNEL_CONTEXT)
    context = places.context[is_user]
    mapping[is_user] = spaces.find(contexts.space[context], places.address[is_user], contexts.when[context])
    file, address = files.place(mapping, places.address)
    file[places.context == _KERNEL_CONTEXT] = files.kernel
    return file, address


def _tell_versions(
    places: Places,
    contexts: _Contexts,
    spaces: AddressSpaces,
    owner: U32,
    address: U64,
    replaced: Mapping[int, CodeInTime],
) -> None:
    """Give addresses in run-time code that was replaced the place of what stood there when they were sampled.

    Not those of forked children: what their parent replaced later still stands in them.
    """
    for pid, code in replaced.items():
        rows = np.flatnonzero((owner == pid) & (places.context != _KERNEL_CONTEXT))
        rows = rows[spaces.processes(contexts.space[places.context[rows]]) == pid]
        context = places.context[rows]
        address[rows] = code.places_of(address[rows], contexts.since[context], contexts.until[context])


def _distinct(file: I32, address: U64, used: NDArray[np.bool_]) -> tuple[I32, I64]:
    """Location number of each used place (file, address), and for each number one place that it stands for."""
    rows = np.flatnonzero(used)
    _, of_address = number_values(address[rows])
    files, _, number = number_pairs(file[rows].astype(np.int64) + 1, of_address.astype(np.int64))
    location = np.full(len(file), -1, np.int32)
    location[rows] = number
    first = np.empty(len(files), np.int64)
    first[number[::-1]] = rows[::-1]
    return location, first
