"""What a Topdown recording samples: on whole and on lesser PMUs, for every stage, and what the user is told."""

import importlib.resources
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders.topdown import topdown_profile
from tdprof.catalog.choose import CatalogChoice, catalog_names, find_by_name, is_reported, load_packaged, name_of
from tdprof.catalog.entries import Catalog, Metric
from tdprof.catalog.midr import CoreType, Midr
from tdprof.cli import record as record_command
from tdprof.cli import record_topdown
from tdprof.cli.record_topdown import TopdownOptions, plan_topdown
from tdprof.errors import TdprofError
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.pipeline.load import find_findings
from tdprof.pipeline.plan import (
    ABSENT,
    SILENT,
    SamplingPlan,
    missing_events,
    plan_groups,
    plan_sampling,
    sampled_metrics,
)
from tdprof.recorder.events import Event
from tdprof.recorder.perf_event import Count
from tdprof.recorder.pmu import CorePmu, Counters, EventTrial
from tdprof.recorder.totals import idle_groups

V1 = load_packaged("neoverse-v1")
N3 = load_packaged("neoverse-n3")
EVERYTHING = frozenset(code for code in range(0x4040) if code & ~0x403F == 0)
PMU = CorePmu("armv8_pmuv3_0", 8, frozenset(), EVERYTHING)


def plan(
    catalog: Catalog,
    stage: str = "1",
    names: str | None = None,
    counters: Counters = Counters(6, True),  # noqa: B008 - a frozen value
    is_refused: Callable[[Event], bool] = lambda _: False,
) -> SamplingPlan:
    metrics = sampled_metrics(catalog, stage, names)
    groups = plan_groups(CatalogChoice(catalog, (0,), ()), metrics, PMU, counters, is_refused)
    return plan_sampling(groups, catalog.name)


def check_rows(found: SamplingPlan, catalog: Catalog, metrics: Sequence[str]) -> None:
    """Every row is one event of one group, and every metric's events stand in its group."""
    assert found.topdown is not None
    groups = found.topdown.groups
    assert [row for group in groups for row in group.events] == list(range(len(found.events)))
    for group in groups:
        assert [found.events[row].config for row in group.events] == [catalog.events[name].code for name in group.names]
        assert {event for name in group.metrics for event in catalog.metrics[name].events} <= set(group.names)
        assert group.names[0] == "CPU_CYCLES"
        assert len(group.events) <= 7
    assert sorted(name for group in groups for name in group.metrics) == sorted(metrics)


def test_stage_1_is_one_group_on_a_v1() -> None:
    found = plan(V1)
    check_rows(found, V1, V1.groups["Topdown_L1"].metrics)
    assert found.topdown
    assert len(found.topdown.groups) == 1
    assert len(found.events) == 7


@pytest.mark.parametrize(("catalog", "groups"), [(V1, 7), (N3, 13)])
def test_stage_2_is_everything_in_the_fewest_groups(catalog: Catalog, groups: int) -> None:
    found = plan(catalog, "2")
    check_rows(found, catalog, list(catalog.metrics))
    assert found.topdown
    assert len(found.topdown.groups) == groups
    assert found == plan(catalog, "all")


def test_named_metrics_come_on_top_of_stage_1() -> None:
    found = plan(V1, names="Branch_Effectiveness,l1d_cache_mpki")
    check_rows(
        found,
        V1,
        list({*V1.groups["Topdown_L1"].metrics, *V1.groups["Branch_Effectiveness"].metrics, "l1d_cache_mpki"}),
    )


def test_a_taken_cycle_counter_splits_level_1_and_says_so() -> None:
    found = plan(V1, counters=Counters(6, False))
    assert found.topdown
    assert len(found.topdown.groups) == 2
    assert "Topdown_L1 does not fit" in found.notes[0]


def test_metrics_of_too_few_counters_are_named() -> None:
    found = plan(V1, counters=Counters(2, True))
    assert found.topdown
    assert "bad_speculation" in found.topdown.split_metrics


def test_an_event_that_the_kernel_refuses_costs_only_its_metrics() -> None:
    found = plan(V1, "2", is_refused=lambda event: event.name == "DTLB_WALK")
    assert found.topdown
    assert not any("DTLB_WALK" in group.names for group in found.topdown.groups)
    lost = [name for name, metric in V1.metrics.items() if "DTLB_WALK" in metric.events]
    check_rows(found, V1, [name for name in V1.metrics if name not in lost])
    assert f"refuses DTLB_WALK: {len(lost)} of 36" in found.notes[0]


CATALOGS = [load_packaged(name) for name in catalog_names()]


