#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many counter groups all metrics of a core need, against first-fit packing in the catalog's order, and how fast.

tools/bench_schedule.py [COUNTERS]
"""

import sys
import time

from tdprof.catalog.choose import catalog_names, load_packaged
from tdprof.catalog.entries import CPU_CYCLES, Catalog
from tdprof.metrics.schedule import schedule_metrics


def first_fit(catalog: Catalog, counters: int) -> int:
    """Groups that result from putting each metric into the first group it fits."""
    groups: list[set[str]] = []
    needs = [sorted(set(metric.events) - {CPU_CYCLES}) for metric in catalog.metrics.values()]
    # A metric with more events than counters is cut, as ours is.
    for events in [set(need[at : at + counters]) for need in needs for at in range(0, len(need), counters)]:
        for group in groups:
            if len(group | events) <= counters:
                group |= events
                break
        else:
            groups.append(events)
    return len(groups)


def main() -> None:
    counters = int(sys.argv[1]) if len(sys.argv) > 1 else 6
    print(f"{counters} counters and the cycle counter")
    print("core          metrics  groups  at least  first fit  ratio  seconds")
    for name in catalog_names():
        catalog = load_packaged(name)
        start = time.perf_counter()
        schedule = schedule_metrics(catalog, list(catalog.metrics.values()), counters)
        seconds = time.perf_counter() - start
        peer, ours = first_fit(catalog, counters), len(schedule.groups)
        row = f"{name:12}  {len(catalog.metrics):7}  {ours:6}  {schedule.minimum:8}  {peer:9}"
        print(f"{row}  {peer / ours:5.2f}  {seconds:7.3f}")


if __name__ == "__main__":
    main()
