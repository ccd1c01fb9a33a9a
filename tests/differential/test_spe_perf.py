"""The same recording read by `perf`, which decodes SPE on any architecture."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders.perf_tool import NO_PERF, find_perf, run_perf
from tdprof.cli.spe import command

ROOT = Path(__file__).parents[2]
RECORDS = 20_000
TEXT = len(".  00000000: ") + 16 * len(" b0") + 1  # column of the words

pytestmark = pytest.mark.skipif(find_perf() is None, reason=NO_PERF)


@pytest.fixture(scope="module", params=["slots", "packed", "wide"])
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / f"{request.param}.data"
    generator = [sys.executable, ROOT / "tools/bench/spe_corpus.py", path, "--layout", request.param]
    subprocess.run([*generator, "--records", str(RECORDS)], check=True, capture_output=True)
    return path


def perf(*args: object) -> str:
    result = run_perf(*map(str, args), text=True)
    assert result.returncode == 0, result.stderr
    return str(result.stdout)


def tdprof(*args: object) -> str:
    result = CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def packets(dump: str) -> list[str]:
    """The packet lines without padding, which perf cuts into lines of 16 bytes."""
    lines = re.findall(r"^\.  [0-9a-f]{8}: .*", dump, re.MULTILINE)
    return [line for line in lines if not line.endswith(" PAD")]


# perf 6.1 has no words for the newer bits of an operation, and prints those of SVE without their names.
_OPERATION = re.compile(r"(OTHER|LD|ST|B|SVE|SME)\b.*")


def without_news(line: str) -> str:
    text = line[TEXT:]
    if _OPERATION.match(text):
        return line[:TEXT]
    return re.sub(r" (L2D-ACCESS|L2D-MISS)", "", line)


def test_packets_are_the_same(corpus: Path) -> None:
    ours = packets(tdprof("dump", corpus))
    theirs = packets(perf("report", "-D", "-i", corpus))
    assert len(ours) == len(theirs)
    different = [(a, b) for a, b in zip(map(without_news, ours), map(without_news, theirs), strict=True) if a != b]
    assert different == []


def test_samples_fall_into_the_same_functions(corpus: Path) -> None:
    text = perf("script", "-i", corpus, "--itrace=i1i", "-F", "ip,sym")
    theirs = Counter(line.split()[1] for line in text.splitlines())
    rows = json.loads(tdprof("report", corpus, "--json"))["rows"]
    assert {row["name"]: row["counts"]["operations"] for row in rows} == theirs
    assert theirs.total() == RECORDS
