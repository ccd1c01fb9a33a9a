"""Export to folded stacks: a line `thread;root;...;leaf weight` for each, as flame-graph tools read."""

from typing import BinaryIO

import numpy as np

from tdprof.export.folded_lines import FoldedRows, Labels, rank_stacks, write_lines
from tdprof.model.arrays import group_rows
from tdprof.model.profile import Profile
from tdprof.profile.frames import thread_labels
from tdprof.profile.guesses import marked_stacks


def write_folded(profile: Profile, out: BinaryIO) -> None:
    """Write the profile's first event, in its unit, added up over time.

    Lines stand in the order of their frames' names from the root; no two lines have the same frames.
    """
    stacks, (*names, no_stack) = marked_stacks(profile)
    functions, threads = Labels([no_stack, *names]), Labels(thread_labels(profile))
    rank, representative = rank_stacks(stacks, functions)

    chosen = profile.samples.event == 0
    stack = rank[profile.samples.stack[chosen]]
    thread = profile.samples.thread_name[chosen]
    order, start = group_rows(threads.inner_rank[thread], stack)
    first = order[start]
    rows = FoldedRows(
        stacks,
        functions,
        threads,
        thread=thread[first].astype(np.uint32),
        stack=representative[stack[first]],
        weight=np.add.reduceat(profile.samples.weight[chosen][order], start),
    )
    write_lines(rows, out)
