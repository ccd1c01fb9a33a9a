"""`tdprof fleet plan`: how many hosts and samples it takes, from fleets with a declared truth."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tdprof.cli.form import Output, output_options, print_plain
from tdprof.cli.option_groups import Percent
from tdprof.cli.output import waiting
from tdprof.errors import TdprofError

if TYPE_CHECKING:
    from tdprof.fleet.simulate import Simulated

_MOST_HOSTS = 10_000


@click.command("plan")
@click.option("--hosts", default="10,30,100", metavar="N,…", help="Numbers of hosts to try (10,30,100).")
@click.option(
    "--scatter",
    type=Percent(0, 100),
    default=10.0,
    metavar="PERCENT",
    help="By how much a function's share differs between hosts (10).",
)
@click.option(
    "--samples", type=click.IntRange(100, 10**9), default=10_000, metavar="N", help="Samples of each host (10000)."
)
@click.option(
    "--share",
    type=Percent(0, 50, min_open=True),
    default=1.0,
    metavar="PERCENT",
    help="Share of the function that matters (1).",
)
@click.option(
    "--change",
    type=Percent(0, 400),
    default=20.0,
    metavar="PERCENT",
    help="By how much one function in ten changes in the release that is simulated (20).",
)
@click.option("--rounds", type=click.IntRange(10, 100_000), default=200, metavar="N", help="Fleets of each size (200).")
@click.option("--seed", type=click.IntRange(0), default=1, metavar="N", help="The same numbers for the same seed (1).")
@output_options(json="Print one JSON object.", csv="Print comma-separated values, a row for each number of hosts.")
def command(
    hosts: str,
    scatter: float,
    samples: int,
    share: float,
    change: float,
    rounds: int,
    seed: int,
    output: Output,
) -> None:
    """Simulate fleets whose truth is declared, to plan how many hosts and samples are needed.

    \b
    tdprof fleet plan
    tdprof fleet plan --hosts 20,50,200 --scatter 20 --samples 5000 --share 0.5

    \b
    coverage   of how many 95 % intervals hold the truth
    ± 95 %     of the function's share, relative to it
    detects    the least change of that function, relative, that 4 of 5 comparisons of two such fleets find
    found      how many of the changed functions fleet diff marks, and which part of all it marks is false
    outlier    how often fleet hosts lists a host whose function takes twice as much, and the false part of its lists
    p50, p99   of how many intervals of a latency's quantile (fleet spe) hold the truth, where hosts' latencies differ
               as much; ± p99 is relative

    How much hosts differ is in a store: the design effects of fleet report.
    """
    numbers = _numbers(hosts)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.fleet.simulate import FleetPlan, simulate
    from tdprof.report.csv_lines import write_rows

    plan = FleetPlan(scatter / 100, samples, share / 100, change / 100, rounds, seed)
    with waiting("simulating fleets"):
        found = list(simulate(plan, numbers))
    print_plain(
        output.form,
        json=lambda: [json.dumps({"plan": asdict(plan), "hosts": [asdict(each) for each in found]}, indent=1) + "\n"],
        csv=lambda: write_rows(list(asdict(found[0])), [list(asdict(each).values()) for each in found]),
        text=lambda: _text(found),
    )


def _numbers(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.isdecimal() and len(word) < 6 for word in words):
        raise TdprofError(f"--hosts: '{text}' is no list of numbers", hint="--hosts 10,30,100", status=2)
    numbers = [int(word) for word in words]
    if not all(2 <= number <= _MOST_HOSTS for number in numbers):
        raise TdprofError("--hosts: from 2 to 10000", hint="--hosts 10,30,100", status=2)
    return numbers


def _text(found: "Sequence[Simulated]") -> Iterator[str]:
    # Slow to load, and help does without.
    from tdprof.report.columns import format_columns

    rows = [["hosts", "coverage", "± 95 %", "detects", "found", "of them false", "outlier", "of them false"]]
    rows[0] += ["p50 held", "p99 held", "± p99"]
    rows += [
        [
            f"{each.hosts:,}",
            *(f"{value:.1%}" for value in (each.coverage, each.half_width, each.least_change, each.found)),
            *(f"{value:.1%}" for value in (each.false_discoveries, each.outlier_found, each.false_outliers)),
            *(f"{value:.1%}" for value in (each.median_coverage, each.p99_coverage, each.p99_half_width)),
        ]
        for each in found
    ]
    yield from (f"{line}\n" for line in format_columns(rows, right=range(len(rows[0]))))
