"""The runtimes that made code without a map, as the files that its processes mapped show them."""

from dataclasses import replace

import pytest

from builders.capture_tables import mappings, processes
from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.capture.manifest import Rung
from tdprof.model.addresses import PYTHON, FileKind, MappedFile, Unknown
from tdprof.model.profile import Profile
from tdprof.profile.hotspots import unknown_samples
from tdprof.profile.runtimes import language_of_run_time_code, runtimes_without_map
from tdprof.report.summary import doubts

NAMELESS = Call((Frame("[run-time code]", module="[anon]"),), reason=Unknown.NO_PERF_MAP)


ANON = "//anon"


def process_runtimes(
    *rows: tuple[int, str], at: tuple[int, ...] = (), events: tuple[tuple, ...] = ()
) -> dict[int, list[str]]:
    """Of (process, path) that was mapped, one after the other, or when ``at`` says."""
    times = at or range(len(rows))
    maps = mappings(
        *((time_ns, pid, 0x1000, 0x1000, 0, path, None) for time_ns, (pid, path) in zip(times, rows, strict=True))
    )
    return CodeFiles(maps, AddressSpaces(maps, processes(*events))).runtimes


def profile_of(*modules: str) -> Profile:
    """A process of these modules that runs nameless code, beside one of Python that runs none."""
    builder = ProfileBuilder(files=[MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=8)])
    builder.add("eval", pid=7).add(NAMELESS, pid=8).add(pid=8)
    return builder.build(
        runtimes=process_runtimes((7, "/usr/bin/python3.11"), *((8, module) for module in modules), (8, ANON))
    )


@pytest.mark.parametrize(
    ("module", "way"),
    [
        ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", "jcmd PID Compiler.perfmap"),
        ("/usr/bin/node", "node --perf-basic-prof"),
        ("/venv/bin/deno", "deno --v8-flags=--perf-basic-prof"),
        ("/root/.bun/bin/bun", "BUN_JSC_useJITDump=1 and BUN_JSC_jitDumpDirectory=/tmp"),
        ("/usr/bin/mono-sgen", "mono --jitmap"),
        ("/usr/lib/libmonosgen-2.0.so.1.0.0", "mono --jitmap"),
        ("/usr/lib/libguile-3.0.so.1.5.0", "Guile writes none"),
        ("/usr/lib/sbcl/sbcl.core", "SBCL writes none"),
        ("/usr/bin/node (deleted)", "node --perf-basic-prof"),
        ("/usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0", "python -X perf"),
        ("/opt/python/bin/python3.13", "python -X perf"),
        ("/venv/lib/python3.11/site-packages/wasmtime/linux-x86_64/_libwasmtime.so", "wasmtime run --profile=perfmap"),
        ("/usr/lib/x86_64-linux-gnu/libpypy3.9-c.so", "PyPy writes none"),
        ("/usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.1/libcoreclr.so", "DOTNET_PerfMapEnabled=1"),
    ],
)
def test_the_hint_is_for_the_runtime_that_was_seen(module: str, way: str) -> None:
    profile = profile_of("/usr/lib/libc.so.6", module)
    assert len(runtimes_without_map(profile)) == 1
    assert any(f"no /tmp/perf-PID.map names ({way}" in line for line in doubts(profile, unknown_samples(profile)))


def test_of_an_unknown_runtime_no_other_ones_way_is_told() -> None:
    profile = profile_of("/usr/bin/some-runtime")
    assert runtimes_without_map(profile) == []
    (line,) = [line for line in doubts(profile, unknown_samples(profile)) if "run-time code" in line]
    assert "python" not in line
    assert "docs/symbols.md" in line


def test_a_process_can_have_several_runtimes() -> None:
    rows = ((3, "/usr/bin/node"), (3, "/usr/bin/node"), (3, "/usr/bin/python3"), (4, "/bin/sh"), (5, "[anon]"))
    assert process_runtimes(*rows) == {3: ["Node", "Python"]}
    assert process_runtimes() == {}


