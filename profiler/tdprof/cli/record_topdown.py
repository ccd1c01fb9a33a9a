"""What `tdprof record --topdown` samples: from its options and this machine to events in groups."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tdprof.cli.option_groups import adding, list_option
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.pipeline.plan import SamplingPlan
    from tdprof.recorder.events import Event
    from tdprof.recorder.pmu import CorePmu, Counters

# A second and CPU, for each of seven events at a time: together they cost what one does at 1,400 Hz.
DEFAULT_HZ = 199
TOPDOWN_HELP = (
    "Sample the events of Arm's Topdown metrics, for each function's. 1: Stage 1, the default; 2 or all: Stage 2 "
    "besides. Groups of events take turns on the PMU."
)


@dataclass(frozen=True, slots=True)
class TopdownOptions:
    """The part of the command line that is about Topdown.

    Attributes:
        stage: None where --topdown was not given.
    """

    stage: str | None
    metrics: str | None
    passes: bool
    counters: int | None
    cpu: str
    catalog_file: Path | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether Topdown was asked for: naming metrics does as well."""
        return self.stage is not None or self.metrics is not None

    def check(self, *, has_command: bool, has_events: bool, has_duration: bool, has_spe: bool) -> None:
        """Refuse what does not go together.

        Raises:
            TdprofError: with what does.
        """
        if self.stage not in (None, "1", "2", "all"):
            raise TdprofError(
                f"--topdown takes 1, 2 or all, not '{self.stage}'",
                hint="tdprof record --topdown -- CMD, or tdprof record --topdown=2 -- CMD",
                status=2,
            )
        if not self.is_wanted:
            if self.passes or self.counters is not None or self.cpu or self.catalog_file:
                raise TdprofError(
                    "--passes, --counters, --cpu and --catalog are about Topdown",
                    hint="add --topdown or --metrics",
                    status=2,
                )
            return
        if self.cpu and self.catalog_file:
            raise TdprofError("--cpu and --catalog exclude each other: both name the catalog", status=2)
        if has_events:
            raise TdprofError(
                "--topdown chooses the events: it excludes -e",
                hint="record other events in a capture of their own",
                status=2,
            )
        if self.passes and (not has_command or has_duration or has_spe):
            raise TdprofError(
                "--passes runs a command again and again, to its end: it needs -- CMD and no --duration or --spe",
                hint="leave out --passes: counter groups then take turns",
                status=2,
            )


topdown_options = adding(
    click.option("--topdown", "stage", is_flag=False, flag_value="1", metavar="[=1|2|all]", help=TOPDOWN_HELP),
    list_option("--metrics", metavar="GROUP|METRIC,…", help="Stage 1 and these; `tdprof list groups` names them."),
    click.option("--passes", is_flag=True, help="Run the command once per counter group instead of taking turns."),
    click.option(
        "--counters",
        type=click.IntRange(2, 31),
        metavar="N",
        help="Programmable counters to use; default: as many as are free.",
    ),
    click.option("--cpu", metavar="NAME", default="", help="The core, such as neoverse-n3; default: this machine's."),
    click.option(
        "--catalog",
        "catalog_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Use this catalog, such as a telemetry file published by Arm; the capture carries it.",
    ),
)


def plan_topdown(options: TopdownOptions, beside: "Sequence[Event]" = ()) -> "SamplingPlan":
    """What to sample here; without groups where this machine cannot count them, and then a note says why.

    Args:
        beside: events that have counters all the time.

    Raises:
        TdprofError: an unknown core or metric, more counters than there are, or no permission.
    """
    from tdprof.catalog.choose import choose_catalog, name_of
    from tdprof.catalog.load import read_catalog
    from tdprof.catalog.midr import read_core_types
    from tdprof.pipeline.plan import (
        SamplingPlan,
        check_names,
        plan_groups,
        plan_sampling,
        sampled_metrics,
        why_not_countable,
    )
    from tdprof.recorder.events import Event
    from tdprof.recorder.permitted import can_open
    from tdprof.recorder.pmu import counters_beside, find_arm_pmu, probe_counters, trial_on

    def is_refused(event: Event) -> bool:
        return not can_open(event, sampling=True) and not can_open(event.user_only(), sampling=True)

    cores = read_core_types()
    choice = choose_catalog(cores, name=options.cpu, file=options.catalog_file)
    if choice is None:
        if options.metrics is not None:
            check_names(options.metrics)
        return SamplingPlan((), None, (_without("this is not an Arm machine"),))
    metrics = sampled_metrics(choice.catalog, options.stage or "1", options.metrics)
    pmu = find_arm_pmu(choice.cpus)
    counters = probe_counters(pmu) if pmu else None
    if pmu is None or counters is None:
        return SamplingPlan((), None, (_without(why_not_countable(pmu)),))
    counters = _chosen_counters(options, pmu, counters_beside(counters, beside))
    planned = plan_groups(choice, metrics, pmu, counters, is_refused, trial_on(pmu.cpus))
    own = read_catalog(options.catalog_file) if options.catalog_file else ""
    core = choice.catalog.name if own else name_of(choice.catalog, options.cpu, cores)
    plan = plan_sampling(planned, core, is_pass_per_group=options.passes, catalog=own)
    if plan.topdown is None:
        return replace(plan, notes=(*plan.notes, _without(f"{pmu.name} can sample none of their events")))
    return plan


def _chosen_counters(options: TopdownOptions, pmu: "CorePmu", free: "Counters") -> "Counters":
    if options.counters is None:
        return free
    if options.counters > free.programmable:
        # The kernel would open such groups and never run them.
        raise TdprofError(
            f"--counters {options.counters}: {pmu.name} has {free.programmable} free",
            hint=f"--counters {free.programmable}",
            status=2,
        )
    return replace(free, programmable=options.counters)


def _without(cause: str) -> str:
    return f"no Topdown metrics, which need the PMU of an Arm core: {cause} (tdprof doctor)"


def show_pass(number: int, total: int) -> None:
    """Progress of repeated runs, for somebody who watches."""
    if total > 1 and os.isatty(2):
        say(f"tdprof: run {number} of {total}")
