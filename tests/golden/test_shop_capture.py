"""A capture kept since schema version 1 reads as it did: Topdown recorded in the guest, symbols inside."""

import json
from pathlib import Path

from click.testing import CliRunner

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
