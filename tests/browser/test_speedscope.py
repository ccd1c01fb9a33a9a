"""speedscope's own release reads our file and shows the report's numbers; screenshots stay in .cache/screenshots."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders.profiles import example
from builders.topdown_example import CYCLES, topdown_example
from tdprof.export.speedscope import write_speedscope
from tdprof.findings import Findings
from tdprof.frames import function_names
from tdprof.profile import Profile
from tdprof.report.hotspots import find_hotspots

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parents[1] / ".cache/screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
RELEASE = Path(sys.prefix) / "share/tdprof/node_modules/speedscope/dist/release"
UNIT_NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or shutil.which("node") is None, reason="needs Chromium and Node.js"),
    pytest.mark.skipif(
        not (HERE / "node_modules/.setup").exists() or not RELEASE.exists(),
        reason="the npm packages are not installed: tools/setup test",
    ),
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("speedscope") / "example.speedscope.json"
    return show(path, SCREENSHOTS, example())


@pytest.fixture(scope="module")
def topdown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("speedscope") / "topdown.speedscope.json"
    return show(path, SCREENSHOTS / "topdown", *topdown_example())


def show(path: Path, screenshots: Path, profile: Profile, findings: Findings | None = None) -> Any:
    out = io.BytesIO()
    write_speedscope(profile, out, findings)
    path.write_bytes(out.getvalue())
    screenshots.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        ["node", HERE / "speedscope.mjs", str(CHROMIUM), RELEASE, path, screenshots],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def table(rows: list[list[str]]) -> dict[str, tuple[float, float]]:
    """Self and total by function, in the event's unit, from cells such as "700.00ms (70%)"."""

    def value(cell: str) -> float:
        number, unit = re.match(r"([\d.,]+)(\D*) \(", cell).groups()  # type: ignore[union-attr]
        return float(number.replace(",", "")) * UNIT_NS[unit.strip()]

    return {name: (value(itself), value(total)) for total, itself, name in (row for row in rows if row)}


def expected(profile: Profile, event: int) -> dict[str, tuple[float, float]]:
    hotspots, names = find_hotspots(profile), function_names(profile)
    columns = (hotspots.function, hotspots.self_weight[:, event], hotspots.inclusive_weight[:, event])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {names[function]: (itself, total) for function, itself, total in rows if total}


def test_nothing_fails_and_nothing_leaves_the_machine(shown: Any) -> None:
    assert shown["errors"] == []


def test_the_command_is_the_title(shown: Any) -> None:
    assert shown["profiles"][0]["title"].startswith("./app --fast")


@pytest.mark.parametrize("event", [0, 1])
def test_self_and_total_are_the_reports(shown: Any, event: int) -> None:
    seen = table(shown["profiles"][event]["rows"])
    threads = {"app", "worker"} if event == 0 else {"app"}
    assert threads <= set(seen)
    assert {name: value for name, value in seen.items() if name not in threads} == expected(example(), event)


def test_screenshots_are_kept(shown: Any) -> None:
    for event in range(2):
        for view in ("time-order", "sandwich"):
            assert (SCREENSHOTS / f"speedscope-{event}-{view}.png").stat().st_size > 5000


def test_a_stage_1_profile_shows_the_slots_lost_and_names_show_the_bottleneck(topdown: Any) -> None:
    assert topdown["errors"] == []
    names = [event.name for event in topdown_example()[0].events]
    lost = table(topdown["profiles"][names.index("backend_bound_slots")]["rows"])
    slots = round(2 * CYCLES * 8 * 0.624)  # of the cycles in work, eight slots each
    assert lost["work [backend bound 62 %]"] == (slots, slots)
    assert lost["main"] == (0, slots)
    cycles = table(topdown["profiles"][0]["rows"])
    assert cycles["parse [frontend bound 55 %]"] == (CYCLES, 1.5 * CYCLES)
    assert "rare" in cycles  # too few samples: no bottleneck is told
