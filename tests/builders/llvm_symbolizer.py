"""Runs llvm-symbolizer, the peer that symbol tests compare with."""

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from builders.programs import need
from tdprof.model.addresses import Locations

Stack = list[tuple[str, str]]  # function and "file:line" of each frame, innermost first


def llvm_stacks(path: Path, addresses: Sequence[int], *flags: str) -> list[Stack]:
    """What llvm-symbolizer says of ELF addresses."""
    tool = need("llvm-symbolizer")
    command = [tool, "--inlines", "--functions=linkage", "--no-demangle", "--output-style=LLVM", *flags]
    text = "".join(f"{address:#x}\n" for address in addresses)
    output = subprocess.run([*command, f"--obj={path}"], input=text, capture_output=True, text=True, check=True).stdout
    blocks = [block.splitlines() for block in output.strip("\n").split("\n\n")]
    return [[(f, line.rpartition(":")[0]) for f, line in zip(b[::2], b[1::2], strict=True)] for b in blocks]


def our_stacks(locations: Locations) -> list[Stack]:
    """Locations in llvm-symbolizer's spelling, which names what has no linkage name without its scopes."""
    strings = [
        name if name.startswith(("_Z", "_R")) and "::" not in name else _last(name) for name in locations.strings
    ]
    return _stacks(locations, strings)


def stacks_with_scopes(locations: Locations) -> list[Stack]:
    """Locations in its spelling but for their names, which are whole."""
    return _stacks(locations, locations.strings)


def _stacks(locations: Locations, strings: Sequence[str]) -> list[Stack]:
    starts = locations.frame_start.tolist()
    frames = [
        (strings[function], f"{strings[file] if file >= 0 else '??'}:{line}")
        for function, file, line in zip(
            locations.function.tolist(), locations.file.tolist(), locations.line.tolist(), strict=True
        )
    ]
    return [frames[a:b] or [("??", "??:0")] for a, b in itertools.pairwise(starts)]


def _last(name: str) -> str:
    """``step`` of ``Holder<a::b>::step``."""
    depth = start = 0
    for at, letter in enumerate(name):
        if depth == 0 and name.startswith("::", at):
            start = at + 2
        if name.startswith("operator", start):  # its own angle brackets are none of a template's
            break
        depth += {"<": 1, ">": -1}.get(letter, 0)
    return name[start:]


def share_of_equal(ours: list[Stack], theirs: list[Stack]) -> float:
    """How many stacks are the same in every function, file, line and depth."""
    return float(np.mean([a == b for a, b in zip(ours, theirs, strict=True)]))
