"""What the fleet's commands answer, on fleets whose truth is known."""

import csv
import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders.fleet import NEOVERSE_N1, NEOVERSE_V1, make_host_capture, tdprof
from builders.hosts import HOST
from tdprof.fleet.simulate import FleetPlan, Simulated, simulate

WORK = {"work": 6000, "parse": 3000, "rest": 1000}


def make_fleet(folder: Path, hosts: int, seed: int = 1, **changes: object) -> list[Path]:
    """Hosts whose shares differ by some percent; ``parse`` is 30 % of the samples unless told otherwise."""
    rng = np.random.default_rng(seed)
    made = []
    name, parse = str(changes.pop("name", "web")), float(changes.pop("parse", 0.3))  # type: ignore[arg-type]
    for host in range(hosts):
        own = parse * rng.lognormal(0, 0.05)
        counts = rng.multinomial(20_000, [0.9 - own, own, 0.1])
        samples = dict(zip(WORK, counts.tolist(), strict=True))
        made.append(make_host_capture(folder / f"{name}{host}", f"{name}{host}", samples, **changes))  # type: ignore[arg-type]
    return made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_kinds_of_cores_are_never_put_together(tmp_path: Path, store: Path) -> None:
    make_fleet(tmp_path / "caps", 6, name="v", midr=NEOVERSE_V1, parse=0.3)
    make_fleet(tmp_path / "caps", 6, name="n", midr=NEOVERSE_N1, parse=0.6)
    assert tdprof("fleet", "add", store, tmp_path / "caps").status == 0
    strata = json.loads(tdprof("fleet", "report", store, "--json").stdout)["strata"]
    assert [(each["core"], each["hosts"]) for each in strata] == [("neoverse-n1", 6), ("neoverse-v1", 6)]
    for each, truth in zip(strata, (0.6, 0.3), strict=True):
        (row,) = (row for row in each["functions"] if row["name"] == "parse")
        assert row["self"]["share"] == pytest.approx(truth, rel=0.15)
        assert row["self"]["hosts"] == 6
        assert row["self"]["design_effect"] > 1
    main = next(row for row in strata[0]["functions"] if row["name"] == "main")
    assert (main["self"]["share"], main["total"]["share"]) == (0, 1)
    text = tdprof("fleet", "report", store).stdout
    assert "neoverse-n1: cpu-clock, 6 hosts, 6 recordings, 120,000 samples" in text
    rows = list(csv.DictReader(io.StringIO(tdprof("fleet", "report", store, "--csv").stdout)))
    assert {row["core"] for row in rows} == {"neoverse-n1", "neoverse-v1"}
    assert tdprof("fleet", "report", store, "--event", "no-such").status == 2


@pytest.mark.parametrize(("others", "hint"), [([], "CAPTURE…, of others"), (["page-faults"], "--event page-faults")])
def test_without_samples_there_is_another_event_or_none(
    tmp_path: Path, store: Path, others: list[str], hint: str
) -> None:
    events = {"cpu-clock": 0.0, **dict.fromkeys(others, 1.0)}
    make_host_capture(tmp_path / "a", "a", {"work": 10}, events=events)
    assert tdprof("fleet", "add", store, tmp_path / "a").status == 0
    error = tdprof("fleet", "report", store, "--event", "cpu-clock").error
    assert error is not None
    assert error.message == "cpu-clock has no samples on neoverse-v1"
    assert error.hint.endswith(hint)