def test_code_is_of_the_program_that_made_it_and_not_of_what_its_process_executed_before() -> None:
    """A script that starts the program that it stands for, as wrappers do."""
    rows = ((7, "/usr/bin/python3.11"), (7, "/usr/lib/libruby-3.1.so.3.1"), (7, ANON))
    executed = (5, "exec", 7, 7, None, None, "ruby")
    assert process_runtimes(*rows, at=(1, 6, 7), events=(executed,)) == {7: ["Ruby"]}
    assert process_runtimes(*rows, at=(1, 6, 2), events=(executed,)) == {7: ["Python"]}
    assert process_runtimes(*rows, (7, ANON), at=(1, 6, 2, 7), events=(executed,)) == {7: ["Python", "Ruby"]}
    assert process_runtimes(*rows[:2], at=(1, 6), events=(executed,)) == {7: ["Python", "Ruby"]}


def test_forked_processes_have_the_runtimes_that_their_parents_had_by_then() -> None:
    rows = ((1, "/usr/bin/luajit"), (1, "/usr/lib/libjvm.so"), (2, ANON), (3, ANON))
    forks = ((4, "fork", 2, 2, 1, 1, None), (5, "fork", 3, 3, 2, 2, None))
    found = process_runtimes(*rows, at=(1, 6, 7, 7), events=forks)
    assert found == {1: ["Java", "LuaJIT"], 2: ["LuaJIT"], 3: ["LuaJIT"]}
    executed = (8, "exec", 3, 3, None, None, "sh")
    assert process_runtimes(*rows[:3], at=(1, 2, 3), events=(*forks, executed))[3] == ["Java", "LuaJIT"]
    assert 3 not in process_runtimes(*rows, at=(1, 2, 3, 9), events=(*forks, executed))


def test_languages_that_nothing_walks_are_named_where_they_matter() -> None:
    ruby, perl = Frame("rb_vm_exec", module="/usr/lib/libruby-3.1.so.3.1"), Frame("perl_run", module="/usr/bin/perl")
    builder = ProfileBuilder().add("main", ruby, "memcpy", count=40, pid=1).add("main", count=60, pid=2)
    profile = builder.add(perl, pid=3).build()
    lines = [line for line in doubts(profile, unknown_samples(profile)) if "programs" in line]
    assert lines == [
        "40 samples (39.6%) of Ruby programs, whose own functions are not in call stacks: only their interpreter's; "
        "compiled ones are named with ruby --yjit --yjit-perf (Ruby 3.3 and later)"
    ]


def test_nearly_all_samples_of_a_language_are_not_all() -> None:
    ruby = Frame("rb_vm_exec", module="/usr/bin/ruby3.1")
    profile = ProfileBuilder().add(ruby, count=9999).add("main").build()
    assert [line for line in doubts(profile, []) if line.startswith("9,999 samples (>99.9%) of Ruby programs")]


@pytest.mark.parametrize(
    ("module", "language"),
    [
        ("/usr/lib/R/lib/libR.so", "R"),
        ("/usr/bin/lua5.4", "Lua"),
        ("/usr/lib/x86_64-linux-gnu/liblua5.4.so.0.0.0", "Lua"),
        ("/usr/lib/x86_64-linux-gnu/libtcl8.6.so", "Tcl"),
        ("/usr/bin/ocamlrun", "OCaml"),
        ("/usr/lib/x86_64-linux-gnu/libguile-3.0.so.1.5.0", "Scheme"),
    ],
)
def test_other_interpreters_are_known(module: str, language: str) -> None:
    (line,) = doubts(ProfileBuilder().add("main", Frame("run", module=module)).build(), [])
    said = f"of {language} programs, whose own functions are not in call stacks: only their interpreter's"
    assert line == f"1 sample (100.0%) {said}"


def test_lua_is_known_by_its_compiler_as_a_program_and_as_a_library() -> None:
    rows = ((1, "/usr/bin/luajit-2.1.0-beta3"), (2, "/usr/lib/libluajit-5.1.so.2.1.0"), (3, "/usr/bin/luac"))
    assert process_runtimes(*rows) == {1: ["LuaJIT"], 2: ["LuaJIT"]}
    (line,) = doubts(profile := ProfileBuilder().add(Frame("lj_vm_call", module=rows[1][1])).build(), [])
    assert not unknown_samples(profile)
    assert line.endswith("; compiled ones are named with a LuaJIT built with -DLUAJIT_USE_PERFTOOLS")


