"""The HTML page in headless Chromium: what it shows is the report's; screenshots stay in .cache/screenshots."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.chromium import NEEDS, SCREENSHOTS, drive
from builders.profiles import CLOCK, HOSTILE_NAMES, Call, Frame, ProfileBuilder, example, hostile
from builders.spe_capture import write_spe_capture
from builders.topdown import EXAMPLE, Code, topdown_profile
from builders.woken import woken_as_loaded
from tdprof.cli.loading import load_with_findings, with_function_operations
from tdprof.model.addresses import FileKind, MappedFile, Unknown
from tdprof.model.choices import Selection
from tdprof.model.events import EventInfo, Unit
from tdprof.model.findings import Findings
from tdprof.model.profile import Profile, StackWalks
from tdprof.model.stack_ends import StackEnd
from tdprof.model.time_range import parse_time_ranges
from tdprof.pipeline.load import find_findings
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.calibrate import calibrated
from tdprof.profile.compare import Comparison, compare
from tdprof.profile.frames import function_names
from tdprof.profile.hotspots import find_hotspots, share_half_width
from tdprof.profile.selection import select
from tdprof.report.page.data import Page
from tdprof.report.page.functions import MOST_NAME_CHARACTERS
from tdprof.report.page.html import write_html
from tdprof.text import printable

pytestmark = [*NEEDS, pytest.mark.slow]

BACKGROUNDS = {"light": (245, 246, 247), "dark": (16, 18, 20)}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PROFILES.items():
        with (folder / f"{name}.html").open("wb") as file:
            profile = make()
            write_html(Page(calibrated(profile), find_findings(profile, by_time=True)), file)
    capture = write_spe_capture(folder / "spe.capture", is_topdown=True)
    with OpenCapture(capture) as opened:
        profile, found = load_with_findings(opened, capture)
        profile, operations = with_function_operations(opened, profile)
    with (folder / "spe.html").open("wb") as file:
        write_html(Page(profile, found, operations), file)
    with (folder / "unknown.html").open("wb") as file:
        write_html(Page(calibrated(topdown_profile()), with_gaps(findings())), file)
    with (folder / "diff.html").open("wb") as file:
        newer = changed_profile()
        shown = Page(calibrated(newer), find_findings(newer), comparison=comparison(), older="older.capture")
        write_html(shown, file)
    return drive("page.mjs", folder)


UNKNOWN, UNSEEN, NOT_OF_PROGRAM = "frontend_bound", "l1d_cache_mpki", "retiring"


def with_gaps(found: Findings) -> Findings:
    """Findings in which one metric of ``chase`` is not known, one never seen, and one not known of the program."""
    functions, program = found.functions, found.program
    row = found.row_of()[function_names(topdown_profile()).index("chase")]
    value, half_width, samples = functions.value.copy(), functions.half_width.copy(), functions.samples.copy()
    is_significant, of_program = functions.is_significant.copy(), program.value.copy()
    for name, known, doubt in ((UNKNOWN, np.nan, np.nan), (UNSEEN, 0.0, 0.304)):
        column = functions.metrics.index(name)
        value[row, column], half_width[row, column] = known, doubt
        samples[row, column], is_significant[row, column] = 0, False
    of_program[0, program.metrics.index(NOT_OF_PROGRAM)] = np.nan
    changed = replace(functions, value=value, half_width=half_width, samples=samples, is_significant=is_significant)
    return replace(found, functions=changed, inclusive=changed, program=replace(program, value=of_program))


def changed_profile() -> Profile:
    """``sort`` takes half as much again, ``tidy_up`` is gone, ``brand_new`` has come."""
    kept = [code for code in EXAMPLE if code.name != "tidy_up"]
    slower = [replace(code, cycles=code.cycles * 1.5) if code.name == "sort" else code for code in kept]
    return topdown_profile([*slower, Code("brand_new", 3)], seed=2)


def comparison() -> Comparison:
    return compare(calibrated(topdown_profile()), calibrated(changed_profile()))


LONG = "std::map<std::string, std::vector<int>, std::less<std::string>>::{}(std::string const&, std::vector<int>&&)"


def of_processes() -> Profile:
    """Two programs, one of which ran twice; code of every kind; unknown code side by side; names that differ late."""
    builder = ProfileBuilder(
        files=[
            MappedFile("[kernel]", kind=FileKind.KERNEL),
            MappedFile("[anon]", kind=FileKind.ANONYMOUS),
            MappedFile("/usr/lib/libz.so.1"),
        ]
    )
    main, kernel = Frame("main"), Frame("do_syscall_64", module="[kernel]")
    made = Frame("LazyCompile:~add", module="[anon]")

    def place(offset: int) -> Call:
        return Call(
            (Frame(f"[stripped] libz.so.1+{offset:#x}", module="/usr/lib/libz.so.1"),), offset, Unknown.STRIPPED
        )

    builder.add(main, place(0x10), LONG.format("insert"), weight=10, pid=7)
    builder.add(main, place(0x20), LONG.format("erase"), weight=20, pid=7)
    builder.add(main, place(0x30), weight=10, pid=8)
    builder.add(main, made, LONG.format("insert"), weight=40, pid=9)
    builder.add(main, kernel, weight=20, pid=9)
    walks = StackWalks({StackEnd.COMPLETE: 9, StackEnd.JIT: 1}, guessed=1)
    return builder.build(process_names={7: "pack", 8: "pack", 9: "node"}, walks=walks)


def phases() -> Profile:
    """Ten seconds in intervals of half a second: parse in the first five, sort in the others; few of a second event."""
    builder = ProfileBuilder(events=[CLOCK, EventInfo("faults", Unit.COUNT, period=1)])
    for number in range(20):
        time_ns = (number + 1) * 500_000_000
        hot = Frame("parse" if number < 10 else "sort", line=7 + number % 2)
        builder.add("main", hot, weight=400_000_000, count=400, time_ns=time_ns)
        builder.add("main", Frame("wait", line=3), weight=(50 + number) * 1_000_000, count=50 + number, time_ns=time_ns)
        builder.add("main", hot, weight=number + 1, count=number + 1, event=1, time_ns=time_ns)
    return builder.build(duration_ns=10_000_000_000, interval_ns=500_000_000)


def adapted() -> Profile:
    """Ten seconds; in the last five a period is three times as long, and ``late`` has more of the samples."""
    builder = ProfileBuilder(events=[EventInfo("cycles", Unit.COUNT, frequency_hz=200)])
    for number in range(20):
        period = 1_000_000 if number < 10 else 3_000_000
        for name, count in (("steady", 100), ("late", 10 if number < 10 else 90)):
            builder.add("main", Frame(name), weight=count * period, count=count, time_ns=(number + 1) * 500_000_000)
    return builder.build(duration_ns=10_000_000_000, interval_ns=500_000_000)


def of_time(profile: Profile, text: str) -> Profile:
    return select(profile, Selection(times=tuple(parse_time_ranges(text))))


PROFILES: dict[str, Callable[[], Profile]] = {
    "topdown": topdown_profile,
    "plain": example,
    "hostile": hostile,
    "processes": of_processes,
    "phases": phases,
    "adapted": adapted,
    "woken": woken_as_loaded,
}


def findings() -> Findings:
    found = find_findings(topdown_profile())
    assert found is not None
    return found


def expected_rows(profile: Profile, event: int) -> dict[str, tuple[float, float, float, int]]:
    """Self, its half width and total in percent, and samples, by function."""
    hotspots, names = find_hotspots(profile, sort_event=event), function_names(profile)
    total = profile.total_weight()[event]
    share = hotspots.self_weight[:, event] / total
    half = share_half_width(share, profile, event)
    return {
        names[function]: (
            100 * share[row],
            100 * half[row],
            100 * hotspots.inclusive_weight[row, event] / total,
            int(hotspots.self_samples[row, event]),
        )
        for row, function in enumerate(hotspots.function.tolist())
        if hotspots.inclusive_weight[row, event]
    }


def shown_rows(rows: list[list[str]]) -> dict[str, tuple[float, float, float, int]]:
    result = {}
    for cells in rows:
        own, _, half = cells[1].partition(" ± ")
        total, samples = cells[2].removesuffix(" %").removeprefix("<"), int(cells[3].replace(",", ""))
        result[cells[0].split("\n")[0]] = (float(own), float(half.removeprefix("<")), float(total), samples)
    return result


def assert_same(shown: list[list[str]], profile: Profile, event: int = 0) -> None:
    got, want = shown_rows(shown), expected_rows(profile, event)
    assert sorted(got) == sorted(want)
    for name, (own, half, total, samples) in want.items():
        assert got[name][3] == samples
        assert got[name][0] == pytest.approx(own, abs=0.5 if half > 9 else 0.051), name
        assert got[name][1] == pytest.approx(half, abs=0.5 if half > 9 else 0.051), name
        assert got[name][2] == pytest.approx(max(total, 0.1) if total else 0, abs=0.051), name


def number(text: str) -> tuple[float, float]:
    """Value and half width of a text such as "39.4 ± 0.2 %"."""
    match = re.search(r"(-?[\d.]+)(?: ± <?([\d.]+))?", text)
    assert match, text
    return float(match[1]), float(match[2] or 0)


def test_nothing_fails_and_no_request_leaves_the_page(seen: Any) -> None:
    assert seen["errors"] == []


def test_the_table_is_the_report(seen: Any) -> None:
    assert_same(seen["topdown"]["rows"], calibrated(topdown_profile()))
    assert_same(seen["plain"]["rows"], example())
    assert_same(seen["plain"]["otherEvent"]["rows"], example(), event=1)


def test_the_program_has_its_stage_1_diagnosis_and_advice(seen: Any) -> None:
    found = findings()
    shown = dict(zip(found.catalog.roots, seen["topdown"]["program"].split(", "), strict=True))
    for name, text in shown.items():
        column = found.program.column(name)
        assert column is not None
        value = found.program.value[0, column]
        assert number(text)[0] == pytest.approx(value, abs=0.06), name
    assert found.catalog.metrics[found.program_diagnosis.path[0]].title in seen["topdown"]["advice"]
    assert found.program_diagnosis.advice.rpartition(": ")[2][:30] in seen["topdown"]["advice"]
    for name in found.catalog.roots:
        assert found.catalog.metrics[name].title in seen["topdown"]["tree"]


def test_a_click_on_a_frame_shows_its_function(seen: Any) -> None:
    clicked = seen["topdown"]["clicked"]
    assert clicked["heading"] == "solve"
    assert clicked["hash"] == "#f=solve"
    for part in ("Stage 1", "Stage 2", "Its lines", "solve.c", "Called by", "main", "Calls", "chase"):
        assert part in clicked["text"], part
    assert seen["topdown"]["rowMarked"].startswith("solve")


def test_a_functions_metrics_stand_beside_the_programs(seen: Any) -> None:
    found, text = findings(), seen["links"]["linked"]["text"]
    row = found.row_of()[function_names(topdown_profile()).index(seen["links"]["linked"]["heading"])]
    for name in found.catalog.roots:
        column = found.functions.column(name)
        assert column is not None
        title = found.catalog.metrics[name].title
        after = text.partition("Stage 1, with 95 % intervals")[2].partition(f"{title}\n")[2]
        value, half = number(after.partition("percent of slots")[2])
        want, doubt = found.functions.value[row, column], found.functions.half_width[row, column]
        if want - doubt >= 0 and want + doubt <= 100:
            assert value == pytest.approx(want, abs=0.06 + half / 20), name
            assert half == pytest.approx(doubt, rel=0.06, abs=0.01), name
        else:  # the interval ends where the whole does
            low, high = max(want - doubt, 0), min(want + doubt, 100)
            shown = re.search(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", after.partition("percent of slots")[2])
            assert shown, after
            assert [*map(float, shown.groups())] == pytest.approx([min(max(want, 0), 100), low, high], abs=0.1)
    assert found.diagnoses[row].advice.rpartition(": ")[2][:30] in text


def test_what_is_not_known_is_never_shown_as_0(seen: Any) -> None:
    """A metric of ``chase`` that is not known, one that no sample showed, and one that the program lacks."""
    unknown, catalog = seen["unknown"], findings().catalog
    titles = {name: catalog.metrics[name].title for name in (UNKNOWN, UNSEEN, NOT_OF_PROGRAM)}
    # Stage 1 of the function: unknown beside the program's, then a value without the program's.
    of_function = {cells[0].split("\n")[0]: cells[-2:] for cells in unknown["stage1"]}
    assert of_function[titles[UNKNOWN]][0] == "unknown"
    assert re.match(r"\d", of_function[titles[UNKNOWN]][1])
    assert re.match(r"\d", of_function[titles[NOT_OF_PROGRAM]][0])
    assert of_function[titles[NOT_OF_PROGRAM]][1] == "unknown"
    in_tree = {name: next(text for text in unknown["tree"] if text.startswith(titles[name])) for name in titles}
    assert in_tree[UNKNOWN].endswith("this function: unknown")
    assert "program: unknown" in in_tree[NOT_OF_PROGRAM]
    # A group that nobody has opened has no rows.
    assert unknown["closed"]
    assert not any(unknown["closed"])
    assert re.search(r"< 0\.30\d*", unknown["unseen"])
    # The table by a metric: chase, of which it is not known, has no number; and no colour of the scale.
    chase = next(cells for cells in unknown["rows"] if cells[0].startswith("chase"))
    assert chase[-1] == "unknown"
    assert "too few samples" in unknown["legend"]
    assert not any(re.fullmatch(r"-?0(\.0*)?( ± .*)?", cell) for cell in chase[4:])
    # Nothing of Stage 1 known at all is a word, not an empty bar.
    main = next(cells for cells in unknown["rows"] if cells[0].startswith("main"))
    assert "unknown" in main


def test_colour_is_the_metrics_and_stripes_where_it_is_not_known(seen: Any) -> None:
    coloured = seen["topdown"]["coloured"]
    assert "percent of slots" in coloured["legend"]
    assert "too few samples" in coloured["legend"]
    assert coloured["hash"].endswith("c=backend_bound")
    # main has no samples of its own, so that only with its calls it has a colour of the scale.
    assert all(abs(a - b) < 20 for a, b in zip(coloured["pixel"][:3], coloured["pixel"][1:3], strict=False))
    assert coloured["pixel"] != seen["topdown"]["colouredTotal"]["pixel"]


def test_the_scale_of_colours_rises_in_lightness_all_the_way(seen: Any) -> None:
    colours = [tuple(map(int, each)) for each in re.findall(r"rgb\((\d+), (\d+), (\d+)\)", seen["topdown"]["ramp"])]
    assert len(colours) == 64

    def luminance(colour: tuple[int, ...]) -> float:
        linear = [c / 12.92 if (c := value / 255) <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for value in colour]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    steps = [luminance(colour) for colour in colours]
    assert steps == sorted(steps)
    # From dark to bright, so that it is read without any hue: the ends are 10 to 1 apart.
    assert (steps[-1] + 0.05) / (steps[0] + 0.05) > 10


def test_zoom_and_the_browsers_buttons(seen: Any) -> None:
    topdown = seen["topdown"]
    assert topdown["zoomed"]["path"].split("\n")[::2] == ["all", "main", "solve"]
    assert "z=" in topdown["zoomed"]["hash"]
    assert topdown["back"] == {"path": "all", "hash": "#f=solve&c=backend_bound&s=total", "scope": "total"}
    assert topdown["forward"] == topdown["zoomed"]["hash"]
    assert "z=" not in topdown["zoomedOut"]


def test_search_filters_and_tells_the_share(seen: Any) -> None:
    name = seen["topdown"]["rows"][0][0].split("\n")[0]
    share = seen["topdown"]["rows"][0][2]
    assert seen["topdown"]["search"]["text"] == f"1 function, {share}"
    assert [row[0].split("\n")[0] for row in seen["topdown"]["search"]["rows"]] == [name]
    assert seen["topdown"]["noMatch"] == {"text": "0 functions, 0 %", "rows": []}


def test_columns_sort(seen: Any) -> None:
    names = [row[0].split("\n")[0] for row in seen["topdown"]["byName"]["rows"]]
    assert names == sorted(names)
    assert seen["topdown"]["byName"]["sort"] == "ascending"


def test_the_keyboard_reaches_everything(seen: Any) -> None:
    keyboard = seen["keyboard"]
    assert keyboard["focus"] == "flame"
    assert keyboard["first"].startswith("all, 100.0 % of CPU_CYCLES")
    assert keyboard["down"].startswith("solve, ")
    assert keyboard["right"].startswith("interpret, ")
    assert keyboard["entered"]["heading"] == "solve"
    assert "solve" in keyboard["entered"]["status"]
    assert keyboard["zoomed"].endswith("solve")
    assert keyboard["escaped"] == "#f=solve"
    assert keyboard["top"].startswith("all, ")
    assert keyboard["typed"] == "work"
    assert keyboard["visibleFocus"] == "solid"


def test_links_lead_to_a_function_and_nonsense_to_the_program(seen: Any) -> None:
    assert seen["links"]["linked"]["heading"] == seen["topdown"]["rows"][0][0].split("\n")[0]
    assert seen["links"]["linked"]["colour"] == "module"
    assert seen["links"]["nonsense"] == "Whole program"


def test_dark_light_motion_and_every_width(seen: Any) -> None:
    appearance = seen["appearance"]
    assert appearance["dark"] == "rgb{}".format(BACKGROUNDS["dark"])
    assert appearance["toggled"] == "rgb{}".format(BACKGROUNDS["light"])
    assert appearance["reducedMotion"] == "auto"
    assert appearance["overflow"] == {"360": 0, "768": 0, "1280": 0, "2560": 0}


def test_an_accessibility_checker_finds_nothing(seen: Any) -> None:
    assert seen["topdown"]["lightProblems"] == []
    assert seen["appearance"]["darkProblems"] == []
    assert seen["appearance"]["narrowProblems"] == []
    assert seen["plain"]["problems"] == []


def test_processes_stand_at_the_root_and_unknown_code_side_by_side_is_one(seen: Any) -> None:
    shown = seen["processes"]["down"]
    assert shown[:2] == ["all, 100.0 % of cpu-clock", "node (9), 60.0 % of cpu-clock"]
    assert shown[2] == "pack (2 processes), 40.0 % of cpu-clock"
    assert shown[3:5] == ["main, 40.0 % of cpu-clock", "libz.so.1 (stripped), 40.0 % of cpu-clock, 10.0 % in itself"]
    assert shown[5].startswith(LONG.format("erase"))


def test_the_inverted_graph_leads_from_leaves_to_callers(seen: Any) -> None:
    shown = seen["processes"]["up"]
    assert shown[1] == f"{LONG.format('insert')}, 50.0 % of cpu-clock"
    assert shown[2:4] == ["LazyCompile:~add, 40.0 % of cpu-clock", "main, 40.0 % of cpu-clock"]
    assert shown[4] == "node (9), 40.0 % of cpu-clock"
    assert seen["processes"]["upZoomed"].split("\n")[::2][0] == "all"
    assert seen["processes"]["upZoomed"] == seen["processes"]["upReloaded"]


def test_a_sandwich_has_callers_above_and_callees_below(seen: Any) -> None:
    shown = seen["processes"]["sandwich"]
    assert shown == [
        "main, 100.0 % of cpu-clock",
        "node (9), 60.0 % of cpu-clock",
        "main, 100.0 % of cpu-clock",
        "libz.so.1 (stripped), 40.0 % of cpu-clock, 10.0 % in itself",
    ]
    assert seen["processes"]["sandwichMoved"] == "libz.so.1"


def test_colours_of_kinds_are_fixed(seen: Any) -> None:
    shown = seen["processes"]
    assert shown["colour"] == "kind"
    assert shown["legend"].split("\n") == ["kernel", "program and libraries", "made at run time", "no name known"]
    assert shown["colours"] == {"kernel": [230, 159, 0], "native": [86, 180, 233], "runtime": [60, 190, 145]}


def test_long_names_keep_what_tells_them_apart(seen: Any) -> None:
    labels = seen["processes"]["labels"]
    whole = "std::map<std::string, std::vector<int>, std::less<std::string>>::"
    assert labels["80"] == [f"{whole}insert", f"{whole}erase"]
    assert labels["40"] == ["std::map<…>::insert", "std::map<…>::erase"]
    assert labels["12"] == ["insert", "erase"]
    assert labels["4"] == ["ins…", "era…"]
    assert seen["processes"]["placed"] == [
        ["JS:load a.js:10:4", "JS:load b:2:14", "JS:save a.js:3:1"],
        ["JS:load a.js:10:4", "JS:load b:2:14", "JS:save a.js:3:1"],
        ["JS:l…js:10:4", "JS:l… b:2:14", "JS:save"],
    ]


def test_the_panel_tells_of_the_whole_before_anything_is_chosen(seen: Any) -> None:
    shown = seen["processes"]["panel"]
    assert "Hot functions" in shown
    assert "LazyCompile" not in shown  # it has no samples of its own
    assert re.search(r"libz\.so\.1\s+stripped\s+10\.0 %", shown)
    assert re.search(r"complete\s+the outermost frame was reached\s+90\.0 %", shown)
    assert seen["processes"]["note"].startswith("Call stacks: 90.0% of samples have complete user stacks (10.0% jit:")
    assert "stacks" not in seen["processes"]["facts"]


def test_unknown_code_and_processes_have_details(seen: Any) -> None:
    assert "stripped" in seen["processes"]["unknown"]
    assert "Its 3 places without a name" in seen["processes"]["unknown"]
    assert "libz.so.1+0x30" in seen["processes"]["unknown"]
    assert "[stripped]" not in seen["processes"]["table"]
    assert "libz.so.1+0x30" in seen["processes"]["table"]
    assert "Its hot functions" in seen["processes"]["process"]
    assert seen["processes"]["problems"] == []


def test_without_metrics_only_their_parts_are_missing(seen: Any) -> None:
    assert not seen["plain"]["hasStageOne"]
    assert not seen["plain"]["isMethodologyShown"]
    assert "program and libraries" in seen["plain"]["legend"].split("\n")
    assert seen["plain"]["events"] == ["cpu-clock", "page-faults"]


def test_spe_shows_latencies_and_where_loads_were_served_from(seen: Any) -> None:
    text = seen["spe"]["details"].replace("\n\t", "\t")  # a bar is a block of its own
    assert "1,000 operations, 800 loads of them" in text
    # 800 loads: 60 from DRAM in 200 cycles, 20 from L2, the rest from L1 in 8 or 20.
    cells = {line.split("\t")[0]: line.split("\t")[1:] for line in text.split("\n") if "\t" in line}
    assert cells["total"][1:] == ["8.0", "20", "200"]
    for level, share in (("l1", "90.0 %"), ("l2", "2.5 %"), ("dram", "7.5 %")):
        assert cells[level][-1] == share
    assert seen["spe"]["problems"] == []


def test_what_spe_measured_is_hidden_while_a_time_is_chosen(seen: Any) -> None:
    """It is of the whole recording: beside numbers of a part it would be taken for that part's."""
    whole, part = seen["spe"], seen["spe"]["ofTime"]
    assert part["chosen"].startswith("0.5")
    assert "hidden meanwhile: SPE's measurements." in part["note"]
    assert "SPE: its sampled operations" in whole["details"]
    assert "SPE" not in part["details"]
    assert "Stage 1" in part["details"]
    assert whole["back"] == whole["details"]
    assert part["problems"] == []


