"""The HTML page's file: its policy, its data, and what hostile text can do in it."""

import base64
import hashlib
import io
import json
import re
import struct
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from builders.profiles import Frame, ProfileBuilder, example, hostile, profiles
from builders.topdown import topdown_profile
from builders.woken import woken, woken_as_loaded
from tdprof.model.choices import Basis
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.compare import compare
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import effective_number, find_hotspots
from tdprof.profile.intervals import time_bins
from tdprof.profile.statistics import Z_95
from tdprof.report.page.data import Page, page_document
from tdprof.report.page.html import write_html
from tdprof.report.page.times import MOST_BINS

TYPES = {"Uint8Array": "u1", "Uint16Array": "<u2", "Uint32Array": "<u4", "Float32Array": "<f4", "Float64Array": "<f8"}


class Elements(HTMLParser):
    """Elements in order, attributes of each, and text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open in self.texts:
            self.texts[self._open].append(data)
            self._open = ""


def page(profile: Profile, findings: Findings | None = None) -> Elements:
    out = io.BytesIO()
    write_html(Page(profile, findings), out)
    return Elements(out.getvalue().decode())


def unpack(data: bytes) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """Header and columns of a page's document, as the layout in page_data says."""
    (length,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + length])
    columns = {}
    for name, (kind, at, count) in header["columns"].items():
        size = np.dtype(TYPES[kind]).itemsize
        planes = np.frombuffer(data, np.uint8, count * size, 4 + length + at).reshape(size, count)
        columns[name] = np.frombuffer(planes.T.tobytes(), TYPES[kind])
    return header, columns


def test_lines_of_other_files_than_their_functions_have_these_beside_them() -> None:
    body = Frame("loop", 2, "body.inc", own_file="loop.c")
    profile = ProfileBuilder().add("main", body, count=3).add("main", Frame("loop", 2, "loop.c"), count=1).build()
    header, columns = unpack(page_document(Page(profile)))
    names, files = header["functions"]["names"], ["", *header["functions"]["lineFiles"]]
    rows = np.add.accumulate(columns["lineStep"])
    lines = [
        (names[columns["lineFunction"][row]], files[columns["lineFile"][row]], int(columns["lineNumber"][row]), count)
        for row, count in zip(rows.tolist(), columns["lineCount"].tolist(), strict=True)
    ]
    assert sorted(lines) == [("loop", "", 2, 1), ("loop", "body.inc", 2, 3)]
    assert "lineFile" not in unpack(page_document(Page(example())))[1]


def self_weights(profile: Profile) -> dict[tuple[int, str], float]:
    """Self weight by event and function's name, out of the page's columns."""
    header, columns = unpack(page_document(Page(profile)))
    start = columns["nodeStart"]
    sums: dict[tuple[int, str], float] = {}
    for event, info in enumerate(header["events"]):
        node = np.cumsum(columns["nodeStep"][start[event] : start[event + 1]].astype(np.int64))
        rows = slice(start[event], start[event + 1])
        weight = columns["nodeCount"][rows] * columns["nodeWeight"][rows].astype(float) * info["weightOfSample"]
        for each, value in zip(columns["function"][node].tolist(), weight.tolist(), strict=True):
            key = event, header["functions"]["names"][each]
            sums[key] = sums.get(key, 0) + value
    return sums


