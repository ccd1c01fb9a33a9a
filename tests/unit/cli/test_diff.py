"""`tdprof diff` from its arguments to its output and exit status."""

import csv
import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders.captures import write_manifest
from builders.hosts import HOST
from builders.profiles import Call, Frame, ProfileBuilder
from builders.runs import simulate_run
from builders.woken import woken
from tdprof.capture.manifest import Host, Manifest, Rung, State
from tdprof.cli.main import main
from tdprof.model.addresses import Unknown
from tdprof.model.losses import Losses
from tdprof.model.profile import Profile
from tdprof.pipeline.opened import OpenCapture
from tdprof.profile.wakers import cut_interrupts

PROGRAM = {"work": 0.5, "parse": 0.3, "hash": 0.2}
Run = Callable[..., tuple[int, str, str]]


def few_samples(rare: int, grown: int) -> Profile:
    builder = ProfileBuilder()
    for name, count in (("work", 20_000), ("rare", rare), ("grown", grown)):
        builder.add("main", name, count=count, weight=count * 1_000_000)
    return builder.build()


def other_program() -> Profile:
    """No function of its own is in PROGRAM, but it shares the kernel's and the C library's with all programs."""
    builder = ProfileBuilder()
    for name, module, count in (("_start", "/bin/other", 5), ("sort", "/bin/other", 9_000), ("main", "/bin/other", 50)):
        builder.add(Frame(name, module=module), count=count)
    return builder.build()


def stripped(*modules: str) -> Profile:
    """Code without names in some files, and a little that every program has."""
    builder = ProfileBuilder()
    for module in modules:
        name = f"[stripped] {Path(module).name}+0x100"
        builder.add(Call((Frame(name, module=module),), reason=Unknown.STRIPPED), count=9_000)
    return builder.add(Frame("memcpy", module="/lib/libc.so.6"), count=50).build()


