"""Metrics over hosts, against the same question asked without each host."""

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from builders.fleet import make_host_capture, tdprof
from tdprof.profile.statistics import student_95

SHOP = Path(__file__).resolve().parents[2] / "golden/shop.capture"
HOSTS = 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hosts with the samples of one recording, and counters that say something else of each."""
    folder = tmp_path_factory.mktemp("metrics")
    rng = np.random.default_rng(2)
    for number in range(HOSTS):
        capture = folder / "caps" / f"h{number}"
        shutil.copytree(SHOP, capture)
        told = json.loads((capture / "capture.json").read_text())
        told["host"] |= {"hostname": f"h{number}", "boot_id": f"h{number}"}
        factor = {name: rng.uniform(0.8, 1.2) for name in sorted({each["name"] for each in told["events"]})}
        for event in told["events"]:
            event["total"] = round(event["total"] * factor[event["name"]])
        (capture / "capture.json").write_text(json.dumps(told))
    make_host_capture(folder / "caps" / "plain", "plain", {"work": 100})
    assert tdprof("fleet", "add", folder / "store", folder / "caps", "--workers", 1).status == 0
    return folder / "store"


def metrics_of(store: Path, hosts: list[int]) -> dict:  # type: ignore[type-arg]
    where = [word for host in hosts for word in ("--where", f"host=h{host}")]
    ran = tdprof("fleet", "report", store, "--metrics", "--json", *where)
    (stratum,) = json.loads(ran.stdout)["strata"]
    functions = {row["name"]: row["metrics"] for row in stratum["functions"]}
    return {"program": stratum["program"], **functions}


def test_the_interval_is_that_of_leaving_out_each_host(store: Path) -> None:
    everyone = list(range(HOSTS))
    whole = metrics_of(store, everyone)
    without = [metrics_of(store, [other for other in everyone if other != host]) for host in everyone]
    for code, metric in (("program", "ipc"), ("program", "backend_bound"), ("parse_request", "frontend_bound")):
        values = np.array([each[code][metric]["value"] for each in without])
        told = whole[code][metric]
        moved = values - told["value"]
        error = np.sqrt((HOSTS - 1) / HOSTS * np.sum(moved**2))
        skewed = 1 + 1.08 * np.sum(moved**3) ** 2 / np.sum(moved**2) ** 3
        assert told["half_width"] > 0
        assert told["half_width"] == pytest.approx(student_95(HOSTS - 1) * error * skewed, rel=0.1)
        assert abs(told["value"] - values.mean()) < error
    assert whole["program"]["ipc"]["hosts"] == HOSTS
    assert without[0]["program"]["ipc"]["half_width"] is None


def test_one_host_has_the_metrics_of_its_capture(store: Path) -> None:
    """Of events of one group; others are pooled."""
    of_store = metrics_of(store, [0])
    capture = json.loads(tdprof("report", store.parent / "caps" / "h0", "--json").stdout)
    of_capture = {row["name"]: row["metrics"] for row in capture["functions"]}
    for metric in ("frontend_bound", "backend_bound", "bad_speculation", "ipc"):
        assert of_store["program"][metric]["value"] == pytest.approx(
            capture["program"]["metrics"][metric]["value"], rel=0.1
        )
        if metric in of_store["match_rules"]:
            expected = of_capture["match_rules"][metric]["value"]
            assert of_store["match_rules"][metric]["value"] == pytest.approx(expected, rel=0.15, abs=1)


def test_text_and_csv(store: Path) -> None:
    text = tdprof("fleet", "report", store, "--metrics").stdout
    assert "neoverse-n3: metrics of 5 hosts" in text
    rows = list(csv.DictReader(io.StringIO(tdprof("fleet", "report", store, "--metrics", "--csv").stdout)))
    assert {row["metric"] for row in rows if not row["function"]} >= {"ipc", "frontend_bound"}
    assert any(row["function"] == "match_rules" for row in rows)
    ran = tdprof("fleet", "report", store, "--metrics", "--where", "host=plain")
    assert ran.error is not None
    assert "metrics" in ran.error.message
