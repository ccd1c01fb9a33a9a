"""Counts events, or takes counts from a file, and prints the metrics as the methodology tree, for `tdprof stat`."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import click

import tdprof.cli.without_threads  # noqa: F401
from tdprof.catalog.choose import CatalogChoice
from tdprof.cli.core_options import chosen_catalog, required_catalog
from tdprof.cli.form import Form, Output
from tdprof.cli.output import standard_output
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.linux.output_file import new_file
from tdprof.metrics.counts import parse_counts
from tdprof.metrics.diagnosis import advice_along, diagnose_counts, sum_doubts
from tdprof.model.findings import NO_DIAGNOSIS, Diagnosis
from tdprof.model.measurement import Measurement
from tdprof.pipeline.count import evaluate_counts, measure, plan_counting
from tdprof.pipeline.plan import select_metrics
from tdprof.recorder.counted_run import CountedRun, Subject
from tdprof.recorder.events import Event, core_pmus, parse_events
from tdprof.recorder.host import online_cpus
from tdprof.recorder.pmu import find_arm_pmu, probe_counters, trial_on
from tdprof.recorder.workload import check_command
from tdprof.report.counts.csv import format_csv
from tdprof.report.counts.json import format_json, measurement_json, metrics_json
from tdprof.report.counts.text import MetricSelection, format_events, format_metrics
from tdprof.text import printable
from tdprof.values import dataclass

# perf stat's own defaults.
SOFTWARE_EVENTS = "task-clock,context-switches,cpu-migrations,page-faults"
# Counted by themselves where no catalog knows the core's own events; a machine without them says so.
GENERIC_EVENTS = "cycles,instructions,branches,branch-misses"
_COUNTS_HINT = "tdprof stat --json -o FILE -- CMD makes one, or perf stat -j -o FILE"


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, under the names that its options declare."""

    cpu: str
    catalog_file: Path | None
    metrics: str | None
    stage: str | None
    events: str | None
    interval_ms: int | None
    repeat: int
    passes: bool
    pids: str | None
    all_cpus: bool
    counters: int | None
    counts_file: str | None
    output: Output
    file: Path | None
    command_line: tuple[str, ...]


def count(given: Options) -> int:
    """Count here and now; returns the command's exit status."""
    subject = _subject(given)
    choice = chosen_catalog(given.cpu, given.catalog_file)
    if choice is None and (given.metrics or given.stage):
        raise TdprofError("this is not an Arm machine, so it has no metrics", hint="tdprof stat -- CMD", status=2)
    metrics = select_metrics(choice.catalog, given.metrics, given.stage) if choice else ()
    default = SOFTWARE_EVENTS if choice else f"{SOFTWARE_EVENTS},{GENERIC_EVENTS}"
    plain = parse_events(default if given.events is None else given.events)
    pmu = find_arm_pmu(choice.cpus) if choice else None
    counters = probe_counters(pmu) if pmu and metrics else None
    if counters and given.counters:
        counters = replace(counters, programmable=given.counters)
    plan = plan_counting(choice, metrics, plain, pmu, counters, trial_on(pmu.cpus if pmu else ()))
    writer = _Writer(given, choice)
    writer.prepare()
    writer.say([*plan.notes, *_software_only_notes(choice, plain)])
    measurement, run = measure(
        plan,
        subject,
        repetitions=given.repeat,
        one_pass_per_group=given.passes,
        interval_s=given.interval_ms / 1000 if given.interval_ms else None,
        on_interval=writer.write_interval,
        on_run=_show_run,
    )
    writer.say(_late_notes(run, groups=1 if given.passes else len(plan.groups)))
    if given.interval_ms is None:
        writer.write(measurement, subject, run.exit_status)
    return run.exit_status or 0


