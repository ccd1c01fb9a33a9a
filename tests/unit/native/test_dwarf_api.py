"""profiler/native/dwarf_api.h and tdprof.native.dwarf_api count the sections alike."""

import re
from pathlib import Path

from tdprof.native import dwarf_api

HEADER = Path(__file__).parents[3] / "profiler" / "native" / "dwarf_api.h"


def test_sections_stand_in_the_same_order():
    enumerators = re.findall(r"^\tSECTION_(\w+),", HEADER.read_text(), re.MULTILINE)
    assert tuple(name.lower() for name in enumerators) == dwarf_api.SECTIONS
