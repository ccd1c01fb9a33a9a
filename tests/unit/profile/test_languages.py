"""Which language each sample is of, and call stacks without the native code below and above them."""

import pytest

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.model.addresses import PYTHON, FileKind, MappedFile, Unknown
from tdprof.model.choices import GroupKind
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks, function_names
from tdprof.profile.groups import group_samples
from tdprof.profile.languages import fold_native, without_trampolines

LIBJVM = Frame("JavaMain", module="/usr/lib/jvm/java-17/lib/server/libjvm.so")
LOOP = Frame("_PyEval_EvalFrameDefault", module="/usr/bin/python3.11")
INCOMPLETE = Call((Frame("[incomplete: no rule]", module=""),))


def jit(pid: int, name: str) -> Frame:
    return Frame(name, module=f"[anon] {pid}")


def python(name: str) -> Frame:
    return Frame(name, module=PYTHON)


FILES = [
    MappedFile("[kernel]", kind=FileKind.KERNEL),
    MappedFile(PYTHON, kind=FileKind.INTERPRETED),
    *(MappedFile(f"[anon] {pid}", kind=FileKind.ANONYMOUS, pid=pid) for pid in (1, 2, 3, 4)),
]
WRITE = Frame("sys_write", module="[kernel]")


def mixed() -> Profile:
    builder = ProfileBuilder(files=FILES)
    builder.add(LIBJVM, jit(1, "Main.run"), jit(1, "Main.heavy"), weight=30, pid=1)
    builder.add(LIBJVM, "GCTaskThread", weight=5, pid=1)
    builder.add("uv_run", Frame("Start", module="/usr/bin/node"), jit(2, "JS:*hot app.js:1"), weight=20, pid=2)
    builder.add("main", jit(3, "of no runtime that is known"), weight=7, pid=3)
    builder.add("main", LOOP, python("<module>"), python("work"), "memcpy", weight=10, pid=4)
    builder.add("main", python("<module>"), python("work"), weight=11, pid=4)
    builder.add("main", python("<module>"), python("work"), "write", WRITE, weight=3, pid=4)
    builder.add(INCOMPLETE, python("<module>"), weight=2, pid=4)
    builder.add("main", WRITE, weight=1, pid=5)
    builder.add(weight=4, pid=6)
    builder.add(Call((Frame("[no mapping]", module=""),), reason=Unknown.NO_MAPPING), weight=8, pid=6)
    return builder.build(runtimes={1: ["Java"], 2: ["Node"], 4: ["Python"]})


def weights(profile: Profile) -> dict[str, int]:
    groups = group_samples(profile, GroupKind.LANGUAGE)
    return dict(zip(groups.name, groups.weight[:, 0].tolist(), strict=True))


def stacks(profile: Profile) -> list[list[str]]:
    """Root first, one for each row of the samples."""
    names, expanded = function_names(profile), frame_stacks(profile)
    return [
        [names[each] for each in expanded.function[expanded.start[stack] : expanded.start[stack + 1]]][::-1]
        for stack in profile.samples.stack.tolist()
    ]


def test_each_sample_is_of_the_language_of_its_own_code() -> None:
    assert weights(mixed()) == {
        "Java": 30,
        "JavaScript": 20,
        "native": 5 + 10,
        "Python": 11 + 2,
        "[not known]": 8 + 4,
        "[run-time code]": 7,
        "kernel": 3 + 1,
    }


def test_a_program_that_has_gos_scheduler_is_of_go() -> None:
    builder = ProfileBuilder(files=FILES)
    app = "/srv/app"
    builder.add(Frame("runtime.goexit", module=app), Frame("main.work", module=app), WRITE, weight=3, pid=5)
    builder.add(Frame("runtime.goexit", module=app), Frame("main.work", module=app), weight=5, pid=5)
    builder.add(Frame("main.work", module=app), "memcpy", weight=7, pid=5)
    builder.add(Frame("runtime.part.0", module="/srv/c"), weight=9, pid=6)
    assert weights(builder.build()) == {"kernel": 3, "Go": 5, "native": 7 + 9}
    assert weights(fold_native(builder.build())) == weights(builder.build())


def test_of_folded_stacks_what_a_language_calls_is_of_that_language() -> None:
    assert weights(fold_native(mixed())) == {
        "Java": 30,
        "Python": 10 + 11 + 3 + 2,
        "JavaScript": 20,
        "[not known]": 8 + 4,
        "[run-time code]": 7,
        "native": 5,
        "kernel": 1,
    }


def test_no_frame_of_the_interpreter_is_left_and_other_stacks_are_as_they_were() -> None:
    folded = fold_native(mixed())
    assert stacks(folded) == [
        ["Main.run", "Main.heavy"],
        ["JavaMain", "GCTaskThread"],
        ["JS:*hot app.js:1"],
        ["of no runtime that is known"],
        ["<module>", "work"],
        ["<module>", "work"],
        ["<module>", "work"],
        ["[incomplete: no rule]", "<module>"],
        ["main", "sys_write"],
        ["[no call stack]"],
        ["[no mapping]"],
    ]
    assert folded.notes[0].endswith("in 7 of 11 samples")
    assert folded.samples is not None
    assert folded.total_weight().tolist() == mixed().total_weight().tolist()


@pytest.mark.parametrize(
    ("runtimes", "language"),
    [
        (["Java", "Python"], "Java"),  # CPython makes no code of its own
        (["Python"], "Python"),  # but for -X perf
        (["Java", "Node"], "[run-time code]"),
        (["Node", "Bun", "Python"], "JavaScript"),
        (["Mono"], ".NET"),
        (["SBCL"], "Common Lisp"),
        (["Guile"], "Scheme"),
        ([], "[run-time code]"),
    ],
)
def test_run_time_code_is_of_the_one_runtime_that_can_have_made_it(runtimes: list[str], language: str) -> None:
    profile = ProfileBuilder(files=FILES).add(jit(1, "f"), pid=1).build(runtimes={1: runtimes})
    assert weights(profile) == {language: 1_000_000}


@pytest.mark.parametrize("fold", [False, True])
def test_what_perf_made_files_of_is_of_its_process(fold: bool) -> None:
    builder = ProfileBuilder().add(LIBJVM, Frame("Main.f", module="/tmp/.debug/jit/jitted-7-33.so"), pid=7)
    profile = builder.build(runtimes={7: ["Java"]})
    assert weights(fold_native(profile) if fold else profile) == {"Java": 1_000_000}


def test_trampolines_for_perf_go_where_their_functions_stand() -> None:
    builder = ProfileBuilder(files=FILES)
    builder.add("main", jit(1, "py::work:/app.py"), python("work"), "memcpy", pid=1)
    builder.add("main", jit(1, "py::work:/app.py"), LOOP, pid=1)  # nothing walked its frames
    builder.add("main", jit(1, "other"), python("work"), pid=1)
    assert stacks(without_trampolines(builder.build())) == [
        ["main", "work", "memcpy"],
        ["main", "py::work:/app.py", "_PyEval_EvalFrameDefault"],
        ["main", "other", "work"],
    ]
