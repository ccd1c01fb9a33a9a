"""The numbers that Python shares with the C decoder, as the C compiler has them."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from arm_spe import memory_keys, tallied, tally, times
from arm_spe.counts import Damage
from arm_spe.packet import HAS_DUPLICATE, HAS_OTHER, Kind

NATIVE = Path(__file__).parents[3] / "spe/native"


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_numbers(tmp_path: Path) -> None:
    asked: dict[str, int] = {}
    asked.update({f"SPE_{kind.name}": kind.value for kind in Kind})
    asked.update({f"LANE_{lane.name}": lane.value for lane in tally.Lane})
    asked.update({f"SPE_KEY_{key.name}": key.value for key in tally.Key})
    asked.update(SPE_LANES=tallied.LANES, SPE_LOW=tallied._LOW, SPE_PAGE=tallied.PAGE_SIZE)
    asked.update(SPE_NEIGHBOURS=tally._NEIGHBOURS, SPE_EVENT_INDEX=tally._EVENT_INDEX)
    asked.update(SPE_UNMET=0, SPE_UNPLACED=tally._UNPLACED, SPE_FIRST_ROW=tally._FIRST_ROW)
    asked.update(SPE_NO_ROW=tally._FIRST_ROW + tallied.NO_ROW)
    structures = {"row": tallied.ROW, "page": tallied.PAGE, "item": tally.ITEM, "met": tally.MET}
    asked.update({f"sizeof(struct spe_{name})": dtype.itemsize for name, dtype in structures.items()})
    asked["sizeof(struct spe_wide)"] = 4 * tallied.WIDE
    asked["sizeof(struct histogram)"] = 8 * tallied.HISTOGRAM_WORDS
    mirrors = {"rules": tally.Rules, "pages": tally._Pages, "tally": tally._Tally, "times": times._Times}
    mirrors |= {"part": tallied._Part, "sums": tallied._Sums}
    asked.update(SPE_NO_THREAD=times.NO_THREAD, SPE_STAGE_BITS=times.STAGE_BITS)
    asked.update({f"sizeof(struct spe_{name})": ctypes.sizeof(mirror) for name, mirror in mirrors.items()})
    asked.update(SPE_BLOCK=tally._BLOCK, SPE_LATENCIES=len(tallied.LATENCIES), SPE_SOURCES=tally._SOURCES)
    asked.update(SPE_IS_PHYSICAL=1 << memory_keys._IS_PHYSICAL, SPE_PAGE_SHIFT=memory_keys._PAGE_SHIFT)
    asked.update(SPE_PHYSICAL_HIGH=memory_keys._HIGH, SPE_PHYSICAL_LOW=memory_keys._LOW)
    asked.update({f"SPE_REASON_{reason.name}": reason.value for reason in Damage})
    asked.update(SPE_HAS_OTHER=HAS_OTHER, SPE_HAS_DUPLICATE=HAS_DUPLICATE)
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({expression}));\n' for expression in asked)
    source = tmp_path / "layout.c"
    sources = "".join(f'#include "{name}.c"\n' for name in ("text", "tally", "times", "record", "sum"))
    source.write_text(f"#include <stddef.h>\n#include <stdio.h>\n{sources}int main(void) {{\n{lines}return 0;\n}}\n")
    program = tmp_path / "layout"
    build = [
        "gcc",
        "-std=gnu11",
        "-I",
        str(NATIVE),
        str(source),
        str(NATIVE / "frame.c"),
        str(NATIVE / "count.c"),
        "-o",
        str(program),
    ]
    subprocess.run(build, check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert dict(zip(asked, map(int, found), strict=True)) == asked
