"""What SPE measured of a function's source lines."""

from collections.abc import Mapping

import numpy as np

from tdprof.model.annotation import Latency
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_lines import NOT_COUNTED, latency_quantiles, within_memory
from tdprof.pipeline.spe_report import lane_counts
from tdprof.profile.choice import ChosenFunction

SourcePlace = tuple[str, int]


@within_memory()
def line_latencies(capture: OpenCapture, function: ChosenFunction) -> Mapping[SourcePlace, Latency]:
    """Latencies by source file and line, if the capture has SPE records.

    A line's are those of all code that is from it: compilers split functions and make several versions of them.

    Raises:
        TdprofError: its records cannot be read.
    """
    if not capture.has_spe:
        return {}
    capture.progress("adding up SPE records")
    lines = capture.spe_lines
    is_part = np.array([*(function.has_part(each.name, each.path) for each in lines.functions), False])
    places: dict[SourcePlace, int] = {}
    group = np.full(len(lines.function), NOT_COUNTED)
    for row in np.flatnonzero(is_part[lines.function]).tolist():
        place = lines.functions[lines.function[row]].source_file, int(lines.line[row])
        group[row] = places.setdefault(place, len(places))
    sums = lines.counted.grouped(group, len(places))
    counts, quantiles = lane_counts(sums), latency_quantiles(sums)["total_latency"]
    operations, cycles, count = (counts[name].tolist() for name in ("OPERATIONS", "TOTAL_CYCLES", "TOTAL_COUNT"))
    return {
        place: Latency(operations[row], cycles[row] / count[row], *quantiles[row].tolist())
        for place, row in places.items()
        if count[row]
    }
