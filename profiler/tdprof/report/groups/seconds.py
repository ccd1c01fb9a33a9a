"""The hottest functions over a recording's time: a line of blocks each, and the numbers behind it."""

from pathlib import PurePath
from typing import Any

import numpy as np
from rich.text import Text

from tdprof.model.arrays import F64
from tdprof.model.profile import Profile
from tdprof.model.time_range import NS_PER_S
from tdprof.profile.frames import function_names, module_names
from tdprof.profile.groups import Groups
from tdprof.profile.intervals import sample_times, seconds_of_samples
from tdprof.profile.over_time import FunctionsOverTime, functions_over_time, rates
from tdprof.report.columns import format_table, names, numbers
from tdprof.report.profile.text import percent
from tdprof.text import format_seconds

MOST_FUNCTIONS = 12
MOST_FUNCTIONS_IN_JSON = 40
_BLOCKS = " ▁▂▃▄▅▆▇█"
_MOST_BINS = 60
_PARTS = 25  # of a second, 40 ms each


def functions_lines(profile: Profile, groups: Groups, width: int) -> list[Text]:
    """A table of the hottest functions, each with how much it took when; every line has a scale of its own."""
    if not len(groups):
        return []
    rows = seconds_of_samples(profile)
    found = functions_over_time(profile, rows, groups.event, MOST_FUNCTIONS)
    begin_ns, end_ns = int(rows.begin[0]), int(rows.end[-1])
    bins = max(1, min(_MOST_BINS, width // 2, len(rows.end)))
    name, module = function_names(profile), module_names(profile)
    file = [*profile.functions.mapped_file.tolist(), -1]
    cells = [
        [percent(share), sparkline(rate), Text(PurePath(module[file[function]]).name, "dim"), name[function]]
        for function, share, rate in zip(
            found.function.tolist(),
            found.share.tolist(),
            rates(found, rows, begin_ns, end_ns, bins),
            strict=True,
        )
    ]
    heading = f"{format_seconds(begin_ns)} to {format_seconds(end_ns)}"
    return format_table(numbers("self") + names(heading, "module", "function"), cells, width)


def sparkline(rate: F64) -> str:
    """Blocks as high as values are, the highest eight eighths; blank only where there is nothing at all."""
    most = float(rate.max(initial=0))
    if not most:
        return " " * len(rate)
    height = np.where(rate > 0, np.maximum(1, np.rint(rate / most * (len(_BLOCKS) - 1))), 0).astype(int)
    return "".join(_BLOCKS[each] for each in height.tolist())


def within_seconds(profile: Profile, groups: Groups) -> list[str]:
    """A line of blocks for each second, of how much was in each of its 25 parts, all on one scale: a map of heat by
    second and by time within it, of a profile whose samples have their own times; else empty."""
    if not profile.has_sample_times or not len(groups):
        return []
    chosen = profile.samples.event == groups.event
    begin_ns = np.array([begin_ns for begin_ns, _ in groups.seconds])
    at = sample_times(profile)[chosen]
    second = np.searchsorted(begin_ns, at, side="right") - 1
    part = np.clip((at - begin_ns[second]) * _PARTS // NS_PER_S, 0, _PARTS - 1)
    weight = profile.samples.weight[chosen]
    heat = np.bincount(second * _PARTS + part, weight, len(groups) * _PARTS)
    line = sparkline(heat.astype(np.float64))
    return [line[first : first + _PARTS] for first in range(0, len(line), _PARTS)]


def functions_json(profile: Profile, groups: Groups) -> list[dict[str, Any]]:
    """The hottest functions, with their own weight of the leading event in every row."""
    if not len(groups):
        return []
    found: FunctionsOverTime = functions_over_time(
        profile, seconds_of_samples(profile), groups.event, MOST_FUNCTIONS_IN_JSON
    )
    name, module = function_names(profile), module_names(profile)
    file = [*profile.functions.mapped_file.tolist(), -1]
    return [
        {"name": name[function], "module": module[file[function]] or None, "share": share, "weight": weight}
        for function, share, weight in zip(
            found.function.tolist(), found.share.tolist(), found.weight.tolist(), strict=True
        )
    ]
