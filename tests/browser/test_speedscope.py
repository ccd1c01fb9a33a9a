"""`tdprof view` with speedscope's own release shows the report's numbers; screenshots stay in .cache/screenshots."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browser.chromium import NEEDS, SCREENSHOTS, drive
from builders.profiles import example
from builders.waiting import PATIENCE_S
from tdprof.cli.speedscope import SPEEDSCOPE, find_speedscope
from tdprof.model.profile import Profile
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import find_hotspots

UNIT_NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1}
ROOT = Path(__file__).parents[2]

pytestmark = [
    *NEEDS,
    pytest.mark.slow,
    pytest.mark.skipif(find_speedscope() is None, reason="speedscope is not installed: tools/setup test"),
]

# The command as it is, but for the capture: what is shown must be known.
VIEW = """
import sys
import tdprof.cli.loading
from builders.opened import NoCapture
from builders.profiles import example
tdprof.cli.loading.load_profile = lambda _: example()
tdprof.cli.loading.OpenCapture = NoCapture
tdprof.cli.capture_options.find_input = lambda path: tdprof.cli.capture_options.Input(path, None)
sys.argv = ["tdprof", "view", "example.capture", "--no-browser"]
from tdprof.cli.main import main
main()
"""


@pytest.fixture(scope="module")
def viewer() -> Iterator[dict[str, str]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    with subprocess.Popen(
        [sys.executable, "-c", VIEW], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield dict(process.stdout.readline().split() for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE_S) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.fixture(scope="module")
def shown(viewer: dict[str, str]) -> Any:
    return drive("speedscope.mjs", viewer["speedscope"], viewer["page"], str(len(example().events)))


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


def test_it_opens_where_no_order_in_time_is_needed(viewer: dict[str, str], shown: Any) -> None:
    """The example's samples were added up: speedscope, which takes no unknown view, is asked for Left Heavy."""
    assert viewer["speedscope"].endswith("&view=left-heavy")
    assert "Ignoring invalid view" not in str(shown["errors"])
    assert shown["profiles"][0]["rows"]


def test_the_command_is_the_title(shown: Any) -> None:
    assert shown["profiles"][0]["title"].startswith("./app --fast")


@pytest.mark.parametrize("event", [0, 1])
def test_self_and_total_are_the_reports(shown: Any, event: int) -> None:
    seen = table(shown["profiles"][event]["rows"])
    threads = {"app", "worker"} if event == 0 else {"app"}
    assert threads <= set(seen)
    assert {name: value for name, value in seen.items() if name not in threads} == expected(example(), event)


def test_the_page_is_served_too(shown: Any) -> None:
    assert shown["page"] == {"heading": "Whole program", "functions": 5}


def test_screenshots_are_kept(shown: Any) -> None:
    for event in range(2):
        for name in ("time-order", "sandwich"):
            assert (SCREENSHOTS / f"speedscope-{event}-{name}.png").stat().st_size > 5000


def test_the_hint_names_the_version_that_set_up_installs() -> None:
    wanted = json.loads((ROOT / "tools/speedscope/package.json").read_text())["dependencies"]
    assert f"speedscope@{wanted['speedscope']}" == SPEEDSCOPE
