"""A function is one, however often a runtime compiles it."""

import pytest

from tdprof.symbolize.perf_map import parse_perf_map
from tdprof.symbolize.tiers import function_of


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("JS:*spin /srv/app.js:2:14", "JS:spin /srv/app.js:2:14"),
        ("JS:~ /srv/app.js:1:1", "JS: /srv/app.js:1:1"),
        ("LazyCompile:^get x /srv/app.js:15:48", "LazyCompile:get x /srv/app.js:15:48"),
        ("JS:+Base.run app.js:3:1", "JS:Base.run app.js:3:1"),
        ("JS:**generator", "JS:*generator"),
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
