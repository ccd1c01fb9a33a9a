"""What every report for people says of a profile before its numbers: what was measured, how, and what is missing."""

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime

from tdprof.capture.manifest import Rung
from tdprof.model.addresses import Unknown
from tdprof.model.arrays import distinct
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses
from tdprof.model.off_cpu import TimeSpent
from tdprof.model.profile import Profile, StackWalks, TimeWindow
from tdprof.model.runtimes import RUNTIMES
from tdprof.model.stack_ends import StackEnd
from tdprof.profile.hotspots import UnknownSamples
from tdprof.profile.idle import IDLE, idle_ns
from tdprof.profile.runtimes import (
    PYTHON_LOOP,
    hidden_languages,
    java_interpreted,
    java_without_lines,
    python_hidden,
    runtimes_without_map,
)
from tdprof.text import format_seconds, percent_of, plural, printable

_LEAST_HIDDEN = 0.01  # share of the samples that a language is worth a line for
LOSSES = {
    "samples_map_full": "sample{s} lost: the table in the kernel was full (sample less often: -F)",
    "samples_ring_full": "sample{s} lost: the ring buffer was full (sample less often: -F)",
    "samples_outside_namespace": "sample{s} of processes outside the recorder's pid namespace",
    "user_stacks_unreadable": "sample{s} without a user call stack: it could not be read",
    "kernel_stacks_unreadable": "sample{s} without a kernel call stack: it could not be read",
    "stack_id_collisions": "sample{s} without a call stack: two stacks shared one slot",
    "stacks_truncated": "call stack{s} along frame pointers cut off after 127 addresses (or led in circles)",
    "side_band_records_lost": "record{s} of mappings and threads lost: symbols may be wrong or missing",
    "throttled": "time{s} the kernel paused an event for interrupting too often (sample less often: -F); "
    "it did not count meanwhile either, but with BPF a command's, processes' and control groups' events do",
    "bytes_damaged": "byte{s} of the capture could not be read",
}

REASONS = {
    None: "no call stack",
    Unknown.NO_MAPPING: "no known mapping covers the address",
    Unknown.NO_FILE: "the mapped file cannot be read here (--symfs DIR, or tdprof archive where it was recorded)",
    Unknown.WRONG_BUILD_ID: "another file than the recorded one has the path (--symfs DIR with the recorded one)",
    Unknown.STRIPPED: "the file has no symbols (install its -dbgsym or -debuginfo package, or set DEBUGINFOD_URLS)",
    Unknown.NO_SYMBOL: "no symbol of the file covers the address",
    Unknown.DAMAGED: "the file's symbol data is damaged (install the file again)",
    Unknown.NO_PERF_MAP: "run-time code that no /tmp/perf-PID.map names",
    Unknown.HIDDEN_KERNEL: "the capture has no kernel symbols: hidden when recording (kptr_restrict), or lost since",
}