def test_kinds_of_cores_are_chosen_by_the_words_of_the_hint(tmp_path: Path, store: Path) -> None:
    for name, model in (("a", "AMD EPYC"), ("b", "Intel Xeon")):
        host = replace(HOST, machine="x86_64", cpu_model=model)
        make_host_capture(tmp_path / "caps" / name, name, {name: 10}, host=host, midr="")
    assert tdprof("fleet", "add", store, tmp_path / "caps").status == 0
    error = tdprof("export", store, "--to", "folded").error
    assert error is not None
    assert error.hint is not None
    assert tdprof("export", store, "--to", "folded", *shlex.split(error.hint)).stdout == "1 host;main;a 100000000\n"


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            ["colour=red"],
            "no recording of {} has a label 'colour'",
            "what they have: core, host, kernel, build, version",
        ),
        (["core=arm"], "{} has no recordings of core=arm", "such as core=neoverse-v1"),
        (["version=3"], "{} has no recordings of version=3", "such as version=1, version=2"),
        (["build=12"], "{} has no recordings of build=12", f"such as build={'ab' * 20}"),
        (
            ["host=h1", "version=2"],
            "{} has no recordings of what was asked for",
            "its recordings are of 2026-11-22 to 2026-11-22",
        ),
    ],
)
def test_what_no_recording_has_is_told_apart(
    tmp_path: Path, store: Path, asked: list[str], message: str, hint: str
) -> None:
    for version in ("1", "2"):
        capture = make_host_capture(tmp_path / version, f"h{version}", {"work": 10})
        assert tdprof("fleet", "add", store, capture, "--label", f"version={version}").status == 0
    words = [word for condition in asked for word in ("--where", condition)]
    for prepare in ((), ("fleet", "compact", store)):
        assert not prepare or tdprof(*prepare).status == 0
        for command in ("report", "spe", "hosts"):
            error = tdprof("fleet", command, store, *words).error
            assert error is not None
            assert (error.message, error.hint) == (message.format(store), hint)


def test_a_release_that_changed_is_found_and_fails(tmp_path: Path, store: Path) -> None:
    for version, parse in (("1", 0.2), ("2", 0.3)):
        captures = make_fleet(tmp_path / version, 8, seed=int(version), name=f"h{version}", parse=parse)
        assert tdprof("fleet", "add", store, *captures, "--label", f"version={version}").status == 0
    sides = ("--a", "version=1", "--b", "version=2")
    told = json.loads(tdprof("fleet", "diff", store, *sides, "--json").stdout)["strata"][0]
    marked = {row["name"]: row["change"] for row in told["functions"] if row["is_significant"]}
    assert set(marked) == {"parse", "work"}
    assert marked["parse"] == pytest.approx(0.1, abs=0.02)
    assert "more" in tdprof("fleet", "diff", store, *sides).stdout
    for condition, status in (("parse:self>10%", 1), ("parse:self>20", 0), ("rest:self>10%", 0), ("*:self<-5%", 1)):
        assert tdprof("fleet", "diff", store, *sides, "--fail-on", condition).status == status
    for nonsense in ("parse>10%", "nobody:self>1%", "rubbish"):
        assert tdprof("fleet", "diff", store, *sides, "--fail-on", nonsense).status == 2
    rows = list(csv.DictReader(io.StringIO(tdprof("fleet", "diff", store, *sides, "--csv", "--total").stdout)))
    assert {row["function"]: row["is_significant"] for row in rows}["main"] == "0"


def test_hosts_on_both_sides_are_compared_with_themselves(tmp_path: Path, store: Path) -> None:
    """Hosts differ by far more than the release changed: only pairs show it."""
    levels = np.random.default_rng(3).uniform(0.1, 0.5, 7)
    for version, factor in (("1", 1.0), ("2", 1.06)):
        for host, level in enumerate(levels):
            parse = round(100_000 * level * factor)
            samples = {"parse": parse, "work": 100_000 - parse}
            make_host_capture(tmp_path / version / f"h{host}", f"h{host}", samples, start_ns=int(version))
        assert tdprof("fleet", "add", store, tmp_path / version, "--label", f"version={version}").status == 0
    told = json.loads(tdprof("fleet", "diff", store, "--a", "version=1", "--b", "version=2", "--json").stdout)
    (stratum,) = told["strata"]
    assert stratum["hosts_both"] == 7
    assert {row["name"] for row in stratum["functions"] if row["is_significant"]} == {"parse", "work"}


