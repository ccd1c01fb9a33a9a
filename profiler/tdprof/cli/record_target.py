"""Whom `tdprof record` samples, and for how long."""

from collections.abc import Sequence

import click

from tdprof.cli.option_groups import adding, list_option
from tdprof.errors import TdprofError
from tdprof.values import dataclass

_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """As they were typed; see ``target_options``."""

    words: Sequence[str]
    pids: str | None
    is_system_wide: bool
    cgroups: Sequence[str]
    duration_s: float | None

    @property
    def is_whole_system(self) -> bool:
        """Whether nothing but the whole system is meant."""
        return self.is_system_wide and not (self.pids or self.cgroups)

    @property
    def is_command(self) -> bool:
        """Whether the command is what is recorded; beside other targets it only says for how long."""
        return bool(self.words) and not (self.is_system_wide or self.pids or self.cgroups)

    def check(self) -> None:
        """Raises TdprofError: there is nothing to record, or there are several things."""
        is_system_wide = self.is_system_wide or bool(self.cgroups)
        if self.is_command or bool(self.pids) + is_system_wide == 1:
            return
        what = "-p and -a or --cgroup exclude each other" if self.pids else "nothing to record"
        raise TdprofError(what, hint="tdprof record -- CMD, tdprof record -p PID, or tdprof record -a", status=2)

    def check_duration(self) -> None:
        """Raises TdprofError: it is no time."""
        if self.duration_s is not None and not self.duration_s <= _LONGEST_S:  # nor a number
            what = f"--duration takes a number of seconds, not {self.duration_s}"
            raise TdprofError(what, hint="--duration 10", status=2)

    def process_ids(self) -> list[int]:
        """Of the processes that run already.

        Raises:
            TdprofError: what was typed is none.
        """
        try:
            return [int(part) for part in self.pids.split(",")] if self.pids else []
        except ValueError as error:
            hint = "tdprof record -p 1234,5678"
            raise TdprofError(f"-p takes process IDs, not '{self.pids}'", hint=hint, status=2) from error


target_options = adding(
    list_option("-p", "--pid", "pids", metavar="PID,…", help="Record running processes."),
    click.option("-a", "--all-cpus", "is_system_wide", is_flag=True, help="Record the whole system."),
    click.option(
        "--cgroup",
        "cgroups",
        multiple=True,
        metavar="PATH",
        help="Record what runs in this control group or below it, now and later: its folder, or its path below the "
        "hierarchy's root. May be repeated.",
    ),
    click.option(
        "--duration",
        "duration_s",
        type=click.FloatRange(0, min_open=True),
        metavar="SECONDS",
        help="Stop after that time; the command goes on without being sampled.",
    ),
)
