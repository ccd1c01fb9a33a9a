"""`tdprof record --duty`: Topdown and SPE for a part of the time, in a recording without end."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tdprof.cli.record_topdown import DEFAULT_HZ, TopdownOptions, plan_topdown
from tdprof.errors import TdprofError

if TYPE_CHECKING:
    from tdprof.recorder.duty import Duties
    from tdprof.recorder.options import RecordOptions

_EXAMPLE = "tdprof record -a -F 99 --switch-output=5m --duty topdown=10s/10m,spe=1s/10m"


duty_option = click.option(
    "--duty",
    metavar="topdown=ON/EVERY,spe=ON/EVERY",
    help="With -a and --switch-output: count Topdown's events, and record SPE, for a part of the time "
    "(topdown=10s/10m,spe=1s/10m), each machine at a time of its own. Each segment says how long.",
)


def check_duty(text: str | None, topdown: TopdownOptions, *, is_system_wide: bool, is_cut: bool) -> "Duties | None":
    """What the option asks for; None where it was not given.

    Raises:
        TdprofError: it is no duty, or does not go with the rest.
    """
    if text is None:
        return None
    from tdprof.recorder.duty import parse_duty

    duty = parse_duty(text)
    if not is_system_wide or not is_cut:
        raise TdprofError("--duty is of recordings of the whole system, in segments", hint=_EXAMPLE, status=2)
    if topdown.is_wanted and not duty.topdown:
        raise TdprofError("counter groups cannot be in segments but for a part of the time", hint=_EXAMPLE, status=2)
    if topdown.passes:
        raise TdprofError("--passes runs a command again and again: there is none", hint=_EXAMPLE, status=2)
    return duty


def with_duty(
    options: "RecordOptions", duty: "Duties", topdown: TopdownOptions, spe_text: str | None
) -> "RecordOptions":
    """The options of a recording with what is on for a part of the time.

    Raises:
        TdprofError: this machine cannot count Topdown's events.
    """
    from tdprof.recorder.spe_options import parse_spe_options

    if duty.spe:
        options = replace(options, spe=parse_spe_options(spe_text or ""))
    return _with_topdown(options, duty, topdown) if duty.topdown else replace(options, duty=duty)


def _with_topdown(options: "RecordOptions", duty: "Duties", topdown: TopdownOptions) -> "RecordOptions":
    from tdprof.recorder.ladder import choose_events

    chosen = choose_events(options.events)
    plan = plan_topdown(topdown if topdown.is_wanted else replace(topdown, stage="1"), beside=chosen.events)
    if plan.topdown is None:
        raise TdprofError(f"--duty topdown: {plan.notes[-1]}", hint="tdprof doctor says what it needs; leave it out")
    first = len(chosen.events)
    groups = [replace(group, events=[row + first for row in group.events]) for group in plan.topdown.groups]
    return replace(
        options,
        events=[*chosen.events, *plan.events],
        topdown=replace(plan.topdown, groups=groups),
        duty=replace(duty, topdown_hz=DEFAULT_HZ, topdown_rows=range(first, first + len(plan.events))),
        notes=[*options.notes, *chosen.notes, *plan.notes],
    )
