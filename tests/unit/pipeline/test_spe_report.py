"""SPE data into the rows of a report."""

import json
from pathlib import Path

import pytest

from builders.spe_capture import load, write_spe_capture
from tdprof.model.choices import By
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_report import analyse


@pytest.mark.parametrize(("page_bytes", "pages"), [(4096, 3), (16384, 2), (65536, 1), (0, 3)])
def test_pages_are_as_large_as_the_recorded_machines(tmp_path: Path, page_bytes: int, pages: int) -> None:
    more = [load(0x401000, va=0xFFFF_0000_0000 + place) for place in (0x2000, 0xF000)]
    capture = write_spe_capture(tmp_path / "capture", more=more)
    manifest = json.loads((capture / "capture.json").read_text())
    manifest["host"]["page_bytes"] = page_bytes
    (capture / "capture.json").write_text(json.dumps(manifest))
    with OpenCapture(capture) as opened:
        result = analyse(opened.spe_data, By.PAGE, None, workers=1)
    assert len(result.names) == pages
    assert all(int(name, 16) % (page_bytes or 4096) == 0 for name in result.names)
    whose = "the recorded machine's" if page_bytes else "the input does not tell the machine's"
    assert f"pages are of {page_bytes or 4096} bytes ({whose})" in result.notes
