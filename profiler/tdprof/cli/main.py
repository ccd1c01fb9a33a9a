"""The `tdprof` command: finds the subcommand's module only when it is asked for."""

import contextlib
import errno
import importlib
import os
import resource
import signal
import sys
from pathlib import Path

import click

from tdprof import __version__
from tdprof.cli.output import standard_output
from tdprof.cli.process_end import leave
from tdprof.cli.standard_error import open_standard_streams, say
from tdprof.cli.usage import SuggestingGroup, is_help, usage_error
from tdprof.errors import TdprofError
from tdprof.linux.folder_path import whose
from tdprof.linux.temporary import avoid_temporary_folders_of_others
from tdprof.text import printable

_LEAST_DESCRIPTORS = 64
_ENOUGH_DESCRIPTORS = 1024
_OWN_DESCRIPTORS = 4  # input, output, errors, and the list of them
_OF_PATHS = (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)  # what a user can have named
# subcommand: (module in tdprof.cli that defines a click command named `command`, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "record": ("record", "sample a command, processes or the whole system into a capture"),
    "report": ("report", "print a capture's hotspots by function or source line"),
    "annotate": ("annotate", "print a function's source or instructions with the samples of each line"),
    "diff": ("diff", "what changed between two captures, and whether a build should fail"),
    "export": ("export", "write a capture as an HTML page, speedscope, pprof or folded stacks"),
    "push": ("push", "send captures to Pyroscope or Parca"),
    "view": ("view", "look at a capture in the browser: speedscope, or a page of its own"),
    "archive": ("archive", "put its symbols into a capture, to read it on another machine"),
    "cache": ("cache", "show and prune what is kept of debug data"),
    "doctor": ("doctor", "check what this machine can record, and how to get more"),
    "spe": ("spe", "print or decode data of Arm's Statistical Profiling Extension"),
    "import": ("import_", "make a capture of what perf record wrote"),
    "stat": ("stat", "count events; metrics as the Topdown tree"),
    "fleet": ("fleet", "many hosts: a store of captures, and metrics with intervals over them"),
    "list": ("list", "what is known of a core: events, metrics, groups, tree"),
}


class LazyGroup(SuggestingGroup):
    """Imports a subcommand's module when it is used, so that `record` does not pay for `report`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tdprof.cli.{COMMANDS[cmd_name][0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tdprof")
def cli() -> None:
    """Sample a program and say where it spends its time, and why.

    \b
    tdprof record -- ./app        sample a command into the folder tdprof.capture
    tdprof report tdprof.capture  hotspots by function
    tdprof doctor                 what this machine can record, and how to get more
    """


def _run() -> object:
    try:
        return cli.main(prog_name="tdprof", standalone_mode=False)
    except click.ClickException as error:
        if is_help(error):
            error.show()
            sys.exit(error.exit_code)
        raise usage_error(error) from error


def run_process() -> None:
    """Entry point of the process: `main`, and its end."""
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        leave(ended.code)


def _interrupted() -> int:
    say("tdprof: interrupted")
    return 128 + signal.SIGINT


def main() -> None:
    """Run a command: every TdprofError becomes one line, its hint and an exit status (SystemExit)."""
    open_standard_streams()
    if refused := avoid_temporary_folders_of_others():
        say(f"tdprof: temporary files go to /tmp: {refused}")
    try:
        try:
            _check_descriptors()
            status = _run()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise _too_many_files("too many open files") from error
            if isinstance(error, FileNotFoundError) and error.filename is None and "temporary directory" in str(error):
                # Python's tempfile says so without a name; to whom else a file is missing gives its own.
                raise TdprofError("no folder for temporary files can be written to", hint="TMPDIR=DIR") from error
            if error.errno in _OF_PATHS and isinstance(error.filename, str | bytes):
                name = printable(os.fsdecode(error.filename))
                hint = whose(Path(name)) if isinstance(error, PermissionError) else ""
                raise TdprofError(f"cannot use {name}: {error.strerror}", hint=hint) from error
            # Help and version are click's to print; an error from elsewhere is a mistake of ours.
            from traceback import walk_tb  # only now: most commands end without it

            is_clicks = any(frame.f_code is click.echo.__code__ for frame, _ in walk_tb(error.__traceback__))
            with standard_output() if is_clicks else contextlib.nullcontext():
                raise
    except TdprofError as error:
        say(f"tdprof: {error.message}")
        if error.hint:
            say(f"  try: {error.hint}")
        status = error.status
    except MemoryError:
        print("tdprof: there is not enough memory for this", file=sys.stderr)
        status = 1
    except (click.Abort, KeyboardInterrupt):
        status = _interrupted()
    except RuntimeError as error:
        # What comes while a class is made Python before 3.12 tells as its failure.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        status = _interrupted()
    sys.exit(status if isinstance(status, int) else 0)


def _check_descriptors() -> None:
    """With fewer, what cannot be opened would be taken for what is not there: a PMU, a library, a file's symbols."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _ENOUGH_DESCRIPTORS:
        return
    inherited = len(os.listdir("/proc/self/fd")) - _OWN_DESCRIPTORS
    if limit - max(inherited, 0) < _LEAST_DESCRIPTORS:
        beside = f" beside {inherited} that its caller left open" if inherited > 0 else ""
        usable = limit - max(inherited, 0)
        raise _too_many_files(f"only {usable} files may be open at once{beside}, {_LEAST_DESCRIPTORS} are needed")


def _too_many_files(message: str) -> TdprofError:
    return TdprofError(message, hint="ulimit -n 1024, or more for many threads and CPUs")