def facts(profile: Profile) -> list[tuple[str, str]]:
    """(label, value): what was recorded, when and how long, how many processes and threads, the rung."""
    pid, tid = profile.samples.pid, profile.samples.tid
    measured = format_value(profile.duration_ns, Unit.NANOSECONDS)
    if profile.start_realtime_ns:  # perf.data seldom says when it was recorded
        with contextlib.suppress(OverflowError, ValueError, OSError):  # a date that no calendar has
            started = datetime.fromtimestamp(profile.start_realtime_ns // 1_000_000_000, UTC)
            measured += f" from {started:%Y-%m-%d %H:%M:%S} UTC"
    rung = f"{profile.rung} ({profile.rung_reason})" if profile.rung_reason else profile.rung
    return [
        what_was_recorded(profile),
        ("measured", measured),
        *([] if profile.window is None else [("time", describe_window(profile.window))]),
        ("sampled", f"{plural(len(distinct(pid)), 'process', 'es')}, {plural(len(distinct(tid)), 'thread', 's')}"),
        ("rung", rung),
        *([] if profile.walks is None else [("stacks", stack_quality(profile, profile.walks))]),
        *([] if profile.thread_times is None else _time_spent(profile.thread_times.total())),
        *_idle(profile),
    ]


def _idle(profile: Profile) -> Iterator[tuple[str, str]]:
    if idle := idle_ns(profile):
        yield "idle", f"{format_value(idle, Unit.NANOSECONDS)} of threads with nothing to do, {IDLE} in call stacks"


def _time_spent(time: TimeSpent) -> Iterator[tuple[str, str]]:
    running, runnable, asleep, uninterruptible = (format_value(each, Unit.NANOSECONDS) for each in time.spent_ns)
    sentence = (
        f"{running} on a CPU + {runnable} waiting for one + {asleep} asleep + {uninterruptible} asleep beyond signals "
        f"= {format_value(time.wall_ns, Unit.NANOSECONDS)} of {plural(time.threads, 'thread', 's')}"
    )
    if time.unaccounted_ns:
        sentence += f", but for {format_value(abs(time.unaccounted_ns), Unit.NANOSECONDS)} that is not accounted for"
    yield "spent", sentence
    if time.unsampled_ns:
        threads = plural(time.unsampled_threads, "thread", "s")
        waited = format_value(time.unsampled_ns, Unit.NANOSECONDS)
        yield "no sample", f"{waited} of it: {threads} still waited in the end"


def what_was_recorded(profile: Profile) -> tuple[str, str]:
    """A word for it, and the command, or the processes, control groups or machine."""
    if profile.command or not profile.target:
        return "command", printable(shlex.join(profile.command)) or "(not known)"
    return "recorded", profile.target


def describe_window(window: TimeWindow) -> str:
    """What of the recording's time is shown, since its start, and how finely the capture knows time."""
    covered = " and ".join(f"{format_seconds(begin)} to {format_seconds(end)}" for begin, end in window.covered)
    if window.grain_ns is None:
        return f"{covered}, by the time of each sample"
    asked = " and ".join(f"{format_seconds(begin)} to {format_seconds(end)}" for begin, end in window.asked)
    return (
        f"{covered}: the intervals, of about {format_seconds(window.grain_ns)}, whose middle is within {asked}; "
        "each counts whole"
    )


def meaning_of_end(end: StackEnd, profile: Profile) -> str:
    """Why stacks end there, and what keeps those whole of the runtimes that were seen."""
    seen = {name for names in profile.runtimes.values() for name in names}
    ways = [
        f"{runtime.called} keeps them with {runtime.to_start}"
        for runtime in RUNTIMES
        if end is StackEnd.JIT and runtime.to_start and runtime.called in seen
    ]
    return end.meaning + (f" ({'; '.join(ways)})" if ways else "")


def stack_quality(profile: Profile, walks: StackWalks) -> str:
    """How many samples have their whole user call stack, and the commonest reasons why others have not."""
    if list(walks.ends) == [StackEnd.FRAME_POINTERS_ONLY]:
        return "frame pointers only: callers may be missing or wrong, and which is not known"
    total = walks.total
    parts = [f"{percent_of(walks.ends.get(StackEnd.COMPLETE, 0), total)} of samples have complete user stacks"]
    others = [(end, count) for end, count in walks.ends.items() if end is not StackEnd.COMPLETE]
    reasons = [f"{percent_of(count, total)} {end.word}: {meaning_of_end(end, profile)}" for end, count in others[:2]]
    if rest := sum(count for _, count in others[2:]):
        reasons.append(f"{percent_of(rest, total)} for other reasons")
    if reasons:
        parts[0] += f" ({'; '.join(reasons)})"
    if walks.guessed:
        parts.append(f"in {percent_of(walks.guessed, total)} some callers are guessed (their names say so)")
    return "; ".join(parts)


def doubts(profile: Profile, unknown: list[UnknownSamples]) -> list[str]:
    """What a reader of the numbers should know, a line each: notes, losses, samples in no known function."""
    return [*map(printable, profile.notes), *loss_lines(profile.losses), *_unknown(profile, unknown), *_hidden(profile)]


def loss_lines(losses: Losses) -> Iterator[str]:
    """How much went missing, a line for each way."""
    for each in fields(losses):
        if each.name == "by_reason":
            continue
        if count := getattr(losses, each.name):
            yield f"{count:,} {LOSSES[each.name].format(s='' if count == 1 else 's')}"
    for reason, count in losses.by_reason.items():
        yield f"{count:,} lost: {printable(reason)}"


def no_samples(told: Sequence[str]) -> str:
    """What to say where there are none, below the doubts that are told."""
    briefly = "the command ran too briefly, or never on a CPU that was measured"
    return f"No samples. Unless a line above says why, {briefly}." if told else f"No samples: {briefly}."


def asked_for(event: EventInfo) -> str:
    """The rate or period that samples of an event were asked for at; empty if not known."""
    if event.frequency_hz:
        return f"{event.frequency_hz:,} Hz"
    return f"every {format_value(event.period, event.unit)}" if event.period else ""


def event_notes(event: EventInfo, weight: int) -> Iterator[str]:
    """How far the samples' sum of weights goes with the exact count, a phrase each."""
    if event.total:
        yield f"samples stand for {weight / event.total:.1%} of it"
    if event.enabled_ns and event.running_ns is not None and event.running_ns < event.enabled_ns:
        yield f"counted {event.running_ns / event.enabled_ns:.1%} of the time"


def _unknown(profile: Profile, unknown: list[UnknownSamples]) -> Iterator[str]:
    total = int(profile.samples.count.sum())
    for each in unknown:
        hint = _how_to_name(profile) if each.reason is Unknown.NO_PERF_MAP else ""
        yield f"{_share(each.samples, total)} in no known function: {REASONS[each.reason]}{hint}"


def _share(samples: int, total: int) -> str:
    return f"{plural(samples, 'sample', 's')} ({percent_of(samples, total)})"


def _hidden(profile: Profile) -> Iterator[str]:
    """What to say of interpreters whose functions no call stack shows."""
    total = int(profile.samples.count.sum())
    for runtime, count in hidden_languages(profile):
        if count >= _LEAST_HIDDEN * total:
            way = f"; compiled ones are named with {runtime.to_write_a_map}" * bool(runtime.to_write_a_map)
            yield (
                f"{_share(count, total)} of {runtime.language} programs, whose own "
                f"functions are not in call stacks: only their interpreter's{way}"
            )
    if (count := python_hidden(profile)) >= max(1, _LEAST_HIDDEN * total):
        yield (
            f"{_share(count, total)} in Python code whose functions are not in "
            f"call stacks, only {PYTHON_LOOP}: {_why_python_is_hidden(profile)}"
        )
    if (count := java_without_lines(profile)) >= max(1, _LEAST_HIDDEN * total):
        yield (
            f"{_share(count, total)} in compiled Java methods count as these alone, "
            "also where they are of methods that were inlined: a JVM keeps that if started by record --perf-maps -- CMD"
        )
    if (count := java_interpreted(profile)) >= max(1, _LEAST_HIDDEN * total):
        yield (
            f"{_share(count, total)} in Java methods that the JVM interprets: these "
            "have no names, and count as Interpreter"
        )


def _why_python_is_hidden(profile: Profile) -> str:
    if profile.rung in (Rung.RING_BUFFER, Rung.PERF_DATA):
        return "only with BPF are they walked (tdprof doctor); python3 -X perf names them (CPython 3.12 and later)"
    return (
        "where no line above says why, they ran before their program was found, or record was told not to look "
        "(--no-interpreters)"
    )


def _how_to_name(profile: Profile) -> str:
    """What makes the runtimes that were seen write a perf map."""
    ways = [each.to_write_a_map or f"{each.called} writes none" for each in runtimes_without_map(profile)]
    return f" ({'; '.join(ways or ['let its runtime write one: docs/symbols.md'])})"


def format_value(value: int, unit: Unit) -> str:
    """A count or duration with four significant digits and the unit's prefix; small counts exactly."""
    steps: tuple[tuple[float, str], ...]
    match unit:
        case Unit.NANOSECONDS:
            steps = ((1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1, " ns"))
        case Unit.BYTES:
            steps = ((2**40, " TiB"), (2**30, " GiB"), (2**20, " MiB"), (2**10, " KiB"), (1, " B"))
        case Unit.COUNT:
            steps = ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1, ""))
    scale, suffix = next((step for step in steps if value >= step[0]), steps[-1])
    if scale == 1:
        return f"{value:,}{suffix}"
    scaled = value / scale
    return f"{scaled:,.{max(0, 3 - len(str(int(scaled))) + 1)}f}{suffix}"
