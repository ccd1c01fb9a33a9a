"""`tdprof report`: hotspots by function or source line, why they are slow, and the program's methodology tree."""

from collections.abc import Sequence
from pathlib import Path

import click

from tdprof.cli.capture_options import Input, capture_argument, find_input, selection_options, symbol_options
from tdprof.cli.form import DEFAULT_LIMIT, DEFAULT_TOPDOWN_LIMIT, Form, Output, output_options
from tdprof.errors import TdprofError
from tdprof.model.choices import By, GroupKind, Order, Selection, SymbolOptions
from tdprof.values import dataclass

_HELP = """Print where a capture's samples fell: hotspots, highest self share first.

\b
self    share of the samples with the function at the leaf; its own instructions
± 95 %  half the width of the interval that sampling alone leaves around it, in points
total   share of the samples with the function anywhere in the call stack
Inlined functions count as functions. Names in brackets say why a function is not known. Rows that round to 0.0 %
are left out unless --limit asks for them.

\b
Of a recording with --topdown each hotspot also has: its Stage 1 metrics as a bar, the way down the methodology's
tree as long as one metric leads by more than the noise, the Stage 2 metrics found there beside the program's, and
advice. Values have 95 % intervals; those with too few samples are grey and marked "~".
Where the capture has SPE records, what they measured of each row stands beside it, named SPE.

\b
tdprof report                          the newest capture of this folder
tdprof report my.capture --lines       the source lines that cost most
tdprof report my.capture --by process  or thread, command, module; what takes most in each
tdprof report my.capture --comm worker --module libz.so.1   some of the samples
tdprof report my.capture --function parse   with metrics: everything about it; else samples below it
tdprof report my.capture --tree        who calls whom; with metrics: the whole program's
tdprof report my.capture --tree --function parse   its callers and callees
tdprof report my.capture --json | jq '.functions[0].metrics.backend_bound'
tdprof report my.capture --spe --by address   cache lines that threads share
tdprof report my.capture --branches    branches of perf record -b: how often, mispredicted, cycles
tdprof report my.capture --by cgroup   samples by control group (record -a or --cgroup)
tdprof report my.capture --where cgroup=nginx.service   or its path, container id, pod uid
tdprof report my.capture --by language   Python, Java, JavaScript, native code, the kernel
tdprof report my.capture --by second   when, and the hottest functions over time
tdprof report my.capture --by phase    where the profile changes, and what
tdprof report my.capture --by state    of record --off-cpu: waiting for a CPU, or asleep
tdprof report my.capture --by cpu      of record --sample-cpu, or without BPF: the CPU of the sample
tdprof report my.capture --by waker    of record --wakers: who ends sleeps; with --function those of one
tdprof report my.capture --time 10s-20s   since the start; -5s- is the last 5 s
tdprof report my.capture --no-native   the program's own functions, with all that they call
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What of the samples is to be seen, as it was typed."""

    by_line: bool
    has_tree: bool
    group: GroupKind | None
    sort: Sequence[str]


@click.command("report", help=_HELP)
@capture_argument
@output_options(
    json="Print one JSON object, with exact counts and all functions.",
    csv="Print comma-separated values, a row for each function or line.",
    limit=f"The most rows; 0 for all ({DEFAULT_LIMIT}, with metrics "
    f"{DEFAULT_TOPDOWN_LIMIT}, with --json or --csv all).",
    has_pager=True,
)
@click.option("--lines", "by_line", is_flag=True, help="A row for each source line instead of each function.")
@click.option(
    "--tree",
    "has_tree",
    is_flag=True,
    help="Who calls whom; with --function its callers and callees. Of a recording with metrics, without --function: "
    "the whole program's metrics in the methodology's tree.",
)
@click.option("--spe", "is_spe", is_flag=True, help="Report the capture's SPE records instead of its samples.")
@click.option("--branches", "is_branches", is_flag=True, help="Report the branch stacks of an imported perf record -b.")
@click.option(
    "--by",
    type=click.Choice(
        [*(each.value for each in GroupKind), "function", "line", "instruction", "source", "address", "page"]
    ),
    help="What a row is: process, thread, command, module, cgroup, language, second, phase, cpu, state or waker. With "
    "--spe: function without it, or line and what follows. With --branches: function, not each branch.",
)
@click.option(
    "--sort",
    "sort",
    multiple=True,
    metavar="self|total|EVENT",
    help="Order by self (the default) or total counts, of this event (cycles, or the first event). May be given twice.",
)
@selection_options
@symbol_options
def command(
    capture: Path,
    output: Output,
    by_line: bool,
    has_tree: bool,
    is_spe: bool,
    is_branches: bool,
    by: str | None,
    sort: Sequence[str],
    selection: Selection,
    symbols: SymbolOptions,
) -> None:
    """Report a capture."""
    group = None if by is None or by not in [*GroupKind] or is_spe or is_branches else GroupKind(by)
    _refuse_contradictions(
        {"--lines": by_line, "--tree": has_tree, f"--by {by}": group is not None},
        {"--tree": has_tree, "--spe": is_spe, "--branches": is_branches},
        {"--lines": by_line, "--branches": is_branches},
        *(
            {words: bool(words), view: given}
            for words in (selection.words, "" if selection.has_native else "--no-native")
            for view, given in [("--spe", is_spe), ("--branches", is_branches)]
        ),
    )
    _check_rows(by, is_spe=is_spe, is_branches=is_branches)
    _check_order(sort, is_branches=is_branches)
    source = find_input(capture)
    if is_branches:
        # Only now: a recording of perf that has these is rare.
        from tdprof.cli.report_imported import report_branches

        report_branches(source, symbols, output, by_function=by == "function")
        return
    if is_spe:
        # Only now: SPE's part of the program is not needed for anything else here.
        from tdprof.cli.spe_data import print_report

        rows = By(by or ("line" if by_line else "function"))
        print_report(str(capture), rows, output, symbols, manifest=source.manifest)
        return
    _report(source, selection, _Asked(by_line, has_tree, group, sort), symbols, output)


