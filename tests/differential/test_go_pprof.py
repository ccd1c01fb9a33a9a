"""`go tool pprof`, the reference reader, shows of our file what our report shows."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from builders.profiles import example
from tdprof.export.pprof import write_pprof
from tdprof.frames import function_names
from tdprof.profile import Profile
from tdprof.report.hotspots import find_hotspots

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed: tools/setup test")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pprof") / "example.pb.gz"
    with path.open("wb") as file:
        write_pprof(example(), file)
    return path


def pprof(path: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["go", "tool", "pprof", *arguments, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": str(path.parent), "PPROF_TMPDIR": str(path.parent)},
    )
    return result.stdout


def top(text: str) -> dict[str, tuple[int, int]]:
    """Flat and cumulative values by function, from the rows of -top in whole units."""
    rows = re.findall(r"^ *(\d+)(?:ns)? +[\d.]+% +[\d.]+% +(\d+)(?:ns)? +[\d.]+%  (.+?)(?: \(inline\))?$", text, re.M)
    return {name: (int(flat), int(cumulative)) for flat, cumulative, name in rows}


def ours(profile: Profile, event: int) -> dict[str, tuple[int, int]]:
    hotspots, names = find_hotspots(profile), function_names(profile)
    rows = zip(
        hotspots.function.tolist(),
        hotspots.self_weight[:, event].tolist(),
        hotspots.inclusive_weight[:, event].tolist(),
        strict=True,
    )
    return {names[function]: (flat, cumulative) for function, flat, cumulative in rows if cumulative}


@pytest.mark.parametrize(("event", "unit"), [(0, "nanoseconds"), (1, "count")])
def test_top_shows_the_reports_totals(exported: Path, event: int, unit: str) -> None:
    profile = example()
    name = profile.events[event].name
    text = pprof(exported, "-top", f"-sample_index={name}", f"-unit={unit}", "-nodefraction=0", "-nodecount=1000")
    assert f"Type: {name}" in text
    assert "File: app" in text
    assert "Build ID: abcdef0123456789" in text
    assert top(text) == ours(profile, event)


def test_the_first_event_is_the_default(exported: Path) -> None:
    assert "Type: cpu-clock" in pprof(exported, "-top")


@pytest.mark.parametrize(
    ("focus", "total"),
    [("pid=200", 150_000_000), ("tid=101", 100_000_000), ("thread_comm=worker", 100_000_000), ("comm=app", 10**9)],
)
def test_tags_select_processes_and_threads(exported: Path, focus: str, total: int) -> None:
    text = pprof(exported, "-top", "-unit=nanoseconds", "-nodefraction=0", f"-tagfocus={focus}")
    assert sum(flat for flat, _ in top(text).values()) == total


def test_raw_shows_inlined_lines_mappings_and_labels(exported: Path) -> None:
    text = pprof(exported, "-raw")
    assert "samples/count cpu-clock/nanoseconds[dflt] page-faults/count" in text
    assert re.search(r"M=1 square\(int\) math.h:3 s=0\(_Z6squarei\)\n +work\(int\) app.c:21 s=0\(_Z4worki\)", text)
    assert re.search(r"0x400000/0x410000/0x0 /bin/app abcdef0123456789 \[FN\]\[FL\]\[LN\]\[IN\]", text)
    values: Counter[int] = Counter()
    for row in re.findall(r"^ +(\d+) +(\d+) +(\d+): [\d ]+$", text, re.M):
        values.update(dict(enumerate(map(int, row))))
    assert [values[i] for i in range(3)] == [1007, 1_000_000_000, 7]


def test_comments_say_what_was_measured(exported: Path) -> None:
    lines = pprof(exported, "-comments").splitlines()
    assert "rung: software-clock-bpf (no hardware PMU)" in lines
    assert "counted cpu-clock: 1010000000 nanoseconds, enabled 10 ns, running 10 ns" in lines
    assert "counted page-faults: unknown count" in lines
