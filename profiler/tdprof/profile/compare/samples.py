"""The samples of both profiles by matched function, whole and piece by piece."""

from collections.abc import Sequence

import numpy as np

from tdprof.model.arrays import F64, I32
from tdprof.model.profile import FrameStacks, Profile
from tdprof.profile.compare.matching import MatchedFunctions
from tdprof.profile.compare.significance import Counts
from tdprof.profile.reliability import TOLERANCE
from tdprof.profile.rows import rows_in_stacks
from tdprof.values import dataclass

_MOST_PIECES = 32
_SAMPLES_A_PIECE = 50  # fewer would make all scatter look like chance


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two profiles.

    Attributes:
        row: of each function id, the last of samples without a call stack.
    """

    profile: Profile
    stacks: FrameStacks
    row: I32


def count_samples(
    sides: tuple[Side, Side],
    events: tuple[int, int],
    functions: MatchedFunctions,
    *,
    is_share: bool,
    is_self: bool,
) -> Counts:
    """One event's samples by row, for A and B.

    Args:
        events: the event's index in each.
        functions: the rows.
        is_share: shares are compared, in percent, not amounts.
        is_self: samples with a row's function at the leaf; else anywhere in the stack.
    """
    pieces = _piece_count([(side.profile, event) for side, event in zip(sides, events, strict=True)])
    tables, totals, units, exact = [], [], [], []
    for side, event in zip(sides, events, strict=True):
        table, weight_of_one = _pieces(side, event, len(functions), pieces, is_self=is_self)
        counted = _exact_total(side.profile, event)
        own = side.profile.samples.event == event
        samples = float(side.profile.samples.weight[own].sum()) / weight_of_one
        tables.append(table)
        totals.append(samples)
        exact.append(is_share or counted is not None)
        if is_share:
            units.append(100 / max(samples, 1))
        else:
            units.append(weight_of_one if counted is None else counted / max(samples, 1))
    return Counts(
        a=tables[0].sum(axis=1),
        b=tables[1].sum(axis=1),
        is_kernel=functions.is_kernel,
        all_a=totals[0],
        all_b=totals[1],
        unit_a=units[0],
        unit_b=units[1],
        is_share=is_share,
        is_total_exact=all(exact),
        pieces_a=tables[0],
        pieces_b=tables[1],
    )


def _exact_total(profile: Profile, event: int) -> int | None:
    """What the event counted; None where that is not known, or is not what the samples are of.

    Such as a counter that had to be shared (calibration settles that), or a clock sampled in user space only.
    """
    info = profile.events[event]
    if not info.total or (profile.topdown is None and info.enabled_ns != info.running_ns):
        return None
    sampled = float(profile.samples.weight[profile.samples.event == event].sum())
    return info.total if abs(sampled / info.total - 1) <= TOLERANCE else None


def _piece_count(profiles: Sequence[tuple[Profile, int]]) -> int:
    """As many pieces as both runs have intervals, and samples, for."""
    limits = [_MOST_PIECES]
    for profile, event in profiles:
        chosen = profile.samples.event == event
        limits.append(len(np.unique(profile.samples.time_ns[chosen])))
        limits.append(int(profile.samples.count[chosen].sum()) // _SAMPLES_A_PIECE)
    return max(1, min(limits))


def _pieces(side: Side, event: int, rows: int, pieces: int, *, is_self: bool) -> tuple[F64, float]:
    """float64[rows, pieces]: samples of each row in successive parts of the run, and what one of them weighs.

    Samples of unequal weight count as Kish's effective number of equal ones.
    """
    samples = side.profile.samples
    own = np.flatnonzero(samples.event == event)
    weight = samples.weight[own].astype(np.float64)
    squares = float(np.sum(weight**2 / np.maximum(samples.count[own], 1)))
    weight_of_one = squares / float(weight.sum()) if squares else 1.0
    _, interval = np.unique(samples.time_ns[own], return_inverse=True)
    in_interval = np.bincount(interval, weight) if len(own) else np.zeros(0)
    middle = np.cumsum(in_interval) - in_interval / 2
    piece_of = np.minimum((middle / max(float(in_interval.sum()), 1.0) * pieces).astype(np.int64), pieces - 1)
    stacks = len(side.stacks.start) - 1
    # By stack first: there are far fewer stacks with samples than frames in them.
    key = samples.stack[own].astype(np.int64) * pieces + piece_of[interval]
    by_stack = np.bincount(key, weight / weight_of_one, minlength=stacks * pieces).reshape(stacks, pieces)
    row_of_frame = side.row[side.stacks.function]
    if is_self:
        row, stack = row_of_frame[side.stacks.start[:-1]].astype(np.int64), np.arange(stacks)
    else:
        row, stack = rows_in_stacks(row_of_frame, side.stacks.start, rows)
    result = np.zeros((rows, pieces))
    for piece in range(pieces):
        result[:, piece] = np.bincount(row, by_stack[stack, piece], minlength=rows)[:rows]
    return result, weight_of_one
