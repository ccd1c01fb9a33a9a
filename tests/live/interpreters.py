"""The CPython programs of this machine: on PATH, and builds of pyenv and uv, which leave theirs beside it."""

import contextlib
import functools
import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_BUILDS = (".pyenv/versions/*/bin/python3", ".local/share/uv/python/*/bin/python3")


def _programs() -> Iterator[str]:
    on_path = ("/usr/bin/python3", *(f"python3.{minor}" for minor in range(9, 15)), sys.executable)
    yield from filter(None, map(shutil.which, on_path))
    builds = itertools.chain.from_iterable(sorted(Path.home().glob(pattern)) for pattern in _BUILDS)
    yield from map(str, builds)


@functools.cache
def interpreters() -> dict[str, str]:
    """Programs by their full versions, of those whose frames are walked."""
    found: dict[str, str] = {}
    for path in _programs():
        ask = [path, "-c", "import sys; print(sys.version_info[:2] >= (3, 9), sys.version.split()[0])"]
        with contextlib.suppress(OSError):  # of another machine: a home may be several machines'
            answer = subprocess.run(ask, capture_output=True, text=True, check=False).stdout.split()
            if answer[:1] == ["True"]:
                found.setdefault(answer[1], path)
    return found


def each_interpreter() -> list[object]:
    """Parameters of a test: the newest version, and as `thorough` the others."""
    found = interpreters()
    in_order = sorted(found, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    return [
        pytest.param(path, id=version, marks=[pytest.mark.thorough] * (version != in_order[-1]))
        for version, path in found.items()
    ]


def interpreters_with(*modules: str) -> list[str]:
    """Those that have one of the modules at least."""
    ask = ["-c", "import importlib.util as util, sys; sys.exit(not any(map(util.find_spec, sys.argv[1:])))", *modules]
    return [path for path in interpreters().values() if not subprocess.run([path, *ask], check=False).returncode]