def make_capture(folder: Path, host: Host = HOST, state: State = State.COMPLETE) -> None:
    folder.mkdir()
    write_manifest(
        folder, Manifest(host, ["./app"], [], False, [], Rung.BPF_SOFTWARE, "", 1, 2, 3, Losses(), state=state)
    )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in a folder with the captures a, slower (work by 30 %), same, shares and damaged."""
    random = np.random.default_rng(3)
    a = simulate_run(random, PROGRAM)
    profiles: dict[str, Profile] = {
        "a": a,
        "slower": simulate_run(random, PROGRAM, slow={"work": 1.3}),
        "same": simulate_run(random, PROGRAM),
        "shares": replace(a, is_whole_run=False, notes=["<b>[red]note[/red]"]),
        "damaged": replace(a, losses=Losses(bytes_damaged=7)),
        "other-core": a,
        "attached": replace(a, command=[], target="process 4711"),
        "other-program": other_program(),
        "interrupted": a,
        "stripped": stripped("/usr/lib/liblzma.so.5.4", "/bin/xz"),
        "stripped-elsewhere": stripped("/opt/lib/liblzma.so.5.4"),
        "woken": cut_interrupts(woken(push_ns=40)),
        "woken-later": cut_interrupts(woken(push_ns=400)),
        **{f"rare-{each}": few_samples(rare, grown) for each, rare, grown in (("a", 3, 1), ("b", 5, 100))},
        "single": ProfileBuilder().add("f").build(),
        "faults": replace(ProfileBuilder().add("f").build(), events=[replace(a.events[0], name="page-faults")]),
    }
    for name in profiles:
        host = replace(HOST, midr_el1={"0": "0x410fd490"}) if name == "other-core" else HOST
        make_capture(tmp_path / name, host, State.RECORDING if name == "interrupted" else State.COMPLETE)

    def load(capture: OpenCapture) -> Profile:
        return profiles[capture.folder.name]

    monkeypatch.setattr("tdprof.cli.loading.load_profile", load)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, columns: int = 120) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tdprof", "diff", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


def test_the_table_leads_with_what_changed(run: Run) -> None:
    status, out, err = run("a", "slower")
    assert (status, err) == (0, "")
    lines = [line for line in out.splitlines() if line.endswith(("work", "parse", "hash"))]
    assert lines[0].split()[-1] == "work"
    assert "more" in lines[0]
    assert not any("more" in line or "less" in line for line in lines[1:])
    assert "what each whole run took" in out
    assert "4 functions in both, 0 only in A, 0 only in B" in out


def test_what_is_no_command_is_told_by_what_it_is(run: Run) -> None:
    status, out, err = run("attached", "same")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].endswith("process 4711")


def test_different_programs_are_said_to_be_that_first(run: Run) -> None:
    status, out, _ = run("a", "other-program")
    assert status == 0
    notes = [line for line in out.splitlines() if line.startswith("note:")]
    assert notes[0] == "note: they have hardly a function in common: two different programs, it seems"
    status, out, err = run("a", "other-program", "--fail-on", "total>5%")
    assert (status, out) == (2, "")
    assert "cannot judge --fail-on: they have hardly a function in common" in err
    for same in ("slower", "same", "shares"):
        assert "in common" not in run("a", same)[1]


def test_code_without_names_is_another_program_s_where_its_file_is_another(run: Run) -> None:
    for sides in (("a", "stripped"), ("stripped", "a")):
        assert "two different programs" in run(*sides)[1]
        assert run(*sides, "--fail-on", "total>5%")[0] == 2
    assert "two different programs" not in run("stripped", "stripped-elsewhere")[1]


@pytest.mark.parametrize("columns", [20, 60, 250])
def test_any_width_will_do(run: Run, columns: int) -> None:
    status, out, _ = run("a", "slower", columns=columns)
    assert status == 0
    assert all(len(line) <= columns for line in out.splitlines())


def test_shares_say_that_they_are(run: Run) -> None:
    status, out, _ = run("shares", "a")
    assert status == 0
    assert "shares of the samples, in points" in out
    assert "A: <b>[red]note[/red]" in out
    assert "shares of the samples" not in run("shares", "a", "--basis", "run")[1]


def test_no_change_is_told_of_too_few_samples(run: Run) -> None:
    """Of ``rare`` 3 and 5 samples; ``grown`` has 1 and 100: no percentages of so little."""
    for basis in ("run", "share"):
        out = run("rare-a", "rare-b", "--basis", basis)[1]
        rows = {line.split()[-1]: line for line in out.splitlines() if line}
        assert " too few " in rows["rare"]
        assert "%" not in rows["rare"].replace("0.0%", "")
        assert '"too few" stands where the samples do not suffice' in out
    grown = next(line for line in run("rare-a", "rare-b", "--basis", "run")[1].splitlines() if "grown" in line)
    assert " 100 times " in grown
    assert "more" in grown
    assert " ± " not in grown


def test_how_many_tests_were_made_is_said(run: Run) -> None:
    def said(*arguments: str) -> str:
        return " ".join(run(*arguments)[1].split())

    made = json.loads(run("a", "slower", "--json")[1])["tests"]
    assert f"all tests together ({made}) mark anything" in said("a", "slower")
    nothing = said("single", "single")
    assert '"too few" stands where the samples do not suffice to compare: that is everywhere.' in nothing
    assert "together" not in nothing


def test_limit(run: Run) -> None:
    assert "and 3 more functions (--limit 0 shows all)" in run("a", "slower", "--limit", "1")[1]
    assert len(json.loads(run("a", "slower", "--limit", "1", "--json")[1])["functions"]) == 1


def test_json_has_everything(run: Run) -> None:
    status, out, _ = run("a", "slower", "--json", "--fail-on", "work:self>5%")
    data = json.loads(out)
    assert status == 1
    assert data["basis"] == "run"
    work = next(function for function in data["functions"] if function["name"] == "work")
    assert work["match"] == "same"
    assert work["self"][0]["is_significant"]
    assert work["self"][0]["low"] < work["self"][0]["b"] - work["self"][0]["a"] < work["self"][0]["high"]
    assert [breach["what"] for breach in data["breaches"]] == ["work:self"]
    assert data["program"][0]["quantity"] == "cpu-clock"


def test_rows_may_be_who_ended_sleeps(run: Run) -> None:
    status, out, _ = run("woken", "woken-later", "--by", "waker", "--function", "wait", "--basis", "share", "--json")
    assert status == 0
    rows = json.loads(out)["functions"]
    shares = {row["name"]: tuple(row[side]["off-cpu"] for side in ("share_a", "share_b")) for row in rows}
    assert shares["push of feeder"] == pytest.approx((100 * 40 / 55, 100 * 400 / 415))
    assert not any("hrtimer" in name and any(both) for name, both in shares.items())


def test_csv_has_a_line_for_each_value(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("a", "slower", "--csv")[1])))
    assert len(rows) == 1 + 2 * 4
    work = next(row for row in rows if row["function"] == "work" and row["kind"] == "self")
    assert work["is_significant"] == "1"
    assert rows[0]["kind"] == "program"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["a", "slower", "--fail-on", "work:self>5%"], 1),
        (["a", "slower", "--fail-on", "work:self>50%"], 0),
        (["slower", "a", "--fail-on", "work:self>5%"], 0),
        (["slower", "a", "--fail-on", "work:self<-5%"], 1),
        (["a", "slower", "--fail-on", "total>5%", "--fail-on", "hash:self>5%"], 1),
        (["a", "slower", "--fail-on", "*:self>5%"], 1),
        (["a", "slower", "--fail-on", "*:self>5%", "--noise", "60"], 0),
        (["a", "same", "--fail-on", "total>0%", "--fail-on", "*:self>0%"], 0),
    ],
)
def test_exit_status(run: Run, arguments: list[str], status: int) -> None:
    found, _, err = run(*arguments)
    assert found == status
    assert len(err.splitlines()) == (status == 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "nowhere"], "no capture at nowhere"),
        (["a", "faults"], "no event in common: A has cpu-clock, B has page-faults"),
        (["a", "damaged", "--fail-on", "total>5%"], "damaged is damaged: 7 bytes"),
        (["a", "interrupted", "--fail-on", "total>5%"], "the recording of interrupted was interrupted"),
        (["a", "other-core", "--fail-on", "total>5%"], "recorded on different cores: aarch64 0x410fd400 and aarch64"),
        (["a", "shares", "--fail-on", "total>5%"], "only shares can be compared"),
        (["a", "same", "--fail-on", "totl>5%"], "is called 'totl'"),
        (["a", "same", "--fail-on", "nonsense"], "cannot read 'nonsense'"),
        (["woken", "a", "--by", "waker"], "a does not tell who woke threads"),
        (["a", "damaged", "--time", "100h-"], "a: --time 100h- is after the recording's end"),
        (["woken", "same", "--comm", "nobody"], "woken: no sample is of --comm nobody"),
        (["a", "same", "-e", "cycles"], "not both captures have an event 'cycles'"),
        (["a", "same", "--json", "--csv"], "exclude each other"),
        (["a", "same", "--noise", "nan"], "--noise: 'nan' is not a number"),
        (["a"], "missing argument 'B'"),
    ],
)
def test_what_cannot_be_compared_is_a_two(run: Run, arguments: list[str], message: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert message in err


def test_doubtful_captures_are_still_shown(run: Run) -> None:
    status, out, _ = run("a", "other-core")
    assert status == 0
    assert "note: they were recorded on different cores" in out
