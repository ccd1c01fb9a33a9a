"""Lines as the console prints them."""

import io

from rich.console import Console
from rich.text import Text

from tdprof.report.columns import as_text


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