def test_a_function_is_the_same_on_both_sides_where_one_has_another_of_its_name(tmp_path: Path, store: Path) -> None:
    """The source file that then stands beside its name is no other function."""
    for version, more in (("1", 0), ("2", 40)):
        for host in range(6):
            make_host_capture(
                tmp_path / version / f"{host}",
                f"h{version}{host}",
                {"init": 500 + host, "rest": 500, "other": more},
                functions={"init": ("init", "/src/a.c"), "other": ("init", "/src/b.c")},
            )
        assert tdprof("fleet", "add", store, tmp_path / version, "--label", f"version={version}").status == 0
    sides = ("--a", "version=1", "--b", "version=2")
    for ask in (lambda: None, lambda: tdprof("fleet", "compact", store)):
        ask()
        (stratum,) = json.loads(tdprof("fleet", "diff", store, *sides, "--json").stdout)["strata"]
        found = {(row["name"], row["file"]): (row["a"]["share"], row["b"]["share"]) for row in stratum["functions"]}
        assert found["init", "a.c"] == pytest.approx((0.501, 0.482), abs=0.001)
        assert found["init", "b.c"] == pytest.approx((0, 0.038), abs=0.001)
        assert ("init", "") not in found
        assert tdprof("fleet", "diff", store, *sides, "--fail-on", "init:self<-10%").status == 0


def test_one_host_more_on_a_side_takes_no_answer_away(tmp_path: Path, store: Path) -> None:
    """A host that was installed between two releases has none like it: it counts with the others."""
    for version, parse, hosts in (("1", 0.2, 8), ("2", 0.3, 9)):
        captures = make_fleet(tmp_path / version, hosts, seed=int(version), parse=parse, start_ns=int(version))
        assert tdprof("fleet", "add", store, *captures, "--label", f"version={version}").status == 0
    sides = ("--a", "version=1", "--b", "version=2")
    (stratum,) = json.loads(tdprof("fleet", "diff", store, *sides, "--json").stdout)["strata"]
    assert (stratum["hosts_a"], stratum["hosts_b"], stratum["hosts_both"]) == (8, 9, 8)
    assert {row["name"] for row in stratum["functions"] if row["is_significant"]} == {"parse", "work"}
    assert tdprof("fleet", "diff", store, *sides, "--fail-on", "parse:self>10%").status == 1


def test_release_and_core_confounded_are_refused(tmp_path: Path, store: Path) -> None:
    for version, midr in (("1", NEOVERSE_V1), ("2", NEOVERSE_N1)):
        captures = make_fleet(tmp_path / version, 2, name=f"h{version}", midr=midr)
        tdprof("fleet", "add", store, *captures, "--label", f"version={version}")
    ran = tdprof("fleet", "diff", store, "--a", "version=1", "--b", "version=2")
    assert ran.status == 2
    assert ran.error is not None
    assert "A is only on neoverse-v1 and B only on neoverse-n1" in ran.error.message
    assert tdprof("fleet", "diff", store, "--a", "host=h10", "--b", "host=h10").status == 2


def test_hosts_that_did_not_count_the_event_are_said_to_be_left_out(tmp_path: Path, store: Path) -> None:
    """Cycles are shown where any host has a PMU, and of a fleet of virtual machines that may be few."""
    for host in range(5):
        events = {"CPU_CYCLES": 1.0, "cpu-clock": 1.0} if host < 2 else None
        make_host_capture(tmp_path / "caps" / f"{host}", f"h{host}", WORK, events=events)
    assert tdprof("fleet", "add", store, tmp_path / "caps").status == 0
    for ask in (lambda: None, lambda: tdprof("fleet", "compact", store)):
        ask()
        told = json.loads(tdprof("fleet", "report", store, "--json").stdout)
        assert [(each["event"], each["hosts"]) for each in told["strata"]] == [("CPU_CYCLES", 2)]
        assert told["notes"] == ["CPU_CYCLES was not counted on 3 hosts, which this leaves out"]
        told = json.loads(tdprof("fleet", "report", store, "--json", "--event", "cpu-clock").stdout)
        assert (told["strata"][0]["hosts"], told["notes"]) == (5, [])


def test_too_few_hosts_mark_nothing_and_judge_nothing(tmp_path: Path, store: Path) -> None:
    for version, parse in (("1", 0.1), ("2", 0.5)):
        captures = make_fleet(tmp_path / version, 3, name=f"h{version}", parse=parse)
        tdprof("fleet", "add", store, *captures, "--label", f"version={version}")
    sides = ("--a", "version=1", "--b", "version=2")
    assert "Too few hosts" in tdprof("fleet", "diff", store, *sides).stdout
    assert tdprof("fleet", "diff", store, *sides, "--fail-on", "parse:self>1%").status == 2


