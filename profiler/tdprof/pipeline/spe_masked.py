"""What SPE says of kernel code where samples wait for interrupts to be unmasked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from tdprof.model.addresses import FileKind
from tdprof.model.profile import Profile
from tdprof.pipeline.spe_lines import SpeLines
from tdprof.profile.frames import frame_stacks, function_names
from tdprof.profile.reliability import interrupting_event
from tdprof.text import printable

_KERNEL = (FileKind.KERNEL, FileKind.KERNEL_MODULE)
MIN_RECORDS = 100
"""Of the kernel's, by each of the two; of fewer no shares are told."""
MIN_DIFFERENCE = 0.05
_MOST_FUNCTIONS = 4


def view_of_masked_code(lines: SpeLines, profile: Profile) -> list[str]:
    """A sentence on the kernel's functions that samples and SPE put furthest apart; none where they agree.

    By name, which is all that the sentence tells of a function: those of one name are added up on both sides.

    Args:
        lines: the SPE records.
        profile: the samples beside them, which come by interrupts that are masked now and then.
    """
    by_spe, by_samples = _spe_records(lines), _samples(profile)
    records, samples = sum(by_spe.values()), sum(count for count, _ in by_samples.values())
    weight = sum(each for _, each in by_samples.values())
    if records < MIN_RECORDS or samples < MIN_RECORDS or not weight:
        return []
    shares = {
        name: (by_spe.get(name, 0) / records, by_samples.get(name, (0, 0.0))[1] / weight)
        for name in by_spe.keys() | by_samples.keys()
    }
    apart = sorted(shares, key=lambda name: (-abs(shares[name][0] - shares[name][1]), name))
    told = [
        f"{name} {shares[name][0]:.0%} (samples: {shares[name][1]:.0%})"
        for name in apart[:_MOST_FUNCTIONS]
        if abs(shares[name][0] - shares[name][1]) >= MIN_DIFFERENCE
    ]
    if not told:
        return []
    return [
        f"SPE does not wait for interrupts: of the kernel's operations it has {', '.join(told)}; its shares are of "
        "operations, not of time"
    ]


def _spe_records(lines: SpeLines) -> Mapping[str, int]:
    operations = lines.counted.operations
    found: dict[str, int] = defaultdict(int)
    for number, count in zip(lines.function.tolist(), operations.tolist(), strict=True):
        function = lines.functions[number] if number >= 0 else None
        if function and function.mapped_file and function.mapped_file.kind in _KERNEL:
            found[printable(function.name)] += count
    return found


def _samples(profile: Profile) -> Mapping[str, tuple[int, float]]:
    """(samples, weight) by kernel function, of the first event whose samples wait for interrupts."""
    if (event := interrupting_event(profile.events)) is None:
        return {}
    stacks, names = frame_stacks(profile), function_names(profile)
    start = stacks.start.astype(np.int64)
    of_stack = np.full(len(start) - 1, -1, np.int64)
    has_leaf = start[1:] > start[:-1]
    of_stack[has_leaf] = stacks.function[start[:-1][has_leaf]]
    rows = profile.samples.event == event
    leaf = of_stack[profile.samples.stack[rows]]
    count, weight = (
        np.bincount(leaf[leaf >= 0], values[rows][leaf >= 0].astype(np.float64), minlength=len(names))
        for values in (profile.samples.count, profile.samples.weight)
    )
    is_kernel = [
        file >= 0 and profile.mapped_files[file].kind in _KERNEL for file in profile.functions.mapped_file.tolist()
    ]
    found: dict[str, tuple[int, float]] = {}
    for number in np.flatnonzero(np.array(is_kernel, bool) & (count[: len(is_kernel)] > 0)).tolist():
        before = found.get(names[number], (0, 0.0))
        found[names[number]] = (before[0] + int(count[number]), before[1] + float(weight[number]))
    return found