@pytest.mark.parametrize("catalog", CATALOGS, ids=lambda catalog: catalog.name)
@pytest.mark.parametrize("is_tried", [True, False], ids=["counts", "silent"])
def test_an_absent_event_costs_the_metrics_that_need_it(catalog: Catalog, is_tried: bool) -> None:
    """Any bit of PMCEID0/1_EL0 cleared, as by a core without the event, or a hypervisor that hides it."""
    needed = {name for metric in catalog.metrics.values() for name in metric.events}
    codes = {name: catalog.events[name].code for name in catalog.events}
    for absent in {code for code in codes.values() if is_reported(code)}:
        hidden = {name for name in needed if codes[name] == absent}

        def counts_here(event: Event, absent: int = absent) -> bool:
            return is_tried and event.config != absent

        pmu = replace(PMU, codes=EVERYTHING - {absent})
        found = missing_events(catalog, sorted(needed), pmu, lambda _: False, EventTrial(counts_here))
        assert {name for name, why in found.items() if why == ABSENT} == hidden
        # Once one is hidden, nobody vouches for codes beyond the registers, unless they count.
        beyond = {name for name in needed if not is_reported(codes[name])} if hidden and not is_tried else set()
        assert {name for name, why in found.items() if why == SILENT} == beyond


def test_what_every_program_does_is_missed_where_it_alone_counts_nothing() -> None:
    needed = sorted({name for metric in V1.metrics.values() for name in metric.events})
    codes = {name: V1.events[name].code for name in needed}
    loads, rare = codes["LD_SPEC"], codes["ASE_SPEC"]

    def missed(*silent: int) -> tuple[dict[str, str], set[int]]:
        """What is missing where these count nothing, and what was asked."""
        tried: set[int] = set()

        def counts_here(event: Event) -> bool:
            tried.add(event.config)
            return event.config not in silent

        return missing_events(V1, needed, PMU, lambda _: False, EventTrial(counts_here)), tried

    assert missed(loads)[0] == {"LD_SPEC": SILENT}
    # Who leaves one out may leave out others; while none is, what programs may well do without is believed.
    assert missed(loads, rare)[0] == {"ASE_SPEC": SILENT, "LD_SPEC": SILENT}
    found, tried = missed(rare)
    assert found == {}
    assert rare not in tried
    # A trial that counts no operations at all says nothing of loads.
    assert missed(0x1B, loads)[0] == {}


@pytest.mark.parametrize("catalog", CATALOGS, ids=lambda catalog: catalog.name)
def test_a_filter_of_all_that_nothing_reports_leaves_no_zeros(catalog: Catalog) -> None:
    """As a hypervisor may have it: what PMCEID has a bit for counts, and from some code on nothing does."""
    codes = {name: catalog.events[name].code for metric in catalog.metrics.values() for name in metric.events}
    for first in (0x40, 0x8000):
        hidden = {name for name, code in codes.items() if code >= first and not is_reported(code)}
        has_sign = {0x70, 0x71, 0x801C, 0x811D, 0x8164} & {codes[name] for name in hidden}
        found = missing_events(
            catalog,
            sorted(codes),
            PMU,
            lambda _: False,
            EventTrial(lambda event: event.name not in hidden),  # noqa: B023
        )
        assert found == dict.fromkeys(sorted(hidden) if has_sign else [], SILENT)


@pytest.mark.parametrize("name", ["neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-v3"])
def test_what_the_trial_executes_is_missed_where_it_alone_counts_nothing(name: str) -> None:
    """A filter from 0x8000 on hides N2's and V1's SVE_INST_SPEC alone: 0 % of SVE would be a wrong number."""
    catalog = load_packaged(name)
    codes = {name: catalog.events[name].code for metric in catalog.metrics.values() for name in metric.events}
    executes = frozenset({0x74, 0x77, 0x8006})

    def missed(silent: int, executes: frozenset[int] = executes) -> dict[str, str]:
        trial = EventTrial(lambda event: event.config != silent, executes)
        return missing_events(catalog, sorted(codes), PMU, lambda _: False, trial)

    for alone in executes & set(codes.values()):
        hidden = [event for event in sorted(codes) if codes[event] == alone]
        assert missed(alone) == dict.fromkeys(hidden, SILENT)
        # A core or a virtual machine without the instructions counts none of them, and that is true.
        assert missed(alone, frozenset()) == {}


