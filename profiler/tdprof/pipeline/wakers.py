"""Who ended sleeps, of a capture that tells: their call stacks are attributed with those of the samples."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from tdprof.attribute.stacks import AttributedStacks
from tdprof.capture.schema import SAMPLES, WAKERS
from tdprof.capture.tables import has_table, read_side_table
from tdprof.model.arrays import I32
from tdprof.model.profile import Profile, WakerTable
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.frames import number_values
from tdprof.profile.wakers import cut_interrupts
from tdprof.values import dataclass


@dataclass(slots=True)
class SampleWakers:
    """Whom samples have as their waker.

    Attributes:
        rows: the table of samples, and a row of no sample for each waker: whose stacks are to be attributed.
        of_sample: int32[samples], the waker of each, -1: it is not known, or there is none.
        thread_name: of each waker.
        unreadable: why the capture's wakers cannot be read.
        stack: int32[wakers], set by `without_rows`.
    """

    rows: pa.Table
    of_sample: I32
    thread_name: list[str] | None = None
    unreadable: str = ""
    stack: I32 | None = None

    def without_rows(self, attributed: AttributedStacks) -> AttributedStacks:
        """What is attributed of the samples alone; what is of wakers is kept."""
        if self.thread_name is None:
            return attributed
        samples = len(self.of_sample)
        self.stack = attributed.sample_stack[samples:]
        return replace(
            attributed,
            sample_stack=attributed.sample_stack[:samples],
            is_cut=attributed.is_cut[:samples],
            sample_end=attributed.sample_end[:samples],
            is_guessed=attributed.is_guessed[:samples],
        )


def read_wakers(capture: OpenCapture, samples: pa.Table) -> SampleWakers:
    """The wakers of samples.

    Args:
        capture: whose.
        samples: its table, with the column ``waker``.
    """
    nobody = SampleWakers(samples, np.broadcast_to(np.int32(-1), len(samples)))
    if not has_table(capture.tables, "wakers"):
        return nobody
    wakers, nobody.unreadable = read_side_table(capture.tables, "wakers")
    if nobody.unreadable:
        return nobody
    asked, which = number_values(samples["waker"].combine_chunks().fill_null(0).to_numpy())
    known = wakers["waker"].to_numpy()
    order = np.argsort(known, kind="stable")
    at = np.searchsorted(known[order], asked)
    is_known = np.append(known[order], 0)[at] == asked
    is_known &= asked > 0
    chosen = wakers.take(order[at[is_known]])
    number = np.where(is_known, np.cumsum(is_known) - 1, -1).astype(np.int32)
    of_sample = number[which]
    rows = pa.concat_tables([samples, _as_samples(chosen, samples, of_sample)], promote_options="permissive")
    return SampleWakers(rows.unify_dictionaries(), of_sample, chosen["thread_name"].to_pylist())


def _as_samples(wakers: pa.Table, samples: pa.Table, of_sample: I32) -> pa.Table:
    """A row for each waker, of no sample, at the time of a sample that it ended."""
    time_ns = np.zeros(len(wakers), np.uint64)
    has_waker = of_sample >= 0
    time_ns[of_sample[has_waker]] = samples["time_ns"].to_numpy()[has_waker]
    columns = {name: wakers[name] for name in WAKERS.names if name in SAMPLES.names}
    columns |= {name: np.zeros(len(wakers), np.uint64) for name in ("event", "count", "weight")}
    return pa.table({**columns, "time_ns": time_ns}).select(SAMPLES.names).cast(SAMPLES)


def with_wakers(profile: Profile, wakers: SampleWakers) -> Profile:
    """The profile with who ended its sleeps, if the capture tells."""
    if wakers.thread_name is None or wakers.stack is None:
        return profile
    return cut_interrupts(replace(profile, wakers=WakerTable(wakers.thread_name, wakers.stack)))
