"""What to tell the user about values: the advice along the bottleneck, and doubts about the numbers themselves."""

import math
from collections.abc import Mapping

from tdprof.catalog.entries import Catalog
from tdprof.catalog.units import PERCENT_OF_SLOTS
from tdprof.metrics.topdown import Bottleneck

# Level 1 accounts for every slot once; counts taken together add up to 100 but for rounding of a division.
_SUM_TOLERANCE = 1.0


def advise(catalog: Catalog, bottleneck: Bottleneck) -> tuple[str, ...]:
    """What a high value means, for each metric on the way down that has something to say."""
    metrics = (catalog.metrics[name] for name in bottleneck.path)
    return tuple(f"{metric.title}: {metric.advice}" for metric in metrics if metric.advice)


def doubts(catalog: Catalog, values: Mapping[str, float]) -> tuple[str, ...]:
    """Why the values should not be trusted, one line each: level-1 sums that consistent counts cannot give."""
    slots = [name for name in catalog.roots if catalog.metrics[name].units == PERCENT_OF_SLOTS]
    known = [values[name] for name in slots if not math.isnan(values.get(name, math.nan))]
    if not slots or len(known) < len(slots):
        return ()
    total = math.fsum(known)
    if abs(total - 100.0) <= _SUM_TOLERANCE:
        return ()
    return (
        f"level 1 adds up to {total:.1f} and not to 100 percent of slots: its events were not counted together, "
        "or this is another core than the catalog's",
    )