def test_outlier_hosts_and_what_they_share(tmp_path: Path, store: Path) -> None:
    captures = make_fleet(tmp_path / "most", 14, name="ok")
    odd = make_fleet(tmp_path / "odd", 3, name="odd", parse=0.6)
    tdprof("fleet", "add", store, *captures, "--label", "firmware=1")
    tdprof("fleet", "add", store, *odd, "--label", "firmware=2")
    (stratum,) = json.loads(tdprof("fleet", "hosts", store, "--json").stdout)["strata"]
    listed = {(row["host"], row["name"]) for row in stratum["outliers"]}
    assert {("odd0", "parse"), ("odd1", "parse"), ("odd2", "parse")} <= listed
    assert {host for host, _ in listed} == {"odd0", "odd1", "odd2"}
    assert {"attribute": "firmware=2", "other_hosts": 0} in stratum["outliers"][0]["in_common"]
    assert "have firmware=2 (0 other hosts)" in tdprof("fleet", "hosts", store).stdout
    assert "odd0" in tdprof("fleet", "hosts", store, "--csv").stdout
    assert "Too few hosts" in tdprof("fleet", "hosts", store, "--where", "firmware=2").stdout
    assert "No function" in tdprof("fleet", "hosts", store, "--where", "firmware=1").stdout


def test_functions_of_one_name_stay_apart_by_their_source_files(tmp_path: Path, store: Path) -> None:
    """Where a host shows both; else a name is one function, wherever its sources were built."""
    for host in range(2):
        make_host_capture(
            tmp_path / f"c{host}", f"h{host}", WORK, file=f"/build/{host}/app.c", module=f"/opt/{host}/app"
        )
        tdprof("fleet", "add", store, tmp_path / f"c{host}")
    (stratum,) = json.loads(tdprof("fleet", "report", store, "--json").stdout)["strata"]
    assert {(row["name"], row["module"]) for row in stratum["functions"] if row["self"]["hosts"] == 2} == {
        (name, "app") for name in WORK
    }
    assert len(stratum["functions"]) == 4


def test_intervals_and_discoveries_hold_what_they_promise() -> None:
    """docs/fleet.md has more rounds; the bounds here are beyond four deviations of so few."""
    (of_ten, of_fifty) = simulate(FleetPlan(0.1, 20_000, 0.01, 0.3, rounds=50, seed=4), [10, 50])
    for each in (of_ten, of_fifty):
        assert 0.93 <= each.coverage <= 0.985
        assert each.false_discoveries <= 0.12
        assert each.false_outliers <= 0.2
    assert of_fifty.half_width < of_ten.half_width / 1.8
    assert of_fifty.found > 0.95
    assert of_fifty.outlier_found > 0.8


def test_intervals_hold_the_truth_where_few_hosts_have_much_more() -> None:
    """Intervals that reach as far down as up held it in 90 % of these."""
    for each in simulate(FleetPlan(1.0, 20_000, 0.01, 0.3, rounds=60, seed=4), [10, 20]):
        assert 0.93 <= each.coverage <= 0.97


def test_a_plan_is_the_same_each_time() -> None:
    plan = FleetPlan(0.2, 1000, 0.05, 0.5, rounds=10, seed=9)
    assert list(simulate(plan, [6])) == list(simulate(plan, [6]))
    ran = tdprof("fleet", "plan", "--hosts", "6", "--rounds", "10", "--json")
    (row,) = json.loads(ran.stdout)["hosts"]
    assert set(row) == set(Simulated.__slots__)
    assert tdprof("fleet", "plan", "--hosts", "6", "--rounds", "10", "--json").stdout == ran.stdout
    assert "coverage" in tdprof("fleet", "plan", "--hosts", "6", "--rounds", "10").stdout
    assert tdprof("fleet", "plan", "--hosts", "1").status == 2
    assert tdprof("fleet", "plan", "--hosts", "ten").status == 2
