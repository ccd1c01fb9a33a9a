"""profiler/native/dwarf_api.h and tdprof.native.dwarf_api agree: the C compiler says where things are."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tdprof.native import dwarf_api

HEADER = Path(__file__).parents[3] / "profiler" / "native" / "dwarf_api.h"
STRUCTS = {
    "dwarf_section": dwarf_api.DwarfSection,
    "dwarf_skeleton": dwarf_api.DwarfSkeleton,
    "dwarf_sizes": dwarf_api.DwarfSizes,
    "dwarf_columns": dwarf_api.DwarfColumns,
}


def test_structs(tmp_path):
    if not shutil.which("gcc"):
        pytest.skip("no gcc to ask for the layout")
    lines = []
    expected = {}
    for name, mirror in STRUCTS.items():
        expected[name] = ctypes.sizeof(mirror)
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field, *_ in mirror._fields_:
            expected[f"{name}.{field}"] = getattr(mirror, field).offset
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof(struct {name}, {field}));')
    body = f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {" ".join(lines)} }}\n'
    (tmp_path / "layout.c").write_text(body)
    subprocess.run(["gcc", "-o", tmp_path / "layout", tmp_path / "layout.c"], check=True)
    output = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout
    assert {name: int(value) for name, value in (line.split() for line in output.splitlines())} == expected


def test_sections_stand_in_the_same_order():
    enumerators = re.findall(r"^\tSECTION_(\w+),", HEADER.read_text(), re.MULTILINE)
    assert tuple(name.lower() for name in enumerators) == dwarf_api.SECTIONS