def _check_rows(by: str | None, *, is_spe: bool, is_branches: bool) -> None:
    """Refuse rows that this report does not have."""
    if by is None:
        return
    is_group = by in [*GroupKind]
    if is_spe and is_group:
        raise TdprofError(f"--spe has no rows by {by}", hint=f"--spe --by function, or --by {by} alone", status=2)
    if is_branches and by != "function":
        raise TdprofError(f"--branches has no rows by {by}", hint="--by function", status=2)
    if not (is_spe or is_branches or is_group):
        raise TdprofError(
            f"rows by {by} are those of an SPE report",
            hint="add --spe; or --branches with --by function; or alone: --lines, or --by process, thread, command, "
            "module, cgroup, language, second, phase, cpu, state or waker",
            status=2,
        )


def _check_order(sort: Sequence[str], *, is_branches: bool) -> None:
    """Refuse an order that this report does not have, and two that exclude each other."""
    if is_branches and sort:
        raise TdprofError(
            "--sort orders functions and lines by an event; --branches has an order of its own",
            hint="leave --sort out",
            status=2,
        )
    for words in ([word for word in sort if word in [*Order]], [word for word in sort if word not in [*Order]]):
        if len(words) > 1:
            raise TdprofError(
                f"--sort {' and --sort '.join(words)} exclude each other", hint="give one of them", status=2
            )


def _report(
    source: Input,
    selection: Selection,
    asked: _Asked,
    symbols: SymbolOptions,
    output: Output,
) -> None:
    """Report the capture's samples."""
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.catalog.entries import CPU_CYCLES
    from tdprof.cli.loading import check_has_wakers, find_event, load_with_findings, open_input, say_losses
    from tdprof.cli.report_views import View, print_view
    from tdprof.model.events import OFF_CPU
    from tdprof.profile.selection import select

    capture = source.path
    with open_input(source, symbols) as opened:
        function = _one_function(selection)
        chosen = selection if function is None else Selection(has_native=selection.has_native)
        profile, findings = load_with_findings(opened, capture, selection=chosen)
    if output.form is Form.CSV:
        say_losses(profile.losses, profile.unreadable)
    if asked.group is GroupKind.CGROUP and len(profile.samples.pid) and not profile.cgroups:
        raise TdprofError(
            f"the samples of {capture} tell no control group",
            hint="tdprof record -a or --cgroup keeps them; of perf: perf record --all-cgroups, then tdprof import",
        )
    if asked.group is GroupKind.CPU and len(profile.samples.pid) and profile.samples.cpu.max() < 0:
        raise TdprofError(
            f"the samples of {capture} do not tell their CPU",
            hint="tdprof record --sample-cpu keeps it; of perf.data: perf report --sort cpu",
        )
    if asked.group is GroupKind.WAKER:
        check_has_wakers(profile, capture)
    if (
        function is not None
        and not asked.has_tree
        and (profile.topdown is None or asked.by_line or asked.group is not None)
    ):
        # Nothing that is known of this function alone is to be shown: it chooses samples.
        profile, findings, function = select(profile, selection), None, None
    names = [event.name for event in profile.events]
    usual = OFF_CPU if asked.group in (GroupKind.WAKER, GroupKind.STATE) else CPU_CYCLES
    events = [word for word in asked.sort if word not in [*Order]] or [name for name in names if name == usual]
    order = next((Order(word) for word in asked.sort if word in [*Order]), Order.SELF)
    event = find_event(profile, events[0] if events else None, beside=[*Order])
    view = View(asked.by_line, function, asked.has_tree, asked.group, order, event)
    print_view(profile, findings, view, output)


def _one_function(selection: Selection) -> str | None:
    """The function that a report can be about: one, and nothing else was chosen."""
    alone = Selection(functions=selection.functions, has_native=selection.has_native)
    is_alone = selection == alone and len(selection.functions) == 1
    return selection.functions[0] if is_alone else None


def _refuse_contradictions(*exclusive: dict[str, bool]) -> None:
    for options in exclusive:
        given = [name for name, is_given in options.items() if is_given]
        if len(given) > 1:
            raise TdprofError(f"{' and '.join(given)} exclude each other", hint="give one of them", status=2)
