"""Export to folded stacks: a line `thread;root;...;leaf weight` for each, as flame-graph tools read."""

from typing import BinaryIO

import numpy as np

from tdprof.frames import frame_stacks, function_names, group_rows, merge_stacks, thread_labels
from tdprof.profile import Profile


def write_folded(profile: Profile, out: BinaryIO) -> None:
    """Write the profile's first event, in its unit, added up over time; lines are sorted.

    A semicolon within a name becomes a colon, for it separates frames.
    """
    stacks = frame_stacks(profile)
    merged, representative = merge_stacks(stacks)
    names = [name.replace(";", ":") for name in function_names(profile)]
    threads = [name.replace(";", ":") for name in thread_labels(profile)]
    texts = [
        ";".join(
            [names[function] for function in stacks.function[stacks.start[i] : stacks.start[i + 1]][::-1].tolist()]
        )
        for i in representative.tolist()
    ]

    chosen = profile.samples.event == 0
    stack, thread = merged[profile.samples.stack[chosen]], profile.samples.thread_name[chosen]
    order, start = group_rows(thread, stack)
    weight = np.add.reduceat(profile.samples.weight[chosen][order], start)
    rows = zip(thread[order][start].tolist(), stack[order][start].tolist(), weight.tolist(), strict=True)
    lines = sorted(f"{threads[thread]};{texts[stack]} {weight}\n" for thread, stack, weight in rows)
    out.write("".join(lines).encode())
