"""The structures that Python shares with the C decoder, as the C compiler lays them out."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from arm_spe import tally
from arm_spe.counts import Damage
from arm_spe.groups import Groups
from arm_spe.native import Columns, Decoder, Dumper, Sync
from arm_spe.packet import HAS_DUPLICATE, HAS_OTHER, Kind

NATIVE = Path(__file__).parents[3] / "spe/native"
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "spe_decoder": Decoder,
    "spe_columns": Columns,
    "spe_dumper": Dumper,
    "spe_groups": Groups,
    "spe_rules": tally.Rules,
    "spe_pages": tally._Pages,
    "spe_tally": tally._Tally,
    "spe_sync": Sync,
}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_layouts_and_numbers(tmp_path: Path) -> None:
    asked: dict[str, int] = {}
    for name, structure in STRUCTS.items():
        asked[f"sizeof(struct {name})"] = ctypes.sizeof(structure)
        for field in structure._fields_:
            asked[f"offsetof(struct {name}, {field[0]})"] = getattr(structure, field[0]).offset
    asked.update({f"SPE_{kind.name}": kind.value for kind in Kind})
    asked.update({f"LANE_{lane.name}": lane.value for lane in tally.Lane})
    asked.update({f"SPE_KEY_{key.name}": key.value for key in tally.Key})
    for name, dtype in (("spe_row", tally.ROW), ("spe_item", tally.ITEM)):
        asked[f"sizeof(struct {name})"] = dtype.itemsize
        for field, (_, offset) in (dtype.fields or {}).items():
            asked[f"offsetof(struct {name}, {field})"] = offset
    asked.update(SPE_LANES=tally._LANES, SPE_LOW=tally._LOW, SPE_PAGE=tally._PAGE, SPE_SOURCES=tally._SOURCES)
    asked.update(SPE_BLOCK=tally._BLOCK, SPE_LATENCIES=len(tally.LATENCIES))
    asked.update({f"SPE_REASON_{reason.name}": reason.value for reason in Damage})
    asked.update(SPE_HAS_OTHER=HAS_OTHER, SPE_HAS_DUPLICATE=HAS_DUPLICATE)
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({expression}));\n' for expression in asked)
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "text.c"\n#include "tally.c"\n'
        f"int main(void) {{\n{lines}return 0;\n}}\n"
    )
    program = tmp_path / "layout"
    build = ["gcc", "-std=gnu11", "-I", NATIVE, source, NATIVE / "frame.c", "-o", program]
    subprocess.run(build, check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert dict(zip(asked, map(int, found), strict=True)) == asked
