"""Counts from elsewhere: a JSON object, and perf stat's JSON and CSV."""

import json

import pytest

from tdprof.catalog.choose import load_packaged
from tdprof.errors import TdprofError
from tdprof.metrics.counts import find_perf_event, parse_counts
from tdprof.text import few

V1 = load_packaged("neoverse-v1")
N3 = load_packaged("neoverse-n3")


def counts(text: str) -> dict[str, float]:
    return parse_counts(text, V1, "counts").counts


def test_a_json_object() -> None:
    assert counts('{"CPU_CYCLES": 10, "inst_retired": 2.5, "STALL": null}') == {"CPU_CYCLES": 10.0, "INST_RETIRED": 2.5}


def test_an_unknown_name_is_said_with_the_nearest() -> None:
    found = parse_counts('{"CPU_CYCLES": 1, "STALL_SLOTT": 1}', V1, "counts")
    assert found.notes == ("Neoverse V1 has no event STALL_SLOTT; did you mean STALL_SLOT?",)


def test_what_tdprof_stat_json_wrote_is_read_back() -> None:
    text = '{"cpu": "neoverse-v1", "events": {"CPU_CYCLES": {"value": 5}, "task-clock": {"value": 1.5}}, "metrics": {}}'
    assert counts(text) == {"CPU_CYCLES": 5.0}


PERF_JSON = """\
{"counter-value" : "1000.000000", "unit" : "", "event" : "cycles", "event-runtime" : 5, "pcnt-running" : 100.00}
{"counter-value" : "0.55", "unit" : "msec", "event" : "task-clock", "event-runtime" : 55, "pcnt-running" : 100.00}
{"counter-value" : "2500.000000", "unit" : "", "event" : "armv8_pmuv3_0/op_retired/", "pcnt-running" : 50.00}
{"counter-value" : "<not counted>", "unit" : "", "event" : "stall_slot", "event-runtime" : 0, "pcnt-running" : 0.00}
{"metric-value" : "1.5", "metric-unit" : "insn per cycle"}
"""


def test_perf_stat_json() -> None:
    found = parse_counts(PERF_JSON, V1, "perf.json")
    assert found.counts == {"CPU_CYCLES": 1000.0, "OP_RETIRED": 2500.0}
    assert found.notes == ("not counted by perf: STALL_SLOT",)


def test_one_line_of_perf_json_is_no_object_of_counts() -> None:
    assert counts(PERF_JSON.splitlines()[0]) == {"CPU_CYCLES": 1000.0}


PERF_CSV = """# started on Sat Nov 21 06:29:03 2026

0.45,msec,task-clock,446370,100.00,0.539,CPUs utilized
1000,,cycles,446370,100.00,,
2500,,r3a,446370,50.00,,
<not supported>,,stall_slot,0,100.00,,
"""


def test_perf_stat_csv() -> None:
    found = parse_counts(PERF_CSV, V1, "perf.csv")
    assert found.counts == {"CPU_CYCLES": 1000.0, "OP_RETIRED": 2500.0}
    assert found.notes == ("not counted by perf: STALL_SLOT",)


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_perf_stat_csv_with_intervals_cpus_and_other_separators(mark: str) -> None:
    text = "1.0,CPU0,10,,cycles,5,100.00\n1.0,CPU1,20,,cycles,5,100.00\n2.0,CPU0,1,,cycles,5,100.00\n"
    assert counts(text.replace(",", mark)) == {"CPU_CYCLES": 31.0}


def test_perf_stat_csv_by_socket() -> None:
    assert counts("S0,2,10,,cycles,5,100.00\nS1,2,20,,cycles,5,100.00\n") == {"CPU_CYCLES": 30.0}


def test_the_same_event_in_several_groups_is_averaged_not_added() -> None:
    assert counts("100,,cycles,5,50.0\n110,,cycles,5,50.0\n7,,r3a,5,50.0\n") == {"CPU_CYCLES": 105.0, "OP_RETIRED": 7.0}


def test_an_event_missing_in_one_interval_has_no_sum() -> None:
    found = parse_counts("1.0,10,,cycles,5,100.0\n2.0,<not counted>,,cycles,0,0.0\n1.0,3,,r8,5,100.0", V1, "x")
    assert found.counts == {"INST_RETIRED": 3.0}


