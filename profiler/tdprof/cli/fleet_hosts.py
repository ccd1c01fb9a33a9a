"""`tdprof fleet hosts`: hosts that differ from those like them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tdprof.cli.fleet import chosen_options, store_argument
from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options, print_result
from tdprof.cli.output import waiting

if TYPE_CHECKING:
    from tdprof.fleet.recordings import Recording
    from tdprof.fleet.selection import Chosen
    from tdprof.model.fleet import OutlierHosts
    from tdprof.report.fleet.hosts import Common


@click.command("hosts")
@store_argument
@click.option(
    "-e", "--event", metavar="EVENT", help="Shares of this event (cycles, or what most recordings have first)."
)
@output_options(
    json="Print one JSON object.",
    csv="Print comma-separated values, a row for each host and function.",
    limit=f"The most rows of each kind of core; 0 for all ({DEFAULT_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@chosen_options
def command(store: str, event: str | None, output: Output, chosen: "Callable[[], Chosen]") -> None:
    """Print on which hosts a function takes another share than on the other hosts of that kind of core.

    \b
    tdprof fleet hosts prod
    tdprof fleet hosts prod --since 1d --json | jq '.strata[].outliers[].host'

    A host counts as an outlier where it differs by more than chance and by more than hosts usually differ. Of all that
    is listed no more than 5 % is wrong on average. Where several hosts differ in one function, what they alone have in
    common is said: kernel, CPU model, labels, builds.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import keep_process_small
    from tdprof.fleet.outliers import find_outliers
    from tdprof.fleet.read import count_functions
    from tdprof.fleet.report import find_recordings
    from tdprof.fleet.store import Store
    from tdprof.report.fleet.hosts import render_hosts_csv, render_hosts_json, render_hosts_text

    keep_process_small()
    opened = Store(store)
    with waiting(f"reading {store}"):
        found = find_recordings(opened, chosen(), event, each_recording=True)
        counts = count_functions(opened, found.parts, found.strata)
        outliers = [find_outliers(each, stratum) for each, stratum in zip(counts, found.strata, strict=True)]
        common = _in_common(outliers, found.parts.recordings)
    limit = output.rows(DEFAULT_LIMIT)
    print_result(
        output,
        json=lambda: render_hosts_json(outliers, common, found.set_aside, limit=output.rows()),
        csv=lambda: render_hosts_csv(outliers, limit=output.rows()),
        text=lambda console: render_hosts_text(outliers, common, found.set_aside, console, limit=limit),
    )


def _in_common(outliers: "Sequence[OutlierHosts]", recordings: "Sequence[Recording]") -> "Common":
    """What the outlier hosts of each function have in common, where there are several."""
    from tdprof.fleet.outliers import shared_attributes

    told: dict[str, dict[str, dict[str, str]]] = {}
    for recording in recordings:
        row = recording.events[0]
        mine = told.setdefault(recording.stem.core_name, {}).setdefault(recording.stem.host_name, {})
        mine |= {name: str(row[name]) for name in ("kernel", "cpu_model", "machine", "cpus")}
        labels, builds = row["labels"], row["builds"]
        assert isinstance(labels, list)
        assert isinstance(builds, list)
        mine |= {name: value for name, _, value in (str(label).partition("=") for label in labels)}
        mine |= {f"build {build}": "yes" for build in builds}
    found = {}
    for each in outliers:
        hosts_of: dict[int, list[str]] = {}
        for function, host in zip(each.function.tolist(), each.host.tolist(), strict=True):
            hosts_of.setdefault(function, []).append(each.stratum.hosts[host])
        for function, hosts in hosts_of.items():
            if len(hosts) > 1:
                found[each.stratum.core, function] = shared_attributes(hosts, told[each.stratum.core])
    return found
