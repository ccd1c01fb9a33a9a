"""A capture kept since schema version 1 reads as it did: Topdown recorded in the guest, symbols inside."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner

from builders.captures import write_manifest
from tdprof.capture.manifest import read_manifest
from tdprof.cli.main import cli

CAPTURE = Path(__file__).parent / "shop.capture"


def test_the_kept_capture_is_of_the_first_schema() -> None:
    assert json.loads((CAPTURE / "capture.json").read_text())["schema_version"] == 1


def test_what_the_readme_shows() -> None:
    """The bottlenecks that were declared to the simulated core, with the advice, on any machine."""
    result = CliRunner().invoke(cli, ["report", str(CAPTURE), "--json"])
    assert result.exit_code == 0, result.output
    functions = {row["name"]: row for row in json.loads(result.stdout)["functions"]}
    found = {name: functions[name]["bottleneck"] for name in ("parse_request", "match_rules", "find_customer")}
    assert found == {
        "parse_request": "frontend_bound",
        "match_rules": "bad_speculation",
        "find_customer": "backend_bound",
    }


def test_with_a_catalog_that_cannot_be_read_there_is_all_but_metrics(tmp_path: Path) -> None:
    shutil.copytree(CAPTURE, tmp_path / "shop.capture")
    manifest = read_manifest(tmp_path / "shop.capture")
    assert manifest.topdown
    write_manifest(tmp_path / "shop.capture", replace(manifest, topdown=replace(manifest.topdown, catalog="{")))
    result = CliRunner().invoke(cli, ["report", str(tmp_path / "shop.capture"), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert any("no metrics: catalog of the capture: not JSON" in note for note in report["notes"])
    assert "parse_request" in {row["name"] for row in report["functions"]}
    result = CliRunner().invoke(cli, ["report", str(tmp_path / "shop.capture"), "--json", "--time", "0s-3s"])
    chosen, unread, *_ = json.loads(result.stdout)["notes"]
    assert "0s" in chosen
    assert "no metrics" in unread
