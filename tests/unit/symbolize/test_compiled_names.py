"""A function is one, however often a runtime compiles it."""

from pathlib import Path

import numpy as np
import pytest

from builders.llvm_symbolizer import stacks_with_scopes
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.symbolize.compiled_names import function_of, place_of
from tdprof.symbolize.perf_map import parse_perf_map
from tdprof.symbolize.symbolizer import Symbolizer


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("JS:*spin /srv/app.js:2:14", "JS:spin /srv/app.js:2:14"),
        ("JS:~ /srv/app.js:1:1", "JS: /srv/app.js:1:1"),
        ("JS:o+heavy file:///srv/a.js:1:15", "JS:heavy file:///srv/a.js:1:15"),
        ("JS:o*'heavy /srv/a.js:1:15", "JS:heavy /srv/a.js:1:15"),
        ("JS:o /srv/a.js:1:15", "JS:o /srv/a.js:1:15"),
        ("LazyCompile:^get x /srv/app.js:15:48", "LazyCompile:get x /srv/app.js:15:48"),
        ("JS:+Base.run app.js:3:1", "JS:Base.run app.js:3:1"),
        ("JS:+'spin /srv/app.js:2:14", "JS:spin /srv/app.js:2:14"),
        ("JS:**generator", "JS:*generator"),
        ("JS:heavy-0-liftoff", "JS:heavy-0"),
        ("JS:wasm-function[3]-3-turbofan", "JS:wasm-function[3]-3"),
        ("void [app] Prog::Heavy(int32)[OptimizedTier1]", "void [app] Prog::Heavy(int32)"),
        ("void [app] Prog::Heavy(int32)[PreJIT]", "void [app] Prog::Heavy(int32)"),
        ("int32 [app] Prog::Sum(int32[])", "int32 [app] Prog::Sum(int32[])"),
        ("[Optimized]", "[Optimized]"),
        ("JSC-Baseline: heavy#CWFMCO", "JSC: heavy#CWFMCO"),
        ("JSC-FTL: heavy#CWFMCO", "JSC: heavy#CWFMCO"),
        ("JSC-Thunk: at", "JSC-Thunk: at"),
        ("Builtin:ArrayMap", "Builtin:ArrayMap"),
        ("operator*(JS:*)", "operator*(JS:*)"),
        ("~Thing", "~Thing"),
    ],
)
def test_names(name: str, function: str) -> None:
    assert function_of(name) == function


def test_the_rows_of_a_map_are_functions() -> None:
    found = parse_perf_map(b"1000 100 JS:~f app.js:1:1\n2000 100 JS:*f app.js:1:1\n3000 100 JS:^f app.js:1:1\n")
    assert set(bytes(found.table.name_bytes).strip(b"\0").split(b"\0")) == {b"JS:f app.js:1:1"}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("JS:spin /srv/app.js:2:14", ("/srv/app.js", 2)),
        ("JS:*spin /srv/app.js:2:14", ("/srv/app.js", 2)),
        ("JS: /srv/my app/a b.js:7:1", ("/srv/my app/a b.js", 7)),
        ("JS:get x file:///srv/my%20app/a.mjs:15:48", ("/srv/my app/a.mjs", 15)),
        ("LazyCompile:~realpathSync node:fs:2605:22", ("node:fs", 2605)),
        ("LazyCompile:*heavy /srv/app.js:2", ("/srv/app.js", 2)),
        ("LazyCompile:get x file:///srv/my%20app/a.mjs:15", ("/srv/my app/a.mjs", 15)),
        ("Function:^requireBuiltin node:internal/bootstrap/realm:412", ("node:internal/bootstrap/realm", 412)),
        ("Eval:~ node:internal/main/run_main_module:1", ("node:internal/main/run_main_module", 1)),
        ("Eval: evalmachine.<anonymous>:1:1", ("evalmachine.<anonymous>", 1)),
        ("JS:Base.run app.js:3:1", ("app.js", 3)),
        ("JS:f /srv/a:b.js:3:1", ("/srv/a:b.js", 3)),
        ("py::outer.<locals>.inner:/srv/app.py", ("/srv/app.py", 0)),
    ],
)
def test_where_functions_begin(name: str, place: tuple[str, int]) -> None:
    assert place_of(name) == place


@pytest.mark.parametrize(
    "name",
    [
        "Builtin:ArrayMap",
        "JS:wasm-function[3]",
        "JS:f /srv/app.js:1:99999999999",
        "JS:f /srv/app.js:²:1",
        "JS:f /srv/app.js:1",
        "LazyCompile:f /srv/app.js",
        "LazyCompile:f",
        "JS:g /srv/app.js:1:1 [or what it replaced: JS:f /srv/app.js:9:1]",
        "py::g:/srv/app.py [or what it replaced: py::f:/srv/lib.py]",
        "operator/(f:1:1)",
    ],
)
def test_other_names_say_nothing_of_it(name: str) -> None:
    assert place_of(name) is None


def test_of_a_map_only_the_beginning_of_functions_is_known(tmp_path: Path) -> None:
    (tmp_path / "perf-42.map").write_bytes(
        b"1000 100 JS:~f /srv/app.js:12:1\n2000 100 JS:*f /srv/app.js:12:1\n3000 9 stub\n"
    )
    with Symbolizer(perf_map_dir=tmp_path) as symbolizer:
        file = MappedFile("[anon]", kind=FileKind.ANONYMOUS, pid=42)
        found = stacks_with_scopes(symbolizer.locate(file, np.array([0x1000, 0x2050, 0x3000], np.uint64)))
        assert not symbolizer.tells_lines(42)
    f = ("JS:f /srv/app.js:12:1", "/srv/app.js:12")
    assert found == [[f], [f], [("stub", "??:0")]]
