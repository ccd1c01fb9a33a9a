"""What a user chooses of a capture: which samples, what a row is, in what order, and where symbols come from.

Commands declare their options with these, so nothing slow is loaded here.
"""

from collections.abc import Sequence
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

from tdprof.model.time_range import TimeRange
from tdprof.text import printable
from tdprof.values import dataclass


class GroupKind(StrEnum):
    """What samples are added up by."""

    PROCESS = "process"
    THREAD = "thread"
    COMMAND = "command"
    MODULE = "module"
    CGROUP = "cgroup"
    LANGUAGE = "language"
    SECOND = "second"
    PHASE = "phase"
    CPU = "cpu"
    STATE = "state"
    WAKER = "waker"


# Their rows are stretches of time, in order.
TIME_KINDS = (GroupKind.SECOND, GroupKind.PHASE)


class Order(StrEnum):
    """What hotspots are ordered by."""

    SELF = "self"
    TOTAL = "total"


class By(StrEnum):
    """What a row of a report of SPE records is."""

    FUNCTION = "function"
    LINE = "line"
    INSTRUCTION = "instruction"
    SOURCE = "source"
    ADDRESS = "address"  # cache line
    PAGE = "page"


class Basis(StrEnum):
    """What of an event is compared."""

    RUN = "run"  # its amount in a whole run of a command
    SHARE = "share"  # the share of all its samples, since the runs' lengths have no meaning


# How much two runs of one program differ where nothing changed: docs/diff.md.
DEFAULT_NOISE_PERCENT = 4.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Which samples to look at: those that satisfy each field that is not empty; and which frames of them.

    Attributes:
        comms: any of these names of threads or of their processes.
        pids, tids: of processes and threads.
        modules: files, by path or base name, in whose code the sample itself was taken.
        functions: functions anywhere in the call stack, all of them, as `profile.choice.choose_function` takes them.
        cgroups: control groups, as `profile.cgroups.is_named` takes them.
        times: when: any of these ranges.
        has_native: False for what `profile.languages.fold_native` leaves: functions that runtimes run.
    """

    comms: Sequence[str] = ()
    pids: Sequence[int] = ()
    tids: Sequence[int] = ()
    modules: Sequence[str] = ()
    functions: Sequence[str] = ()
    cgroups: Sequence[str] = ()
    times: Sequence[TimeRange] = ()
    has_native: bool = True

    @property
    def words(self) -> str:
        """Which samples were asked for, in the command's words; empty if that is all."""
        names = ("--comm ", "--pid ", "--tid ", "--module ", "--function ", "--where cgroup=", "--time ")
        options = zip(names, fields(self)[: len(names)], strict=True)
        return " ".join(
            f"{option}{printable(str(value))}" for option, each in options for value in getattr(self, each.name)
        )

    @property
    def is_of_time(self) -> bool:
        """Whether stretches of time, and nothing else, choose the samples."""
        return bool(self.times) and self == Selection(times=self.times, has_native=self.has_native)


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class SymbolOptions:
    """Where symbols come from, as the user wants it.

    Attributes:
        symfs: a folder with the recorded machine's files under their own paths; None: this machine's files.
        debug_dirs: folders with separate debug data, searched before ``/usr/lib/debug``.
        use_cache: whether what is read of debug data is kept for the next time.
    """

    symfs: Path | None = None
    debug_dirs: tuple[Path, ...] = ()
    use_cache: bool = True


DEFAULT_SYMBOLS = SymbolOptions()
