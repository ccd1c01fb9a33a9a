"""Rows of samples and stacks out of a spool, from the BPF programs' tables and from perf's rings."""

from collections import Counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.capture.schema import (
    SAMPLE_CGROUP,
    SAMPLE_CPU,
    SAMPLE_MAPPED,
    SAMPLE_STATE,
    SAMPLE_WAKER,
    SAMPLES,
    STACKS,
)
from tdprof.capture.tables import TableWriter
from tdprof.decode.bpf_aggregates import CPU_SHIFT, STATE_SHIFT, RowBatch, StackBatch
from tdprof.decode.java_frames import JavaFrames
from tdprof.decode.perf.columns import NO_CHAIN, NOT_RECORDED, Chains, Samples
from tdprof.decode.perf.containers import CGROUP_ID_BITS
from tdprof.decode.perf.used_stacks import stack_identities
from tdprof.decode.perf.walked import FIRST_WALKED, WalkedStacks, walks_of
from tdprof.decode.python.merged import PythonFrames
from tdprof.decode.replaced_files import ReplacedFiles
from tdprof.decode.stack_walks import WALK, walk_columns
from tdprof.decode.wakers import Wakings
from tdprof.model.arrays import U64, distinct
from tdprof.model.stack_ends import StackEnd

KERNEL_WALK = 127  # addresses: kernel.perf_event_max_stack as it is unless somebody changed it


