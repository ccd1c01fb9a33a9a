"""`tdprof report` on a Topdown recording: options, pager, colours."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders.opened import NoCapture
from builders.profiles import CLOCK, Frame, ProfileBuilder
from builders.topdown import topdown_profile
from tdprof.cli import report
from tdprof.cli.capture_options import Input
from tdprof.errors import TdprofError
from tdprof.model.addresses import MappedFile
from tdprof.model.cgroups import Cgroup
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.model.thread_state import ThreadState
from tdprof.pipeline.load import find_findings
from tdprof.profile.calibrate import calibrated
from tdprof.profile.selection import select
from tdprof.text import printable


@pytest.fixture(autouse=True)
def _no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = topdown_profile(seconds=8)
    show(monkeypatch, profile)


def show(monkeypatch: pytest.MonkeyPatch, profile: Profile) -> None:
    monkeypatch.setattr("tdprof.cli.loading.OpenCapture", NoCapture)
    monkeypatch.setattr("tdprof.cli.report.find_input", lambda path: Input(path, None))
    monkeypatch.setattr(
        "tdprof.cli.loading.load_with_findings", lambda *_, **__: (calibrated(profile), find_findings(profile))
    )


def run(*arguments: str, **environment: str) -> Result:
    result = CliRunner().invoke(report.command, ["some.capture", *arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_functions_are_led_by_cycles_and_explained() -> None:
    lines = run().stdout.splitlines()
    assert " 40.0% ± 0.4  chase  app  with callees 40.0%" in lines
    assert any("-> Backend Cache L2D Bound" in line for line in lines)


def test_json_has_metrics_and_csv_too() -> None:
    document = json.loads(run("--json").stdout)
    assert document["functions"][0]["name"] == "chase"
    assert run("--csv").stdout.startswith("function,module,file,line,self_share")
    assert len(json.loads(run("--json", "--limit", "2").stdout)["functions"]) == 2


@pytest.mark.parametrize("form", ["--json", "--csv"])
@pytest.mark.parametrize("view", [["--lines"], ["--tree"], ["--function", "chase"]])
def test_every_view_has_every_form(form: str, view: list[str]) -> None:
    text = run(*view, form).stdout
    assert json.loads(text) if form == "--json" else len(text.splitlines()) > 2


def test_one_function_by_a_part_of_its_name() -> None:
    assert " chase " in run("--function", "has").stdout
    entry = json.loads(run("--function", "chase", "--json").stdout)["functions"]
    assert [each["name"] for each in entry] == ["chase"]
    with pytest.raises(TdprofError, match="no samples in a function 'chess'") as caught:
        run("--function", "chess")
    assert "chase" in (caught.value.hint or "")


@pytest.mark.parametrize("options", [("--json", "--csv"), ("--tree", "--lines"), ("--tree", "--spe")])
def test_contradictions_are_refused(options: tuple[str, str]) -> None:
    with pytest.raises(TdprofError, match=f"{options[0]}.*{options[1]}|{options[1]}.*{options[0]}"):
        run(*options)


def test_rows_by_cpu_are_refused_where_samples_do_not_tell_it() -> None:
    with pytest.raises(TdprofError, match="do not tell their CPU") as caught:
        run("--by", "cpu")
    assert "tdprof record --sample-cpu" in caught.value.hint


def plain() -> Profile:
    builder = ProfileBuilder()
    builder.add("main", "sort", "swap", weight=60, pid=1, tid=1)
    builder.add("main", "sort", weight=30, count=3, pid=2, tid=2, thread="other")
    builder.add("main", "log", weight=9_000_000, count=9, pid=2, tid=3, thread="writer")
    return builder.build(process_names={1: "one", 2: "two"})


def table(text: str, heading: str) -> list[list[str]]:
    """The words of each line below the heading that ends so."""
    lines = text.splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(heading))
    return [line.split() for line in lines[at + 1 :] if line and line[0] in " 0123456789"]


def test_a_capture_without_metrics_has_a_tree_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, plain())
    rows = table(run("--tree", "--limit", "0", COLUMNS="80").stdout, "calls")
    assert [row[-1] for row in rows] == ["main", "log", "sort", "swap"]
    assert rows[0][:3] == ["100.0%", "0.0%", "13"]
    lines = run("--tree", "--limit", "0", COLUMNS="80").stdout.splitlines()[-5:]
    # A way that forks: each begins with a dash, and what goes on below it stands in its column.
    calls = [line[lines[0].index("calls") :] for line in lines[1:]]
    assert calls == ["main", "- log", "- sort", "  swap"]
    assert "log" in run("--tree", COLUMNS="80").stdout
    folded = run("--tree", COLUMNS="80").stdout
    assert "swap" not in folded
    assert "and 2 more calls (--limit 0 shows all)" in folded


def test_the_tree_of_a_function_has_its_callers_and_callees(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, plain())
    text = run("--tree", "--function", "sort", "--limit", "0", COLUMNS="80").stdout
    assert [row[-1] for row in table(text.partition("  calls\n")[0], "called by")] == ["sort", "main"]
    assert [row[-1] for row in table(text, "  calls")] == ["sort", "swap"]
    document = json.loads(run("--tree", "--function", "sort", "--json").stdout)
    assert [(row["function"], row["parent"], row["total"]) for row in document["callees"]] == [
        ("sort", None, 90),
        ("swap", 0, 60),
    ]
    rows = run("--tree", "--function", "sort", "--csv").stdout.splitlines()
    assert rows[0] == "tree,row,parent,depth,function,module,share,total,self,samples,guessed"
    assert rows[1].startswith("callers,0,,0,sort,")
    # With metrics, too: --tree alone is the methodology's there.
    show(monkeypatch, topdown_profile(seconds=8))
    assert "called by" in run("--tree", "--function", "chase").stdout


@pytest.mark.parametrize(
    ("kind", "names"),
    [("process", ["two", "one"]), ("thread", ["writer", "app", "other"]), ("command", ["two", "other", "app"])],
)
def test_samples_by_process_thread_and_command(monkeypatch: pytest.MonkeyPatch, kind: str, names: list[str]) -> None:
    profile = plain()
    show(monkeypatch, profile)
    document = json.loads(run("--by", kind, "--json").stdout)
    key = "thread" if kind == "thread" else "command"
    shown = [row[key] for row in document["rows"]]
    assert sorted(shown) == sorted(names) if kind != "process" else len(shown) == 2
    assert sum(row["share"] for row in document["rows"]) == pytest.approx(1)
    lines = run("--by", kind, "--csv").stdout.splitlines()
    assert len(lines) == 1 + len(shown)
    assert lines[0].endswith("share,half_width,samples,weight_cpu-clock,hottest,hottest_share")
    text = run("--by", kind, COLUMNS="80").stdout
    assert "and 1 more row (--limit 0 shows all)" in text or kind != "process"
    assert "100%  log" in text


def test_samples_by_module(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, plain())
    (row,) = table(run("--by", "module", COLUMNS="80").stdout, "hottest function")
    assert row == ["100.0%", "15.0", "13", "app", "100%", "log"]


def test_rows_that_round_to_nothing_are_folded_and_order_is_self_or_total(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, plain())
    by_self = run(COLUMNS="80").stdout
    assert "log" in by_self
    assert "main" not in by_self.partition("function")[2]
    assert "and 3 more functions (--limit 0 shows all)" in by_self
    by_total = table(run("--sort", "total", COLUMNS="80").stdout, "function")
    assert [row[-1] for row in by_total] == ["main", "log"]
    everything = table(run("--limit", "0", "--sort", "total", "--sort", "cpu-clock", COLUMNS="80").stdout, "function")
    assert [row[-1] for row in everything] == ["main", "log", "sort", "swap"]
    with pytest.raises(TdprofError, match="--sort self and --sort total exclude each other"):
        run("--sort", "self", "--sort", "total")


def test_a_function_chooses_samples_where_there_are_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    show(monkeypatch, plain())
    text = run("--function", "sort", COLUMNS="80").stdout
    assert "only samples of --function sort: 4 of 13 samples (30.8%)" in " ".join(text.split())
    assert [row[-1] for row in table(text, "function")][:2] == ["swap", "sort"]


@pytest.mark.parametrize(
    "options",
    [("--by", "process", "--lines"), ("--by", "module", "--tree"), ("--spe", "--pid", "1"), ("--spe", "--no-native")],
)
def test_views_that_contradict_each_other_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(TdprofError, match="exclude each other"):
        run(*options)


SHOW = """
import sys
from tdprof.cli.output import print_paged
lines = ["line\\n"] * int(sys.argv[1])
print_paged(iter(lines) if "pieces" in sys.argv else "".join(lines), may_page=sys.argv[2] == "page")
"""


def on_terminal(*arguments: str, **environment: str) -> tuple[str, int]:
    """What a program that pages prints on a terminal, and its status."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SHOW, *arguments], stdout=child, stdin=child, env={**os.environ, **environment}
    )
    os.close(child)
    shown = b""
    try:
        while chunk := os.read(parent, 65536):
            shown += chunk
    except OSError:  # the terminal is gone with its last program
        pass
    os.close(parent)
    return shown.decode(), process.wait()


