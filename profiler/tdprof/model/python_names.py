"""Names of Python's functions, which are told apart by lines where a file has several of one name."""

import re

_LINE = re.compile(r"(.+):([0-9]{1,10})", re.DOTALL)


def with_line(name: str, line: int) -> str:
    """The name of one of several functions; ``line``: where its source begins."""
    return f"{name}:{line}"


def without_line(name: str) -> tuple[str, int]:
    """The name that such a function has in its source, and where it begins; 0: it is the only one."""
    match = _LINE.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 0)
