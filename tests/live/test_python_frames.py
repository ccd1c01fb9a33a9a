"""Functions of Python programs stand in call stacks where the interpreter's own would."""

import csv
import io
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from live.interpreters import each_interpreter, interpreters, interpreters_with
from live.recording import TDPROF, Capture, Sample, record, run_record
from live.workloads import python_calls
from tdprof.cli.main import cli
from tdprof.linux.elf import open_elf
from tdprof.profile.frames import frame_stacks
from tdprof.recorder.python_processes import find_python

pytestmark = pytest.mark.needs_bpf

WORKLOADS = Path(__file__).parent / "workloads"
PYTHON = "[python]"
# A recording's first moments: the interpreter is found, and the program that walks its frames is verified.
BEGINNING_S = 1.0


# In a stack where Python runs, whether its functions are known or not.
LOOP = {"_PyEval_EvalFrameDefault", "<module>", "main", "heavy", "light"}


@pytest.fixture(params=each_interpreter())
def interpreter(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def python_part(capture: Capture) -> Counter[tuple[str, ...]]:
    """Samples by their Python functions, leaf first; those without any are left out."""

    return capture.count(lambda sample: python_functions(sample) or None)


def python_functions(sample: Sample) -> tuple[str, ...]:
    """The Python functions of a sample's stack, leaf first."""
    return tuple(name for name, module in zip(sample.frames, sample.modules, strict=True) if module == PYTHON)


def test_three_to_one(interpreter: str, folder: Path) -> None:
    capture = record("--", interpreter, WORKLOADS / "python_split.py", BEGINNING_S + 1, folder=folder)
    stacks = python_part(capture)
    check_split(stacks)
    assert all(functions[-2:] == ("main", "<module>") for functions in stacks if functions[0] in ("heavy", "light"))


def check_split(stacks: Counter[tuple[str, ...]]) -> None:
    """Of the samples in `heavy` and `light` three quarters are in the first."""
    inside: Counter[str] = Counter()
    for functions, count in stacks.items():
        inside[functions[0]] += count
    heavy, light = inside["heavy"], inside["light"]
    assert heavy + light >= 100
    # Five standard errors of the share, and a twentieth for rounds that are not all alike.
    share = heavy / (heavy + light)
    assert abs(share - 0.75) <= 0.05 + 5 * (0.75 * 0.25 / (heavy + light)) ** 0.5


def test_three_to_one_where_an_exception_was_thrown_in(interpreter: str, folder: Path) -> None:
    # CPython 3.9 does not say who threw it.
    is_silent = interpreter in [path for version, path in interpreters().items() if version.startswith("3.9.")]
    capture = record("--", interpreter, WORKLOADS / "python_throws.py", BEGINNING_S + 1, folder=folder)
    stacks = python_part(capture)
    check_split(stacks)
    assert {functions for functions in stacks if functions[0] in ("heavy", "light")} == {
        ("heavy", "handle", "pass_on", *(() if is_silent else ("main", "<module>"))),
        ("light", "main", "<module>"),
    }


def test_every_caller_is_a_true_one(interpreter: str, folder: Path) -> None:
    capture = record("-F", "1999", "--", interpreter, WORKLOADS / "python_calls.py", BEGINNING_S + 1, folder=folder)
    stacks = python_part(capture)
    wrong: Counter[tuple[str, str]] = Counter()
    unread = 0
    seen = set()
    for functions, count in stacks.items():
        names = [name.rpartition(".")[2] for name in functions]
        for called, caller in itertools.pairwise(names):
            if called in python_calls.EDGES:
                seen.add(called)
                if caller == "[code object not read]":  # its page was not there at that moment
                    unread += count
                elif caller not in python_calls.EDGES[called]:
                    wrong[called, caller] += count
    assert not wrong
    assert unread <= 0.01 * stacks.total()
    assert seen >= {
        "spin",
        "work",
        "recurse",
        "generate_work",
        "sort_key",
        "throw_it",
        "work_within",
        "call_everything",
    }
    # What has no Python frame: the interpreter's own beginning, and what ran before it was found.
    assert stacks.total() >= 0.5 * capture.count(lambda _sample: 1).total()


def frames_of_forked(folder: Path, *arguments: str) -> Counter[bool]:
    """Samples in which processes that a program forks run Python, by whether they have its functions."""
    program = (sys.executable, WORKLOADS / "python_forks.py", BEGINNING_S, *arguments)
    capture = record("-F", "1999", "--", *program, folder=folder)
    (parent,) = {sample.pid for sample in capture.samples if python_functions(sample)[:2] == ("spin", "main")}
    has_frames: Counter[bool] = Counter()
    for sample in capture.samples:
        if sample.pid != parent and {"spin", "_PyEval_EvalFrameDefault"} & {*sample.frames}:
            has_frames["spin" in sample.frames] += sample.count
            if "spin" in sample.frames:
                assert python_functions(sample) == ("spin", "child_work", "main", "<module>")
    return has_frames


def test_processes_that_are_forked_have_frames_from_their_first_sample_on(folder: Path) -> None:
    has_frames = frames_of_forked(folder)
    assert has_frames[True] >= 100
    assert has_frames[False] <= 0.1 * has_frames.total()


def test_a_forked_process_has_frames_before_cpython_has_its_number(folder: Path) -> None:
    """Of C code's forks CPython, from 3.11 on, never has it; the recorder knows of them until it has looked at them."""
    assert frames_of_forked(folder, "by-c-code")[True] >= 100


def test_programs_that_are_executed_again_have_frames_from_the_beginning_on(folder: Path) -> None:
    python = Path(sys.executable).resolve()
    if not find_python(open_elf(python)):
        pytest.skip("this CPython is a library's")
    program = f"{shlex.quote(str(python))} {shlex.quote(str(WORKLOADS / 'python_split.py'))}"
    # The program is found in the first, and how the kernel tells what is executed in the second.
    script = f"{program} {BEGINNING_S}; {program} {BEGINNING_S}; for _ in 1 2 3 4 5 6 7 8; do {program} 0.1; done"
    capture = record("-F", "1999", "--", "sh", "-c", script, folder=folder)
    has_frames: dict[int, Counter[bool]] = {}
    for sample in capture.samples:
        if LOOP & {*sample.frames, *(functions := python_functions(sample))}:
            has_frames.setdefault(sample.pid, Counter())[bool(functions)] += sample.count
    # From the first on that has all: where the recorder waits for a CPU, that is not yet the second.
    known = [*itertools.dropwhile(lambda pid: has_frames[pid][False], sorted(has_frames))]
    assert len(known) >= 5
    each = Counter[bool]()
    for pid in known:
        each.update(has_frames[pid])
    assert each[True] >= 500
    assert each[False] <= 0.03 * each.total()


def test_a_thread_is_found_among_hundreds(folder: Path) -> None:
    capture = record("--", sys.executable, WORKLOADS / "python_threads.py", BEGINNING_S, folder=folder)
    stacks = python_part(capture)
    assert sum(count for names, count in stacks.items() if names[:2] == ("spin", "work")) >= 50
    # What has no Python frame: the interpreter's own beginning, and what ran before it was found.
    assert stacks.total() >= 0.5 * capture.count(lambda _sample: 1).total()


@pytest.mark.thorough
def test_each_subinterpreter_adds_frames_to_a_stack(folder: Path) -> None:
    has_them = interpreters_with("_interpreters")
    if not has_them:
        pytest.skip("no CPython 3.13 or later: before, a subinterpreter's thread is who made it")
    capture = record("--", has_them[0], WORKLOADS / "python_interpreters.py", BEGINNING_S + 1, folder=folder)
    stacks = python_part(capture)
    assert stacks["beside", "main", "<module>"] >= 10
    inner = [names for names in stacks if names[0] == "within"]
    assert sum(stacks[names] for names in inner) >= 20
    assert {names[1:4] for names in inner} == {("<module>", "run_one", "Thread.run")}


def test_no_caller_is_guessed_where_subinterpreters_run_each_other(folder: Path) -> None:
    has_them = interpreters_with("_interpreters", "_xxsubinterpreters")
    if not has_them:
        pytest.skip("no CPython with subinterpreters' module")
    script = WORKLOADS / "python_nested_interpreters.py"
    capture = record("--", has_them[0], script, BEGINNING_S + 0.5, folder=folder)
    # Until the inner one has frames, too, it is known who is whose caller.
    stacks = python_part(capture).keys() - {("around", "<module>", "<module>")}
    assert not [names for names in stacks if {"within", "around"} & set(names)]
    assert [note for note in capture.manifest["notes"] if "several subinterpreters have some" in note]


def test_lines_and_files_are_the_sources(folder: Path) -> None:
    script = WORKLOADS / "python_split.py"
    record("--", sys.executable, script, BEGINNING_S + 0.5, folder=folder)
    command = [*TDPROF, "report", "--lines", "--csv", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    source = script.read_text().splitlines()
    rows = [row for row in csv.DictReader(io.StringIO(shown)) if row["function"] == "heavy"]
    assert {row["file"] for row in rows} == {str(script)}
    lines = {int(row["line"]) for row in rows}
    assert {source[line - 1].split("=")[0].strip() for line in lines} <= {
        "total +", "for number in range(rounds):", "total", "return total", "def heavy(rounds: int) -> int:"
    }  # fmt: skip


def test_lines_of_code_that_is_made_and_dropped_are_its_own(interpreter: str, folder: Path) -> None:
    capture = record("--", interpreter, WORKLOADS / "python_made.py", BEGINNING_S + 1, folder=folder)
    profile = capture.profile
    stacks, functions = frame_stacks(profile), profile.functions
    is_python = [row >= 0 and profile.mapped_files[row].path == PYTHON for row in functions.mapped_file.tolist()]
    callers = Counter[bool]()
    for stack, count in zip(profile.samples.stack.tolist(), profile.samples.count.tolist(), strict=True):
        places = slice(stacks.start[stack], stacks.start[stack + 1])
        frames = zip(stacks.function[places].tolist(), stacks.line[places].tolist(), strict=True)
        within = [(functions.name[row], line) for row, line in frames if row >= 0 and is_python[row]]
        for (called, _), (_, line) in itertools.pairwise(within):
            if called.startswith("work_"):
                callers[called == f"work_{line}"] += count
    assert callers[True] >= 100
    assert not callers[False]


def test_languages_and_stacks_of_python_alone(folder: Path) -> None:
    record("--", sys.executable, WORKLOADS / "python_split.py", BEGINNING_S + 0.5, folder=folder)

    def run(command: str, *arguments: str) -> str:
        result = CliRunner().invoke(cli, [command, *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    rows = {
        option: {row["language"]: row["samples"] for row in json.loads(run("report", str(folder), *option))["rows"]}
        for option in [("--by", "language", "--json"), ("--by", "language", "--json", "--no-native")]
    }
    shown, folded = rows.values()
    assert sum(shown.values()) == sum(folded.values())
    assert {"Python", "native"} <= set(shown) <= {"Python", "native", "kernel", "[not known]"}
    assert folded["Python"] > shown["Python"] >= 50
    lines = run("export", str(folder), "--to", "folded", "--no-native").splitlines()
    walked = [line.rpartition(" ")[0].split(";")[1:] for line in lines if ";heavy" in line]
    assert walked
    assert all(stack == ["<module>", "main", "heavy"] for stack in walked)
    names = {
        row["name"] for row in json.loads(run("diff", str(folder), str(folder), "--no-native", "--json"))["functions"]
    }
    assert {"heavy", "light"} <= names
    tree = json.loads(run("report", str(folder), "--tree", "--function", "heavy", "--no-native", "--json"))
    assert [row["function"] for row in tree["callees"]] == ["heavy"]


def test_native_stacks_alone_on_demand(folder: Path) -> None:
    script = WORKLOADS / "python_split.py"
    capture = record("--no-interpreters", "--", sys.executable, script, BEGINNING_S, folder=folder)
    assert not python_part(capture)
    assert capture.count(lambda sample: "_PyEval_EvalFrameDefault" in sample.frames or None).total() > 0


def test_a_program_of_any_name_may_hold_it(folder: Path, tmp_path: Path) -> None:
    interpreter = Path("/usr/bin/python3").resolve()
    if not interpreter.exists() or open_elf(interpreter).section(".PyRuntime") is None:
        pytest.skip("/usr/bin/python3 is linked to a library that has a name of its own")
    program = shutil.copy(interpreter, tmp_path / "server")
    capture = record(
        "--", "env", "PYTHONHOME=/usr", program, WORKLOADS / "python_split.py", BEGINNING_S + 0.5, folder=folder
    )
    inside = Counter({functions[0]: count for functions, count in python_part(capture).items()})
    assert inside["heavy"] > inside["light"] > 0


def test_in_a_pid_namespace_threads_have_other_numbers(folder: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("making a pid namespace takes root and util-linux")
    inside = ("unshare", "--pid", "--fork", "--mount-proc")
    capture = record("--", *inside, sys.executable, WORKLOADS / "python_split.py", BEGINNING_S, folder=folder)
    stacks = python_part(capture)
    assert sum(count for functions, count in stacks.items() if functions[0] in ("heavy", "light")) >= 50


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="to give up a right takes root and util-linux"
)
def test_where_nobody_may_trace_it_stacks_are_native_and_that_is_said(folder: Path) -> None:
    untraceable = ("setpriv", "--inh-caps=-sys_ptrace", "--bounding-set=-sys_ptrace")
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True)\nwhile True: sum(range(999))"], stdout=-1
    ) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            result = run_record("-p", process.pid, "--duration", "0.5", folder=folder, prefix=untraceable)
        finally:
            process.kill()
    assert result.returncode == 0, result.stderr
    (note,) = [line for line in result.stderr.splitlines() if "Python frames" in line]
    assert "who records may not trace it" in note
    assert Capture(folder).samples


def test_forged_frames_end_and_say_nothing_to_the_terminal(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "python3.11"
    source = WORKLOADS / "forged_python.c"
    subprocess.run(["gcc", "-O1", "-rdynamic", "-o", program, source], check=True)
    result = run_record("--", program, folder=folder)
    assert result.returncode == 0, result.stderr
    capture = Capture(folder)
    forged = capture.count(lambda sample: sum(module == PYTHON for module in sample.modules) or None)
    assert forged
    assert max(forged) <= 192
    wide = os.environ | {"COLUMNS": "1000"}
    command = [*TDPROF, "report", "--limit", "0", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env=wide).stdout
    assert "evil" in shown
    assert "\033" not in shown + result.stderr
    assert "\007" not in shown


def test_a_thread_of_others_has_frames_at_each_call(interpreter: str, folder: Path, tmp_path: Path) -> None:
    """CPython makes a structure of the thread anew for each, at another place maybe."""
    library = tmp_path / "calls_back.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-pthread", "-o", library, WORKLOADS / "calls_back.c"], check=True)
    program = [interpreter, WORKLOADS / "python_called_back.py", library, BEGINNING_S + 1]
    capture = record("-F", "1999", "--", *program, folder=folder)
    functions: Counter[bool] = Counter()
    for sample in capture.samples:
        if "call_until_done" in sample.frames and LOOP & {*sample.frames} | {"spin"} & {*sample.frames}:
            functions["spin" in sample.frames] += sample.count
            assert python_functions(sample) in (("spin", "called"), ("called",), ())
    assert functions[True] >= 0.6 * functions.total() >= 300


def test_a_process_that_executes_one_python_after_another_has_frames_of_each(folder: Path) -> None:
    program = [sys.executable, WORKLOADS / "python_executes.py", BEGINNING_S, *interpreters().values()]
    capture = record("-F", "1999", "--", *program, folder=folder)
    seen = Counter(functions[2] for functions in python_part(capture).elements() if functions[:2] == ("spin", "work"))
    assert {*seen} == {f"round_{number}" for number in range(1 + len(interpreters()))}


def test_stacks_that_end_in_no_mapping_have_frames_however_many_there_are(folder: Path, tmp_path: Path) -> None:
    """Some of them are copied, in case a table is there later; the others are not."""
    library = tmp_path / "left_over.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, WORKLOADS / "left_over.c"], check=True)
    program = [sys.executable, WORKLOADS / "python_left_over.py", library, BEGINNING_S + 1]
    capture = record("-F", "4999", "--", *program, folder=folder)
    functions: Counter[bool] = Counter()
    for sample in capture.samples:
        if "call_on" in sample.frames:
            functions[python_functions(sample)[:1] in (("spin",), ("on_a_stack_of_its_own",))] += sample.count
    assert functions[True] >= 0.6 * functions.total() >= 2048