def test_user_only_and_full_counts_do_not_mix_silently() -> None:
    assert parse_counts("10,,cycles:u,5,100.0\n20,,instructions,5,100.0\n", V1, "x").notes == (
        "counts of user space only and of everything are mixed; ratios between them mean nothing",
    )
    assert parse_counts("10,,cycles:u,5,100.0\n20,,instructions:u,5,100.0\n", V1, "x").notes == ()


@pytest.mark.parametrize(
    ("name", "event"),
    [("cycles", "CPU_CYCLES"), ("cpu-cycles:u", "CPU_CYCLES"), ("instructions", "INST_RETIRED"), ("r11", "CPU_CYCLES"),
     ("branch-misses", "BR_MIS_PRED"), ("cache-misses", "L1D_CACHE_REFILL"), ("armv8_pmuv3_0/l1d_cache/", "L1D_CACHE"),
     ("armv8_pmuv3_0/event=0x3d/u", "STALL_SLOT_BACKEND"), ("armv8_pmuv3/config=0x3d,name=x/", "STALL_SLOT_BACKEND"),
     ("IMP_L2_CHI_RX_CBUSY_0", "IMP_L2_CHI_CBUSY0")],
)  # fmt: skip
def test_names_as_perf_writes_them(name: str, event: str) -> None:
    found, _ = find_perf_event(name, N3)
    assert found is not None
    assert found.name == event


@pytest.mark.parametrize(
    "name", ["branches", "task-clock", "page-faults", "rzz", "cpu/event=0xffff/", "sched:sched_switch"]
)
def test_names_that_are_no_event_of_the_core(name: str) -> None:
    assert find_perf_event(name, N3)[0] is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"CPU_CYCLES": "many"}', "counts: the count of CPU_CYCLES is 'many', not a number"),
        ('{"CPU_CYCLES": true}', "counts: the count of CPU_CYCLES is True, not a number"),
        ('{"CPU_CYCLES": -1}', "counts: the count of CPU_CYCLES is -1; counts are finite and not negative"),
        ('{"CPU_CYCLES": NaN}', "counts: the count of CPU_CYCLES is nan; counts are finite and not negative"),
        ('{"CPU_CYCLES": 1e999}', "counts: the count of CPU_CYCLES is inf; counts are finite and not negative"),
        ('{"counter-value": "1"}\n' + "[" * 100_000, "counts, line 2: nested too deeply"),
        ('{"CPU_CYCLES": 1', "counts: not JSON: Expecting ',' delimiter: line 1 column 17 (char 16)"),
        ("{}", "counts: no count of an event that Neoverse V1 has"),
        ("", "counts: no count of an event that Neoverse V1 has"),
        ("hello world", "counts, line 1: no count of an event: 'hello world'"),
        ("[1, 2]", "counts, line 1: no count of an event: '[1, 2]'"),
    ],
)
def test_what_is_no_count_file(text: str, complaint: str) -> None:
    with pytest.raises(TdprofError) as caught:
        counts(text)
    assert caught.value.message == complaint


def test_long_lists_stay_one_line() -> None:
    names = list(V1.events)[:301]
    missing = [name for name in names if name != "CPU_CYCLES"]
    text = "\n".join(["1,,CPU_CYCLES,1,100", *(f"<not counted>,,{name},0,0" for name in missing)])
    [note] = parse_counts(text, V1, "counts").notes
    assert note == f"not counted by perf: {', '.join(sorted(missing)[:5])} and {len(missing) - 5} more"
    unknown = json.dumps({"CPU_CYCLES": 1} | {f"NO_SUCH_{n:03}": 1 for n in range(301)})
    notes = parse_counts(unknown, V1, "counts").notes
    assert len(notes) == 6
    assert notes[-1].startswith("Neoverse V1 has none of 296 more events either: NO_SUCH_005, ")
    assert all(len(note) < 200 for note in notes)


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a"], "a"), (list("abcdef"), "a, b, c, d, e, f"), (list("abcdefg"), "a, b, c, d, e and 2 more")],
)
def test_few_names(names: list[str], text: str) -> None:
    assert few(names) == text
