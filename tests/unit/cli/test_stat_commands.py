"""`tdprof stat --counts` and `tdprof list`: what they print and what they refuse."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tdprof.catalog.choose import load_packaged
from tdprof.cli import list as list_command
from tdprof.cli import stat as stat_command
from tdprof.errors import TdprofError
from tdprof.metrics.formula import evaluate

ARM = Path(__file__).resolve().parents[3] / "tools" / "catalog_sources" / "arm"
Json = dict[str, Any]


def run(command: click.Command, *arguments: str, text: str | None = None) -> Result:
    result = CliRunner().invoke(command, arguments, input=text, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def stat_json(counts: Json, *arguments: str) -> Json:
    found: Json = json.loads(
        run(stat_command.command, "--counts", "-", "--json", *arguments, text=json.dumps(counts)).stdout
    )
    return found


def listed(*arguments: str) -> list[Json]:
    found: list[Json] = json.loads(run(list_command.command, *arguments, "--json").stdout)
    return found


def n3_counts() -> Json:
    """Plausible counts of a memory-bound program, the same each time."""
    chance = random.Random(3)
    catalog = load_packaged("neoverse-n3")
    counts = {name: chance.randrange(1000, 50_000) for metric in catalog.metrics.values() for name in metric.events}
    return counts | {
        "CPU_CYCLES": 1_000_000,
        "STALL_SLOT": 3_400_000,
        "STALL_SLOT_FRONTEND": 900_000,
        "STALL_SLOT_BACKEND": 2_500_000,
        "OP_SPEC": 1_600_000,
        "OP_RETIRED": 1_500_000,
        "INST_SPEC": 1_500_000,
        "INST_RETIRED": 1_400_000,
        "STALL_FRONTEND": 150_000,
        "STALL_FRONTEND_MEMBOUND": 90_000,
        "STALL_FRONTEND_CPUBOUND": 60_000,
        "STALL_FRONTEND_FLUSH": 30_000,
        "STALL_FRONTEND_FLOW": 20_000,
        "STALL_BACKEND": 480_000,
        "STALL_BACKEND_MEMBOUND": 400_000,
        "STALL_BACKEND_CPUBOUND": 80_000,
        "STALL_BACKEND_TLB": 50_000,
        "STALL_BACKEND_ST": 30_000,
        "STALL_BACKEND_L1D": 120_000,
        "STALL_BACKEND_MEM": 200_000,
        "L2D_CACHE": 90_000,
        "L2D_CACHE_REFILL": 45_000,
        "LL_CACHE_RD": 40_000,
        "LL_CACHE_MISS_RD": 0,
        "SVE_PRED_SPEC": 0,
    }


@pytest.mark.parametrize("cpu", ["neoverse-n3", "neoverse-v1"])
def test_every_metric_of_counts_from_elsewhere(cpu: str) -> None:
    catalog = load_packaged(cpu)
    chance = random.Random(cpu)
    counts = {name: chance.randrange(1, 10**9) for metric in catalog.metrics.values() for name in metric.events}
    found = stat_json(counts, "--cpu", cpu)
    assert found.keys() == catalog.metrics.keys()
    for name, metric in catalog.metrics.items():
        assert found[name] == {"value": float(evaluate(metric.expression, counts)), "units": metric.units}


def test_no_value_is_null_with_a_reason() -> None:
    found = stat_json({"LL_CACHE_RD": 0, "LL_CACHE_MISS_RD": 0, "CPU_CYCLES": 5}, "--cpu", "v1")
    assert found["ll_cache_read_miss_ratio"] == {
        "value": None,
        "units": "per cache access",
        "reason": "a denominator is zero",
    }
    assert found["ipc"] == {"value": None, "units": "per cycle", "reason": "not counted: INST_RETIRED"}


def test_a_file_from_arm_serves_as_the_catalog() -> None:
    found = stat_json(n3_counts(), "--catalog", str(ARM / "neoverse-n3.json"))
    assert found == stat_json(n3_counts(), "--cpu", "neoverse-n3")


def test_metrics_and_stage_narrow_the_choice() -> None:
    counts = n3_counts()
    assert list(stat_json(counts, "--cpu", "n3", "--metrics", "topdown_l1,ipc")) == [
        "frontend_bound", "backend_bound", "retiring", "bad_speculation", "ipc"
    ]  # fmt: skip
    assert len(stat_json(counts, "--cpu", "n3", "--stage", "1")) == 21
    assert len(stat_json(counts, "--cpu", "n3", "--stage", "2")) == 67 - 21
    assert len(stat_json(counts, "--cpu", "n3", "--stage", "all")) == 67


def test_the_tree_as_text(check_golden: Callable[[str, str], None]) -> None:
    result = run(stat_command.command, "--counts", "-", "--cpu", "n3", text=json.dumps(n3_counts()))
    check_golden("stat_n3.txt", result.stdout)


def test_stages_as_text_show_only_theirs() -> None:
    text = json.dumps(n3_counts())
    first = run(stat_command.command, "--counts", "-", "--cpu", "n3", "--stage", "1", text=text).stdout
    assert "Stage 1" in first
    assert "Stage 2" not in first
    second = run(stat_command.command, "--counts", "-", "--cpu", "n3", "--stage", "2", text=text).stdout
    assert "Stage 1" not in second
    assert second.count("\n    ") == sum(
        len(g.metrics) for g in load_packaged("neoverse-n3").groups.values() if g.stage == 2
    )


def test_without_a_way_down_only_what_has_a_value_is_listed() -> None:
    text = json.dumps({"CPU_CYCLES": 10, "INST_RETIRED": 15})
    lines = run(stat_command.command, "--counts", "-", "--cpu", "v1", text=text).stdout.splitlines()
    second_stage = lines[lines.index("Stage 2: exploration") :]
    assert [line.split()[:2] for line in second_stage if line.startswith("    ")] == [["ipc", "1.500"]]
    assert "frontend_bound" in "".join(lines)  # Stage 1 is the question; that it has no answer is said


def test_csv_has_a_row_for_each_event_and_metric() -> None:
    result = run(
        stat_command.command, "--counts", "-", "--cpu", "v1", "--csv", text='{"CPU_CYCLES": 4, "INST_RETIRED": 6}'
    )
    rows = {row["name"]: row for row in csv.DictReader(result.stdout.splitlines())}
    assert (rows["ipc"]["value"], rows["ipc"]["units"]) == ("1.5", "per cycle")
    assert (rows["branch_mpki"]["value"], rows["branch_mpki"]["reason"]) == ("", "not counted: BR_MIS_PRED_RETIRED")
    assert rows["CPU_CYCLES"]["kind"] == "event"


def test_inconsistent_level_1_is_doubted() -> None:
    counts = n3_counts() | {"STALL_SLOT": 2_000_000}
    result = run(stat_command.command, "--counts", "-", "--cpu", "n3", text=json.dumps(counts))
    assert "level 1 adds up to" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["--cpu", "n3", "--metrics", "frontend_bond"], "named 'frontend_bond'", "--metrics frontend_bound"),
        (["--cpu", "n3", "--metrics", ","], "--metrics names nothing", "tdprof list groups --cpu neoverse-n3"),
        (["--cpu", "n3", "--metrics", "ipc", "--stage", "1"], "none of these metrics is in stage 1", ""),
        (["--cpu", "n3", "--catalog", "x.json"], "--cpu and --catalog exclude each other", ""),
        (["--cpu", "n3", "--json", "--csv"], "--json and --csv exclude each other", "give one of them"),
        (["--cpu", "n3", "--", "true"], "it takes no command", "tdprof stat --counts -"),
        (["--cpu", "n3", "-I", "100", "-r", "2"], "it takes no -I and no -r", "tdprof stat --counts -"),
        (["--catalog", "/gone.json"], "cannot read catalog /gone.json", "tdprof list cpus"),
    ],
)  # fmt: skip
def test_mistakes_with_counts(arguments: list[str], message: str, hint: str) -> None:
    with pytest.raises(TdprofError) as caught:
        run(stat_command.command, "--counts", "-", *arguments, text='{"CPU_CYCLES": 1}')
    assert message in caught.value.message
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to count"),
        (["-p", "12,x"], "-p takes process numbers"),
        (["-p", "1", "-a"], "-p and -a exclude each other"),
        (["-r", "2", "-a"], "-r 2 runs a command again and again: it goes with no -p or -a"),
        (["-r", "2", "-I", "100", "--json", "--", "true"], "-r 2 runs a command again and again, and -I prints"),
        (["--passes", "-I", "100", "--", "true"], "--passes runs a command again and again, and -I prints"),
        (["-e", "", "--", "true"], "the event list is empty"),
        (["-e", "page-fault", "--", "true"], "unknown event 'page-fault'"),
        (["--", "/no/such/command"], "command not found: /no/such/command"),
    ],
)
def test_mistakes_before_counting(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    with pytest.raises(TdprofError) as caught:
        stat_command.command.main(["-o", str(output), *arguments], standalone_mode=False)
    assert message in caught.value.message
    assert capsys.readouterr() == ("", "")  # nothing about a measurement that there will not be
    assert not output.exists()


def test_counts_that_cannot_be_read_say_where_such_come_from(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xff")
    for name, message in (("gone", "No such file"), ("binary", "is not text")):
        with pytest.raises(TdprofError, match=message) as caught:
            run(stat_command.command, "--cpu", "n3", "--counts", str(tmp_path / name))
        assert caught.value.hint == "tdprof stat --json -o FILE -- CMD makes one, or perf stat -j -o FILE"


def test_list_cpus() -> None:
    cpus = {cpu["name"]: cpu for cpu in listed("cpus")}
    assert cpus.keys() == {
        "ampereone",
        "armv8-pmuv3",
        *(f"neoverse-{core}" for core in ("e1", "n1", "n2", "n3", "v1", "v2", "v3")),
    }
    assert (cpus["neoverse-n3"]["events"], cpus["neoverse-n3"]["metrics"], cpus["neoverse-v3"]["slots"]) == (
        224,
        67,
        10,
    )


def test_list_events() -> None:
    events = {event["name"]: event for event in listed("events", "--cpu", "neoverse-n3")}
    assert len(events) == 224
    assert events["STALL_SLOT"]["code"] == 0x3F
    assert events["STALL_SLOT"]["group"] == "Stall"
    assert "retiring" in events["STALL_SLOT"]["metrics"]
    assert events["PMU_OVFS"]["countable"] is False
    assert events["INST_RETIRED"]["amu_counter"] == 2


def test_list_metrics() -> None:
    metrics = {metric["name"]: metric for metric in listed("metrics", "--cpu", "neoverse-v1")}
    assert len(metrics) == 36
    wanted = {"name", "title", "formula", "units", "groups", "events", "stage"}
    assert all(wanted <= metric.keys() for metric in metrics.values())
    assert metrics["l2_tlb_mpki"]["groups"] == ["MPKI", "ITLB_Effectiveness", "DTLB_Effectiveness"]


def test_list_as_csv() -> None:
    text = run(list_command.command, "metrics", "--cpu", "n3", "--csv").stdout
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(text))}
    assert rows["ipc"]["formula"] == "INST_RETIRED / CPU_CYCLES"
    assert rows["ipc"]["events"].split(";") == ["INST_RETIRED", "CPU_CYCLES"]
    assert len(rows) == 67
    cpus = csv.DictReader(io.StringIO(run(list_command.command, "cpus", "--csv").stdout))
    assert {row["name"]: row["midr"] for row in cpus}["neoverse-n1"] == "0x41/0xd0c"


def test_list_groups_and_tree() -> None:
    assert len(listed("groups", "--cpu", "neoverse-v1")) == 13
    tree = listed("tree", "--cpu", "neoverse-v1")
    assert [row["name"] for row in tree if row["depth"] == 0] == [
        "frontend_bound", "backend_bound", "retiring", "bad_speculation"
    ]  # fmt: skip


def test_the_tree_drawn(check_golden: Callable[[str, str], None]) -> None:
    check_golden("tree_n3.txt", run(list_command.command, "tree", "--cpu", "n3").stdout)


@pytest.mark.parametrize("what", ["cpus", "events", "metrics", "groups"])
def test_tables_have_a_line_for_each_object(what: str) -> None:
    lines = run(list_command.command, what, "--cpu", "n1").stdout.splitlines()
    for entry in listed(what, "--cpu", "n1"):
        assert any(re.search(rf"\b{re.escape(entry['name'])}\b", line) for line in lines)


def test_n2_says_which_formulas_it_uses() -> None:
    assert "r0p0-r0p2 erratum" in run(list_command.command, "metrics", "--cpu", "n2").stderr


@pytest.mark.skipif(Path("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1").exists(), reason="an Arm machine")
def test_elsewhere_the_core_has_to_be_named() -> None:
    with pytest.raises(TdprofError, match="this is not an Arm machine") as caught:
        run(list_command.command, "events")
    assert caught.value.hint == "--cpu neoverse-n3"
