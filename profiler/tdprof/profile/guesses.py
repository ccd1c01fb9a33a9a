"""Callers that were guessed: what says so of a function, of a call and of a stack.

A function is one whether who called what it calls is known or was guessed. So a guess is of a location, not of a name,
and names are marked where they are shown: with the part of the samples that have the function as a guess alone.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tdprof.model.arrays import F64, I32, I64
from tdprof.model.profile import FrameStacks, LocationTable, Profile
from tdprof.profile.frames import frame_stacks, function_names
from tdprof.profile.rows import rows_in_stacks


def mark_guesses(
    locations: LocationTable, stack_location: I32, is_guess: NDArray[np.bool_]
) -> tuple[LocationTable, I32]:
    """Give callers that were guessed locations that say so.

    Args:
        locations: as `name_locations` gives them.
        stack_location: the locations of all stacks.
        is_guess: bool, for each of those.

    Returns:
        The table with a location more for each that is a guess anywhere, and the stacks' locations.
    """
    guessed, which = np.unique(stack_location[is_guess], return_inverse=True)
    if not len(guessed):
        return locations, stack_location
    first, last = locations.frame_start[guessed].astype(np.int64), locations.frame_start[guessed + 1].astype(np.int64)
    lengths = last - first
    frames = np.repeat(last - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
    marked = stack_location.copy()
    marked[is_guess] = len(locations.address) + which
    return (
        LocationTable(
            mapped_file=np.append(locations.mapped_file, locations.mapped_file[guessed]),
            address=np.append(locations.address, locations.address[guessed]),
            reason=np.append(locations.reason, locations.reason[guessed]),
            frame_start=np.append(
                locations.frame_start, (locations.frame_start[-1] + np.cumsum(lengths)).astype(np.uint32)
            ),
            frame_function=np.append(locations.frame_function, locations.frame_function[frames]),
            frame_line=np.append(locations.frame_line, locations.frame_line[frames]),
            is_guess=np.append(locations.is_guess, np.ones(len(guessed), bool)),
        ),
        marked,
    )


def have_guess(profile: Profile) -> NDArray[np.bool_]:
    """bool[stacks]: which have callers that were guessed."""
    return np.logical_or.reduceat(guessed_frames(profile), frame_stacks(profile).start[:-1])


def guessed_frames(profile: Profile) -> NDArray[np.bool_]:
    """bool, for each frame of `frame_stacks`: whether it is a caller that was guessed."""
    locations, stacks = profile.locations, profile.stacks
    if not locations.is_guess.any():
        return np.zeros(len(frame_stacks(profile).function), bool)
    frames: I64 = np.diff(locations.frame_start.astype(np.int64)).astype(np.int64)[stacks.location]
    is_guess = np.repeat(locations.is_guess[stacks.location], frames)
    # A stack without locations has one frame.
    empty = np.flatnonzero(np.diff(stacks.start.astype(np.int64)) == 0)
    return np.insert(is_guess, frame_stacks(profile).start[empty] - np.arange(len(empty)), False)


def guessed_shares(profile: Profile) -> F64:
    """float64[functions + 1]: the part of each function's samples, of all events, in whose stacks it is a guess alone.

    The last is that of samples without a call stack, 0.
    """
    functions = len(profile.functions.name) + 1
    if not profile.locations.is_guess.any():
        return np.zeros(functions)
    stacks, is_known = frame_stacks(profile), ~guessed_frames(profile)
    function = np.where(stacks.function < 0, functions - 1, stacks.function).astype(np.int32)
    known_start = np.append(0, np.cumsum(is_known))[stacks.start]
    count = np.bincount(profile.samples.stack, profile.samples.count, minlength=len(stacks.start) - 1)
    whole, known = (
        np.bincount(row, count[stack], minlength=functions)
        for row, stack in (
            rows_in_stacks(function, stacks.start, functions),
            rows_in_stacks(function[is_known], known_start, functions),
        )
    )
    with np.errstate(invalid="ignore"):
        return np.nan_to_num((whole - known) / whole)


def guess_marks(shares: F64) -> list[str]:
    """What stands behind names: nothing, `` [guessed]``, or of how large a part that is true."""
    return [f" [{words}]" if words else "" for words in map(_words, shares.tolist())]


def guess_words(shares: F64) -> list[str]:
    """The same without brackets."""
    return [_words(share) for share in shares.tolist()]


def _words(share: float) -> str:
    if share <= 0 or share >= 1:
        return "guessed" if share >= 1 else ""
    percent = "<1" if share < 0.01 else ">99" if share > 0.99 else f"{100 * share:.0f}"
    return f"guessed {percent} %"


def marked_names(profile: Profile) -> list[str]:
    """`function_names`, with what part of each one's samples has it as a guess alone."""
    marks = guess_marks(guessed_shares(profile))
    return [name + mark for name, mark in zip(function_names(profile), marks, strict=True)]


def marked_stacks(profile: Profile) -> tuple[FrameStacks, list[str]]:
    """The stacks with each frame that is a guess named so, for what shows stacks one by one.

    Returns:
        The frames, and the printable names of their functions, ``NO_STACK`` last.
    """
    stacks, names = frame_stacks(profile), function_names(profile)
    if not profile.locations.is_guess.any():
        return stacks, names
    count = len(names) - 1
    function = np.where(guessed_frames(profile), stacks.function + np.int32(count), stacks.function)
    guesses = (f"{name} [guessed]" for name in names[:-1])
    return replace(stacks, function=function.astype(np.int32)), [*names[:-1], *guesses, names[-1]]