def test_only_the_pages_own_script_and_style_may_run_and_nothing_may_load() -> None:
    elements = page(example())
    [policy] = [
        attributes["content"] or ""
        for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for name, text in (("script-src", elements.texts["script"][1]), ("style-src", elements.texts["style"][0])):
        assert rules[name] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    # Before anything that the policy is about.
    assert [tag for tag, _ in elements.found].index("meta") < [tag for tag, _ in elements.found].index("style")
    for tag, attributes in elements.found:
        assert not {name for name in attributes if name.startswith("on")}, tag
        assert all(not (value or "").startswith(("http", "//")) for value in attributes.values()), tag


def test_hostile_text_makes_no_element() -> None:
    ordinary, attacked = page(example()), page(hostile(depth=100, name_characters=5000))
    assert [tag for tag, _ in attacked.found] == [tag for tag, _ in ordinary.found]


@given(profiles())
def test_every_functions_self_weight_is_the_reports(profile: Profile) -> None:
    found, hotspots = self_weights(profile), find_hotspots(profile)
    names = [name if name.strip() else "[blank name]" for name in function_names(profile)]
    expected: dict[tuple[int, str], float] = {}
    for row, function in enumerate(hotspots.function.tolist()):
        for event, weight in enumerate(hotspots.self_weight[row].tolist()):
            expected[event, names[function]] = expected.get((event, names[function]), 0) + weight
    assert {key: value for key, value in expected.items() if value} == {
        key: pytest.approx(value, rel=2e-4) for key, value in found.items() if value
    }


def test_the_tree_of_calls_holds_each_stack() -> None:
    header, columns = unpack(page_document(Page(example())))
    parent = [-1, *(np.cumsum(columns["parentStep"].astype(np.int64)) - 1).tolist()]
    names_of = [*header["functions"]["names"], *header["processes"]]
    names = [names_of[each] for each in columns["function"].tolist()]

    def path(node: int) -> list[str]:
        return [*path(parent[node]), names[node]] if node else []

    # Where there are several, a process is the first call of each.
    paths = [[name for name in path(node) if name not in header["processes"]] for node in range(1, len(parent))]
    assert ["main", "work(int)", "square(int)"] in paths
    assert ["main", "work(int)", "work(int)"] in paths
    assert ["[no call stack]"] in paths
    assert sorted(parent) == parent


def sums_over_time(header: Any, columns: dict[str, np.ndarray[Any, Any]]) -> dict[tuple[int, int, int], int]:
    """Samples by event, node and line, all bins added up."""
    start, bins = columns["timeStart"].astype(np.int64), len(header["time"]["begin"])
    node = np.cumsum(columns["placeNodeStep"].astype(np.int64))
    sums: dict[tuple[int, int, int], int] = {}
    assert header["time"]["events"] == [*range(len(header["events"]))]
    for row in range(len(start) - 1):
        part = slice(start[row], start[row + 1])
        place = np.cumsum(columns["timeStep"][part].astype(np.int64))
        assert (np.diff(place) > 0).all()
        for each, count in zip(place.tolist(), columns["timeCount"][part].tolist(), strict=True):
            key = row // bins, int(node[each]), int(columns["placeLine"][each])
            sums[key] = sums.get(key, 0) + count
    return sums


@given(profiles())
def test_bins_of_time_have_the_weight_of_their_samples(profile: Profile) -> None:
    header, columns = unpack(page_document(Page(profile)))
    if "time" not in header:
        return
    bins, start = len(header["time"]["begin"]), columns["timeStart"].astype(np.int64)
    of_node = np.zeros((len(header["events"]), int(columns["placeNodeStep"].astype(np.int64).sum()) + 1))
    for event, own in enumerate(header["events"]):
        rows = slice(*columns["nodeStart"][event : event + 2].astype(np.int64))
        node = np.cumsum(columns["nodeStep"][rows].astype(np.int64))
        of_node[event, node] = columns["timeWeight"][rows] * own["weightOfSample"]
    node, shown = np.cumsum(columns["placeNodeStep"].astype(np.int64)), []
    for row, scale in enumerate(columns["timeScale"].tolist()):
        part = slice(start[row], start[row + 1])
        place = np.cumsum(columns["timeStep"][part].astype(np.int64))
        shown.append(scale * (columns["timeCount"][part] * of_node[row // bins, node[place]]).sum())
    found = time_bins(profile, MOST_BINS)
    cell = profile.samples.event.astype(np.int64) * bins + found.number
    weight = np.bincount(cell, profile.samples.weight.astype(np.float64), len(shown))
    assert shown == pytest.approx(weight, rel=1e-3)


@given(profiles())
def test_bins_of_time_have_the_effective_number_of_their_samples(profile: Profile) -> None:
    header, columns = unpack(page_document(Page(profile)))
    if "time" not in header:
        return
    samples, found = profile.samples, time_bins(profile, MOST_BINS)
    parts = columns["timeEffective"].reshape(len(header["events"]), -1)
    for (event, number), part in np.ndenumerate(parts):
        chosen = (samples.event == event) & (found.number == number)
        count = int(samples.count[chosen].sum())
        want = (
            effective_number(samples.weight[chosen], samples.count[chosen]) / count
            if samples.weight[chosen].any()
            else 1
        )
        assert part == pytest.approx(want, rel=1e-3)


@given(profiles())
def test_bins_of_time_have_every_sample_once(profile: Profile) -> None:
    header, columns = unpack(page_document(Page(profile)))
    if "time" not in header:
        assert len(time_bins(profile, MOST_BINS).end) < 2
        return
    found = sums_over_time(header, columns)
    for name, part in (("node", 1), ("line", 2)):
        start = columns[f"{name}Start"].astype(np.int64)
        for event in range(len(header["events"])):
            rows = slice(start[event], start[event + 1])
            row = np.cumsum(columns[f"{name}Step"][rows].astype(np.int64))
            want = dict(zip(row.tolist(), columns[f"{name}Count"][rows].tolist(), strict=True))
            got: dict[int, int] = {}
            for key, count in found.items():
                if key[0] == event:
                    got[key[part]] = got.get(key[part], 0) + count
            assert got == want


def test_who_ended_sleeps_is_told_by_place_and_with_its_stack() -> None:
    header, columns = unpack(page_document(Page(woken_as_loaded())))
    wakers, names = header["wakers"], header["functions"]["names"]
    assert header["events"][wakers["event"]]["name"] == "off-cpu"
    stacks = {
        name: [names[each] for each in stack] for name, stack in zip(*map(wakers.get, ("names", "stacks")), strict=True)
    }
    assert stacks["push of feeder"] == ["futex_wake", "pthread_cond_signal", "push", "main"]
    assert stacks["hrtimer_wakeup of [interrupt]"] == ["hrtimer_wakeup", "sysvec_x"]
    assert stacks["[not known]"] == stacks["[waited for a CPU]"] == stacks["[on a CPU]"] == []
    rows = slice(*columns["wakerPlaceStart"][1:3])
    place = np.cumsum(columns["wakerPlaceStep"][rows].astype(np.int64))
    ended = {wakers["names"][columns["placeWaker"][each]]: int(count)
             for each, count in zip(place, columns["wakerPlaceCount"][rows], strict=True)}  # fmt: skip
    assert ended == {
        "push of feeder": 30,
        "hrtimer_wakeup of [interrupt]": 20,
        "[not known]": 10,
        "[waited for a CPU]": 1,
    }
    # Those of one node and line that different threads ended are places of their own in the time, too.
    assert sum(sums_over_time(header, columns).values()) == 62
    assert "wakers" not in unpack(page_document(Page(replace(woken(), wakers=None))))[0]


def test_intervals_beyond_what_a_page_shows_are_joined_whole() -> None:
    builder = ProfileBuilder()
    for number in range(1300):
        builder.add("main", time_ns=(number + 1) * 1_000_000_000)
    bins = time_bins(builder.build(), MOST_BINS)
    assert len(bins.end) == 434
    assert bins.end[:2].tolist() == [3_000_000_000, 6_000_000_000]
    assert np.bincount(bins.number).tolist() == [3] * 433 + [1]


def test_a_page_that_would_be_too_large_has_fewer_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ProfileBuilder()
    random = np.random.default_rng(3)
    for number in range(64):
        for each in random.integers(0, 500, 40).tolist():
            builder.add("main", f"f{each}", count=int(random.integers(1, 99)), time_ns=(number + 1) * 1_000_000_000)
    profile = builder.build()
    whole = len(zlib.compress(page_document(Page(profile)), 6))
    monkeypatch.setattr("tdprof.report.page.packing._SMALL_BYTES", 0)
    monkeypatch.setattr("tdprof.report.page.data.MOST_COMPRESSED_BYTES", whole - 500)
    document = page_document(Page(profile))
    assert len(zlib.compress(document, 6)) <= whole - 500
    assert 2 <= len(unpack(document)[0]["time"]["begin"]) < 64
    monkeypatch.setattr("tdprof.report.page.data.MOST_COMPRESSED_BYTES", 100)
    assert "time" not in unpack(page_document(Page(profile)))[0]


def test_what_metrics_of_a_time_are_made_of_has_every_sample() -> None:
    profile = topdown_profile(seconds=8)
    shown, findings = calibrated(profile), find_findings(profile)
    header, columns = unpack(page_document(Page(shown, findings)))
    given = header["findings"]["byTime"]
    bins, functions = len(given["end"]), given["functions"]
    assert bins == len(header["time"]["begin"]) == 8
    rows = 1 + 2 * len(functions)
    counts = np.zeros((len(profile.events), bins, rows))
    weights = np.zeros_like(counts)
    for cell in range(len(profile.events) * bins):
        here = slice(*columns["tallyStart"][cell : cell + 2])
        row = np.cumsum(columns["tallyStep"][here].astype(np.int64))
        np.add.at(counts[cell // bins, cell % bins], row, columns["tallyCount"][here])
        mean = columns["tallyMeans"][columns["tallyMean"][here]]
        np.add.at(weights[cell // bins, cell % bins], row, columns["tallyCount"][here] * mean)
    assert counts[:, :, 0].sum(axis=1).tolist() == profile.total_samples().tolist()
    assert weights[:, :, 0].sum(axis=1) == pytest.approx(profile.total_weight().astype(float))
    names = [header["functions"]["names"][function] for function in functions]
    assert {"chase", "main", "solve"} <= set(names)
    inclusive = counts[:, :, 1 + len(functions) :].sum(axis=1)
    assert inclusive[:, names.index("main")].tolist() == profile.total_samples().tolist()
    own = counts[:, :, 1 : 1 + len(functions)].sum(axis=(0, 1))
    assert own[names.index("main")] == 0
    assert own.sum() == pytest.approx(profile.total_samples().sum(), rel=0.01)  # all but the rarest


def test_metrics_of_a_time_are_of_fewer_functions_where_there_is_little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = topdown_profile(seconds=8)
    shown, findings = calibrated(profile), find_findings(profile)

    def known() -> int | None:
        given = unpack(page_document(Page(shown, findings)))[0]["findings"].get("byTime")
        return given and len(given["functions"])

    assert known() == 7
    monkeypatch.setattr("tdprof.report.page.tallies._MOST_ENTRIES", 2000)
    assert known() == 0
    monkeypatch.setattr("tdprof.report.page.tallies._MOST_PAIRS", 10)
    assert known() is None
    # Of one event there are no metrics to make, nor of passes, of which no time has all events.
    assert profile.topdown
    passes = replace(shown, topdown=replace(profile.topdown, is_pass_per_group=True))
    for other in (shown.only_event(0), passes):
        assert "byTime" not in unpack(page_document(Page(other, findings)))[0]["findings"]


def test_a_recording_in_which_no_group_had_a_turn_has_a_page() -> None:
    profile = topdown_profile(seconds=8)
    idle = replace(profile, events=[replace(event, running_ns=0) for event in profile.events])
    findings = find_findings(idle)
    assert findings
    assert findings.recorded
    assert not findings.recorded.plans
    assert "byTime" not in unpack(page_document(Page(calibrated(idle), findings)))[0]["findings"]


def test_metrics_reach_the_page_with_their_doubt() -> None:
    profile = topdown_profile()
    findings = find_findings(profile)
    assert findings is not None
    header, columns = unpack(zlib.decompress(base64.b64decode(page(calibrated(profile), findings).texts["script"][0])))
    assert header["events"][header["firstEvent"]]["name"] == "CPU_CYCLES"
    assert header["quantile95"] == Z_95
    metrics = header["findings"]["metrics"]["self"]
    assert [metric["name"] for metric in metrics] == list(findings.functions.metrics)
    shape = len(metrics), len(findings.function)
    for name, table, tolerance in (
        ("selfValue", findings.functions.value, 1e-3),
        ("totalValue", findings.inclusive.value, 1e-3),
        ("selfHalfWidth", findings.functions.half_width, 5e-3),
    ):
        np.testing.assert_allclose(columns[name].reshape(shape).T, table, rtol=tolerance)
    assert (findings.functions.is_significant == columns["selfIsSignificant"].reshape(shape).T).all()
    names = [header["functions"]["names"][each] for each in columns["metricFunction"].tolist()]
    assert names == [function_names(profile)[each] for each in findings.function.tolist()]
    told = [header["findings"]["diagnoses"][each]["path"] for each in columns["diagnosis"].tolist()]
    assert told == [list(diagnosis.path) for diagnosis in findings.diagnoses]


def test_what_is_not_known_reaches_the_page_as_no_number() -> None:
    profile = topdown_profile()
    findings = find_findings(profile)
    assert findings is not None
    value = findings.functions.value.copy()
    value[0, 0] = np.nan
    findings = replace(findings, functions=replace(findings.functions, value=value))
    _, columns = unpack(zlib.decompress(base64.b64decode(page(calibrated(profile), findings).texts["script"][0])))
    shown = columns["selfValue"].reshape(len(findings.functions.metrics), -1).T
    assert np.isnan(shown[0, 0])
    np.testing.assert_array_equal(np.isnan(shown), np.isnan(value))


def test_changes_are_in_percent_of_all_that_the_older_run_had() -> None:
    older = ProfileBuilder().add("main", "work", weight=600, count=600).add("main", "gone", weight=400, count=400)
    newer = ProfileBuilder().add("main", "work", weight=1200, count=1200).add("main", "new", weight=100, count=100)
    a, b = (each.build(is_whole_run=True) for each in (older, newer))
    comparison = compare(a, b)
    assert comparison.basis is Basis.RUN
    header, columns = unpack(page_document(Page(b, comparison=comparison, older="older\n.capture")))
    names = header["functions"]["names"]
    assert header["change"]["since"] == "older\N{REPLACEMENT CHARACTER}.capture"
    assert header["change"]["events"] == ["cpu-clock"]
    assert [each["name"] for each in header["change"]["gone"]] == ["gone"]
    assert header["change"]["gone"][0]["shares"] == [40.0]
    own = {name: tuple(columns[f"changeSelf{side}"][row] for side in "AB") for row, name in enumerate(names)}
    assert own == {"main": (0, 0), "work": (60, 120), "new": (0, 10)}
    total = {name: tuple(columns[f"changeTotal{side}"][row] for side in "AB") for row, name in enumerate(names)}
    assert total == {"main": (100, 130), "work": (60, 120), "new": (0, 10)}
    assert dict(zip(names, columns["changeSelfIsSignificant"].tolist(), strict=True))["work"] == 1


def test_a_profile_without_samples_has_a_page() -> None:
    header, columns = unpack(page_document(Page(ProfileBuilder().build())))
    assert header["functions"]["names"] == []
    assert len(columns["nodeCount"]) == 0


def test_no_asset_can_end_its_element() -> None:
    elements = page(example())
    assert not re.search(r"</(script|style)|<!--", "".join(elements.texts["script"] + elements.texts["style"]), re.I)
