"""What a compiler that made nothing printed, and what of it tells why."""

import pytest

from tdprof.recorder.bpf.load import why_not_compiled

WARNINGS = ["sample.bpf.c:46:25: warning: passing 'const struct sample_key *'", "  value = lookup(key);", "    ^~~"]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            [*WARNINGS, "1 warning generated.", "could not open bpf map: rows_a, error: Operation not permitted"],
            "bcc cannot make the BPF program: could not open bpf map: rows_a, error: Operation not permitted",
        ),
        (
            [*WARNINGS, "a.c:1:25: error: use of undeclared identifier 'x'", "a.c:2:1: error: another", "2 errors"],
            "the BPF program did not compile: a.c:1:25: error: use of undeclared identifier 'x'",
        ),
        (
            ["Traceback (most recent call last):", "OSError: no LLVM"],
            "bcc cannot make the BPF program: OSError: no LLVM",
        ),
        (["the compiler died"], "bcc cannot make the BPF program: the compiler died"),
    ],
)
def test_what_stands_in_the_way_is_said(lines: list[str], why: str) -> None:
    assert why_not_compiled(lines) == why