def evaluate_file(given: Options, name: str) -> int:
    """Evaluate counts from elsewhere."""
    counting = {
        "command": given.command_line,
        "-p": given.pids,
        "-a": given.all_cpus,
        "-e": given.events,
        "-I": given.interval_ms,
        "-r": given.repeat > 1,
        "--passes": given.passes,
        "--counters": given.counters,
    }
    if refused := [option for option, value in counting.items() if value]:
        raise TdprofError(
            f"--counts evaluates counts that are there already: it takes no {' and no '.join(refused)}",
            hint=f"tdprof stat --counts {name}",
            status=2,
        )
    choice = required_catalog(given.cpu, given.catalog_file)
    metrics = select_metrics(choice.catalog, given.metrics, given.stage)
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise TdprofError(f"cannot read {name}: {error.strerror}", hint=_COUNTS_HINT) from error
    except UnicodeDecodeError as error:
        raise TdprofError(f"{name} is not text: {error.reason} at byte {error.start}", hint=_COUNTS_HINT) from error
    found = parse_counts(text, choice.catalog, name)
    writer = _Writer(given, choice)
    # The catalog's own notes only: these counts need not come from this machine.
    writer.say([*choice.catalog.notes, *found.notes])
    writer.prepare()
    writer.write_counts(evaluate_counts(metrics, found.counts))
    return 0


class _Writer:
    """Prints measurements in the format that was asked for, to stdout or a file, and notes to stderr."""

    def __init__(self, given: Options, choice: CatalogChoice | None) -> None:
        self.given = given
        self.catalog = choice.catalog if choice else None
        stage = int(given.stage) if given.stage in ("1", "2") else None
        is_guided = given.stage is None and given.metrics is None
        self.selection = MetricSelection(choice.catalog, is_guided, stage) if choice else None
        self.notes: list[str] = []
        self.has_written = False
        self._file: BinaryIO | None = None

    def prepare(self) -> None:
        """Make the file before the command runs: a wrong name must not cost its run."""
        if self.given.file is not None:
            with self._named_failures():
                self._file = new_file(self.given.file)

    def say(self, notes: Sequence[str]) -> None:
        """Tell the user, and keep the notes for the result."""
        self.notes += notes
        for note in notes:
            say(f"tdprof: {note}")

    def write_interval(self, measurement: Measurement) -> None:
        match self.given.output.form:
            case Form.JSON:
                self._put(format_json(self._json(measurement, (), {}), one_line=True))
            case Form.CSV:
                self._put(format_csv(measurement, with_heading=not self.has_written))
            case Form.TEXT:
                events = format_events(measurement, self.selection, only_counted=True)
                self._put("\n".join([f"{measurement.end_s:.3f} s", *events, *self._metrics(measurement), ""]))

    def write(self, measurement: Measurement, subject: Subject, exit_status: int | None) -> None:
        self._doubt(measurement)
        match self.given.output.form:
            case Form.JSON:
                extra = {
                    "command": [printable(word) for word in subject.command],
                    "exit_status": exit_status,
                    "repetitions": self.given.repeat,
                }
                self._put(format_json(self._json(measurement, self.notes, extra)))
            case Form.CSV:
                self._put(format_csv(measurement))
            case Form.TEXT:
                parts = [_describe(subject), self.catalog.title if self.catalog else "", f"{measurement.seconds:.3f} s"]
                parts += [f"mean of {self.given.repeat} runs"] if self.given.repeat > 1 else []
                events = format_events(measurement, self.selection)
                self._put("\n".join([", ".join(filter(None, parts)), "", *events, *self._metrics(measurement)]))

    def write_counts(self, measurement: Measurement) -> None:
        self._doubt(measurement)
        match self.given.output.form:
            case Form.JSON:
                self._put(format_json(metrics_json(measurement)))
            case Form.CSV:
                self._put(format_csv(measurement))
            case Form.TEXT:
                self._put("\n".join(self._metrics(measurement)).lstrip("\n"))

    def _metrics(self, measurement: Measurement) -> list[str]:
        if self.selection is None:
            return []
        diagnosis = self._diagnose(measurement)
        advice = advice_along(self.selection.catalog, diagnosis.path)
        return format_metrics(measurement, self.selection, diagnosis, advice)

    def _json(self, measurement: Measurement, notes: Sequence[str], extra: dict[str, Any]) -> dict[str, Any]:
        return measurement_json(measurement, self.catalog, self._diagnose(measurement), notes, extra)

    def _diagnose(self, measurement: Measurement) -> Diagnosis:
        return diagnose_counts(self.catalog, measurement.values()) if self.catalog else NO_DIAGNOSIS

    def _doubt(self, measurement: Measurement) -> None:
        if self.catalog:
            self.say(sum_doubts(self.catalog, measurement.values()))

    def _put(self, text: str) -> None:
        self.has_written = True
        if self._file is None:
            with standard_output():
                click.echo(text)
        else:
            with self._named_failures():
                self._file.write(f"{text}\n".encode())
                self._file.flush()

    @contextlib.contextmanager
    def _named_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TdprofError(f"cannot write {self.given.file}: {error.strerror}", hint="-o FILE") from error


