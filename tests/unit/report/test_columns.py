"""Lines as the console prints them."""

import io
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from tdprof.report.columns import as_text, flow, format_table, names, prose, text_pieces


def test_plain_lines_are_what_the_console_makes_of_them() -> None:
    lines = [
        Text("a\tb", "bold"),
        Text(),
        Text("  ends in blanks   "),
        Text("x" * 99),
        Text("Ω 日本\ttab"),
        Text("last"),
    ]
    console = Console(file=io.StringIO(), width=40)
    assert console.color_system is None
    with console.capture() as capture:
        for line in lines:
            console.print(line.copy(), soft_wrap=True)
    assert as_text(console, lines) == "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


@given(st.lists(st.sampled_from(["", " ", "a", " b "]), max_size=12))
def test_pieces_are_the_whole_without_blanks_at_its_end(lines: list[str]) -> None:
    console = Console(file=io.StringIO(), width=40)
    with mock.patch("tdprof.report.columns._LINES_AT_ONCE", 3):
        pieces = [*text_pieces(console, map(Text, lines))]
    assert "".join(pieces) == "\n".join(line.rstrip() for line in lines).rstrip() + "\n"
    assert len(pieces) == -(-len(lines) // 3) + 1


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("short(int, char)", "short(int, char)"),
        ("[stripped] python3.11+0xfee40", "[stripped] p…3.11+0xfee40"),
        ("[stripped] python3.11+0x10a500", "[stripped] p….11+0x10a500"),
        ("v8::Map::Find(v8::Local<v8::Value>, int) const", "v8::Map::Find(…) const"),
        ("a::List<int, b<char>>::sort(c<int>, void (*)(d))", "a::List<…>::sort(…)"),
        ("(anonymous namespace)::a_long_name()", "(anonymous n…_long_name()"),
        ("a::operator<<(std::basic_ostream<char>&, a const&)", "a::operator<<(…)"),
        ("a_long_name::operator-> and more of it<", "a_long_name:… more of it<"),
        ("    └─ [stripped] python3.11+0xfee40", "    └─ [stripped…+0xfee40"),
        ("  └─ [stripped] python3.11+0xfee40", "  └─ [stripped] …+0xfee40"),
        ("JS:parse /srv/app/parse.js:10:4", "JS:parse …/parse.js:10:4"),
        ("JS:a_long_name /srv/parse.js:10:4", "JS:a_long_na…arse.js:10:4"),
        ("JS:spinnin /srv/parse.js:10:42", "JS:spinnin …rse.js:10:42"),
        ("JS:load node:internal/modules/cjs:9:24", "JS:load …/cjs:9:24"),
        ("日本語日本語日本語日本語日本語", "日本語日本語日本語日本語…"),
    ],
)
def test_names_that_do_not_fit_keep_what_tells_them_apart(name: str, shown: str) -> None:
    (_, line) = format_table(names("function"), [[Text(name)]], 25)
    assert line.plain == shown
    assert line.cell_len <= 25


@given(st.lists(st.text("abé日.", max_size=9), max_size=20), st.integers(1, 12), st.integers(0, 4))
def test_plain_words_wrap_as_styled_ones_do(words: list[str], width: int, indent: int) -> None:
    text = " ".join(words)
    expected = flow([Text(word) for word in text.split(" ")], width, indent=indent, separator=" ")
    assert [line.plain for line in prose(text, width, indent=indent)] == [line.plain for line in expected]


def test_where_a_table_does_not_fit_the_last_name_keeps_most() -> None:
    lines = format_table(names("module", "function"), [["m" * 30, "f" * 60]], 50)
    assert lines[1].plain == "m" * 8 + "…" + "m" * 7 + "  " + "f" * 16 + "…" + "f" * 15
