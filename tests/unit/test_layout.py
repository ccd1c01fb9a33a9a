"""The map of the program in docs/internals.md names every folder, and none that is gone."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "profiler/tdprof"


def folders():
    return {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py")} - {"."}


def test_the_map_names_every_folder():
    table = re.search(r"\n\| Folder .*?\n\n", (ROOT / "docs/internals.md").read_text(), re.DOTALL)
    assert table
    first_cells = [line.split("|")[1] for line in table[0].strip().splitlines()[2:]]
    named = {name for cell in first_cells for name in re.findall(r"`([^`]+)`", cell)}
    assert named - {"arm_spe", "spe/"} == folders()


def test_no_module_is_loose_at_the_root():
    assert {path.stem for path in PACKAGE.glob("*.py")} == {"__init__", "__main__", "errors", "text"}


def test_no_two_public_classes_have_one_name():
    places = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
