"""Real programs, and `perf record` on the same work: both must find the same."""

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.perf_tool import NO_PERF, find_perf
from live.recording import TDPROF, Capture, assert_same_share, record, user_function

pytestmark = pytest.mark.needs_perf

SCRIPT = """
import difflib, json, re, sys
text = open(difflib.__file__).read()
for _ in range(int(sys.argv[1])):
    words = re.findall(r"[a-z]+|[0-9]+", text)
    counts = {word: words.count(word) for word in set(words[:400])}
    json.loads(json.dumps(counts))
    difflib.SequenceMatcher(None, words[:500], words[250:750]).ratio()
"""


def perf_samples(command: list[str], folder: Path) -> Counter[tuple[str, str]]:
    """Samples that `perf record` takes of a command, by function and file, user space alone."""
    perf = find_perf()
    if not perf:
        pytest.skip(NO_PERF)
    data = folder / "perf.data"
    record_options = ["-e", "cpu-clock:u", "-F", "1999", "-g", "-q", "-o", str(data), "--", *command]
    done = subprocess.run([perf, "record", *record_options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr.strip()}")
    script_options = ["script", "-i", str(data), "-F", "ip,sym,dso", "-G", "--no-inline"]
    text = subprocess.run([perf, *script_options], capture_output=True, text=True, check=True)
    found: Counter[tuple[str, str]] = Counter()
    for line in text.stdout.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            found[" ".join(fields[1:-1]), Path(fields[-1].strip("()")).name] += 1
    return found


def tdprof_samples(capture: Capture) -> Counter[tuple[str, str]]:
    """The same of a capture, inlined calls counted for the function they are in, as perf was told to."""
    return capture.count(lambda sample: (sample.frames[0], sample.modules[0]) if sample.frames else None)


def assert_alike(ours: Counter[tuple[str, str]], perfs: Counter[tuple[str, str]]) -> None:
    """The functions that perf finds hottest have the same shares here; unknown ones are compared by file."""

    def by_key(samples: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
        merged: Counter[tuple[str, str]] = Counter()
        for (name, module), count in samples.items():
            merged["" if name.startswith("[") else name, module] += count
        return merged

    ours, perfs = by_key(ours), by_key(perfs)
    assert min(ours.total(), perfs.total()) >= 300
    hottest = [key for key, count in perfs.most_common(5) if count >= 0.05 * perfs.total()]
    assert hottest
    for key in hottest:
        assert_same_share(ours[key], ours.total(), perfs[key], perfs.total())


def test_known_split_as_perf_sees_it(build: Callable[[str], Path], folder: Path, tmp_path: Path) -> None:
    command = [str(build("split.c")), "0.5"]
    capture = record("-e", "cpu-clock:u", "-F", "1999", "--", *command, folder=folder)
    assert_alike(tdprof_samples(capture), perf_samples(command, tmp_path))


def test_python_runs_a_script(folder: Path, tmp_path: Path) -> None:
    interpreter = shutil.which("python3", path="/usr/bin") or "python3"
    command = [interpreter, "-c", SCRIPT, "20"]
    capture = record("--no-interpreters", "-e", "cpu-clock:u", "-F", "1999", "--", *command, folder=folder)
    # The rest is libc's, whose leaf functions have no frames to say who called them.
    leaves = capture.count(lambda sample: sample.modules[0].startswith(("python", "libpython")))
    assert leaves[True] >= 0.6 * leaves.total()
    assert capture.count(user_function)["_PyEval_EvalFrameDefault"] > 0
    assert_alike(tdprof_samples(capture), perf_samples(command, tmp_path))


def test_compression_of_real_data(folder: Path, tmp_path: Path) -> None:
    xz = shutil.which("xz")
    if not xz:
        pytest.skip("xz is not installed")
    data = tmp_path / "data"
    sources = sorted(Path(subprocess.__file__).parent.glob("*.py"))
    data.write_bytes(b"".join(path.read_bytes() for path in sources)[: 1200 << 10])
    command = [xz, "--keep", "--force", "--threads=1", str(data)]
    capture = record("-e", "cpu-clock:u", "-F", "1999", "--", *command, folder=folder)
    samples = tdprof_samples(capture)
    in_library = sum(count for (_, module), count in samples.items() if module.startswith("liblzma"))
    assert in_library >= 0.9 * samples.total()
    assert_alike(samples, perf_samples(command, tmp_path))


def test_the_report_says_the_same(build: Callable[[str], Path], folder: Path) -> None:
    """`tdprof report --json` of the same capture: shares, exact counts, stacks that reach main."""
    capture = record("-F", "1999", "--", build("split.c"), "0.5", folder=folder)
    text = subprocess.run([*TDPROF, "report", "--json", folder], capture_output=True, check=True).stdout
    report = json.loads(text)
    event = report["events"][0]["name"]
    functions = {function["name"]: function for function in report["functions"]}
    assert functions["heavy"]["samples"] == capture.self_samples()["heavy"]
    assert functions["heavy"]["module"].endswith("split")
    assert sum(function["self"][event] for function in report["functions"]) == capture.weight()
    assert functions["main"]["total"][event] >= functions["heavy"]["self"][event] + functions["light"]["self"][event]
    assert report["rung"] == capture.manifest["rung"]
