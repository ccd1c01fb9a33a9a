"""The map of the program in docs/internals.md names every folder, and none that is gone."""

import ast
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "profiler/tdprof"
A_SCREEN = 60  # lines


def folders():
    return {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")} - {"."}


def test_the_map_names_every_folder():
    table = re.search(r"\n\| Folder .*?\n\n", (ROOT / "docs/internals.md").read_text(), re.DOTALL)
    assert table
    first_cells = [line.split("|")[1] for line in table[0].strip().splitlines()[2:]]
    named = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert named - {"arm_spe", "spe/"} == folders()


def test_no_module_is_loose_at_the_root():
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "errors", "text", "values"}


def test_names_of_the_standard_library_are_those_that_the_map_explains():
    named = {path.stem for path in PACKAGE.rglob("*.py")} | {name.rpartition("/")[2] for name in folders()}
    also = re.search(r"named like one of Python's: (.*?)\.\n", (ROOT / "docs/internals.md").read_text(), re.DOTALL)
    assert also
    assert named & sys.stdlib_module_names == {*re.findall(r"`([a-z_]+)`", also[1])}


def test_functions_fit_a_screen():
    long = {
        f"{path.relative_to(ROOT)}: {node.name}": lines
        for path in (*PACKAGE.rglob("*.py"), *(ROOT / "spe/arm_spe").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > A_SCREEN
    }
    assert long == {}


def test_no_two_public_classes_have_one_name():
    places = defaultdict(list)
    for path in (*PACKAGE.rglob("*.py"), *(ROOT / "spe/arm_spe").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
