"""Mappings, functions and locations of a pprof file."""

import itertools
from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from tdprof.export import pprof_pb2 as pb
from tdprof.model.addresses import FileKind
from tdprof.model.arrays import U64, group_rows
from tdprof.model.profile import Profile
from tdprof.profile.frames import NO_STACK
from tdprof.text import printable
from tdprof.values import dataclass


class StringTable:
    """pprof's interned strings; index 0 is the empty one."""

    def __init__(self) -> None:
        self._index = {"": 0}

    def __getitem__(self, text: str) -> int:
        """The index of a text, made printable, added when it is new."""
        return self._index.setdefault(printable(text), len(self._index))

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)


@dataclass(frozen=True, slots=True)
class StackIds:
    """Location ids of a profile's stacks in a message.

    Attributes:
        location: of all stacks, stack after stack.
        start: where each begins.
        no_stack: what an empty one has.
    """

    location: list[int]
    start: list[int]
    no_stack: list[int]

    def of(self, stack: int) -> list[int]:
        """Leaf first."""
        return self.location[self.start[stack] : self.start[stack + 1]] or self.no_stack


def add_code(message: pb.Profile, profile: Profile, strings: StringTable) -> StackIds:
    """Add a profile's code behind what the message has; ids are rows plus one, the last stands for ``NO_STACK``."""
    functions, locations = profile.functions, profile.locations
    first_function, first_location = len(message.function) + 1, len(message.location) + 1
    mapping_id = np.zeros(len(profile.mapped_files) + 1, np.int64)  # the last, for -1, stays 0: no mapping
    for number, row in enumerate(_main_first(profile), len(message.mapping) + 1):
        mapping_id[row] = number
        message.mapping.append(_mapping(profile, row, number, strings))

    for row, (name, linkage_name, file) in enumerate(
        zip(functions.name, functions.linkage_name, functions.file, strict=True)
    ):
        added = message.function.add(id=first_function + row, name=strings[name], filename=strings[file])
        if linkage_name != name:  # where it is the same, pprof cuts `<module>` out of it
            added.system_name = strings[linkage_name]

    addresses = _runtime_addresses(profile).tolist()
    lines = zip(locations.frame_function.tolist(), locations.frame_line.tolist(), strict=True)
    frames = np.diff(locations.frame_start.astype(np.int64)).tolist()
    of_location = mapping_id[locations.mapped_file].tolist()
    for row, address in enumerate(addresses):
        location = message.location.add(id=first_location + row, mapping_id=of_location[row], address=address)
        for function, line in itertools.islice(lines, frames[row]):
            location.line.add(function_id=first_function + function, line=line)

    no_stack = first_location + len(addresses)
    if np.any(np.diff(profile.stacks.start.astype(np.int64)) == 0):
        function = first_function + len(functions.name)
        message.function.add(id=function, name=strings[NO_STACK])
        message.location.add(id=no_stack, line=[pb.Line(function_id=function)])
    of_stacks = profile.stacks.location.astype(np.int64) + first_location
    return StackIds(of_stacks.tolist(), profile.stacks.start.tolist(), [no_stack])


def _main_first(profile: Profile) -> list[int]:
    """Rows of the mapped files, the program's first, for which pprof takes it: the command's, else what ran most."""
    samples = profile.samples
    order, start = group_rows(samples.pid)
    programs = [PurePath(profile.command[0]).name] if profile.command else []
    if len(start):
        most = start[np.argmax(np.add.reduceat(samples.count[order].astype(np.int64), start))]
        programs.append(profile.process_names.get(int(samples.pid[order[most]]), ""))

    def rank(row: int) -> int:
        name = PurePath(profile.mapped_files[row].path).name
        # The kernel keeps 15 bytes of a process's name.
        return next((at for at, program in enumerate(programs) if program in (name, name[:15])), len(programs))

    return sorted(range(len(profile.mapped_files)), key=rank)


def _mapping(profile: Profile, row: int, number: int, strings: StringTable) -> pb.Mapping:
    """One mapping that covers every sampled address of a file, though the file may be mapped in several pieces."""
    file = profile.mapped_files[row]
    memory_start, length, file_offset = profile.mapped_file_ranges[row]
    sampled = profile.locations.address[profile.locations.mapped_file == row]
    if file.kind is FileKind.ANONYMOUS:
        file_offset = memory_start  # its locations carry run-time addresses
    first = min(file_offset, int(sampled.min(initial=file_offset)))
    end = max(file_offset + length, int(sampled.max(initial=0)) + 1)
    return pb.Mapping(
        id=number,
        memory_start=(memory_start + first - file_offset) % 2**64,
        memory_limit=(memory_start + end - file_offset) % 2**64,
        file_offset=0 if file.kind is FileKind.ANONYMOUS else first,
        filename=strings[file.path],
        build_id=strings[file.build_id],
        # All that can be known is in the file: pprof must not look for symbols in a file of another machine.
        has_functions=True,
        has_filenames=True,
        has_line_numbers=True,
        has_inline_frames=True,
    )


def _runtime_addresses(profile: Profile) -> U64:
    """uint64[locations]: addresses as in the one mapping of each file that ``_mapping`` describes."""
    shift = [
        0 if file.kind is FileKind.ANONYMOUS else (start - offset) % 2**64
        for file, (start, _, offset) in zip(profile.mapped_files, profile.mapped_file_ranges, strict=True)
    ]
    # uint64 wraps around as the addresses do; the last entry serves -1, where the address is a run-time one already.
    return profile.locations.address + np.array([*shift, 0], np.uint64)[profile.locations.mapped_file]