def test_a_difference_is_shown_as_diff_finds_it(seen: Any) -> None:
    page, found = seen["diff"], comparison()
    assert page["colour"] == "change"
    assert "no change of its own" in page["legend"]
    assert "Only in older.capture\ntidy_up" in page["gone"]
    changes = found.self_changes
    column = changes.column("CPU_CYCLES")
    shown = {row[0].split("\n")[0]: row[-1].replace("\u2212", "-") for row in page["rows"]}
    assert set(shown) == {"main", "solve", "chase", "interpret", "sort", "mix", "brand_new"}
    for name, text in shown.items():
        at = list(found.functions.names).index(name), column
        value, half = number(text)
        assert value == pytest.approx(changes.b[at] - changes.a[at], abs=0.06), name
        assert half == pytest.approx((changes.high[at] - changes.low[at]) / 2, abs=0.06), name
        assert ("not significant" in text) == (not changes.is_significant[at]), name
    red, _, blue, _ = page["pixels"]["changed"]
    assert red > blue + 60  # orange: more
    main = page["pixels"]["main"]
    assert max(main[:3]) - min(main[:3]) < 20
    assert "Since older.capture" in page["details"]
    assert page["problems"] == []


def test_a_dragged_stretch_of_time_is_what_the_report_has_of_it(seen: Any) -> None:
    found, profile = seen["phases"], phases()
    assert_same(found["whole"]["rows"], profile)
    assert found["whole"]["chosen"] == "all of 0.000 s to 10.00 s"
    assert_same(found["first"]["rows"], of_time(profile, "0s-5s"))
    assert found["first"]["chosen"] == "0.000 s to 5.000 s: 4,545 samples of cpu-clock (49.5 %)"
    assert "sort" not in found["first"]["details"]
    assert "t=0-5" in found["first"]["hash"]
    assert found["back"] == found["clicked"] == found["escaped"] == found["whole"]["chosen"]
    assert_same(found["second"]["rows"], of_time(profile, "5s-10s"))
    assert re.search(r"\n7\t\n\t43\.1 %\n8\t\n\t43\.1 %", found["ofSort"])  # its lines, of 4,645 samples
    assert found["problems"] == found["chosenProblems"] == []