def test_a_language_is_not_hidden_where_its_compiled_functions_have_names() -> None:
    compiled, php = Frame("JIT$heavy", module="[anon] 1"), Frame("main", module="/usr/bin/php8.2")
    builder = ProfileBuilder(files=[MappedFile("[anon] 1", kind=FileKind.ANONYMOUS, pid=1)])
    builder.add(php, compiled, count=70, pid=1).add(php, compiled, "memcpy", count=10, pid=1)
    builder.add("main", Frame("execute_ex", module="/usr/bin/php8.2"), count=20, pid=1)
    profile = builder.build(runtimes=process_runtimes((1, "/usr/bin/php8.2"), (1, ANON)))
    (line,) = [line for line in doubts(profile, unknown_samples(profile)) if "programs" in line]
    assert line.startswith("20 samples (20.0%) of PHP programs")


@pytest.mark.parametrize(
    ("rung", "why"),
    [
        (Rung.BPF_PMU, "where no line above says why, they ran before their program was found"),
        (Rung.RING_BUFFER, "only with BPF are they walked (tdprof doctor); python3 -X perf names them"),
        (Rung.PERF_DATA, "only with BPF are they walked"),
    ],
)
def test_python_code_without_its_functions_is_said_with_its_share(rung: Rung, why: str) -> None:
    shown, loop = Frame("heavy", module=PYTHON), Frame("_PyEval_EvalFrameDefault", module="/usr/bin/python3.11")
    named = Frame("py::heavy:/srv/app.py", module="[anon] 1")
    builder = ProfileBuilder(files=[MappedFile("[anon] 1", kind=FileKind.ANONYMOUS, pid=1)])
    builder.add(loop, shown, count=50, pid=1).add(loop, named, count=10, pid=1).add("main", count=20, pid=1)
    builder.add("main", loop, "PyObject_Malloc", count=15, pid=1).add("_PyEval_EvalFrameDefault.cold", count=5, pid=2)
    profile = replace(builder.build(), rung=rung)
    (line,) = [line for line in doubts(profile, []) if "Python" in line]
    assert line.startswith("20 samples (20.0%) in Python code whose functions are not in call stacks, only _PyEval_Ev")
    assert why in line
    some = builder.add(loop, shown, count=1901, pid=1).build()
    assert not [line for line in doubts(some, []) if "Python" in line]


def test_samples_in_java_that_are_of_other_methods_or_of_none_that_has_a_name_are_said_to_be() -> None:
    def java(name: str, line: int, file: str = "app/A.java") -> Frame:
        return Frame(name, line, file, module="[anon] 1")

    builder = ProfileBuilder(files=[MappedFile("[anon] 1", kind=FileKind.ANONYMOUS, pid=1)])
    builder.add(java("void A.main()", 0), count=40, pid=1).add(java("long A.heavy()", 3), count=50, pid=1)
    builder.add(java("Interpreter", 0, ""), count=5, pid=1).add(java("void A.main()", 0), "memcpy", count=5, pid=1)
    profile = builder.build(runtimes=process_runtimes((1, "/usr/lib/jvm/lib/server/libjvm.so")))
    (line,) = [line for line in doubts(profile, unknown_samples(profile)) if "compiled Java" in line]
    assert line.startswith("40 samples (40.0%) in compiled Java methods count as these alone")
    (line,) = [line for line in doubts(profile, unknown_samples(profile)) if "interprets" in line]
    assert line.startswith("5 samples (5.0%) in Java methods that the JVM interprets: these have no names")
    told = ProfileBuilder(files=builder.files).add(java("long A.heavy()", 3), pid=1).build(runtimes=profile.runtimes)
    assert not doubts(told, unknown_samples(told))


def test_webassembly_within_a_python_program_is_not_python() -> None:
    wasm = process_runtimes((1, "/usr/bin/python3.11"), (1, "/x/wasmtime/linux-x86_64/_libwasmtime.so"))
    assert language_of_run_time_code(wasm[1]) == "WebAssembly"
