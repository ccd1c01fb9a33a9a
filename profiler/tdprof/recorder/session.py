"""One recording from start to end: attached, and run once or several times. Leaves a spool that holds everything."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from tdprof.capture.output_folder import OutputFolder
from tdprof.errors import TdprofError
from tdprof.linux.limits import unlimited_descriptors
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.cgroups import CgroupNaming, ChosenCgroups, chosen_cgroups
from tdprof.recorder.first_files import files_of_command
from tdprof.recorder.host import MAX_SAMPLE_RATE, online_cpus, read_setting
from tdprof.recorder.ladder import BpfAttempt, Choice, begin_load, choose_events
from tdprof.recorder.options import Outcome, RecordOptions
from tdprof.recorder.stop_signals import StopSignals
from tdprof.recorder.table_batch import FirstTables, begin_tables
from tdprof.recorder.targets import Rate, tasks_of
from tdprof.recorder.workload import Workload
from tdprof.unwind.tables import TableCache
from tdprof.values import dataclass

# Slots come up to ten times as often as cycles, and these more often than the three billion a second of a first guess.
_MOST_FOR_A_GUESSED_ONE = 16


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a recording has before the rest of the recorder is loaded, while the kernel verifies programs.

    Attributes:
        signals: that end the recording.
        only_now: to be closed once the recording has begun.
        first: to be closed after the first run.
        folder: what is recorded goes there.
        workload: the command that is recorded.
        meanwhile: the one while which others are.
        cpus: that are up.
        chosen: control groups that are recorded.
        cgroups: how samples name theirs.
        tables: of the files that the command will map first.
        attempt: at the BPF programs.
    """

    options: RecordOptions
    choice: Choice
    signals: StopSignals
    only_now: contextlib.ExitStack
    first: contextlib.ExitStack
    folder: OwnFolder
    workload: Workload | None
    meanwhile: Workload | None
    cpus: list[int]
    chosen: ChosenCgroups | None
    cgroups: CgroupNaming
    tables: FirstTables
    attempt: BpfAttempt


def record(options: RecordOptions, output: OutputFolder) -> Outcome:
    """Record until the command or the processes end, the duration is over, or a signal asks to stop.

    Args:
        options: what to record.
        output: where to; published once recording has begun.

    Raises:
        TdprofError: nothing could be recorded. Once recording has begun, failures are in the outcome instead.
    """
    with contextlib.ExitStack() as stack:
        begun = _begin(within_rate_limit(options, read_setting(MAX_SAMPLE_RATE)), output, stack)
        # Only now: it takes Python about as long as the kernel takes to verify the programs.
        from tdprof.recorder.recording import carry_out

        return carry_out(begun, output, stack)


def _begin(options: RecordOptions, output: OutputFolder, stack: contextlib.ExitStack) -> Beginning:
    """Hold the command, and have the kernel take the programs meanwhile."""
    named_threads = len(tasks_of(options.pids)[1])
    choice = choose_events(options.events)
    signals, only_now = _hear_signals(stack)
    folder = output.make()
    first, workload, meanwhile = _hold(options, stack)
    cpus = online_cpus()
    chosen = stack.enter_context(chosen_cgroups(options.cgroups)) if options.cgroups else None
    cgroups = CgroupNaming.choose(chosen, is_wanted=options.is_system_wide)
    files = files_of_command(options.command) if options.command else []
    tables = begin_tables(files, TableCache()) if options.call_graph.is_by_tables else FirstTables()
    stack.callback(tables.close)
    attempt = begin_load(options, choice, cgroups, files, cpus=len(cpus), named_threads=named_threads)
    stack.callback(attempt.close)
    return Beginning(
        options,
        choice,
        signals,
        only_now,
        first,
        folder,
        workload,
        meanwhile,
        cpus,
        chosen,
        cgroups,
        tables,
        attempt,
    )


def _hold(
    options: RecordOptions, stack: contextlib.ExitStack
) -> tuple[contextlib.ExitStack, Workload | None, Workload | None]:
    """What to close after the first run; the command that is recorded, or the one while which others are."""
    first = stack.enter_context(contextlib.ExitStack())
    workload = first.enter_context(Workload(options.command, options.variables)) if options.command else None
    meanwhile = first.enter_context(Workload(options.meanwhile)) if options.meanwhile else None
    first.enter_context(unlimited_descriptors())  # for what is opened from here on; the commands are forked already
    return first, workload, meanwhile


def _hear_signals(stack: contextlib.ExitStack) -> tuple[StopSignals, contextlib.ExitStack]:
    """Signals that end the recording, and what is to be closed once it has begun."""
    signals = stack.enter_context(StopSignals())
    beginning = stack.enter_context(contextlib.ExitStack())
    beginning.enter_context(_interrupted_by(signals))
    return signals, beginning


@contextlib.contextmanager
def _interrupted_by(signals: StopSignals) -> Iterator[None]:
    """Failures are put down to a signal that came: in a terminal it ends the command as well, which is then missed."""
    try:
        yield
    except (TdprofError, OSError) as error:
        if signals.received is None:
            raise
        raise TdprofError("interrupted before recording began", status=128 + signals.received) from error


def within_rate_limit(options: RecordOptions, setting: int | None) -> RecordOptions:
    """The options with a frequency that the kernel admits: where interrupts take too long, it lowers its limit.

    Topdown's periods are fixed: an event that comes more often than they were made for would be paused in each of the
    kernel's ticks, would count nothing then, and of those that follow tasks nothing would tell it.
    """
    wanted = options.rate.frequency_hz
    if setting is None or setting < 1:
        return options
    room = _MOST_FOR_A_GUESSED_ONE if options.topdown else 1
    limit = max(setting // room, 1)
    if wanted <= limit:
        return options
    note = (
        f"sampled {limit} times a second, not {wanted}: that is all the kernel admits now "
        f"(sudo sysctl kernel.perf_event_max_sample_rate={wanted * room})"
    )
    return replace(options, rate=Rate(frequency_hz=limit), notes=[*options.notes, note])