def test_where_samples_weigh_differently_a_stretch_has_what_the_report_has(seen: Any) -> None:
    for text in ("0s-5s", "2.5s-7.5s", "5s-10s"):
        shown = shown_rows(seen["adapted"][text])
        for name, (own, half, total, samples) in expected_rows(of_time(adapted(), text), 0).items():
            assert shown[name][:2] == (pytest.approx(own, abs=0.051), pytest.approx(half, abs=0.051)), (text, name)
            assert shown[name][2:] == (pytest.approx(total, abs=0.051), samples), (text, name)
    assert re.fullmatch(r"Over time: at most 600\.0\sM a second, from 5\.000 s to 5\.500 s", seen["adapted"]["spark"])


def test_a_function_has_a_line_of_when_it_ran(seen: Any) -> None:
    found = seen["phases"]
    assert found["spark"] == "Over time: at most 800.0 ms a second, from 5.000 s to 5.500 s"
    # From the left edge to the middle nothing, from there on its whole height, in twenty intervals.
    steps = re.findall(r"V30H([\d.]+)V([\d.]+)H([\d.]+)", found["sparkPath"])
    assert [float(y) for _, y, _ in steps] == [30.0] * 10 + [0.0] * 10
    assert [float(x) for x, *_ in steps] == pytest.approx([30 * number for number in range(20)], abs=0.1)
    assert "With all it calls, at most 800" in found["ofSort"]