def _describe(subject: Subject) -> str:
    if subject.pids:
        return f"process {', '.join(map(str, subject.pids))}"
    return "all CPUs" if subject.cpus else printable(" ".join(subject.command))


def _subject(given: Options) -> Subject:
    """What to count, checked against the other options."""
    if given.pids and given.all_cpus:
        raise TdprofError("-p and -a exclude each other", hint="give one of them", status=2)
    if not given.command_line and not given.pids and not given.all_cpus:
        raise TdprofError("nothing to count: no command, process or -a", hint="tdprof stat -- CMD", status=2)
    runs_command = bool(given.command_line) and not given.pids and not given.all_cpus
    if runs_command:
        check_command(given.command_line[0])
    again = "--passes" if given.passes else f"-r {given.repeat}" if given.repeat > 1 else ""
    if again and given.interval_ms:
        raise TdprofError(
            f"{again} runs a command again and again, and -I prints what happens during one run",
            hint=f"leave out -I or {again}",
            status=2,
        )
    if again and not runs_command:
        raise TdprofError(
            f"{again} runs a command again and again: it goes with no -p or -a", hint=f"leave out {again}", status=2
        )
    try:
        pids = tuple(int(pid) for pid in given.pids.split(",")) if given.pids else ()
    except ValueError as error:
        raise TdprofError(f"-p takes process numbers, not '{given.pids}'", hint="pgrep -a NAME", status=2) from error
    return Subject(given.command_line, pids, tuple(online_cpus()) if given.all_cpus else ())


def _software_only_notes(choice: CatalogChoice | None, plain: Sequence[Event]) -> list[str]:
    if choice is not None:
        return []
    notes = ["this is not an Arm machine: no Topdown metrics (tdprof stat --counts FILE --cpu NAME evaluates counts)"]
    if not core_pmus() and any(event.type == 0 for event in plain):
        notes.append("no hardware PMU here: software events only")
    return notes


def _late_notes(run: CountedRun, *, groups: int) -> list[str]:
    """What only the run could tell.

    Args:
        groups: how many counter groups took turns.
    """
    notes = []
    if run.user_only:
        notes.append("counted in user space only: sudo sysctl kernel.perf_event_paranoid=1 allows the kernel's share")
    if run.was_interrupted:
        notes.append("interrupted: these are the counts so far")
    if run.uncounted_ns:
        notes.append(
            f"{run.uncounted_ns / 1e9:.2f} s of processor time were not counted: the kernel takes the counters "
            "off programs with other rights (setuid), off those that may not be read, "
            "and off what they start; root counts them all"
        )
    for cpu, counted_ns in run.stopped_cpus.items():
        notes.append(f"CPU {cpu} went offline: nothing of it was counted after {counted_ns / 1e9:.1f} s")
    if groups > 1:
        notes.append(f"{groups} groups of events took turns on the counters; --passes runs the command once for each")
    return notes


def _show_run(number: int, total: int) -> None:
    """Progress of repeated runs, for somebody who watches."""
    if total > 1 and os.isatty(2):
        say(f"tdprof: run {number} of {total}")
