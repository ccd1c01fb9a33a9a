"""Samples by instruction as ``perf annotate`` has them, of the same perf.data: they must agree exactly."""

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from builders.perf_tool import run_perf
from tdprof.model.annotation import Annotation
from tdprof.pipeline.annotate.function import annotate
from tdprof.pipeline.annotate.source_files import SourceFiles
from tdprof.pipeline.import_perf import import_perf_data
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.choice import choose_function

_NEEDED = ("perf", "g++", "objdump")
pytestmark = [
    pytest.mark.needs_perf,
    pytest.mark.skipif(not all(map(shutil.which, _NEEDED)), reason=f"needs {', '.join(_NEEDED)}"),
]

# A loop with inlined calls, one whose rare part GCC moves away, and one that is only inlined.
_SOURCE = """
#include <cstdio>
#include <stdexcept>
#include <string>
static inline unsigned scramble(unsigned x) { x ^= x << 13; x ^= x >> 17; return x ^ x << 5; }
extern "C" __attribute__((noinline)) unsigned checked(unsigned n, unsigned limit)
{
    if (n > limit)
        throw std::runtime_error(std::to_string(n) + " is too large");
    for (int i = 0; i < 50; i++)
        n = scramble(n) + scramble(n + 3);
    return n;
}
extern "C" __attribute__((noinline)) unsigned loop(unsigned n, int rounds, unsigned limit)
{
    unsigned sum = 0;
    for (int i = 0; i < rounds; i++) {
        for (int j = 3; j < 40; j++)
            n = n / j + scramble(n);
        sum += checked(n, limit);
    }
    return sum;
}
int main(int argc, char **argv)
{
    (void)argv;
    printf("%u\\n", loop(12345, 2000000, argc > 1 ? 7 : ~0u));
    return 0;
}
"""
# "  12 :   1170:   lea ..." of perf annotate -n
_INSTRUCTION = re.compile(r"^\s*(\d+)\s*:\s+([0-9a-f]+):\s", re.MULTILINE)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with perf.data and the capture made of it."""
    folder = tmp_path_factory.mktemp("annotate")
    (folder / "program.cc").write_text(_SOURCE)
    subprocess.run(["g++", "-O2", "-g", "-o", "program", "program.cc"], cwd=folder, check=True)
    result = run_perf("record", "-q", "-F", "1999", "-o", "perf.data", "--", "./program", cwd=folder)
    if result.returncode:
        pytest.skip(f"perf record: {result.stderr.decode().strip().splitlines()[-1:]}")
    import_perf_data(str(folder / "perf.data"), folder / "capture")
    return folder


def perf_counts(folder: Path, symbol: str) -> Counter[int]:
    """Samples by address, as perf has them."""
    output = run_perf("annotate", "--stdio", "-n", "-i", "perf.data", "-s", symbol, cwd=folder, text=True).stdout
    return Counter({int(address, 16): int(samples) for samples, address in _INSTRUCTION.findall(output)})


def annotated(folder: Path, function: str, *, has_code: bool) -> Annotation:
    with OpenCapture(folder / "capture") as capture:
        profile = load_profile(capture)
        chosen = choose_function(profile, function)
        return annotate(capture, profile, None, chosen, SourceFiles(), has_code=has_code)


CHECKED, LOOP = "checked", "loop"


@pytest.mark.parametrize("symbol", [CHECKED, LOOP])
def test_instructions_have_the_samples_that_perf_gives_them(recorded: Path, symbol: str) -> None:
    annotation = annotated(recorded, symbol, has_code=True)
    ours = Counter(
        {
            line.instruction.address: int(line.cost.samples[0]) if line.cost else 0
            for part in annotation.code
            if part.name == symbol
            for line in part.lines
        }
    )
    theirs = perf_counts(recorded, symbol)
    assert sum(theirs.values()) > 100
    assert +ours == +theirs
    assert set(ours) == set(theirs)  # no instruction is missing, none is made up


in_every_instruction = pytest.mark.skipif(
    "GUEST_COUNTS_INSTRUCTIONS" in os.environ,
    reason="QEMU interrupts between blocks of code only, not in inlined parts",
)


@in_every_instruction
def test_lines_have_the_samples_of_their_instructions(recorded: Path) -> None:
    by_line = annotated(recorded, "checked", has_code=False)
    assert int(by_line.cost.samples[0]) == sum(perf_counts(recorded, CHECKED).values())
    (source,) = by_line.sources
    assert sum(int(line.cost.samples[0]) for line in source.lines if line.cost) == int(by_line.cost.samples[0])
    hottest = max((line for line in source.lines if line.cost), key=lambda line: int(line.cost.samples[0]))  # type: ignore[union-attr]
    assert hottest.text is not None
    assert "n = scramble(n) + scramble(n + 3);" in hottest.text
    assert hottest.cost is not None
    assert hottest.cost.inlined_samples[0] > hottest.cost.own_samples[0]


def test_what_was_moved_away_belongs_to_the_function(recorded: Path) -> None:
    symbols = subprocess.run(["nm", "program"], cwd=recorded, capture_output=True, text=True, check=True).stdout
    if f"{CHECKED}.cold" not in symbols:
        pytest.skip("this compiler moves nothing away")
    parts = {part.name: part for part in annotated(recorded, "checked", has_code=True).code}
    assert set(parts) == {CHECKED, f"{CHECKED} [cold]"}
    calls = [line.target for line in parts[f"{CHECKED} [cold]"].lines]
    assert any(target.startswith(("__cxa_", "_Unwind_Resume", CHECKED)) for target in calls), calls


@in_every_instruction
def test_an_inlined_function_has_its_lines_and_the_code_around_it(recorded: Path) -> None:
    annotation = annotated(recorded, "scramble", has_code=True)
    assert {part.name for part in annotation.code} >= {CHECKED, LOOP}
    frames = {frame[0] for part in annotation.code for line in part.lines if line.cost for frame in line.frames[:1]}
    assert "scramble" in frames
    (source,) = annotation.sources
    assert [line.text for line in source.lines if line.cost] == [_SOURCE.splitlines()[4]]