def test_the_strip_has_level_1_of_the_program(seen: Any) -> None:
    found = seen["phases"]
    # From below each metric in the colour of its bar; the fourth, bad speculation, is less than a pixel.
    colours = ["rgb(86 180 233)", "rgb(230 159 0)", "rgb(60 190 145)"]
    assert [colour for colour in found["levelOne"] if colour in colours] == colours


def test_the_strip_shows_any_event_and_metric_that_is_asked_for(seen: Any) -> None:
    found = seen["phases"]["more"]
    assert {"L1D Cache MPKI", "Instructions Per Cycle"} <= set(found["offered"])
    assert "Backend Bound" not in found["offered"]  # has its place in level 1
    for row in found["rows"]:
        assert f"o={row['value']}" in row["hash"]
        assert row["height"] == found["before"]["height"] + 34
        assert row["bars"] > found["before"]["bars"] + 500
    assert found["after"] == found["before"]
    assert found["problems"] == []


def test_who_ended_sleeps_is_told_of_what_is_chosen(seen: Any) -> None:
    found = seen["woken"]
    shares = {"push of feeder": "46.2 %", "hrtimer_wakeup of [interrupt]": "30.8 %", "[not known]": "15.4 %"}
    for name, share in shares.items():
        assert f"{name}\n{share}" in found["whole"]
    assert found["stack"] == ["futex_wake", "pthread_cond_signal", "push", "main"]
    assert "push of feeder\n66.7 %" in found["ofWait"]
    assert "hrtimer" not in found["ofWait"]
    assert "[not known]\n66.7 %" in found["later"]
    assert "push" not in found["later"]
    assert found["onCpu"] == 0
    assert found["problems"] == []


