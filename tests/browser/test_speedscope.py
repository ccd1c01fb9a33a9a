"""speedscope's own release reads our file and shows the report's numbers; screenshots stay in .cache/screenshots."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from builders.profiles import example
from tdprof.export.speedscope import write_speedscope
from tdprof.frames import function_names
from tdprof.profile import Profile
from tdprof.report.hotspots import find_hotspots

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parents[1] / ".cache/screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
UNIT_NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None or shutil.which("node") is None, reason="needs Chromium and Node.js"),
    pytest.mark.skipif(
        not (HERE / "node_modules/.setup").exists(), reason="speedscope is not installed: tools/setup test"
    ),
]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("speedscope") / "example.speedscope.json"
    out = io.BytesIO()
    write_speedscope(example(), out)
    path.write_bytes(out.getvalue())
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        ["node", HERE / "speedscope.mjs", str(CHROMIUM), path, SCREENSHOTS],
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
