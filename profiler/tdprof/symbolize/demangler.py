"""The demangler library, so used that a name can cost neither the memory nor the life of this process.

A linkage name may refer back to its own parts (Itanium C++ ABI, 5.1.10 "Compression"; Rust v0, "backref"): 283 bytes
can stand for gigabytes, and nesting is bounded by the stack alone. A name that by its length and its references
cannot become long is demangled here; all others by a child with limits, whose death leaves them as they are.
"""

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pydemumble

# Whatever repeats a part of the name, counted generously; and what prints a part once for each item of a pack.
_REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_|fp|fL|B[0-9A-Za-z]*_")
_EXPANSION = re.compile(r"Dp|sp|sP|sZ|f[lrLR]")
_LONGEST_HERE = 1024  # bytes; a demangler's stack grows with them
_GROWTH_BITS_HERE = 20  # a name may become at most 2^20 bytes in this process
_LONGEST_IN_CHILD = 1 << 16
_LONGEST_SHOWN = 1 << 16
_BATCH_BYTES = 1 << 20  # of names that one child gets
# Children that die, after which all other names stay as they are; a capture can hold names in a tenth of their bytes.
_DEATHS, _BYTES_A_DEATH = 2, 4 << 20
_CHILD_MEMORY_BYTES = 64 << 20
_CHILD_SECONDS = 1
_CHILD = """
import resource, sys
directory, longest, left, memory, seconds = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path.append(directory)
import pydemumble
for name in sys.stdin.buffer.read().decode("utf-8", "replace").splitlines():
    shown = left > 0 and pydemumble.demangle(name) or ""
    left -= len(shown)
    sys.stdout.buffer.write((shown if len(shown) <= longest else "").encode("utf-8", "replace") + b"\\n")
    sys.stdout.buffer.flush()
"""


def demangle_all(names: Sequence[str]) -> list[str]:
    """What each linkage name means, or the name itself where that cannot be told or would be too long.

    All of them together become at most a small multiple of their bytes; what comes after that stays as it is.
    """
    budget = (16 << 20) + 32 * sum(map(len, names))
    shown = list(names)
    costly = []
    for number, name in enumerate(names):
        if not _is_cheap(name):
            costly.append(number)
        elif budget > 0:
            meant = pydemumble.demangle(name)
            budget -= len(meant)
            shown[number] = meant if 0 < len(meant) <= _LONGEST_SHOWN else name
    for number, meant in zip(costly, _demangle_apart([names[number] for number in costly], budget), strict=True):
        shown[number] = meant or names[number]
    return shown


def _is_cheap(name: str) -> bool:
    """Whether a name cannot become long: each reference at most doubles it, an expansion repeats it for each item."""
    if len(name) > _LONGEST_HERE:
        return False
    size_bits = len(name).bit_length()
    bits = size_bits + len(_REFERENCE.findall(name)) + size_bits * len(_EXPANSION.findall(name))
    return bits <= _GROWTH_BITS_HERE


def _demangle_apart(names: Sequence[str], budget: int) -> list[str]:
    """The same by children, "" for what they could not do; all together of at most ``budget`` letters."""
    found = [""] * len(names)
    deaths = _DEATHS + sum(map(len, names)) // _BYTES_A_DEATH
    waiting = [number for number, name in enumerate(names) if _is_for_child(name)]
    while waiting and budget > 0 and deaths > 0:
        batch = _first_batch(names, waiting)
        lines, is_late = _run_child([names[number] for number in batch], budget)
        for number, line in zip(batch, lines, strict=False):
            found[number] = line
        budget -= sum(map(len, lines))
        if len(lines) < len(batch):
            deaths -= 2 if is_late else 1
        waiting = waiting[len(lines) + 1 if len(lines) < len(batch) else len(batch) :]  # without what it died of
    return found


def _is_for_child(name: str) -> bool:
    return len(name) <= _LONGEST_IN_CHILD and len(name.splitlines()) == 1


def _first_batch(names: Sequence[str], waiting: Sequence[int]) -> list[int]:
    """As many of the waiting names, by number, as one child gets."""
    batch: list[int] = []
    batch_bytes = 0
    for number in waiting:
        batch_bytes += len(names[number])
        if batch and batch_bytes > _BATCH_BYTES:
            break
        batch.append(number)
    return batch


def _run_child(names: Sequence[str], budget: int) -> tuple[list[str], bool]:
    """The answers of one child, of which there are fewer than names if it died, and whether that was for its time."""
    limits = map(str, (_LONGEST_SHOWN, budget, _CHILD_MEMORY_BYTES, _CHILD_SECONDS))
    command = [sys.executable, "-I", "-S", "-c", _CHILD, str(Path(pydemumble.__file__).parents[1]), *limits]
    import subprocess  # only now: hardly any name needs it

    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as child:
            output, _ = child.communicate("\n".join(names).encode("utf-8", "replace"))
    except OSError:
        return [], False
    return output.decode("utf-8", "replace").split("\n")[:-1], child.returncode == -signal.SIGXCPU
