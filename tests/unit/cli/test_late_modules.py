"""Modules that are loaded when they are used, and by whom."""

import inspect
import subprocess
import sys
import uuid

import pytest

from tdprof.cli.late_modules import LATE, loaded_when_used


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_module_is_loaded_once_something_in_it_is_used_and_no_sooner():
    code = """
import sys
sys.modules.pop("colorsys", None)
from tdprof.cli.late_modules import loaded_when_used
with loaded_when_used({"colorsys": {"known": 7}}):
    import colorsys
print(colorsys.known, "colorsys" in sys.modules, colorsys.rgb_to_hsv(0, 0, 0), "colorsys" in sys.modules)
import colorsys as itself
print(itself is colorsys, colorsys.rgb_to_hsv is itself.rgb_to_hsv, hasattr(itself, "known"))
"""
    assert python(code) == "7 False (0.0, 0.0, 0) True\nFalse True False"


def test_one_that_is_used_meanwhile_is_there_for_all():
    code = """
import sys
from tdprof.cli.late_modules import loaded_when_used
with loaded_when_used({"colorsys": {}}):
    import colorsys
    from colorsys import rgb_to_hsv
    import colorsys as itself
print(itself is sys.modules["colorsys"], rgb_to_hsv is itself.rgb_to_hsv)
"""
    assert python(code) == "True True"


def test_a_module_that_is_there_already_stays():
    with loaded_when_used(LATE):
        import inspect as meanwhile
    assert meanwhile is inspect is sys.modules["inspect"]


@pytest.mark.parametrize("text", ["", "one line ", " indented", "\tone", "two\n  lines\n", "\n\n first\n   second\n\n"])
def test_texts_are_cleaned_as_by_the_module_itself(text):
    assert LATE["inspect"]["cleandoc"](text) == inspect.cleandoc(text)


def test_what_stands_in_for_uuids_makes_some():
    text = "12345678-1234-5678-1234-567812345678"
    assert LATE["uuid"]["UUID"](text) == uuid.UUID(text)


def test_what_is_typed_wrong_is_said_without_any():
    code = """
import atexit, sys
before = set(sys.modules)
atexit.register(lambda: print(sorted({"inspect", "uuid"} & (set(sys.modules) - before))))
sys.argv = ["tdprof", "record", "-F", "99", "--", "/nothing"]
from tdprof.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "command not found: /nothing" in done.stderr
    assert done.stdout == "[]\n"