class SampleRows:
    """Rows of samples.parquet, and what is to be known of them all."""

    def __init__(
        self,
        replaced: ReplacedFiles,
        *,
        has_cgroups: bool,
        has_states: bool,
        has_cpus: bool = False,
        wakings: Wakings | None = None,
    ) -> None:
        self._replaced = replaced
        self._has_cgroups = has_cgroups
        self._has_cpus = has_cpus
        self._wakings = wakings
        self._has_states = has_states
        self.count = 0
        self.end_ns = 0
        self.without_sent_stack = 0
        self.ambiguous = 0
        self.uncertain = 0
        self.kernel_chains: set[int] = set()
        self.user_chains: set[int] = set()
        self._pairs: Counter[int] = Counter()  # of chains of single samples: the kernel's in the upper half
        self.truncated = 0
        self.tids: set[int] = set()
        self.of_event: Counter[int] = Counter()

    def of_rows(self, batch: RowBatch, stacks: "StackRows") -> pa.Table:
        """Rows of the BPF rung. A stack that never arrived, or cannot be told from another, becomes null and counts."""
        keys, counts = batch.keys, batch.values["count"]
        self.count += int(counts.sum())
        self.end_ns = max(self.end_ns, int(batch.time_ns.max(initial=0)))
        self.tids.update(distinct(keys["tid"]).tolist())
        state, event = np.divmod(keys["event"], np.uint32(1 << STATE_SHIFT))
        cpu = np.zeros_like(event)
        if self._has_cpus:
            cpu, event = np.divmod(event, np.uint32(1 << CPU_SHIFT))
        for number in distinct(event).tolist():
            self.of_event[number] += int(counts[event == number].sum())
        kernel_stack, waker = (
            self._wakings.split(keys["kernel_stack"]) if self._wakings else (keys["kernel_stack"], None)
        )
        missing, ambiguous = np.zeros(len(keys), bool), np.zeros(len(keys), bool)
        uncertain = self._replaced.are_uncertain(batch) & (keys["user_stack"] != 0)
        self.uncertain += int(counts[uncertain].sum())
        columns = {}
        for name, identity in (("user_stack", keys["user_stack"]), ("kernel_stack", kernel_stack)):
            absent, collided = identity == 0, stacks.is_ambiguous(identity)
            unsent = ~absent & ~stacks.has(identity)
            missing |= unsent
            ambiguous |= collided
            is_null = absent | unsent | collided | (uncertain if name == "user_stack" else False)
            columns[name] = pa.array(identity, mask=is_null)
        self.without_sent_stack += int(counts[missing].sum())
        self.ambiguous += int(counts[ambiguous].sum())
        names, which = np.unique(keys["comm"], return_inverse=True)
        text = pa.array([name.decode(errors="replace") for name in names.tolist()], pa.string())
        table = self._table(
            keys["cgroup"],
            pa.array(cpu - np.uint32(1), mask=cpu == 0),
            time_ns=batch.time_ns,
            event=event,
            pid=keys["pid"],
            tid=keys["tid"],
            thread_name=pa.DictionaryArray.from_arrays(pa.array(which.astype(np.int32)), text),
            count=counts,
            weight=batch.values["weight"],
            **columns,
        )
        if self._replaced:
            table = table.append_column(SAMPLE_MAPPED, self._replaced.mapped_ns(batch))
        if not self._has_states:
            return table
        table = table.append_column(SAMPLE_STATE, pa.array(state.astype(np.uint8), mask=state == 0))
        return table if waker is None else table.append_column(SAMPLE_WAKER, pa.array(waker, mask=waker == 0))

    def of_ring(self, samples: Samples, events: int) -> pa.Table:
        """Single samples of the ring-buffer rung; a chain's number plus one is its stack's identity."""
        kept = samples.event < events
        self.count += int(kept.sum())
        self.kernel_chains.update(distinct(samples.kernel_chain[kept]).tolist())
        self.user_chains.update(distinct(samples.user_chain[kept]).tolist())
        pairs = samples.kernel_chain[kept].astype(np.int64) << 32 | samples.user_chain[kept].view(np.uint32)
        found, counts = np.unique(pairs, return_counts=True)
        self._pairs.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        if kept.any():
            self.end_ns = max(self.end_ns, int(samples.time_ns[kept].max()))
        stacks = {
            name: pa.array(stack_identities(chain[kept]), mask=chain[kept] == NO_CHAIN)
            for name, chain in (("user_stack", samples.user_chain), ("kernel_stack", samples.kernel_chain))
        }
        rows = int(kept.sum())
        return self._table(
            samples.cgroup[kept] & np.uint64(CGROUP_ID_BITS),
            pa.array(samples.cpu[kept], mask=samples.cpu[kept] == NOT_RECORDED),
            time_ns=samples.time_ns[kept],
            event=samples.event[kept],
            pid=samples.pid[kept],
            tid=samples.tid[kept],
            thread_name=pa.nulls(rows, pa.string()).dictionary_encode(),
            count=np.ones(rows, np.uint64),
            weight=samples.period[kept],
            **stacks,
        )

    def count_truncated(self, chains: Chains) -> None:
        """Count single samples with as many addresses, both parts together, as the kernel walks to at most."""
        length = np.append(np.diff(chains.offsets), 0).astype(np.int64)  # at its end, of ``NO_CHAIN``
        pairs = np.array(list(self._pairs), np.int64)
        total = length[pairs >> 32] + length[(pairs & 0xFFFFFFFF).astype(np.uint32).view(np.int32)]
        self.truncated = int(np.array(list(self._pairs.values()), np.int64)[total == KERNEL_WALK].sum())

    def _table(self, cgroup: NDArray[np.integer], cpu: pa.Array, **columns: object) -> pa.Table:
        table = pa.table([columns[name] for name in SAMPLES.names], names=SAMPLES.names).cast(SAMPLES)
        if self._has_cpus:
            table = table.append_column(SAMPLE_CPU, cpu)
        if not self._has_cgroups:
            return table
        return table.append_column(SAMPLE_CGROUP, pa.array(cgroup.astype(np.uint64), mask=cgroup == 0))


