"""`tdprof stat` on real counters: against perf, and the metric path over a PMU whose events are the kernel's own."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builders.catalogs import event, metric, small_catalog, write_catalog
from builders.perf_tool import NO_PERF, find_perf
from builders.waiting import PATIENCE_S, wait_until
from live.recording import TDPROF
from tdprof.catalog.choose import CatalogChoice
from tdprof.catalog.load import load_catalog
from tdprof.errors import TdprofError
from tdprof.model.measurement import Measurement
from tdprof.pipeline.count import Plan, measure, plan_counting
from tdprof.recorder import perf_event as pe
from tdprof.recorder.counted_run import Subject
from tdprof.recorder.events import parse_events
from tdprof.recorder.perf_event import PERF_TYPE_SOFTWARE, PerfEventAttr, perf_event_open
from tdprof.recorder.pmu import CorePmu, Counters

pytestmark = pytest.mark.needs_perf


@pytest.fixture(autouse=True)
def _perf_works() -> None:
    try:
        os.close(perf_event_open(PerfEventAttr(type=PERF_TYPE_SOFTWARE, config=1), 0, -1))
    except OSError as error:
        pytest.skip(f"perf_event_open: {error.strerror}")


# Touches a known number of pages, in children too, and burns little time.
PAGES = 3000
TOUCH = f"import mmap; m = mmap.mmap(-1, {PAGES} * 4096)\nfor i in range({PAGES}): m[i * 4096] = 1\n"
TOUCH_TWICE = f"import os\nif os.fork() == 0:\n    exec({TOUCH!r}); os._exit(0)\nos.wait()\nexec({TOUCH!r})"
# No huge pages: the count of faults is the count of pages.
ENVIRONMENT = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def stat(*arguments: str, status: int = 0) -> str:
    result = subprocess.run(
        [*TDPROF, "stat", *arguments],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert result.returncode == status, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


def events_of(text: str) -> dict[str, float]:
    return {name: event["value"] for name, event in json.loads(text)["events"].items()}


def test_faults_agree_with_perf_children_included() -> None:
    if find_perf() is None:
        pytest.skip(NO_PERF)
    command = python(TOUCH_TWICE)
    ours = events_of(stat("--json", "-e", "page-faults,minor-faults,task-clock", "--", *command))
    perf = subprocess.run(
        ["perf", "stat", "-x,", "-e", "page-faults,minor-faults", "--", *command],
        capture_output=True, text=True, check=True, env=ENVIRONMENT,
    )  # fmt: skip
    theirs = {row[2]: float(row[0]) for row in csv.reader(perf.stderr.splitlines()) if len(row) > 2}
    assert ours["page-faults"] == pytest.approx(theirs["page-faults"], rel=0.02)
    assert ours["minor-faults"] == pytest.approx(theirs["minor-faults"], rel=0.02)
    assert ours["page-faults"] > 2 * PAGES
    assert ours["task-clock"] > 0


def test_nothing_before_the_command_is_counted() -> None:
    counts = events_of(stat("--json", "-e", "page-faults", "--", "/bin/true"))
    assert 0 < counts["page-faults"] < 500  # our own process has faulted thousands of times by then


def test_the_commands_status_and_output_pass_through(tmp_path: Path) -> None:
    out = tmp_path / "stat.json"
    assert stat("--json", "-o", str(out), "--", "sh", "-c", "echo hello; exit 7", status=7) == "hello\n"
    assert json.loads(out.read_text())["exit_status"] == 7


def test_a_command_that_is_not_there() -> None:
    stat("--", "/no/such/command", status=127)


def test_repetitions_give_mean_and_deviation() -> None:
    found = json.loads(stat("--json", "-r", "3", "-e", "page-faults,context-switches", "--", "/bin/true"))
    assert found["repetitions"] == 3
    assert found["events"]["page-faults"]["standard_deviation"] >= 0


def test_intervals_add_up_to_the_whole() -> None:
    code = f"import time\n{TOUCH}time.sleep(0.5)\n{TOUCH}time.sleep(0.5)"
    lines = stat("--json", "-I", "50", "-e", "page-faults", "--", *python(code)).splitlines()
    spans = [json.loads(line) for line in lines]
    assert len(spans) >= 4
    assert [span["time_s"] for span in spans] == sorted(span["time_s"] for span in spans)
    whole = events_of(stat("--json", "-e", "page-faults", "--", *python(code)))["page-faults"]
    assert sum(span["events"]["page-faults"]["value"] for span in spans) == pytest.approx(whole, rel=0.02)


def test_csv_has_one_header_however_many_intervals() -> None:
    rows = list(csv.DictReader(stat("--csv", "-I", "50", "-e", "page-faults", "--", "sleep", "0.5").splitlines()))
    counts = [row for row in rows if row["name"] == "page-faults"]
    assert len(counts) >= 2
    assert all(float(row["value"]) >= 0 for row in counts)
    assert "name" not in {row["name"] for row in rows}


def test_a_running_process_is_counted_until_it_ends() -> None:
    child = subprocess.Popen(python(f"input()\n{TOUCH}"), env=ENVIRONMENT, stdin=subprocess.PIPE)
    counting = ["stat", "--json", "-I", "100", "-e", "page-faults", "-p", str(child.pid)]
    with subprocess.Popen([*TDPROF, *counting], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout
        lines = [process.stdout.readline()]  # it counts
        child.communicate(b"\n")
        lines += process.stdout
    assert process.returncode == 0
    assert PAGES <= sum(events_of(line)["page-faults"] for line in lines) < PAGES * 1.5


def test_an_interrupt_keeps_the_counts(tmp_path: Path) -> None:
    out = tmp_path / "stat.json"
    ready = tmp_path / "ready"
    code = f"{TOUCH}open({str(ready)!r}, 'w').close()\nimport time; time.sleep(600)"
    process = subprocess.Popen(
        [*TDPROF, "stat", "--json", "-o", str(out), "-e", "page-faults", "--", *python(code)],
        stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
    )  # fmt: skip
    wait_until(ready.exists, process)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert "interrupted: these are the counts so far" in errors
    assert events_of(out.read_text())["page-faults"] >= PAGES


# --- The metric path: a PMU of type "software" whose event codes are the kernel's software events. -------------------


def software_plan(folder: Path, *, counters: int = 6) -> Plan:
    """Metrics over page faults, of which the minor ones are all here, planned for a PMU that really counts them."""
    value = small_catalog()
    value["events"] = {"FAULTS": event(0x02), "MINOR": event(0x05), "MAJOR": event(0x06), "SWITCHES": event(0x03)}
    value["groups"]["function"] = {}
    value["metrics"] = {
        "lost": metric("MINOR / FAULTS * 100"),
        "ratio": metric("(MINOR + MAJOR) / FAULTS"),
        "none": metric("FAULTS / MAJOR"),
    }
    value["groups"]["metrics"]["Detail"]["metrics"] = ["ratio", "none"]
    catalog = load_catalog(write_catalog(folder, value))
    pmu = CorePmu("software", PERF_TYPE_SOFTWARE, frozenset(), frozenset({2, 3, 5, 6}))
    return plan_counting(
        CatalogChoice(catalog, (), ()),
        tuple(catalog.metrics.values()),
        parse_events("page-faults"),
        pmu,
        Counters(counters, has_cycle_counter=False),
    )


def check_fault_metrics(found: Measurement) -> None:
    assert found.metrics["lost"].value == pytest.approx(100, abs=1)
    assert found.metrics["ratio"].value == pytest.approx(1, abs=0.01)  # passes, and CPUs, stop a fault apart
    assert found.metrics["none"].reason == "a denominator is zero"
    assert found.events["FAULTS"].value >= PAGES


def test_metrics_of_a_group_of_real_events(tmp_path: Path) -> None:
    plan = software_plan(tmp_path)
    assert [group.events for group, _ in plan.groups] == [("FAULTS", "MAJOR", "MINOR")]
    found, run = measure(plan, Subject(tuple(python(TOUCH))))
    check_fault_metrics(found)
    assert found.events["FAULTS"].value == found.events["page-faults"].value
    assert (run.exit_status, run.refused) == (0, {})


@pytest.mark.parametrize("one_pass_per_group", [False, True])
def test_metrics_split_over_groups_and_passes(tmp_path: Path, one_pass_per_group: bool) -> None:
    plan = software_plan(tmp_path, counters=2)
    assert len(plan.groups) == 2
    assert "too few counters for ratio" in plan.notes[0]
    runs: list[tuple[int, int]] = []
    found, _ = measure(
        plan,
        Subject(tuple(python(TOUCH))),
        one_pass_per_group=one_pass_per_group,
        on_run=lambda number, total: runs.append((number, total)),
    )
    check_fault_metrics(found)
    assert runs == ([(1, 2), (2, 2)] if one_pass_per_group else [(1, 1)])


def test_an_event_that_the_kernel_refuses_has_no_value(tmp_path: Path) -> None:
    plan = software_plan(tmp_path)
    wrong = tuple(
        (group, tuple(CorePmu("nothing", 0x7FFFFFFF, frozenset(), frozenset()).event(e.name, e.config) for e in events))
        for group, events in plan.groups
    )
    plan = Plan(plan.plain, plan.metrics, wrong, plan.notes)
    found, run = measure(plan, Subject(("/bin/true",)))
    assert set(run.refused) == {"FAULTS", "MINOR", "MAJOR"}
    assert found.metrics["lost"].reason.startswith("not counted: MINOR, FAULTS (")
    assert found.events["page-faults"].value > 0


def test_all_cpus_see_what_a_command_does(tmp_path: Path) -> None:
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    try:
        found, _ = measure(software_plan(tmp_path), Subject(tuple(python(TOUCH)), cpus=cpus))
    except TdprofError as error:
        pytest.skip(error.message)
    check_fault_metrics(found)


def test_without_permission_for_the_kernel_its_own_events_are_missing_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_an_ordinary_user(
        attr: PerfEventAttr, pid: int, cpu: int, group_fd: int = -1, *, is_cgroup: bool = False
    ) -> int:
        if not attr.exclude_kernel:
            raise PermissionError(errno.EACCES, "Permission denied")
        return perf_event_open(attr, pid, cpu, group_fd, is_cgroup=is_cgroup)

    monkeypatch.setattr(pe, "perf_event_open", as_an_ordinary_user)
    plan = plan_counting(None, (), parse_events("page-faults,context-switches"), None, None)
    found, run = measure(plan, Subject(tuple(python(TOUCH))))
    assert run.user_only
    assert found.events["page-faults"].value >= PAGES
    assert found.events["context-switches"].reason == "not permitted"
    assert not found.events["context-switches"].is_known


def test_a_command_that_fails_once_fails_the_whole() -> None:
    plan = plan_counting(None, (), parse_events("page-faults"), None, None)
    _, run = measure(plan, Subject(("false",)), repetitions=2)
    assert run.exit_status == 1
