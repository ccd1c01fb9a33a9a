"""What the perf tool itself reads from a perf.data file: the raw samples of ``perf script -D``."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from builders.perf_tool import run_perf

_SAMPLE = re.compile(
    r"^(?:(?P<cpu>-?\d+) )?(?P<time>\d+) 0x[0-9a-f]+ \[0x[0-9a-f]+\]: PERF_RECORD_SAMPLE\(IP, 0x(?P<misc>[0-9a-f]+)\): "
    r"(?P<pid>-?\d+)/(?P<tid>-?\d+): (?P<ip>0x[0-9a-f]+|0) period: (?P<period>\d+)"
)
_FRAME = re.compile(r"^\.\.\.\.\. +\d+: ([0-9a-f]{16})$")
_CONTEXT_MAX = 2**64 - 4095


class RawSample(NamedTuple):
    """A sample as perf prints it undecoded; ``chain`` without markers and end mark, the kernel's part first."""

    time_ns: int
    cpu: int
    pid: int
    tid: int
    ip: int
    misc: int
    period: int
    chain: tuple[int, ...]


def _without_end(chain: list[int]) -> tuple[int, ...]:
    """Without the zeros that a walk along frame pointers ends in."""
    while chain and chain[-1] == 0:
        chain = chain[:-1]
    return tuple(chain)


def raw_samples(path: Path) -> list[RawSample]:
    """All samples, sorted."""
    is_pipe = path.name.startswith("pipe")
    result = run_perf("script", "-D", "-i", "-" if is_pipe else path, input=path.read_bytes() if is_pipe else b"")
    if result.returncode < 0:
        pytest.skip(f"perf script ended itself: {result.stderr.decode(errors='replace').strip().splitlines()[-1:]}")
    assert result.returncode == 0, result.stderr
    samples: list[tuple[re.Match[str], list[int]]] = []
    for line in result.stdout.decode(errors="replace").splitlines():
        if match := _SAMPLE.match(line):
            samples.append((match, []))
        elif samples and (match := _FRAME.match(line)):
            address = int(match[1], 16)
            if address < _CONTEXT_MAX:
                samples[-1][1].append(address)
        elif line.startswith("... ") and samples and "chain" not in line:
            continue
    return sorted(
        RawSample(
            int(m["time"]),
            int(m["cpu"] or -1) % 2**32,
            int(m["pid"]) % 2**32,
            int(m["tid"]) % 2**32,
            int(m["ip"], 16),
            int(m["misc"], 16),
            int(m["period"]),
            _without_end(chain),
        )
        for m, chain in samples
    )