def _content_hash(batch: StackBatch) -> U64:
    """A hash of each stack that has nothing in common with the BPF program's, to notice when that one collides."""
    lengths = np.diff(batch.start).astype(np.int64)
    position = np.arange(len(batch.address)) - np.repeat(batch.start[:-1].astype(np.int64), lengths)
    terms = (batch.address ^ (batch.address >> np.uint64(29))) * (2 * position.astype(np.uint64) + np.uint64(3))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    sums: U64 = total[batch.start[1:]] - total[batch.start[:-1]]
    walk = np.ascontiguousarray(batch.walk).view(np.uint64).reshape(-1, 2)  # its depth, too
    sums += walk[:, 0] * np.uint64(0x9E3779B97F4A7C15) + walk[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    return sums


class StackRows:
    """Writes each distinct stack once."""

    def __init__(self, writer: TableWriter, java: JavaFrames, python: PythonFrames | None = None) -> None:
        self._writer = writer
        self._java = java
        self._python = python
        self._known = np.empty(0, np.uint64)  # sorted
        self._content = np.empty(0, np.uint64)  # a second hash of each known stack
        self._collided = np.empty(0, np.uint64)
        self._kernel: list[U64] = []

    @property
    def known(self) -> U64:
        """uint64, sorted: the identities of the stacks that the programs sent."""
        return self._known

    def has(self, identities: U64) -> NDArray[np.bool_]:
        """bool[n]: which stacks are written."""
        if not len(self._known):
            return np.zeros(len(identities), bool)
        at = np.minimum(np.searchsorted(self._known, identities), len(self._known) - 1)
        found: NDArray[np.bool_] = self._known[at] == identities
        return found

    def is_ambiguous(self, identities: U64) -> NDArray[np.bool_]:
        """bool[n]: which identities two different stacks share, so that neither can be told."""
        return np.isin(identities, self._collided)

    def add_bpf(self, batch: StackBatch) -> None:
        """Write the stacks of a batch that are new."""
        content = _content_hash(batch)
        identities, first, which = np.unique(batch.hash, return_index=True, return_inverse=True)
        known = self.has(identities)
        expected = content[first]
        expected[known] = self._content[np.searchsorted(self._known, identities[known])]
        self._collided = distinct(np.append(self._collided, batch.hash[content != expected[which]]))
        fresh = np.sort(first[~known])
        at = np.searchsorted(self._known, identities[~known])
        self._known = np.insert(self._known, at, identities[~known])
        self._content = np.insert(self._content, at, expected[~known])
        batch = self._java.merge(batch)
        batch = self._python.merge(batch) if self._python else batch
        self._write(batch.hash[fresh], batch.walk[fresh], batch.start[fresh], batch.start[fresh + 1], batch.address)

    def add_chains(self, chains: Chains, samples: SampleRows, *, has_heads: bool = False) -> None:
        """Write the call chains of perf records that samples have.

        ``has_heads``: user chains begin with a word that says how they were found, but for those of one address: then
        there were no registers to begin with.
        """
        used = samples.user_chains | samples.kernel_chains
        numbers = np.array(sorted(number for number in used if number >= 0), np.int64)
        walk = np.zeros(len(numbers), WALK)
        walk["is_kernel"] = np.isin(numbers, list(samples.kernel_chains))
        leaf_or_whole = StackEnd.NO_REGISTERS if has_heads else StackEnd.FRAME_POINTERS_ONLY
        walk["end"] = np.where(walk["is_kernel"], 0, leaf_or_whole)
        is_headed = np.zeros(len(numbers), bool)
        if not has_heads:
            samples.count_truncated(chains)
        else:
            is_headed = (walk["is_kernel"] == 0) & (np.diff(chains.offsets)[numbers] > 1)
            walk[is_headed] = walks_of(chains, numbers[is_headed])[0]
        start = chains.offsets[numbers] + is_headed.astype(np.uint64)
        self._write(numbers.astype(np.uint64) + 1, walk, start, chains.offsets[numbers + 1], chains.frames)

    def add_walked(self, walked: WalkedStacks) -> None:
        """Write the stacks that were walked only now."""
        numbers = np.arange(walked.count)
        walk, _, chains = walked.rows(numbers)
        identities = stack_identities((FIRST_WALKED - numbers).astype(np.int32))
        self._write(identities, walk, chains.offsets[:-1] + np.uint64(1), chains.offsets[1:], chains.frames)

    def _write(self, identities: U64, walk: NDArray[np.void], start: U64, end: U64, address: U64) -> None:
        """Write stacks ``address[start[i]:end[i]]``."""
        if not len(identities):
            return
        is_kernel = walk["is_kernel"] != 0
        lengths = (end - start).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        gathered = address[np.repeat(start.astype(np.int64) - offsets[:-1], lengths) + np.arange(offsets[-1])]
        self._kernel.append(distinct(gathered[np.repeat(is_kernel, lengths)]))
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(gathered))
        stacks = pa.table([identities, is_kernel, lists], names=STACKS.names)
        for name, column in walk_columns(walk, lengths):
            stacks = stacks.append_column(name, column)
        self._writer.write("stacks", stacks)

    def kernel_addresses(self) -> U64:
        """Every distinct kernel address of the stacks written."""
        return distinct(np.concatenate(self._kernel)) if self._kernel else np.empty(0, np.uint64)