def test_long_output_goes_through_the_pager_on_a_terminal(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text('#!/bin/sh\necho "paged by LESS=$LESS"; cat > /dev/null\n')
    pager.chmod(0o755)
    environment = {"PAGER": str(pager)} | ({"LESS": "FRX"} if "LESS" in os.environ else {})
    assert on_terminal("9", "page", **environment) == ("paged by LESS=FRX\r\n", 0)
    assert on_terminal("2", "no", **environment) == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="") == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="cat") == ("line\r\n" * 2, 0)
    assert on_terminal("2", "page", PAGER="/no/such/pager") == ("line\r\n" * 2, 0)


def test_a_pager_that_is_left_early_is_no_error() -> None:
    assert on_terminal("200000", "page", PAGER="true") == ("", 0)
    assert on_terminal("200000", "page", "pieces", PAGER="true") == ("", 0)


def test_what_comes_in_pieces_is_printed_as_the_whole_is() -> None:
    for pager in ("", "sed p"):
        assert on_terminal("20000", "page", "pieces", PAGER=pager) == on_terminal("20000", "page", PAGER=pager)


def test_pipes_are_not_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "false")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: 1 / 0)
    assert "chase" in run().stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--comm", "a\tb"),
        ("--module", "lib\x1b.so"),
        ("--function", "f\u202eg"),
        ("--where", "cgroup=/tab\there/b\udcff"),
    ],
)
def test_names_are_taken_as_they_are_and_as_reports_show_them(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, str]
) -> None:
    builder = ProfileBuilder([CLOCK], [MappedFile("/app"), MappedFile("/lib\x1b.so")])
    builder.add(Frame("main"), weight=1, thread="other", cgroup=0)
    builder.add(Frame("f\u202eg", module="/lib\x1b.so"), weight=2, thread="a\tb", cgroup=1)
    profile = builder.build(cgroups=[Cgroup(1, "/"), Cgroup(2, "/tab\there/b\udcff")])
    show(monkeypatch, profile)
    monkeypatch.setattr(
        "tdprof.cli.loading.load_with_findings", lambda *_, selection, **__: (select(profile, selection), None)
    )
    for name in (options[1], printable(options[1])):
        chosen = json.loads(run("--by", "thread", "--json", options[0], name).stdout)
        assert [row["weight"] for row in chosen["rows"]] == [{"cpu-clock": 2}]


def test_rows_by_state_are_of_time_off_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = ProfileBuilder((CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 1_000_000))).add("main", "work")
    show(monkeypatch, builder.add("main", "read", event=1, state=ThreadState.INTERRUPTIBLE).build())
    document = json.loads(run("--by", "state", "--json").stdout)
    assert (document["event"], document["rows"][0]["state"]) == (OFF_CPU, "asleep")
    assert json.loads(run("--by", "state", "--sort", "cpu-clock", "--json").stdout)["event"] == "cpu-clock"