def test_a_driver_without_a_name_for_an_event_does_not_hide_it() -> None:
    """Older kernels list fewer of the events that PMCEID reports: one that counts is there."""
    codes = frozenset(code for code in EVERYTHING if code < 0x4000)
    metrics = list(N3.metrics.values())
    planned = plan_groups(
        CatalogChoice(N3, (0,), ()),
        metrics,
        replace(PMU, codes=codes),
        Counters(6, True),
        trial=EventTrial(lambda _: True),
    )
    assert planned.notes == tuple(N3.caveats_of(metrics))
    assert {name for group, _ in planned.groups for name in group.metrics} == {metric.name for metric in metrics}


def test_caveats_stand_where_their_metrics_are() -> None:
    v2 = load_packaged("neoverse-v2")
    misses, other = v2.metrics["ll_cache_read_miss_ratio"], v2.metrics["branch_mpki"]
    lacking = replace(PMU, codes=PMU.codes - {0x36, 0x37})

    def told(pmu: CorePmu, *metrics: Metric) -> list[str]:
        planned = plan_groups(CatalogChoice(v2, (0,), ()), metrics, pmu, Counters(6, True))
        return [note for note in planned.notes if "EXTLLC" in note or "Axion" in note]

    assert told(PMU, other) == told(lacking, other) == []
    [meaning] = told(PMU, misses, other)
    assert "EXTLLC" in meaning
    assert [("Axion" in note) for note in told(lacking, misses)] == [True]


def test_nothing_is_left_where_every_event_is_refused() -> None:
    found = plan(V1, is_refused=lambda _: True)
    assert found.topdown is None
    assert found.events == ()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A machine with these cores, PMU and counters."""

    def make(midr: int | None, pmu: CorePmu | None = PMU, counters: Counters | None = Counters(6, True)) -> None:  # noqa: B008
        cores = [] if midr is None else [CoreType(Midr.from_register(midr), (0, 1))]
        monkeypatch.setattr("tdprof.catalog.midr.read_core_types", lambda: cores)
        monkeypatch.setattr("tdprof.recorder.pmu.find_arm_pmu", lambda _: pmu)
        monkeypatch.setattr("tdprof.recorder.pmu.probe_counters", lambda _: counters)
        monkeypatch.setattr("tdprof.recorder.permitted.can_open", lambda _, *, sampling: sampling)

    return make


def options(stage: str | None = "1", **others: object) -> TopdownOptions:
    given = {"stage": stage, "metrics": None, "passes": False, "counters": None, "cpu": ""} | others
    return TopdownOptions(**given)  # type: ignore[arg-type]


def test_the_machines_core_is_planned_for(machine: Callable[..., None]) -> None:
    machine(0x411FD401)
    found = plan_topdown(options())
    assert found.topdown
    assert found.topdown.core == "neoverse-v1"
    assert not found.topdown.is_pass_per_group
    found = plan_topdown(options("2", passes=True))
    assert found.topdown
    assert found.topdown.is_pass_per_group


def own_catalog(folder: Path) -> Path:
    """N3's with another name, and half of its `frontend_bound`, in a file."""
    content = json.loads((importlib.resources.files("tdprof") / "catalogs/neoverse-n3.json").read_text())
    content["product_configuration"]["tdprof"]["name"] = "my-core"
    metric = content["metrics"]["frontend_bound"]
    metric["formula"] = f"({metric['formula']}) / 2"
    path = folder / "mine.json"
    path.write_text(json.dumps(content))
    return path


def test_the_capture_carries_the_users_catalog(machine: Callable[..., None], tmp_path: Path) -> None:
    machine(0x410FD8E0)
    path = own_catalog(tmp_path)
    found = plan_topdown(options(catalog_file=path))
    assert found.topdown
    assert (found.topdown.core, found.topdown.catalog) == ("my-core", path.read_text())
    path.unlink()
    plain = topdown_profile()
    assert plain.topdown
    carried = replace(plain, topdown=replace(plain.topdown, core="my-core", catalog=found.topdown.catalog))
    values = []
    for profile in (plain, carried):
        findings = find_findings(profile)
        assert findings
        column = findings.program.column("frontend_bound")
        assert column is not None
        values.append(findings.program.value[0, column])
    assert values[1] == pytest.approx(values[0] / 2)
    damaged = replace(carried, topdown=replace(plain.topdown, catalog="{"))
    with pytest.raises(TdprofError, match="catalog of the capture: not JSON"):
        find_findings(damaged)


def test_a_catalog_and_a_core_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="--cpu and --catalog exclude each other"):
        options(cpu="v1", catalog_file=tmp_path).check(
            has_command=True, has_events=False, has_duration=False, has_spe=False
        )