def test_the_phases_of_a_profile_are_offered(seen: Any) -> None:
    found = seen["phases"]
    assert found["offered"] == ["0.000 s to 5.000 s: 88.0 % parse", "5.000 s to 10.00 s: 86.1 % sort"]
    assert_same(found["phase"]["rows"], of_time(phases(), "5s-10s"))
    assert found["phase"]["pressed"] == "true"


def test_time_is_chosen_by_keys_and_by_link(seen: Any) -> None:
    keys = seen["phases"]["keys"]
    # Two bins, two more of ten in a page, one back; then to the bin behind it, and two more.
    assert (keys["from"], keys["to"]) == ("1.500 s", "3.000 s")
    assert_same(keys["rows"], of_time(phases(), "1.5s-3s"))
    linked = seen["phases"]["linked"]
    assert linked["chosen"] == "0.000 s to 2.000 s: 10 samples of faults (4.8 %)"
    assert "100.0" in linked["details"]


def test_metrics_follow_the_chosen_time(seen: Any) -> None:
    # What they are is test_of_time.py's.
    metrics, back = seen["phases"]["metrics"], seen["phases"]["metricsBack"]
    assert "Metrics are of this time" in metrics["note"]
    assert metrics["colour"] == "backend_bound"
    assert metrics["overview"]
    assert "Stage 1" in metrics["details"]
    assert back["overview"]
    assert "Stage 1" in back["details"]


