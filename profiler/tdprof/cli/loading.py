"""The capture that a subcommand reads, and the wait for it."""

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tdprof.cli.capture_options import Input, is_perf_data
from tdprof.cli.memory import KEPT_BYTES, keep_process_small
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import DEFAULT_SYMBOLS, EVERYTHING, Selection, SymbolOptions
from tdprof.model.findings import Findings
from tdprof.model.losses import Losses
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings, load_profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.calibrate import calibrated
from tdprof.profile.languages import fold_native
from tdprof.profile.reliability import turns_doubt
from tdprof.profile.selection import select, why_no_metrics

if TYPE_CHECKING:
    from tdprof.model.spe import FunctionOperations


@contextlib.contextmanager
def as_capture(path: Path, *, keeps_time: bool = True) -> Iterator[Path]:
    """A capture's folder: the path itself, or a temporary one made of what ``perf record`` left.

    Args:
        path: a capture's folder, or perf.data in any form.
        keeps_time: of perf.data; False where only sums over the whole recording are wanted, which takes less memory.
    """
    keep_process_small(KEPT_BYTES)
    if not is_perf_data(path):
        yield path
        return
    from tdprof.cli.perf_data import import_with_progress

    with tempfile.TemporaryDirectory(prefix="tdprof-") as folder:
        imported = Path(folder, "capture")
        import_with_progress(str(path), imported, keeps_time=keeps_time)
        yield imported


@contextlib.contextmanager
def open_input(
    source: Input,
    symbols: SymbolOptions = DEFAULT_SYMBOLS,
    *,
    keeps_time: bool = True,
    most_spe_samples: int | None = None,
) -> Iterator[OpenCapture]:
    """A capture, or one made of what ``perf record`` left, open for the whole of a command.

    Args:
        source: what the user named; its manifest is not read again.
        keeps_time: as `as_capture` takes it.
        symbols, most_spe_samples: as `OpenCapture` takes them.
    """
    with (
        as_capture(source.path, keeps_time=keeps_time) as folder,
        OpenCapture(folder, symbols, most_spe_samples=most_spe_samples, manifest=source.manifest) as capture,
    ):
        yield capture


def load_with_findings(
    capture: OpenCapture,
    shown: Path,
    *,
    with_spe: bool = True,
    selection: Selection = EVERYTHING,
    by_time: bool = False,
) -> tuple[Profile, Findings | None]:
    """A capture's profile ready to be shown: each event once, calibrated, and the metrics of its code.

    What SPE measured stands beside the PMU's metrics, or alone where there was no Topdown recording. While it lasts
    stderr says so, if it is a terminal.

    Args:
        capture: the capture.
        shown: its name for the user.
        with_spe: False where nobody looks at what SPE measured, which saves reading it.
        selection: which samples are wanted; of some alone there is nothing that SPE measured, and no metrics unless
            these are all of a stretch of time.
        by_time: also metrics of the whole program over time.
    """
    with waiting(f"reading {shown}") as capture.progress:
        profile = load_profile(capture)
    if not selection.has_native:
        profile = fold_native(profile)
    if selection.words:
        return _part_with_findings(profile, selection, by_time=by_time)
    # SPE's records have no callers that they could be counted to.
    with_spe = with_spe and capture.has_spe and selection.has_native
    if profile.topdown is None and not with_spe:
        return profile, None
    with waiting("adding up metrics") as capture.progress:
        findings, why_none = _find_findings(profile, by_time=by_time)
        if why_none:
            profile = profile.without(why_none)
        if with_spe:
            # Only now: SPE's part of the program is not needed for anything else.
            from tdprof.pipeline.spe_columns import join_spe

            try:
                findings = join_spe(findings, capture, profile)
                for reason in capture.spe_lines.unreadable if len(profile.samples.stack) else ():
                    profile = profile.without(reason)
            except TdprofError as error:
                profile = profile.without_spe(error)
        return calibrated(profile), findings


def _find_findings(profile: Profile, part: Profile | None = None, *, by_time: bool) -> tuple[Findings | None, str]:
    """Metrics, or why there are none though they were recorded: the recording's catalog cannot be read."""
    try:
        return find_findings(profile, part=part, by_time=by_time), ""
    except TdprofError as error:
        return None, f"no metrics: {error.message}"


def _part_with_findings(profile: Profile, selection: Selection, *, by_time: bool) -> tuple[Profile, Findings | None]:
    if profile.topdown is None or why_no_metrics(profile, selection):
        return select(calibrated(profile), selection), None
    part = select(profile, selection)
    with waiting("adding up metrics"):
        findings, why_none = _find_findings(profile, part, by_time=by_time)
    part = calibrated(part, profile)
    # In the note on what was chosen, which `annotate` shows as well.
    chosen, *others = part.notes
    unread = [why_none] if why_none else []
    notes = ["; ".join([chosen, *turns_doubt(part, profile)]), *unread, *others]
    return replace(part, notes=notes, unreadable=[*part.unreadable, *unread]), findings


def with_function_operations(
    capture: OpenCapture, profile: Profile, selection: Selection = EVERYTHING
) -> "tuple[Profile, FunctionOperations | None]":
    """What SPE measured of each function, latencies and sources included; None without SPE records, or of a selection.

    The profile has a note where there are some that cannot be read.
    """
    if not capture.has_spe or selection != EVERYTHING:
        return profile, None
    from tdprof.pipeline.spe_columns import count_functions

    with waiting("adding up SPE records") as capture.progress:
        try:
            return profile, count_functions(capture, profile)
        except TdprofError as error:
            return profile.without_spe(error), None


def say_losses(losses: Losses, unreadable: Sequence[str] = ()) -> None:
    """On stderr, what of a capture was lost or cannot be read, for a command whose output has no place for it."""
    from tdprof.report.summary import loss_lines

    for line in (*unreadable, *loss_lines(losses)):
        say(f"tdprof: {line}")


def check_has_wakers(profile: Profile, capture: Path) -> None:
    """Raises TdprofError where a profile does not say who ended sleeps."""
    if profile.wakers is None:
        raise TdprofError(f"{capture} does not tell who woke threads", hint="tdprof record --wakers keeps it")


def find_event(profile: Profile, name: str | None, beside: Sequence[str] = ()) -> int:
    """The index of an event by its name; the first without one. ``beside``: what else could have been given.

    Raises:
        TdprofError: the capture has no such event.
    """
    names = [event.name for event in profile.events]
    if name is None:
        return 0
    if name not in names:
        raise TdprofError(
            f"the capture has no event '{name}'", hint=f"one of: {', '.join([*beside, *names])}", status=2
        )
    return names.index(name)