@pytest.mark.parametrize(
    ("midr", "pmu", "counters", "said"),
    [
        (None, PMU, Counters(6, True), "not an Arm machine"),
        (0x411FD401, None, None, "no Arm core PMU"),
        (0x411FD401, PMU, None, "no counter of armv8_pmuv3_0 is free"),
    ],
)
def test_without_a_pmu_a_note_says_what_is_missing(
    machine: Callable[..., None], midr: int | None, pmu: CorePmu | None, counters: Counters | None, said: str
) -> None:
    machine(midr, pmu, counters)
    found = plan_topdown(options())
    assert (found.events, found.topdown) == ((), None)
    assert said in found.notes[-1]
    assert "no Topdown metrics" in found.notes[-1]


@pytest.mark.parametrize("midr", [None, 0x411FD401])
@pytest.mark.parametrize(
    ("names", "said", "hint"),
    [
        ("Topdwn_L1", "has (a|no) metric or group named 'Topdwn_L1'", "--metrics Topdown_L1"),
        ("backend_bound,bckend_bound", "has (a|no) metric or group named 'bckend_bound'", "--metrics backend_bound"),
        ("zzzz", "has (a|no) metric or group named 'zzzz'", "tdprof list groups --cpu neoverse-"),
        ("", "--metrics names nothing", "tdprof list groups --cpu neoverse-"),
    ],
)
def test_a_metric_that_nothing_has_is_refused_on_every_machine(
    machine: Callable[..., None], midr: int | None, names: str, said: str, hint: str
) -> None:
    machine(midr, None, None)
    with pytest.raises(TdprofError, match=said) as caught:
        plan_topdown(options(None, metrics=names))
    assert caught.value.hint.startswith(hint)
    assert caught.value.status == 2
    assert plan_topdown(options(None, metrics="backend_bound")).topdown is None


def test_more_counters_than_are_free_are_refused(machine: Callable[..., None]) -> None:
    machine(0x411FD401, PMU, Counters(5, True))
    with pytest.raises(TdprofError, match="5 free") as caught:
        plan_topdown(options(counters=6))
    assert caught.value.hint == "--counters 5"
    assert plan_topdown(options(counters=4)).topdown


@pytest.mark.parametrize("midr", [0x410FD490, 0x410FD493, 0x6D0FD490, 0x411FD401, 0x410FD8E0, 0x413FD0C1])
def test_a_catalog_is_found_again_by_its_name(midr: int) -> None:
    core = CoreType(Midr.from_register(midr), (0,))
    chosen = find_by_name(hex(midr))
    assert find_by_name(name_of(chosen, "", [core])) == chosen
    assert find_by_name(name_of(chosen, hex(midr), [])) == chosen


def test_a_named_revision_stays_in_the_name() -> None:
    for text in ("neoverse-n2-r0p0", "n2-r0p3"):
        chosen = find_by_name(text)
        assert find_by_name(name_of(chosen, text, [])) == chosen


def record(*words: str) -> Result:
    return CliRunner().invoke(record_command.command, words, standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topdown", "ls"], "takes 1, 2 or all, not 'ls'"),
        (["--topdown=3", "--", "true"], "takes 1, 2 or all"),
        (["--passes", "--", "true"], "are about Topdown"),
        (["--cpu", "n3", "--", "true"], "are about Topdown"),
        (["--topdown", "-e", "cycles", "--", "true"], "excludes -e"),
        (["--topdown", "--passes", "-p", "1"], "needs -- CMD"),
        (["--topdown", "--passes", "--duration", "1", "--", "true"], "needs -- CMD"),
        (["--topdown", "--passes", "--spe", "--", "true"], "needs -- CMD"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], said: str, tmp_path: Path) -> None:
    result = record(*words)
    assert isinstance(result.exception, TdprofError)
    assert said in str(result.exception)
    assert result.exception.status == 2


def test_the_rate_of_seven_events_is_told_in_the_help() -> None:
    assert f"with --topdown {record_topdown.DEFAULT_HZ}" in " ".join(record("--help").output.split())


def test_a_group_that_never_got_the_counters_is_named_with_its_metrics() -> None:
    topdown = TopdownInfo(
        "neoverse-v1", [SampledGroup([0], ["CPU_CYCLES"], ["x"]), SampledGroup([1], ["INST_RETIRED"], ["ipc"])]
    )
    ran, waited, absent = Count(5, 100, 50), Count(0, 100, 0), Count(0, 0, 0)
    (said,) = idle_groups(topdown, [ran, waited])
    assert "never free for INST_RETIRED: ipc" in said
    assert list(idle_groups(topdown, [ran, absent])) == []  # nothing ran at all in which it could have
    assert list(idle_groups(topdown, [ran, None])) == []  # of another run of the command
    assert list(idle_groups(None, [waited])) == []