def test_hostile_names_are_shown_and_execute_nothing(seen: Any) -> None:
    page = seen["hostile"]
    assert page["attacked"] is None
    assert page["scripts"] == 1
    assert not {"img", "b", "iframe", "object"} & set(page["elements"])
    shown = set(page["names"])
    for name in HOSTILE_NAMES:
        assert (printable(name) if name.strip() else "[blank name]") in shown, name
    assert "</title><script>" in page["command"]
    assert "</title><script>" in page["title"]
    assert set(page["headings"]) <= shown
    assert page["reloaded"] == page["headings"][-1]
    assert page["search"].startswith("1 function")


def test_long_names_and_deep_stacks_are_shown(seen: Any) -> None:
    page = seen["hostile"]
    [long] = [name for name in page["names"] if name.startswith("xxx")]
    assert long == f"{'x' * MOST_NAME_CHARACTERS}… (1,000,000 characters)"
    assert page["depth"] > 20 * 10_000
    trail = page["deepest"].split("\n")[::2]
    assert trail[:2] == ["all", "main"]
    assert len(trail) == 6
    assert set(trail[3:]) == {"even", "odd"}


def test_screenshots_are_kept(seen: Any) -> None:
    for name in (
        "light",
        "dark",
        "function",
        "metric",
        "search",
        "keyboard",
        "plain",
        "hostile",
        "360-wide",
        "2560-wide",
    ):
        assert (Path(SCREENSHOTS) / f"page-{name}.png").stat().st_size > 5000
