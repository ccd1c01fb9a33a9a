"""`go tool pprof`, the reference reader, shows of our file what our report shows."""

import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from builders.opened import operations_of, profile_of
from builders.profiles import ProfileBuilder, example
from builders.spe_capture import write_spe_capture
from builders.topdown_example import CYCLES, topdown_example
from builders.waiting import PATIENCE_S
from tdprof.export.pprof import write_pprof
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import find_hotspots

pytestmark = pytest.mark.skipif(shutil.which("go") is None, reason="go is not installed: tools/setup test")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pprof") / "example.pb.gz"
    with path.open("wb") as file:
        write_pprof(example(), file)
    return path


def environment(path: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": str(path.parent), "PPROF_TMPDIR": str(path.parent)}


def pprof(path: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["go", "tool", "pprof", *arguments, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(path),
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


@pytest.fixture(scope="module")
def topdown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pprof") / "topdown.pb.gz"
    profile, findings = topdown_example()
    with path.open("wb") as file:
        write_pprof(profile, file, findings)
    return path


def test_names_are_shown_whole(tmp_path: Path) -> None:
    names = ["<module>", "<lambda>", "<lambda>:7", "a.<locals>.<genexpr>", "(anonymous)", "[no symbol] z.so+0x10"]
    with (path := tmp_path / "names.pb.gz").open("wb") as file:
        write_pprof(ProfileBuilder().add(*names).build(), file)
    assert {*top(pprof(path, "-top", "-unit=nanoseconds"))} == {*names}


def test_tags_show_the_metrics_of_each_function(topdown: Path) -> None:
    text = pprof(topdown, "-tags", "-sample_index=CPU_CYCLES")
    shown = {
        key: re.findall(r"^ +([\d.]+) \([\d. ]+%\): (.+)$", rows, re.M)
        for key, rows in re.findall(r"^ *(\w+): Total.*\n((?:.+\n)*)", text, re.M)
    }
    assert shown["l1d_cache_mpki"] == [("2000000.0", "12345"), ("1000000.0", "1500")]
    assert shown["bottleneck"] == [
        ("2000000.0", "backend_bound"),
        ("1000000.0", "frontend_bound"),
        ("1000000.0", "unknown"),
    ]
    assert shown["spe_l1d_cache_miss_ratio"] == [("2000000.0", "20100")]


@pytest.mark.parametrize(
    ("focus", "leaves"),
    [
        ("l1d_cache_mpki=10000:", {"work"}),
        ("l1d_cache_mpki=1000:2000", {"parse"}),
        ("l1d_cache_miss_ratio=:50000", {"work"}),
        ("backend_bound=:0", {"parse"}),
        ("bottleneck=backend_bound", {"work"}),
        ("topdown_path=^frontend", {"parse"}),
        ("bottleneck=unknown", {"rare", "main", "[no call stack]"}),
    ],
)
def test_metrics_select_functions(topdown: Path, focus: str, leaves: set[str]) -> None:
    text = pprof(topdown, "-top", "-nodefraction=0", "-unit=count", f"-tagfocus={focus}")
    assert {name for name, (flat, _) in top(text).items() if flat} == leaves


def test_bottlenecks_can_be_the_roots_of_the_graph(topdown: Path) -> None:
    text = pprof(topdown, "-top", "-cum", "-nodefraction=0", "-unit=count", "-tagroot=bottleneck")
    shown = top(text)
    assert shown["backend_bound"] == (0, 2 * CYCLES)
    assert shown["frontend_bound"] == (0, CYCLES)
    assert shown["unknown"] == (0, CYCLES)


def test_stage_1_categories_are_sample_types(topdown: Path) -> None:
    text = pprof(topdown, "-top", "-nodefraction=0", "-unit=count", "-sample_index=frontend_bound_slots")
    assert {name: flat for name, (flat, _) in top(text).items() if flat} == {"work": 1_600_000, "parse": 4_400_000}


def test_numbers_carry_their_units(topdown: Path) -> None:
    text = pprof(topdown, "-raw")
    assert "l1d_cache_mpki:[12345 1/1000 MPKI]" in text
    assert "l1d_cache_mpki_half_width:[400 1/1000 MPKI]" in text


def test_comments_summarise_the_run(topdown: Path) -> None:
    lines = pprof(topdown, "-comments").splitlines()
    stage1 = next(line for line in lines if line.startswith("stage 1 "))
    assert "backend_bound 48 ± 0.7 percent of slots" in stage1
    assert "stage 2 MPKI: l1d_cache_mpki 12.35 ± 0.4 MPKI" in lines
    assert any(line.startswith("bottleneck: backend_bound") for line in lines)
    assert not any("backend_bound_slots" in line for line in lines)


def test_spe_records_are_selected_by_source_and_latency(tmp_path: Path) -> None:
    capture = write_spe_capture(tmp_path / "capture")
    path = tmp_path / "spe.pb.gz"
    with path.open("wb") as file:
        write_pprof(profile_of(capture), file, None, operations_of(capture))

    def shown(index: str, *focus: str) -> dict[str, int]:
        text = pprof(path, "-top", "-nodefraction=0", "-unit=count", f"-sample_index={index}", *focus)
        return {name: flat for name, (flat, _) in top(text).items() if flat}

    assert shown("spe_records") == {"work": 1000, "unseen": 400, "parse": 100}
    assert shown("spe_records", "-tagfocus=data_src=DRAM") == {"unseen": 400, "work": 60}
    assert shown("spe_latency", "-tagfocus=total_latency=100:") == {"work": 60 * 200}
    assert shown("samples") == {"work": 300, "parse": 100}


def test_the_web_page_divides_by_bottleneck_and_selects_by_metric(topdown: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"localhost:{free.getsockname()[1]}"
    tool = subprocess.run(["go", "tool", "-n", "pprof"], capture_output=True, text=True, check=True).stdout.strip()
    server = subprocess.Popen(
        [tool, f"-http={address}", "-no_browser", "-tagroot=bottleneck", str(topdown)],
        env=environment(topdown),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        flame_graph = fetch(f"http://{address}/ui/flamegraph")
        selected = fetch(f"http://{address}/ui/top?tf={urllib.parse.quote('l1d_cache_mpki=10000:')}")
    finally:
        server.kill()
        server.wait()
    root = r'"n":"root".*?"c":\[\{"n":"backend_bound"'
    assert re.search(root, flame_graph.replace(r"\u0022", '"'))
    assert set(re.findall(r'"Name":"(\w+)"', selected)) == {"backend_bound", "main", "work"}


def fetch(url: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return str(answer.read(), "utf-8")
        except urllib.error.URLError:  # it does not listen yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
