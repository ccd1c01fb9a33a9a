"""Frames that are no code, but say something of the call stack that they stand in."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tdprof.model.addresses import Unknown
from tdprof.model.profile import FunctionTable, LocationTable, Profile


def with_markers(profile: Profile, names: Sequence[str]) -> Profile:
    """The profile with a function and a location for each name, behind all that it has."""
    functions, locations, count = profile.functions, profile.locations, len(names)
    numbers = np.arange(1, count + 1)
    return replace(
        profile,
        functions=FunctionTable(
            [*functions.name, *names],
            [*functions.linkage_name, *names],
            [*functions.file, *[""] * count],
            np.append(functions.mapped_file, np.full(count, -1, np.int32)),
            np.append(functions.is_inlined, np.zeros(count, np.uint8)),
            None
            if functions.whole is None
            else np.append(functions.whole, (len(functions.name) + numbers - 1).astype(np.int32)),
        ),
        locations=LocationTable(
            np.append(locations.mapped_file, np.full(count, -1, np.int32)),
            np.append(locations.address, np.zeros(count, np.uint64)),
            np.append(locations.reason, np.full(count, np.uint8(Unknown.KNOWN))),
            np.append(locations.frame_start, (locations.frame_start[-1] + numbers).astype(np.uint32)),
            np.append(locations.frame_function, (len(functions.name) + numbers - 1).astype(np.int32)),
            np.append(locations.frame_line, np.zeros(count, np.uint32)),
            np.append(locations.is_guess, np.zeros(count, bool)),
        ),
    )
